"""Segmentation metrics on cases small enough to work out by hand, and at the edges of their definition."""

import math

import numpy as np
import pytest

from medimg_eval.errors import UsageError
from medimg_eval.metrics import LabelPair, metric, registry, segmentation_scores, worst_scores
from medimg_eval.metrics.segmentation.overlap import dice, iou
from medimg_eval.metrics.segmentation.surface_distance import assd, hd, hd95, nsd

UNIT = (1, 1, 1)
KINDS = ["surfel", "voxel"]


def box(shape, *spans):
    """A mask that is True within the span given for each axis."""
    mask = np.zeros(shape, bool)
    mask[tuple(slice(*span) for span in spans)] = True
    return mask


def voxel_at(*place, shape=(5, 5, 5)):
    mask = np.zeros(shape, bool)
    mask[place] = True
    return mask


# Two single voxels side by side along axis `axis`, at a step of `step` mm.
@pytest.mark.parametrize(
    ("spacing", "axis", "step"), [(UNIT, 0, 1), (UNIT, 2, 1), ((5, 1, 1), 0, 5), ((5, 1, 1), 1, 1)]
)
def test_single_voxels_side_by_side(spacing, axis, step):
    place = [2, 2, 2]
    place[axis] = 3
    masks = voxel_at(2, 2, 2), voxel_at(*place)
    voxel, surfel = LabelPair(*masks, spacing, "voxel"), LabelPair(*masks, spacing, "surfel")
    assert dice(voxel) == iou(voxel) == 0
    # One centre to one centre.
    assert hd(voxel) == hd95(voxel) == assd(voxel) == step
    assert (nsd(voxel, step), nsd(voxel, step * 0.99)) == (1, 0)
    # Eight equal corners each, four of them shared (0 mm), four one step away.
    assert hd(surfel) == hd95(surfel) == step
    assert assd(surfel) == pytest.approx(step / 2)
    assert nsd(surfel, step) == 1
    assert nsd(surfel, step * 0.99) == pytest.approx(0.5)


def test_shifted_cubes():
    pair = LabelPair(box((5, 5, 5), (0, 3), (1, 4), (1, 4)), box((5, 5, 5), (1, 4), (1, 4), (1, 4)), UNIT, "voxel")
    assert dice(pair) == pytest.approx(2 * 18 / 54)
    assert iou(pair) == 18 / 36
    # Each surface has 26 voxels. Of the 18 shared voxels one is the centre of either cube, which leaves 16
    # at 0 mm; the other cube's centre and the 9 voxels of the far face are 1 mm away.
    assert hd(pair) == hd95(pair) == 1
    assert assd(pair) == pytest.approx(20 / 52)
    assert nsd(pair, 0.5) == pytest.approx(32 / 52)
    assert nsd(pair, 1) == 1


def test_a_cavity_is_surface():
    solid = box((7, 7, 7), (1, 6), (1, 6), (1, 6))
    pair = LabelPair(solid, solid & ~voxel_at(3, 3, 3, shape=(7, 7, 7)), UNIT, "voxel")
    # 5^3 - 3^3 = 98 outer voxels each; the six around the cavity are 1 mm below the reference's surface.
    assert hd(pair) == 1
    assert assd(pair) == pytest.approx(6 / (98 + 104))


def test_two_parts_of_which_one_is_missed():
    reference = voxel_at(0, [0, 10], shape=(1, 12))
    prediction = voxel_at(0, 0, shape=(1, 12))
    voxel = LabelPair(reference, prediction, (1, 1), "voxel")
    # Distances 0 and 10 of the reference, 0 of the prediction.
    assert dice(voxel) == pytest.approx(2 / 3)
    assert hd(voxel) == 10
    assert hd95(voxel) == pytest.approx(9.5)  # 95 % of the way from 0 to 10
    assert assd(voxel) == pytest.approx(10 / 3)
    assert nsd(voxel, 1) == pytest.approx(2 / 3)
    # Four equal corners per pixel: the missed one's are 9, 9, 10 and 10 from the other's.
    surfel = LabelPair(reference, prediction, (1, 1), "surfel")
    assert hd(surfel) == hd95(surfel) == 10
    assert assd(surfel) == pytest.approx(38 / 12)
    assert nsd(surfel, 1) == pytest.approx(8 / 12)


@pytest.mark.parametrize("spacing", [(1, 1), (0.7, 0.3), (0.1, 0.1)])
def test_exactly_95_percent_of_the_area_is_enough(spacing):
    # 20 lone pixels, the last of them missed: 76 of 80 equal corners at 0 mm are exactly 95 %.
    reference = np.zeros((1, 40), bool)
    reference[0, ::2] = True
    prediction = reference & (np.arange(40) < 38)
    assert hd95(LabelPair(reference, prediction, spacing, "surfel")) == 0
    # Voxels: 19 times 0, then 2 pixels; rank 0.95 * 19 = 18.05.
    assert hd95(LabelPair(reference, prediction, spacing, "voxel")) == pytest.approx(0.05 * 2 * spacing[1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_surface_at_the_tolerance_is_within_it(kind):
    # 3 * 0.8 is 2.4000000000000004 in float64.
    masks = box((16, 10, 10), (0, 10), (0, 10), (0, 10)), box((16, 10, 10), (3, 13), (0, 10), (0, 10))
    pair = LabelPair(*masks, (0.8, 0.8, 0.8), kind)
    assert nsd(pair, 2.4) == 1
    assert nsd(pair, 2.39) < 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_image_border_changes_nothing(kind):
    reference, prediction = box((4, 6, 5), (0, 3), (0, 6), (2, 5)), box((4, 6, 5), (0, 4), (1, 6), (1, 5))
    inside = LabelPair(np.pad(reference, 2), np.pad(prediction, 2), (2, 1, 0.5), kind)
    touching = LabelPair(reference, prediction, (2, 1, 0.5), kind)
    for function in (dice, hd, hd95, assd):
        assert function(touching) == function(inside)


@pytest.mark.parametrize("kind", KINDS)
def test_full_image_against_one_slice_less(kind):
    full = np.ones((4, 6, 6), bool)
    pair = LabelPair(full, box(full.shape, (0, 3), (0, 6), (0, 6)), (5, 1, 1), kind)
    assert hd(pair) == pytest.approx(5)
    assert dice(pair) == pytest.approx(2 * 3 / 7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5)])
def test_empty_masks(shape, kind):
    empty, full = np.zeros(shape, bool), np.ones(shape, bool)
    spacing = (1,) * len(shape)
    for masks, status in (((full, empty), "missed"), ((empty, full), "hallucinated")):
        pair = LabelPair(*masks, spacing, kind)
        assert pair.status == status
        assert dice(pair) == iou(pair) == nsd(pair, 100) == 0
        assert hd(pair) == hd95(pair) == assd(pair) == math.inf
    absent = LabelPair(empty, empty, spacing, kind)
    assert absent.status == "absent"
    values = [dice(absent), iou(absent), nsd(absent, 1), hd(absent), hd95(absent), assd(absent)]
    assert np.isnan(values).all()


# Label maps: 1 is in both, 2 in the reference only, 3 in the prediction only, 4 in neither.
REFERENCE = np.array([[1, 1, 0, 0], [0, 0, 2, 2], [0, 0, 0, 0]], np.int16)
PREDICTION = np.array([[1, 0, 0, 0], [0, 0, 0, 0], [3, 0, 0, 0]], np.uint8)
NAMES = {1: "liver", 2: "cyst", 3: "vein", 4: "stent"}
DIAGONAL = 5.0  # 3 x 1 mm by 4 x 1 mm


def table(scores):
    return {(score.label, score.metric): (score.value, score.status) for score in scores}


@pytest.mark.parametrize(("penalty", "distance"), [("diagonal", DIAGONAL), (374, 374.0), ("skip", math.nan)])
def test_status_and_what_empty_masks_are_worth(penalty, distance):
    asked = ("dice", "iou", "hd", "hd95", "assd", "nsd@1")
    scores = segmentation_scores(
        REFERENCE, PREDICTION, (1, 1), labels=NAMES, metrics=asked, surface="voxel", empty={"distance": penalty}
    )
    assert [(score.label, score.metric) for score in scores] == [(n, m) for n in NAMES.values() for m in asked]
    assert all(type(score.value) is float for score in scores)
    found = table(scores)
    assert found["liver", "dice"] == (pytest.approx(2 / 3), "present")
    assert found["liver", "hd95"] == (pytest.approx(0.95), "present")
    for label, status in (("cyst", "missed"), ("vein", "hallucinated")):
        for name in ("dice", "iou", "nsd@1"):
            assert found[label, name] == (0.0, status)
        for name in ("hd", "hd95", "assd"):
            assert found[label, name] == (pytest.approx(distance, nan_ok=True), status)
    for name in asked:
        assert found["stent", name] == (pytest.approx(math.nan, nan_ok=True), "absent")


def test_labels_as_numbers_and_default_metrics():
    scores = segmentation_scores(REFERENCE, PREDICTION, (1, 1), labels=[1, 300])
    assert [score[:2] for score in scores] == [(n, m) for n in ("1", "300") for m in ("dice", "hd95", "nsd@1")]


def test_scores_are_those_of_the_single_label():
    scores = segmentation_scores(REFERENCE, PREDICTION, (2, 3), labels=[1], metrics=["assd", "nsd@2.5"])
    pair = LabelPair(REFERENCE == 1, PREDICTION == 1, (2, 3))
    assert [score.value for score in scores] == [assd(pair), nsd(pair, 2.5)]


@pytest.mark.parametrize(
    ("empty", "words"),
    [
        ("wurst", "got 'wurst'; did you mean 'worst'"),
        ({"distance": "max"}, "empty.distance to be .* got 'max'"),
        ({"distance": -1}, "empty.distance to be .* got -1"),
        ({"distance": math.nan}, "empty.distance to be .* got nan"),
        ({"mised": "worst"}, "got 'mised'; did you mean 'missed'"),
        ({"missed": {"dise": 0}}, "got 'dise'; did you mean 'dice'"),
        ({"missed": "max"}, "empty.missed.other to be .* got 'max'"),
        ({"spacing": "guess"}, "empty.spacing to be"),
        ({"preset": "brats"}, "got 'brats'"),
    ],
)
def test_policies_that_cannot_be_meant_are_refused(empty, words):
    with pytest.raises(UsageError, match=words):
        segmentation_scores(REFERENCE, PREDICTION, (1, 1), labels=[1], empty=empty)


def test_any_memory_layout():
    maps = np.asfortranarray(REFERENCE)[::-1], PREDICTION.astype(">i2")[::-1]
    straight = segmentation_scores(REFERENCE, PREDICTION, (1, 1), labels=NAMES)
    turned = segmentation_scores(*maps, (1, 1), labels=NAMES)
    assert [score.value for score in turned] == pytest.approx([s.value for s in straight], nan_ok=True)


@pytest.mark.parametrize(("penalty", "distance"), [("diagonal", 13.0), (7, 7.0), ("skip", math.nan)])
def test_a_failed_case_gets_the_worst_values(penalty, distance):
    empty = {"distance": penalty}
    scores = worst_scores({1: "a", 2: "b"}, ["dice", "hd"], shape=(3, 12), spacing=(4 / 3, 1), empty=empty)
    distance = math.hypot(4, 12) if penalty == "diagonal" else distance
    for label in "ab":
        assert table(scores)[label, "dice"] == (0.0, "failed")
        assert table(scores)[label, "hd"] == (pytest.approx(distance, nan_ok=True), "failed")


@pytest.mark.parametrize(("shape", "spacing"), [(None, (1, 1)), ((3, 3), None), (None, None)])
def test_a_failed_case_of_unknown_size_has_no_value(shape, spacing):
    scores = worst_scores([1], ["dice", "hd"], shape=shape, spacing=spacing)
    assert all(math.isnan(score.value) and score.status == "failed" for score in scores)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prediction": np.zeros((3, 5), int)}, r"`prediction` to have the reference's shape \(3, 4\)"),
        ({"reference": np.zeros(12, int)}, "`reference` to be 2-D or 3-D"),
        ({"reference": REFERENCE.astype(float)}, "`reference` to be an integer label map, got dtype float64"),
        ({"prediction": PREDICTION > 0}, "`prediction` to be an integer label map, got dtype bool"),
        ({"spacing": (1, 1, 1)}, "`spacing` to be 2 positive numbers"),
        ({"spacing": (1, 0)}, "`spacing` to be 2 positive numbers"),
        ({"spacing": (1, -2)}, "`spacing` to be 2 positive numbers"),
        ({"spacing": (1, math.inf)}, "`spacing` to be 2 positive numbers"),
        ({"surface": "mesh"}, "`surface` to be 'surfel' or 'voxel', got 'mesh'"),
        ({"labels": [0, 1]}, "`labels` to be whole numbers above 0, got 0"),
        ({"labels": {1.5: "a"}}, "`labels` to be whole numbers above 0, got 1.5"),
        ({"labels": [True]}, "`labels` to be whole numbers above 0, got True"),
        ({"labels": {1: "a", 2: "a"}}, "`labels` to have different names"),
        ({"labels": [1, 1]}, "`labels` to have different names"),
        ({"labels": []}, "at least one label"),
        ({"metrics": ["dice", "dice"]}, "`metrics` to name each metric once"),
    ],
)
def test_what_is_refused(change, words):
    arguments = {"reference": REFERENCE, "prediction": PREDICTION, "spacing": (1, 1), "labels": [1]} | change
    with pytest.raises(ValueError, match=rf"^Expected {words}" if "least one" not in words else words):
        segmentation_scores(**arguments)


def test_a_pair_takes_boolean_masks_only():
    with pytest.raises(ValueError, match="`reference` to be a boolean mask, got dtype int16"):
        LabelPair(REFERENCE, PREDICTION, (1, 1))


def test_a_metric_of_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(registry, "_METRICS", registry.available())

    @metric(kind="text", title="Words", higher_is_better=True, best=1.0, worst=0.0, source="nobody")
    def words_in_common(answer):
        return 1.0

    with pytest.raises(UsageError, match="'words_in_common' judges text, not masks"):
        segmentation_scores(REFERENCE, PREDICTION, (1, 1), labels=[1], metrics=["words_in_common"])
