"""CPU time of metrics of videos beside scikit-learn, MS-TCN's loops and ivtmetrics, on the same films, in turns.

    python benchmarks/workflow.py [--frames 100000] [--videos 50] [--turns 5] [--out RESULTS.json]

Times are the best of the turns, in CPU seconds of one process with one thread of BLAS; of what takes over three seconds
one turn is taken. Values are compared, too. ivtmetrics is left out where it is not installed; MS-TCN's loops are
written out here after its definitions, since it is no package.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import argparse
import json
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from clocking import clocked

from medimg_eval.metrics import ScoreTable, parse
from medimg_eval.metrics.workflow import (
    FramePair,
    component_columns,
    component_groups,
    confusion_counts,
    edit_score,
    frame_average_precision,
    frame_confusion,
    segment_hits,
    segments_of,
)

CLASSES, SEGMENTS, RESAMPLES = 15, 34, 10_000


def film(random: np.random.Generator, frames: int, noise: float) -> tuple[Any, Any]:
    """Truth in 34 segments, and a prediction of which a share of the frames flickers."""
    truth = np.repeat(random.integers(0, CLASSES, SEGMENTS), frames // SEGMENTS + 1)[:frames]
    return truth, np.where(random.random(frames) < noise, random.integers(0, CLASSES, frames), truth)


def loop_edit(first: Any, second: Any) -> float:
    """The table of Levenshtein's distance, cell by cell."""
    rows, columns = len(first), len(second)
    table = np.zeros([rows + 1, columns + 1])
    table[:, 0], table[0] = np.arange(rows + 1), np.arange(columns + 1)
    for i in range(1, rows + 1):
        for j in range(1, columns + 1):
            if first[i - 1] == second[j - 1]:
                table[i, j] = table[i - 1, j - 1]
            else:
                table[i, j] = min(table[i - 1, j], table[i, j - 1], table[i - 1, j - 1]) + 1
    return 1 - table[-1, -1] / max(rows, columns)


def loop_hits(truth: Any, prediction: Any, threshold: float) -> tuple[int, int, int]:
    """Each predicted segment beside all true ones."""
    used, hits = np.zeros(len(truth.labels)), 0
    for label, start, end in zip(*prediction, strict=True):
        shared = np.minimum(end, truth.ends) - np.maximum(start, truth.starts)
        spanned = np.maximum(end, truth.ends) - np.minimum(start, truth.starts)
        overlap = shared / spanned * (truth.labels == label)
        best = overlap.argmax()
        if overlap[best] >= threshold and not used[best]:
            hits, used[best] = hits + 1, 1
    return hits, len(prediction.labels) - hits, len(truth.labels) - hits


def pairs(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both sides of each measure, and whether they agree."""
    from sklearn.metrics import average_precision_score, confusion_matrix, f1_score, jaccard_score

    random, frames, turns = np.random.default_rng(0), arguments.frames, arguments.turns
    truth, prediction = film(random, frames, 0.05)
    rows: dict[str, Any] = {}

    def compare(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], peer: str) -> None:
        (mine, value), (other, expected) = clocked(ours, turns), clocked(theirs, turns)
        rows[name] = {"ours": mine, peer: other, "ratio": other / mine, "equal": bool(np.allclose(value, expected))}
        print(f"{name}: {mine * 1e3:.2f} ms, {peer} {other * 1e3:.1f} ms, {other / mine:.0f} x, {rows[name]['equal']}")

    def ours_of_frames() -> Any:
        counts = confusion_counts(frame_confusion(truth, prediction, CLASSES))
        f1 = 2 * counts.hits / (counts.predicted + counts.true)
        return [f1.mean(), (counts.hits / counts.union).mean(), counts.hits.sum()]

    labels = list(range(CLASSES))
    compare(
        "confusion, F1, Jaccard",
        ours_of_frames,
        lambda: [
            f1_score(truth, prediction, average="macro", labels=labels),
            jaccard_score(truth, prediction, average="macro", labels=labels),
            confusion_matrix(truth, prediction).trace(),
        ],
        "scikit-learn",
    )
    true, said = segments_of(truth), segments_of(prediction)
    few = f"{len(said.labels)} segments against {len(true.labels)}"
    compare(f"edit score, {few}", lambda: edit_score(true, said), lambda: loop_edit(said.labels, true.labels), "MS-TCN")
    compare(
        f"segmental F1@10, 25, 50, {few}",
        lambda: [FramePair(range(CLASSES), truth, prediction).hits(k) for k in (10, 25, 50)],  # type: ignore[arg-type]
        lambda: [loop_hits(true, said, k) for k in (0.1, 0.25, 0.5)],
        "MS-TCN",
    )
    other = segments_of(film(random, frames, 0.05)[1])
    seconds, _ = clocked(lambda: (edit_score(other, said), segment_hits(other, said, 0.1)), turns)
    rows["edit score and F1 of flicker against flicker"] = {"ours": seconds, "segments": len(said.labels)}
    scores, present = random.random((frames, CLASSES)), random.random((frames, CLASSES)) < 0.2
    compare(
        "average precision",
        lambda: frame_average_precision(present, scores),
        lambda: [average_precision_score(present[:, k], scores[:, k]) for k in range(CLASSES)],
        "scikit-learn",
    )
    rows |= whole_run(random, arguments)
    compare_triplets(random, compare)
    return rows


def whole_run(random: np.random.Generator, arguments: argparse.Namespace) -> dict[str, Any]:
    """All videos, and resamples of videos from their matrices."""
    films = [film(random, arguments.frames, 0.05) for _ in range(arguments.videos)]
    measured, matrices = clocked(lambda: [frame_confusion(*one, CLASSES) for one in films], arguments.turns)
    names = [str(label) for label in range(CLASSES)]
    found = [
        (case, f"{names[i]} -> {names[j]}", matrix[i, j])
        for case, matrix in enumerate(matrices)
        for i, j in np.argwhere(matrix)
    ]
    case, label, value = map(np.array, zip(*found, strict=True))
    metric = np.full(len(case), "frame_confusion")
    table = ScoreTable(case, metric, label, value.astype(float), metric, {}, len(films), {"frame_classes": names})
    drawn = random.multinomial(len(films), np.full(len(films), 1 / len(films)), size=RESAMPLES).astype(float)

    def bootstrap() -> Any:
        values = {}
        for name in ("frame_accuracy", "frame_f1", "frame_jaccard@phase+in_truth", "frame_f1@pooled"):
            declared, parameter = parse(name)
            more = () if parameter is None else (parameter,)
            pieces = declared.pieces(table, *more)  # type: ignore[misc]
            sums = np.zeros((len(films), pieces.shape[1]))
            np.add.at(sums, case, pieces)
            values[name] = declared.total(drawn @ sums, *more)  # type: ignore[misc]
        return values

    resampled, _ = clocked(bootstrap, arguments.turns)
    print(f"{arguments.videos} videos: {measured * 1e3:.1f} ms; {RESAMPLES} resamples of 4: {resampled * 1e3:.0f} ms")
    return {"matrices of all videos": {"ours": measured}, "10,000 resamples of 4 measures": {"ours": resampled}}


def compare_triplets(random: np.random.Generator, compare: Callable[..., None]) -> None:
    """Six components of triplets of ten videos beside ivtmetrics, whose own map of triplets names them."""
    try:
        from ivtmetrics import Recognition
    except ImportError:
        print("ivtmetrics is not installed: left out")
        return
    bank = Recognition(100).bank
    names = [f"i{row[1]},v{row[2]},t{row[3]}" for row in bank]
    videos = [((random.random((1_500, 100)) < 0.02).astype(int), random.random((1_500, 100))) for _ in range(10)]
    components = ("i", "v", "t", "iv", "it", "ivt")
    groups = {component: component_groups(names, component) for component in components}

    def ours() -> Any:
        found = []
        for component in components:
            values = [
                frame_average_precision(
                    component_columns(true, groups[component]), component_columns(said, groups[component])
                )
                for true, said in videos
            ]
            found.append(np.nanmean(np.nanmean(values, axis=0)))
        return found

    def theirs() -> Any:
        recognise = Recognition(100)
        for true, said in videos:
            recognise.update(true, said)
            recognise.video_end()
        return [recognise.compute_video_AP(component)["mAP"] for component in components]

    compare("six components of triplets", ours, theirs, "ivtmetrics")


def main() -> None:
    """Prints what was measured, and writes it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"frames": 100_000, "videos": 50, "turns": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = pairs(arguments)
    if arguments.out:
        about = {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
        about |= {"numpy": np.__version__, "frames": arguments.frames, "videos": arguments.videos}
        arguments.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
