"""Segments, boxes of triplets, tracks and the relaxed boundary, beside the scripts of their authors."""

import json
import logging
import re
from pathlib import Path

import numpy as np
import pytest

from medimg_eval.metrics.workflow import (
    FrameRule,
    class_values,
    edit_score,
    frame_average_precision,
    mean_track_error,
    mean_video_average_precision,
    relaxed_counts,
    segment_hits,
    segments_of,
    triplet_detection_precision,
)
from tests.helpers.authors import import_package, load_functions, require_clone

pytestmark = pytest.mark.slow

OLD_NUMPY = type("Numpy", (), {name: getattr(np, name) for name in dir(np) if name != "float"} | {"float": float})
"""NumPy with the alias that it had before 1.24."""


def flickering(rng, frames=120, classes=4):
    """Labels of two sides that agree in most frames."""
    truth = np.repeat(rng.integers(0, classes, frames // 6), 6)
    return truth, np.where(rng.random(len(truth)) < 0.85, truth, rng.integers(0, classes, len(truth)))


@pytest.mark.parametrize("background", [(), (0,)])
def test_edit_score_and_hits_are_ms_tcns(tmp_path, background):
    text = (require_clone("yabufarha/ms-tcn") / "eval.py").read_text()
    (tmp_path / "eval.py").write_text(text.partition("def main")[0])  # the rest is Python 2
    names = ("get_labels_start_end_time", "levenstein", "edit_score", "f_score")
    theirs = load_functions(tmp_path / "eval.py", *names, np=OLD_NUMPY)
    rng = np.random.default_rng(7)
    for _ in range(20):
        truth, prediction = flickering(rng)
        sides = segments_of(truth, background), segments_of(prediction, background)
        expected = theirs["edit_score"](prediction.tolist(), truth.tolist(), bg_class=background)
        assert 100 * edit_score(*sides) == pytest.approx(expected, abs=1e-9)
        for threshold in (0.1, 0.25, 0.5):
            counts = theirs["f_score"](prediction.tolist(), truth.tolist(), threshold, bg_class=background)
            assert tuple(segment_hits(*sides, threshold)) == counts


def test_boxes_of_triplets_are_ivtmetrics_with_its_faults(monkeypatch):
    detection = import_package("CAMMA-public/ivtmetrics", "ivtmetrics", monkeypatch).Detection
    rng = np.random.default_rng(2)

    def boxes(count, scored):
        corners = rng.choice([0.1, 0.15, 0.4], (count, 2))
        sizes = rng.choice([0.2, 0.25], (count, 2))
        kept = [(int(rng.integers(4)), [*corner, *size]) for corner, size in zip(corners, sizes, strict=True)]
        return [(name, float(rng.random()), box) if scored else (name, box) for name, box in kept]

    for _ in range(10):
        truth = [boxes(rng.integers(0, 3), scored=False) for _ in range(6)]
        prediction = [boxes(rng.integers(0, 3), scored=True) for _ in range(6)]
        theirs = detection(100)
        theirs.update(
            [[[name, 0, 1.0, *box] for name, box in frame] for frame in truth],
            [[[name, 0, score, *box] for name, score, box in frame] for frame in prediction],
        )
        theirs.video_end()
        expected = np.asarray(theirs.compute_video_AP("ivt")["AP"], float)
        ours = triplet_detection_precision(truth, prediction, published=True)
        np.testing.assert_allclose(ours, expected, atol=1e-12)


def test_components_counted_again_by_each_question_are_ivtmetrics(monkeypatch):
    recognition = import_package("CAMMA-public/ivtmetrics", "ivtmetrics", monkeypatch).Recognition(100)
    recognition.resolve_nan = lambda values: np.where(np.asarray(values) == 0, np.nan, values)
    rng = np.random.default_rng(0)
    videos = []
    for number in range(2):
        truth, scores = rng.random((40, 100)) < 0.05, rng.random((40, 100))
        recognition.update(truth.astype(int), scores)
        videos.append(frame_average_precision(truth, scores))
        if number == 0:
            recognition.video_end()
    for asked in range(1, 4):  # the last video was not ended, and counts once more at each question
        theirs = recognition.compute_video_AP("ivt")["mAP"]
        assert mean_video_average_precision(videos, last_counts=asked) == pytest.approx(theirs, abs=1e-12)


def test_a_tracks_mean_error_is_vl_surgpts():
    script = require_clone("SzuPc/VL-SurgPT-code") / "code/computer_metrics.py"
    torch = pytest.importorskip("torch")
    given = {"np": np, "Path": Path, "json": json, "torch": torch, "logger": logging.getLogger("theirs")}
    evaluator = load_functions(script, "TrackingEvaluator", **given)["TrackingEvaluator"]()
    rng = np.random.default_rng(4)
    truth = rng.random((5, 12, 2)) * 900
    prediction = truth + rng.choice([0.0, 3.0, 600.0], (5, 12, 1))
    prediction[0] = truth[0]  # never off, hence without a distance that counts: the best of all
    visible = rng.random((5, 12)) < 0.8
    frames = [[prediction[:, frame]] for frame in range(12)]
    theirs = evaluator.compute_sequence_error(frames, truth, visible, {})["mean_errors"]
    for track in range(5):
        seen = np.where(visible[track][:, None], truth[track], np.nan)
        assert mean_track_error(seen, prediction[track], published=True) == pytest.approx(theirs[track], abs=1e-9)


class Connected:
    """MATLAB's bwconncomp of a vector: the frames of each run of True, from 1."""

    def __init__(self, mask):
        edges = np.flatnonzero(np.diff(np.r_[0, mask, 0]))
        self.lists = [np.arange(start, end) + 1 for start, end in edges.reshape(-1, 2)]


MATLAB = [
    (r"%.*", ""),
    (r"^\s*(disp|function)\b.*", ""),
    (r"updatedDiff = \[\]", "updatedDiff = np.zeros(len(gtLabelID))"),
    (r"for (\w+) = (\w+):([\w.]+)", r"for \1 in range(\2, \3 + 1):"),
    (r"(\w+)\.NumObjects", r"len(\1.lists)"),
    (r"(\w+)\.PixelIdxList\{:\}", r"*\1.lists"),
    (r"(\w+)\.PixelIdxList\{(\w+)\}", r"\1.lists[\2 - 1]"),
    (r"^(\s*)if\s*\((.*)\)\s*$", r"\1if \2:"),
    (r"^(\s*)elseif\s*\((.*)\)\s*$", r"\1elif \2:"),
    (r"^(\s*)else\s*$", r"\1else:"),
    (r"\|\|", "or"),
    (r"(\w+)\(end\+1\)\s*=\s*([^;]+);", r"\1.append(\2);"),
    (r"\b(\w+)\(startIdx:endIdx\)", r"\1[startIdx - 1:endIdx]"),
    (r"curDiff\(1:t\)", "curDiff[:t]"),
    (r"curDiff\(end-t\+1:end\)", "curDiff[len(curDiff) - t:]"),
    (r"(curDiff\[[^\]]*\])(==-?\d)", r"(\1\2)"),
    (r"curDiff\((.*)\) = 0", r"curDiff[np.flatnonzero(\1)] = 0"),  # true places of a short mask count from the first
    (r"updatedDiff\(iPUnion\)", "updatedDiff[iPUnion - 1]"),
]


def matlab_function(path):
    """The authors' Evaluate.m as Python: each line by the rules above, blocks by their `end`."""
    lines, depth = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        translated = line
        for pattern, replacement in MATLAB:
            translated = re.sub(pattern, replacement, translated)
        text = translated.strip().rstrip(";")
        if text == "end":
            depth -= 1
        elif text:
            opens = text.endswith(":")
            begins_anew = text.startswith(("elif", "else"))
            lines.append("    " * (depth - begins_anew) + text)
            depth += opens and not begins_anew
    names = {"np": np, "bwconncomp": Connected, "length": len, "NaN": np.nan, "sum": np.sum}
    names |= {"vertcat": lambda *lists: np.concatenate([np.zeros(0, int), *lists]), "union": np.union1d}

    def evaluate(truth, prediction, fps=1):
        given = names | {"gtLabelID": truth, "predLabelID": prediction, "fps": fps}
        with np.errstate(divide="ignore", invalid="ignore"):
            exec("\n".join(lines), given)  # noqa: S102
        return [np.array(given[name], float) for name in ("res", "prec", "rec", "acc")]

    return evaluate


def test_the_relaxed_boundary_is_the_authors_evaluate_m():
    (path,) = (require_clone("YuemingJin/TMRNet")).rglob("matlab-eval/Evaluate.m")
    theirs = matlab_function(path)
    early, late = (np.repeat([1, 2, 3], lengths) for lengths in ((25, 40, 35), (35, 40, 25)))
    truth = np.repeat([1, 2, 3], (30, 40, 30))
    jaccard, precision, recall, accuracy = theirs(truth, early)
    np.testing.assert_allclose(jaccard[:3], [83.333, 77.778, 85.714], atol=1e-3)
    np.testing.assert_allclose(precision[:3], [100, 87.5, 85.714], atol=1e-3)
    np.testing.assert_allclose(recall[:3], [83.333, 87.5, 100], atol=1e-3)
    assert accuracy == 90
    assert theirs(truth, late)[3] == 100
    rng, rule = np.random.default_rng(11), FrameRule.of("in_truth+relaxed_published")
    for _ in range(30):
        truth = np.repeat(rng.integers(1, 8, 12), rng.integers(3, 25, 12))
        moved = np.roll(truth, rng.integers(-6, 7))
        prediction = np.where(rng.random(len(truth)) < 0.9, moved, rng.integers(1, 8, len(truth)))
        counts = relaxed_counts(truth - 1, prediction - 1, published=True)
        *measures, accuracy = theirs(truth, prediction)
        assert 100 * float(counts.right / counts.total) == pytest.approx(float(accuracy))
        for measure, expected in zip(("jaccard", "precision", "recall"), measures, strict=True):
            ours = 100 * class_values(counts, measure, rule)
            np.testing.assert_allclose(ours, np.minimum(expected, 100), err_msg=measure)  # as Main.m clips
