"""The segmentation task: what it accepts, what it refuses, what a failure is worth."""

import math
from dataclasses import replace

import numpy as np
import pytest

from medimg_eval.case import Mask
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging import write_mask
from tests.conftest import AFFINE, SHAPE, ellipsoid, ellipsoids


@pytest.fixture
def task(write_dataset):
    return ellipsoids(write_dataset(3))


def test_cases_are_those_of_the_split_with_patients_and_attributes(task):
    cases = task.cases("test")
    assert [(case.id, case.patient, case.attributes) for case in cases] == [
        ("case00", "test-p0", {"site": "south"}),
        ("case01", "test-p0", {"site": "north"}),
        ("case02", "test-p1", {"site": "south"}),
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"expected": {"test": 4}}, r"expected 4 cases in split 'test', found 3.*task\.expected\.test=3"),
        ({"splits": {"test": "tset"}}, r"no case of split 'tset'; did you mean 'test'\?"),
        ({"splits": {"fit": "test"}}, r"has no cases to test"),
    ],
)
def test_cases_that_are_not_as_stated_are_an_error(write_dataset, change, words):
    with pytest.raises(UserError, match=words):
        ellipsoids(write_dataset(3), **change).cases("test")


@pytest.mark.parametrize(
    ("splits", "expected", "key"),
    [
        ({"fit": "test"}, {"test": 3}, ""),
        ({"fit": "test"}, {"fit": 3}, ""),
        ({"fit": "test"}, {"test": 9, "fit": 3}, ""),
        ({"fit": "test"}, {"test": 9}, "fit"),
        ({"fit": "test"}, {"fit": 9, "test": 3}, "fit"),
        # Here "fit" is the split of another part, so that `fit` says nothing of the part.
        ({"fit": "test", "test": "fit"}, {"fit": 9, "test": 3}, ""),
        ({"fit": "test", "test": "fit"}, {"test": 9}, "test"),
    ],
)
def test_cases_are_counted_by_the_split_of_the_data_or_by_what_it_serves(write_dataset, splits, expected, key):
    task = ellipsoids(write_dataset(3), splits=splits, expected=expected)
    if not key:
        assert len(task.cases("fit")) == 3
        return
    with pytest.raises(UserError, match=rf"expected 9 cases in split 'test', found 3.*task\.expected\.{key}=3 "):
        task.cases("fit")
    assert len(replace(task, expected={**expected, key: 3}).cases("fit")) == 3


def test_a_case_listed_twice_is_an_error(write_dataset):
    root = write_dataset(2)
    with (root / "cases.csv").open("a") as table:
        table.write("case01,test-p9,test,north\n")
    with pytest.raises(UserError, match="case id 'case01' occurs more than once"):
        ellipsoids(root).cases("test")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"labels": {0: "background"}}, "expected labels of 1 and above"),
        ({"metrics": ["dise"]}, "did you mean 'dice'"),
        ({"metrics": ["nsd"]}, "no tolerance for 'core'"),
        ({"metrics": ["dice", "dice"]}, "name each metric once"),
        ({"surface": "voxle"}, "got 'voxle'; did you mean 'voxel'"),
        ({"empty": "wurst"}, "got 'wurst'; did you mean 'worst'"),
        ({"empty": {"distance": "diag"}}, "Expected empty.distance"),
        ({"regions": {"whole": [1, 2]}}, r"regions hold labels \[2\]"),
        ({"labels": {1: "core", 2: "core"}}, "different names"),
        ({"metrics": []}, "at least one"),
        ({"regions": {"whole": 1}}, "region 'whole' to list labels, got 1"),
        ({"unscored": ["cor"]}, "got 'cor'; did you mean 'core'"),
        ({"instances": {"threshold": 2}}, "an IoU of at most 1"),
        ({"instances": 5}, "instances to be 'given', 'components' or a mapping"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_when_the_task_is_made(write_dataset, settings, words):
    from medimg_eval.tasks import SegmentationTask

    plain = {"name": "x", "layout": None, "labels": {1: "core"}}
    with pytest.raises(UsageError, match=words):
        SegmentationTask(**(plain | settings))


def test_a_perfect_answer_scores_perfectly(task):
    case = task.cases("test")[0]
    values = {(s.label, s.metric): s.value for s in task.score(case, ellipsoid(0))}
    assert values == {(n, m): v for n in ("core", "rim") for m, v in (("dice", 1), ("hd95", 0), ("nsd@1", 1))}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.zeros((3, 3, 3), int), r"has shape \(3, 3, 3\), not \(16, 14, 10\)"),
        (np.full(SHAPE, 7), r"unknown labels \[7\]; the task knows 0 background, 1 core, 2 rim"),
        (np.where(np.arange(10) < 5, np.ones(SHAPE, int), 2**62), r"unknown labels \[4611686018427387904\];"),
        (np.full(SHAPE, 1.0), "holds float64, not integers"),
        (Mask(np.ones(SHAPE, int), np.eye(4)), "another affine: .* mm apart of the reference .*case00"),
    ],
)
def test_answers_that_cannot_be_judged_say_why(task, answer, words):
    with pytest.raises(CaseError, match=words):
        task.accept(task.cases("test")[0], answer)


def test_a_failed_case_is_worth_the_worst_of_each_metric(task):
    diagonal = math.sqrt(16**2 + 14**2 + 20**2)  # 16 x 14 x 10 voxels of 1 x 1 x 2 mm
    worst = {(s.label, s.metric): (s.value, s.status) for s in task.worst(task.cases("test")[0])}
    for name in ("core", "rim"):
        assert worst[name, "dice"] == (0, "failed")
        assert worst[name, "hd95"] == (pytest.approx(diagonal), "failed")
        assert worst[name, "nsd@1"] == (0, "failed")


def test_failing_on_a_case_without_any_label_is_no_better_than_inventing_one(task):
    case = task.cases("test")[0]
    write_mask(case.target.path, Mask(np.zeros(SHAPE, np.uint8), AFFINE))
    assert {(s.status, s.value) for s in task.worst(case) if s.metric == "dice"} == {("failed", 0)}


def test_an_array_lies_on_the_images_grid_which_must_be_the_references(task):
    case = task.cases("test")[0]
    moved = AFFINE @ np.diag([-1.0, 1, 1, 1])
    moved[:3, 3] += AFFINE[:3, 0] * (SHAPE[0] - 1)
    write_mask(case.target.path, Mask(ellipsoid(0)[::-1], moved))  # the same truth, stored from the other side
    with pytest.raises(CaseError, match="prediction: another affine"):
        task.accept(case, ellipsoid(0))


def test_nobody_is_judged_by_a_reference_that_cannot_be_read(task):
    case = task.cases("test")[0]
    case.target.path.write_bytes(b"")
    assert all(math.isnan(s.value) and s.status == "failed" for s in task.worst(case))


def test_rows_carry_patient_and_attributes(task):
    case = task.cases("test")[1]
    row = task.rows(case, task.score(case, ellipsoid(1)), run="r", model="m")[0]
    assert row._asdict() == {
        "run": "r",
        "task": "ellipsoids",
        "model": "m",
        "case": "case01",
        "patient": "test-p0",
        "label": "core",
        "metric": "dice",
        "value": 1.0,
        "status": "present",
        "attributes": '{"site": "north"}',
        "repeat": 0,
        "condition": "",
    }


def test_the_signature_names_surface_and_policy(write_dataset):
    assert "surface=surfel" in ellipsoids(write_dataset(1)).signature()
    signature = ellipsoids(write_dataset(1), empty={"distance": 374.0}).signature()
    assert "empty masks by policy 'worst, changed': prediction empty=Dice/NSD 0, HD95 374 mm" in signature


def test_several_images_of_one_grid_become_channels_and_of_two_grids_an_error(task):
    case = task.cases("test")[0]
    other = task.cases("test")[1]
    both = replace(case, images=(*case.images, *other.images))
    (image,) = task.read_images(both)
    assert image.array.shape == (2, *SHAPE)
    np.testing.assert_array_equal(image.array[1], other.images[0].read().array[0])
    cut = replace(other.images[0], region=((0, 16), (0, 14), (0, 9)))
    with pytest.raises(CaseError, match=r"case 'case00': .*case01\.nii\.gz: shape \(16, 14, 9\) instead of"):
        task.read_images(replace(case, images=(*case.images, cut)))


def test_what_only_rules_look_at_gets_no_score(write_dataset):
    task = ellipsoids(write_dataset(1), unscored=["rim"])
    case = task.cases("test")[0]
    assert {score.label for score in task.score(case, case.target.read())} == {"core"}
    assert {score.label for score in task.worst(case)} == {"core"}


def test_a_metric_is_defined_the_same_whatever_is_asked_for_beside_it(write_dataset):
    root = write_dataset(1)
    every, few = ellipsoids(root), ellipsoids(root, metrics=["dice"])
    assert every.signature() != few.signature()
    assert every.definitions()["dice"] == few.definitions()["dice"]
    far, voxels = ellipsoids(root, empty={"distance": 374.0}), ellipsoids(root, surface="voxel")
    for other, moved in ((far, {"hd95"}), (voxels, {"hd95", "nsd@1"})):
        assert {name for name, what in every.definitions().items() if other.definitions()[name] != what} == moved
    kinder = ellipsoids(root, empty="monai")
    assert kinder.definitions()["dice"] != every.definitions()["dice"]
