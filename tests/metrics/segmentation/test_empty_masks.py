"""What labels are worth that one mask, or each, does not hold; and what else the call takes beside two label maps."""

import math

import numpy as np
import pytest
import torch
from monai.metrics import (
    compute_average_surface_distance,
    compute_dice,
    compute_hausdorff_distance,
    compute_surface_dice,
)

from medimg_eval.errors import UsageError
from medimg_eval.metrics import EmptyPolicy, get, segmentation_scores, worst_scores

FULL = np.array([[0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]])
NONE = np.zeros_like(FULL)
STATES = {"present": (FULL, FULL), "missed": (FULL, NONE), "hallucinated": (NONE, FULL), "absent": (NONE, NONE)}
DIAGONAL = 5.0


def values(state, empty, metrics=("dice", "hd95", "nsd@1"), **options):
    reference, prediction = STATES[state]
    scores = segmentation_scores(reference, prediction, (1, 1), labels=[1], metrics=metrics, empty=empty, **options)
    assert {score.status for score in scores} == {state}
    return tuple(score.value for score in scores)


def same(found, expected):
    return found == pytest.approx(expected, nan_ok=True)


NAN = math.nan


@pytest.mark.parametrize(
    ("empty", "missed", "hallucinated", "absent"),
    [
        ("worst", (0, DIAGONAL, 0), (0, DIAGONAL, 0), (NAN, NAN, NAN)),
        ("monai", (0, NAN, 0), (NAN, NAN, 0), (NAN, NAN, NAN)),
        ("brats2023", (0, 374, 0), (0, 374, 0), (1, 0, 1)),
        ("brats2024", (0, 374, 0), (0, 374, 0), (1, 0, 1)),
        ("touchstone", (0, DIAGONAL, 0), (NAN, NAN, NAN), (NAN, NAN, NAN)),
        ("fairseg", (0, 0, 0), (1, 0, 0), (0, 0, 0)),
        ({"missed": "skip", "distance": 9}, (NAN, NAN, NAN), (0, 9, 0), (NAN, NAN, NAN)),
        ({"absent": {"dice": "best", "hd95": 0}}, (0, DIAGONAL, 0), (0, DIAGONAL, 0), (1, 0, NAN)),
        ({"preset": "touchstone", "missed": {"nsd": 0.5}}, (0, DIAGONAL, 0.5), (NAN, NAN, NAN), (NAN, NAN, NAN)),
        (EmptyPolicy("mine", missed={"other": "best"}), (1, 0, 1), (0, DIAGONAL, 0), (NAN, NAN, NAN)),
    ],
    ids=str,
)
def test_policies_say_what_empty_masks_are_worth(empty, missed, hallucinated, absent):
    assert values("present", empty) == (1, 0, 1)
    assert same(values("missed", empty), missed)
    assert same(values("hallucinated", empty), hallucinated)
    assert same(values("absent", empty), absent)


@pytest.mark.filterwarnings("ignore:.*may result in nan/inf distance:UserWarning")
@pytest.mark.filterwarnings("ignore:monai.metrics.utils get_mask_edges:FutureWarning")
@pytest.mark.parametrize("state", STATES)
def test_the_policy_monai_equals_monai(state):
    y, y_pred = (torch.from_numpy(mask[None, None].astype(np.float32)) for mask in STATES[state])
    expected = (
        float(compute_dice(y_pred, y)),
        float(compute_hausdorff_distance(y_pred, y, include_background=True, percentile=95)),
        float(compute_surface_dice(y_pred, y, [1.0], include_background=True)),
    )
    assert same(values(state, "monai", surface="voxel"), expected)
    # Its average surface distance is inf where one side is empty; ours leaves it out and counts it.
    theirs = float(compute_average_surface_distance(y_pred, y, include_background=True, symmetric=True))
    (ours,) = values(state, "monai", metrics=["assd"], surface="voxel")
    assert same(ours, theirs if math.isfinite(theirs) else math.nan)


def test_a_policy_says_itself_in_words():
    metrics = [get("dice"), get("hd95"), get("nsd")]
    assert EmptyPolicy.of("worst").describe(metrics) == (
        "empty masks by policy 'worst': prediction empty=Dice/NSD 0, HD95 the image's diagonal; "
        "reference empty=Dice/NSD 0, HD95 the image's diagonal; both empty=not counted"
    )
    assert EmptyPolicy.of("brats2023").describe(metrics).endswith("both empty=Dice/NSD 1, HD95 0 mm")
    assert "HD95 7 px" in EmptyPolicy.of({"distance": 7}).describe(metrics, "px")


def test_a_failed_case_is_worth_the_distance_of_its_policy():
    for empty, distance in (("worst", DIAGONAL), ("brats2023", 374.0), ({"distance": "skip"}, NAN)):
        scores = worst_scores([1], ["dice", "hd95"], shape=(3, 4), spacing=(1, 1), empty=empty)
        assert same([score.value for score in scores], [0, distance])


def test_an_unknown_spacing_is_refused_or_its_distances_are_skipped():
    arguments = {"labels": [1], "metrics": ["dice", "hd95"]}
    with pytest.raises(UsageError, match="spacing is not known, which hd95 needs"):
        segmentation_scores(FULL, FULL, (1, NAN), **arguments)
    scores = segmentation_scores(FULL, FULL, (1, NAN), **arguments, empty={"spacing": "skip"})
    assert same([score.value for score in scores], [1, NAN])
    overlaps = segmentation_scores(FULL, FULL, (1, NAN), labels=[1], metrics=["dice", "iou"])
    assert [score.value for score in overlaps] == [1, 1]


# BraTS numbers: 1 necrosis, 2 oedema, 3 enhancing tumour.
TUMOUR = np.array([[2, 2, 2, 2], [2, 1, 3, 2], [0, 0, 0, 0]])
GUESS = np.array([[2, 2, 2, 0], [2, 1, 1, 2], [0, 0, 0, 0]])
REGIONS = {"WT": (1, 2, 3), "TC": (1, 3), "ET": (3,)}


def test_sizes_in_mm3_need_the_spacing_as_distances_do():
    nan = math.nan
    skip = {"spacing": "skip"}
    for name in ("lesion_dice", "small_instances"):
        with pytest.raises(UsageError, match=f"spacing is not known, which {name} needs"):
            segmentation_scores(FULL, FULL, (nan, nan), labels=[1], metrics=[name])
        (score,) = segmentation_scores(FULL, FULL, (nan, nan), labels=[1], metrics=[name], empty=skip)
        assert math.isnan(score.value)
    for instances, needed in (({}, False), ({"min_volume": 2}, True), ({"matching": "centroid"}, True)):
        (score,) = segmentation_scores(
            FULL, FULL, (nan, nan), labels=[1], metrics=["pq"], empty=skip, instances=instances
        )
        assert math.isnan(score.value) == needed


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"ignore": "2"}, ValueError, "Expected `ignore` to be a whole number, got '2'"),
        ({"tolerances": 3}, UsageError, "tolerances: expected mm by label name, got 3"),
        ({"tolerances": {"1": "a"}}, ValueError, "tolerance of '1' to be a number"),
        ({"empty": 5}, UsageError, "Expected empty to be a preset's name or a mapping, got 5"),
        ({"empty": {"preset": ["monai"]}}, UsageError, "a preset's name or a mapping"),
        ({"lesions": {"labels": {"l": {"dilation": 1}}}}, UsageError, "lesions.labels: label is invalid: .*got 'l'"),
    ],
)
def test_settings_that_would_be_passed_over_in_silence_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        segmentation_scores(FULL, FULL, (1, 1), labels=[1], metrics=["dice"], **options)


def test_masks_that_overlap_hold_no_label_to_ignore():
    with pytest.raises(ValueError, match="Expected no `ignore` with boolean masks, which hold no label 2"):
        segmentation_scores(FULL[None] > 0, FULL[None] > 0, (1, 1), labels=["a"], metrics=["dice"], ignore=2)


def test_regions_may_overlap():
    scores = segmentation_scores(TUMOUR, GUESS, (1, 1), labels=REGIONS, metrics=["dice", "iou"])
    found = {(score.label, score.metric): (score.value, score.status) for score in scores}
    assert [score.label for score in scores] == ["WT", "WT", "TC", "TC", "ET", "ET"]
    assert found["WT", "dice"] == (pytest.approx(2 * 7 / (8 + 7)), "present")
    assert found["TC", "dice"] == (1, "present")
    assert found["ET", "iou"] == (0, "missed")


def test_masks_that_overlap_score_as_regions_do():
    reference, prediction = (
        np.stack([np.isin(label_map, members) for members in REGIONS.values()]) for label_map in (TUMOUR, GUESS)
    )
    metrics = ["dice", "hd95", "nsd@1"]
    stacked = segmentation_scores(reference, prediction, (2, 1), labels=list(REGIONS), metrics=metrics)
    assert stacked == segmentation_scores(TUMOUR, GUESS, (2, 1), labels=REGIONS, metrics=metrics)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prediction": np.ones((2, 3, 4), bool)}, r"masks of the reference's shape \(3, 3, 4\)"),
        ({"prediction": GUESS}, "`prediction` to be boolean masks"),
        ({"labels": ["a", "b"]}, "to name each of 3 masks"),
    ],
)
def test_masks_that_do_not_belong_together_are_refused(change, words):
    masks = np.ones((3, 3, 4), bool)
    arguments = {"reference": masks, "prediction": masks, "labels": ["a", "b", "c"]} | change
    with pytest.raises(ValueError, match=words):
        segmentation_scores(**arguments, spacing=(1, 1))


def test_ignored_voxels_are_nobodys():
    scores = segmentation_scores(TUMOUR, GUESS, (1, 1), labels=REGIONS, metrics=["dice"], ignore=3)
    # Without the one enhancing voxel: WT 7 of 7 against 6, TC the necrosis alone on both sides, ET nowhere.
    assert same([score.value for score in scores], [2 * 6 / (7 + 6), 1, NAN])


def test_each_label_has_its_own_tolerance():
    reference, prediction = np.zeros((2, 12, 12), int)
    reference[2:5, 2:5], prediction[2:5, 3:6] = 1, 1
    reference[8:11, 2:5], prediction[8:11, 3:6] = 2, 2
    arguments = {"labels": {1: "a", 2: "b"}, "surface": "voxel"}
    scores = segmentation_scores(
        reference, prediction, (1, 1), metrics=["nsd"], tolerances={"a": 0.5, "b": 1}, **arguments
    )
    strict = segmentation_scores(reference, prediction, (1, 1), metrics=["nsd@0.5"], **arguments)
    assert [score.value for score in scores] == [strict[0].value, 1]
    assert strict[0].value < 1
    with pytest.raises(UsageError, match="no tolerance for 'b'"):
        segmentation_scores(reference, prediction, (1, 1), metrics=["nsd"], tolerances={"a": 1}, **arguments)
    with pytest.raises(UsageError, match="got 'bb'; did you mean 'b'"):
        segmentation_scores(reference, prediction, (1, 1), metrics=["nsd@1"], tolerances={"bb": 1}, **arguments)
