"""The detection task: what it accepts, what it refuses, where things lie in mm, what a failure is worth."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from medimg_eval.case import Boxes, Case, Geometry, Points
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.tasks.detection import DetectionTask

# Voxels of 0.5 x 0.5 x 2 mm, the first axis turned.
GRID = Geometry((100, 100, 40), np.array([[-0.5, 0, 0, 30], [0, 0.5, 0, -20], [0, 0, 2, 5], [0, 0, 0, 1]]))


@dataclass(frozen=True)
class Held:
    """A reference that is already there."""

    value: object = None
    path: str = "nodules.csv"

    @property
    def files(self):
        return (Path(self.path),)

    def read(self):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def geometry(self):
        return GRID


def case_of(target, name="scan"):
    return Case(name, (Held(path="scan.nii.gz"),), Held(target))


def points(*places, scores=None, diameters=None, names="nodule"):
    names = (names,) * len(places) if isinstance(names, str) else tuple(names)
    scores, diameters = (None if given is None else np.array(given, float) for given in (scores, diameters))
    return Points(np.array(places, float).reshape(-1, 3), names, diameters, scores)


def boxes(*corners, scores=None, names="nodule"):
    return Boxes(
        np.array(corners, float).reshape(-1, 6),
        (names,) * len(corners),
        None if scores is None else np.array(scores, float),
    )


def task_of(**settings):
    return DetectionTask(name="lungs", layout=None, **{"labels": ["nodule"]} | settings)


NOTHING = points(scores=[])
TWO = points((10, 10, 10), (50, 50, 20), diameters=[6, 8])


def test_distances_are_measured_in_mm():
    # The radius is 3 mm: less than 6 voxels in a slice, less than 1.5 slices.
    answers = {(15.9, 10, 10): "hit", (16, 10, 10): "false", (10, 10, 11.4): "hit", (10, 10, 11.5): "false"}
    for place, status in answers.items():
        scores = task_of().score(case_of(TWO), points(place, scores=[0.5]))
        assert [(score.value, score.status) for score in scores if score.metric == "detection_score"] == [(0.5, status)]


def test_rows_of_a_case_are_those_that_the_metrics_need():
    task = task_of()
    assert task.case_metrics == ["detection_score", "n_reference_lesions", "detection_recall"]
    scores = task.score(case_of(TWO), points((10, 10, 10), (90, 90, 30), scores=[0.5, 0.7]))
    assert [tuple(score) for score in scores] == [
        ("nodule", "detection_score", 0.5, "hit"),
        ("nodule", "detection_score", 0.7, "false"),
        ("nodule", "n_reference_lesions", 2, "present"),
        ("nodule", "detection_recall", 0.5, "present"),
    ]
    assert [score.metric for score in task.score(case_of(TWO), NOTHING, metrics=["false_negatives"])] == [
        "false_negatives"
    ]


def test_excluded_findings_need_not_be_found_by_any_class():
    found = points((10, 10, 10), (50, 50, 20), diameters=[6, -1], names=["nodule", "other"])
    scores = task_of(excluded=["other"]).score(
        case_of(found),
        points((50, 50, 20), (10, 10, 10), scores=[0.9, 0.8]),
        metrics=["detection_score", "false_negatives"],
    )
    assert {(score.value, score.status) for score in scores} == {(0.9, "ignored"), (0.8, "hit"), (0, "present")}
    with pytest.raises(
        CaseError, match=r"nodules\.csv\) names 'other'; add it to the task's `labels`, `excluded` or `unscored`"
    ):
        task_of().score(case_of(found), points(scores=[]))


def test_classes_are_judged_by_themselves():
    found = points((10, 10, 10), (50, 50, 20), diameters=[6, 6], names=["nodule", "mass"])
    answer = points((10, 10, 10), (50, 50, 20), scores=[0.9, 0.8], names=["mass", "mass"])
    scores = task_of(labels=["nodule", "mass"]).score(
        case_of(found), answer, metrics=["detection_score", "false_negatives"]
    )
    assert [tuple(score) for score in scores] == [
        ("nodule", "false_negatives", 1, "missed"),
        ("mass", "detection_score", 0.8, "hit"),
        ("mass", "detection_score", 0.9, "false"),
        ("mass", "false_negatives", 0, "present"),
    ]


def test_a_box_is_taken_for_its_centre_when_findings_are_points():
    answer = boxes((8, 8, 9, 12, 12, 11), scores=[0.5])
    assert task_of().score(case_of(TWO), answer)[0].status == "hit"


def test_boxes_are_matched_by_their_iou_with_voxels_as_wide_as_they_are():
    # 4 x 4 x 4 voxels and 4 x 4 x 2 of them.
    reference, answer = boxes((0, 0, 0, 3, 3, 3)), boxes((0, 0, 0, 3, 3, 1), scores=[0.5])
    for threshold, status in ((0.5, "hit"), (0.51, "false")):
        task = task_of(matching={"preset": "iou", "threshold": threshold}, metrics=["average_precision"])
        assert task.score(case_of(reference), answer)[0].status == status


@pytest.mark.parametrize(
    "answer",
    [points((1, 2, 3), scores=[1 / 3]), boxes((0, 0, 0, 3.25, 3, 3), scores=[1 / 3]), NOTHING, boxes(scores=[])],
)
def test_what_is_stored_is_read_back_with_every_digit(answer, tmp_path):
    task, case, path = task_of(), case_of(TWO), tmp_path / "scan.json"
    task.codec.save(path, task.accept(case, answer))
    assert task.score(case, path) == task.score(case, answer)
    assert [entry.name for entry in tmp_path.iterdir()] == ["scan.json"]
    assert json.loads(path.read_text())["names"] == list(answer.names)


def test_a_model_without_any_candidate_misses_everything():
    scores = task_of().score(case_of(TWO), Points(np.zeros(0), ()))
    assert [(score.metric, score.value, score.status) for score in scores] == [
        ("n_reference_lesions", 2, "missed"),
        ("detection_recall", 0, "missed"),
    ]


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"kind": "points", "names": 3, "places": [], "confidences": []}'])
def test_a_stored_file_that_is_none_is_named(content, tmp_path):
    path = tmp_path / "scan.json"
    path.write_text(content)
    with pytest.raises(CaseError, match=r"scan\.json: (cannot be read as|holds no) (a )?stored"):
        task_of().score(case_of(TWO), path)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.zeros((1, 3)), r"case 'scan': prediction is ndarray, expected Points or Boxes"),
        (
            Points(np.zeros((2, 2)), ("nodule",) * 2, scores=np.ones(2)),
            r"shape \(2, 2\) for 2 names; expected 3 numbers each",
        ),
        (Boxes(np.zeros((1, 4)), ("nodule",), np.ones(1)), r"expected 6 numbers each"),
        (points((1, 2, 3), scores=[0.5], names=["nodul"]), r"names 'nodul'; did you mean 'nodule'\?"),
        (points((1, 2, math.nan), scores=[0.5]), "holds numbers that are not finite"),
        (points((1, 2, 3), scores=[math.inf]), "holds numbers that are not finite"),
        (points((1, 2, 3), scores=[0.5, 0.4]), r"\(2,\) confidences for 1 names"),
        (TWO, "holds no confidences"),
        (boxes((1, 2, 3, 4, 5, 6)), "holds no confidences; give each candidate one"),
        (boxes((4, 2, 3, 1, 5, 6), scores=[1]), "opposite corner lies before its first one"),
    ],
)
def test_answers_that_are_refused(answer, words):
    with pytest.raises(CaseError, match=words):
        task_of().accept(case_of(TWO), answer)


def test_points_have_no_iou():
    with pytest.raises(CaseError, match=r"Points, which have no IoU.*task\.matching=luna16"):
        task_of(matching="iou").accept(case_of(boxes()), TWO)


@pytest.mark.parametrize(
    ("settings", "reference", "words"),
    [
        ({}, boxes((0, 0, 0, 1, 1, 1)), "is Boxes, and matching by radius needs Points"),
        ({"matching": "iou"}, TWO, "is Points, and matching by iou needs Boxes"),
        ({}, Points(np.zeros((1, 3)), ("nodule",)), "has no diameters"),
    ],
)
def test_references_that_cannot_be_matched(settings, reference, words):
    with pytest.raises(CaseError, match=words):
        task_of(**settings).score(case_of(reference), boxes(scores=[]))


def test_a_scan_without_findings():
    empty = Points(np.zeros((0, 3)), ())
    scores = task_of().score(case_of(empty), points((1, 2, 3), scores=[0.5]))
    assert [(score.metric, score.value, score.status) for score in scores[:2]] == [
        ("detection_score", 0.5, "false"),
        ("n_reference_lesions", 0, "hallucinated"),
    ]
    assert math.isnan(scores[2].value)


def test_a_failed_case_misses_all_its_findings():
    scores = task_of(metrics=["cpm"]).worst(case_of(TWO))
    assert [tuple(score) for score in scores] == [("nodule", "n_reference_lesions", 2, "failed")]
    (recall,) = task_of(metrics=["detection_recall"]).worst(case_of(TWO))
    assert (recall.value, recall.status) == (0, "failed")


def test_nothing_is_said_of_a_case_whose_reference_cannot_be_read():
    scores = task_of(labels=["nodule", "mass"]).worst(case_of(CaseError("nodules.csv is gone")))
    assert [(score.label, score.metric) for score in scores] == [
        (label, metric) for label in ("nodule", "mass") for metric in ("n_reference_lesions", "detection_recall")
    ]
    assert all(math.isnan(score.value) and score.status == "failed" for score in scores)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"labels": []}, r"expected `labels` and `excluded` to be different names, got \[\]"),
        ({"excluded": ["nodule"]}, "to be different names"),
        ({"metrics": ["cpm", "cpm"]}, "name each metric once"),
        ({"metrics": ["dice"]}, "'dice' does not judge detections"),
        ({"metrics": ["cmp"]}, r"got 'cmp'; did you mean 'cpm'\?"),
        ({"monitor": "cpm"}, "'cpm' does not judge detections"),
        ({"matching": "luna61"}, "did you mean 'luna16'"),
    ],
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        task_of(**settings)


def test_a_name_alone_is_a_list_of_one():
    task = task_of(labels="nodule", excluded="other", metrics="cpm")
    assert (task.labels, task.excluded, task.metrics) == (["nodule"], ["other"], ["cpm"])


def test_the_choices_are_printed():
    assert task_of(excluded=["other"]).signature() == (
        "hit: distance to the centre < radius, at most 100 candidates a case, further candidates on a finding ignored, "
        "candidates on other ignored"
    )
    assert task_of(matching="iou").signature() == "hit: IoU >= 0.5"


def test_a_model_is_asked_for_the_labels():
    class Detector:
        def detect(self, prompts):
            return [prompt.labels for prompt in prompts]

    task = task_of(labels=["nodule", "mass"])
    prompt = task.prompt(case_of(TWO), ())
    assert task.ask(Detector(), [prompt]) == [{1: "nodule", 2: "mass"}]
    assert {"excluded", "matching", "metrics"} <= task.scoring_fields()
