"""What COCO's protocol costs beside pycocotools, for boxes and masks, and 1,000 resamples of it.

    python benchmarks/detection.py [--images 5000] [--masks 300] [--labels 80] [--repeat 3] [--resamples 1000]
        [--out RESULTS.json]

Made-up pictures of 640 x 640 with some seven objects of one to five classes, and 100 candidates of any of 80: the
size of COCO's val2017. Both sides start from records in memory and end at the twelve numbers; ours passes through the
rows that a run stores. CPU seconds of one process and thread, turn by turn; ratios are medians of pairs.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import statistics
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pycocotools
from pycocotools import mask as pycoco
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from medimg_eval.case import Boxes, Case
from medimg_eval.metrics import ScoreTable, parse
from medimg_eval.metrics.run_lengths import coco_runs
from medimg_eval.tasks import DetectionTask

SIDE = 640
NAMES = (
    *(f"coco_ap{of}" for of in ("", "@50", "@75", "@small", "@medium", "@large")),
    *(f"coco_ar{of}" for of in ("@1", "@10", "@100", "@small", "@medium", "@large")),
)
Records = list[dict[str, Any]]


def made_up(images: int, labels: int, *, masks: bool) -> tuple[Records, Records]:
    """Annotations and results."""
    random = np.random.default_rng(0)
    annotations, results = [], []

    def box() -> list[float]:
        size = np.exp(random.uniform(np.log(8), np.log(300), 2))
        return [*(random.uniform(0, 1, 2) * (SIDE - size)).tolist(), *size.tolist()]

    for image in range(1, images + 1):
        classes = random.choice(labels, random.integers(1, 6), replace=False)
        objects = [(int(random.choice(classes)) + 1, box()) for _ in range(random.poisson(7.3))]
        for category, place in objects:
            facts = {"area": 0.7 * place[2] * place[3], "iscrowd": int(random.random() < 0.02)}
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image, "category_id": category, "bbox": place, **facts}
            )
        found = []
        for category, place in objects:
            for _ in range(random.integers(1, 4)):
                shift = np.concatenate([random.normal(0, 0.08, 2), random.normal(0, 0.1, 2)]) * np.tile(place[2:], 2)
                found.append((category, np.clip(np.add(place, shift), [0, 0, 1, 1], SIDE).tolist(), random.beta(3, 2)))
        while len(found) < 100:
            found.append((int(random.integers(labels)) + 1, box(), random.beta(1, 5)))
        for category, place, score in found:
            results.append({"image_id": image, "category_id": category, "bbox": place, "score": float(score)})
    for record in (*annotations, *results) if masks else ():
        record["segmentation"] = blob(record["bbox"], random)
    return annotations, results


def blob(box: list[float], random: np.random.Generator) -> dict[str, Any]:
    """An ellipse with a bumpy border that fills a box."""
    left, top, width, height = box
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    reach = 1 + 0.08 * np.cos(5 * angle + random.uniform(0, 6))
    x, y = left + width / 2 * (1 + reach * np.cos(angle)), top + height / 2 * (1 + reach * np.sin(angle))
    (encoded,) = pycoco.frPyObjects([np.stack([x, y], axis=1).ravel().tolist()], SIDE, SIDE)
    return {"size": [SIDE, SIDE], "counts": encoded["counts"].decode()}


def by_pycocotools(truth: COCO, candidates: COCO, kind: str) -> list[float]:
    with contextlib.redirect_stdout(io.StringIO()):
        run = COCOeval(truth, candidates, kind)
        run.evaluate()
        run.accumulate()
        run.summarize()
    values: list[float] = run.stats.tolist()
    return values


def loaded(annotations: Records, results: Records, images: int, labels: int) -> tuple[COCO, COCO]:
    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": number, "height": SIDE, "width": SIDE} for number in range(1, images + 1)],
        "categories": [{"id": number} for number in range(1, labels + 1)],
        "annotations": annotations,
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        kept = [
            {key: value for key, value in one.items() if "segmentation" not in one or key != "bbox"} for one in results
        ]
        return truth, truth.loadRes(kept)


def boxes_of(records: Records, *, reference: bool) -> Boxes:
    left, top, width, height = np.array([one["bbox"] for one in records], float).reshape(-1, 4).T
    corners = np.stack([top, left, top + height - 1, left + width - 1], axis=1)
    names = tuple(str(one["category_id"]) for one in records)
    masks = None
    if records and "segmentation" in records[0]:
        masks = tuple(coco_runs(one["segmentation"], (SIDE, SIDE)) for one in records)
    if not reference:
        return Boxes(corners, names, np.array([one["score"] for one in records]), masks)
    crowds = np.array([one["iscrowd"] for one in records], bool)
    return Boxes(corners, names, None, masks, np.array([one["area"] for one in records], float), crowds)


def by_ours(task: DetectionTask, cases: list[tuple[Case, Boxes]]) -> tuple[list[float], ScoreTable]:
    rows = [(place, *row) for place, (case, answer) in enumerate(cases) for row in task.score(case, answer)]
    case, label, metric, value, status = (np.array(column) for column in zip(*rows, strict=True))
    table = ScoreTable(case, metric, label, value, status, {}, len(cases), {})
    values = []
    for name in NAMES:
        found, parameter = parse(name)
        values.append(found.function(table, *([] if parameter is None else [parameter])))
    return values, table


def cpu_of(function: Any, *arguments: Any) -> tuple[float, Any]:
    start = time.process_time()
    answer = function(*arguments)
    return time.process_time() - start, answer


def part(images: int, labels: int, repeat: int, *, masks: bool) -> tuple[dict[str, Any], ScoreTable]:
    """Both implementations on one set, turn by turn."""
    annotations, results = made_up(images, labels, masks=masks)
    truth, candidates = loaded(annotations, results, images, labels)
    image = SimpleNamespace(files=(), geometry=lambda: SimpleNamespace(shape=(SIDE, SIDE)))
    sides: list[dict[int, Records]] = [defaultdict(list), defaultdict(list)]
    for side, records in zip(sides, (annotations, results), strict=True):
        for record in records:
            side[record["image_id"]].append(record)
    cases = []
    for number in range(1, images + 1):
        reference = boxes_of(sides[0][number], reference=True)
        target = SimpleNamespace(files=(), read=lambda reference=reference: reference)
        cases.append((Case(f"{number:05}", (image,), target), boxes_of(sides[1][number], reference=False)))  # type: ignore[arg-type]
    rule = "coco-masks" if masks else "coco"
    names = [str(number) for number in range(1, labels + 1)]
    task = DetectionTask(name="bench", layout=None, labels=names, matching=rule, metrics=NAMES, monitor="")  # type: ignore[arg-type]
    theirs, ours = [], []
    for _ in range(repeat):
        seconds, (values, table) = cpu_of(by_ours, task, cases)
        ours.append(seconds)
        seconds, expected = cpu_of(by_pycocotools, truth, candidates, "segm" if masks else "bbox")
        theirs.append(seconds)
    ratios = [one / other for one, other in zip(theirs, ours, strict=True)]
    return {
        "images": images,
        "labels": labels,
        "objects": len(annotations),
        "candidates": len(results),
        "pycocotools CPU s": round(statistics.median(theirs), 2),
        "ours CPU s": round(statistics.median(ours), 2),
        "pycocotools / ours": round(statistics.median(ratios), 2),
        "farthest apart": float(np.max(np.abs(np.subtract(values, expected)))),
    }, table


def resampled(table: ScoreTable, resamples: int) -> dict[str, float]:
    """CPU seconds of resamples of cases, by metric, as tables draw them."""
    times = np.random.default_rng(0).multinomial(table.cases, np.ones(table.cases) / table.cases, resamples)
    step = max(1, (1 << 22) // table.value.size)
    seconds = {}
    for name in ("coco_ap", "coco_ap@50", "coco_ap@small", "coco_ar"):
        metric, parameter = parse(name)
        start = time.process_time()
        judge = metric.weighed(table, *([] if parameter is None else [parameter])) if metric.weighed else None
        for first in range(0, resamples, step):
            judge(times[first : first + step][:, table.case].astype(float)) if judge else None
        seconds[name] = round(time.process_time() - start, 2)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--masks", type=int, default=300, help="images of the part with masks")
    parser.add_argument("--labels", type=int, default=80)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    boxes, table = part(options.images, options.labels, options.repeat, masks=False)
    seconds = resampled(table, options.resamples)
    found = {
        "machine": {
            "cpu": platform.machine(),
            "cores": os.cpu_count(),
            "load": [round(one, 2) for one in os.getloadavg()],
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pycocotools": getattr(pycocotools, "__version__", ""),
        },
        "boxes": boxes,
        "resamples": {
            "resamples": options.resamples,
            "CPU s": seconds,
            "coco_ap, in evaluations by pycocotools": round(seconds["coco_ap"] / boxes["pycocotools CPU s"], 2),
        },
        "masks": part(options.masks, options.labels, options.repeat, masks=True)[0],
    }
    text = json.dumps(found, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
