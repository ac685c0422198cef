"""What must hold for any two masks."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from medimg_eval.metrics import LabelPair, available, segmentation_scores
from medimg_eval.metrics.segmentation.overlap import iou
from medimg_eval.metrics.segmentation.surface_distance import assd, hd, hd95

ASKED = ["assd", "dice", "hd", "hd95", "iou", "nsd@0", "nsd@1.3", "nsd@4"]
DISTANCES = ["assd", "hd", "hd95"]

shapes = hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=6)
kinds = st.sampled_from(["surfel", "voxel"])
steps = st.sampled_from([0.3, 0.7, 0.8, 1.0, 1.5, 5.0])

examples = settings(deadline=None, max_examples=50)


@st.composite
def cases(draw, empty=False):
    """Two label maps of labels 0 and 1, a spacing, and a kind of surface; both masks hold something."""
    shape = draw(shapes)
    maps = hnp.arrays(np.uint8, shape, elements=st.integers(0, 1))
    reference, prediction = draw(maps), draw(maps)
    assume(empty or (reference.any() and prediction.any()))
    return reference, prediction, tuple(draw(steps) for _ in shape), draw(kinds)


def values(reference, prediction, spacing, kind, asked=ASKED):
    scores = segmentation_scores(reference, prediction, spacing, labels=[1], metrics=asked, surface=kind)
    return [score.value for score in scores]


def close(expected):
    return pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


@examples
@given(cases(empty=True))
def test_swapping_the_masks_changes_nothing(case):
    reference, prediction, spacing, kind = case
    assert values(reference, prediction, spacing, kind) == close(values(prediction, reference, spacing, kind))


@examples
@given(cases(empty=True))
def test_values_stay_within_their_bounds(case):
    reference, prediction, spacing, kind = case
    found = dict(zip(ASKED, values(reference, prediction, spacing, kind), strict=True))
    if not (reference.any() or prediction.any()):
        assert all(math.isnan(value) for value in found.values())
        return
    diagonal = math.hypot(*np.multiply(reference.shape, spacing))
    assert all(0 <= found[name] <= 1 for name in ASKED if name not in DISTANCES)
    rounding = 1 + 1e-12  # a mean of equal distances may be a last digit above them
    assert 0 <= found["assd"] <= found["hd"] * rounding
    assert found["hd"] <= diagonal * rounding
    assert 0 <= found["hd95"] <= found["hd"]
    assert found["iou"] <= found["dice"]
    assert found["dice"] == close(2 * found["iou"] / (1 + found["iou"]))
    assert found["nsd@0"] <= found["nsd@1.3"] <= found["nsd@4"]


@examples
@given(cases())
def test_the_best_value_is_for_identical_masks_alone(case):
    reference, prediction, spacing, kind = case
    best = [available()[name.partition("@")[0]].best for name in ASKED]
    assert values(reference, reference, spacing, kind) == best
    assert (values(reference, prediction, spacing, kind) == best) == bool((reference == prediction).all())


@examples
@given(cases(), st.data())
def test_the_place_in_the_image_changes_nothing(case, data):
    reference, prediction, spacing, kind = case
    margins = [(data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))) for _ in spacing]
    moved = [np.pad(mask, margins) for mask in (reference, prediction)]
    assert values(*moved, spacing, kind) == values(reference, prediction, spacing, kind)


@examples
@given(cases(), st.data())
def test_the_order_and_direction_of_axes_change_nothing(case, data):
    reference, prediction, spacing, kind = case
    order = data.draw(st.permutations(range(len(spacing))))
    turn = tuple(slice(None, None, data.draw(st.sampled_from([1, -1]))) for _ in spacing)
    turned = [mask.transpose(order)[turn] for mask in (reference, prediction)]
    found = values(*turned, [spacing[axis] for axis in order], kind)
    assert found == close(values(reference, prediction, spacing, kind))


@examples
@given(cases())
def test_cropping_to_the_objects_changes_nothing(case):
    reference, prediction, spacing, kind = case
    around = [np.pad(mask, 3) for mask in (reference, prediction)]
    filled = np.argwhere(around[0] | around[1])
    low, high = filled.min(axis=0), filled.max(axis=0) + 1
    box = tuple(slice(start, stop) for start, stop in zip(low, high, strict=True))
    cropped = [mask[box] for mask in around]
    assert values(*cropped, spacing, kind) == values(reference, prediction, spacing, kind)


@examples
@given(cases(), st.data())
def test_one_voxel_more_changes_little(case, data):
    reference, prediction, spacing, kind = case
    grown = np.pad(prediction, 1)
    # A voxel that shares a face with the mask, and has another that it does not.
    beside = sum(np.roll(grown, way, axis) for axis in range(grown.ndim) for way in (1, -1))
    free = np.argwhere((grown == 0) & (beside > 0) & (beside < 2 * grown.ndim))
    grown[tuple(data.draw(st.sampled_from(free.tolist())))] = 1
    reference, prediction = np.pad(reference, 1), np.pad(prediction, 1)
    before = dict(zip(ASKED, values(reference, prediction, spacing, kind), strict=True))
    after = dict(zip(ASKED, values(reference, grown, spacing, kind), strict=True))
    # 2 |R and P| / (|R| + |P|): the overlap and the sum grow by one at most.
    assert abs(after["dice"] - before["dice"]) <= 2 / (reference.sum() + grown.sum())
    # Every point of either border of the prediction is within a voxel's diagonal of the other.
    assert abs(after["hd"] - before["hd"]) <= math.hypot(*spacing) * (1 + 1e-9)


@examples
@given(cases(), st.sampled_from([0.1, 0.3, 3.0, 10.0]))
def test_distances_grow_with_the_spacing(case, factor):
    reference, prediction, spacing, kind = case
    larger = tuple(step * factor for step in spacing)
    before = values(reference, prediction, spacing, kind, [*DISTANCES, "dice", "nsd@2"])
    after = values(reference, prediction, larger, kind, [*DISTANCES, "dice", f"nsd@{2 * factor}"])
    assert after[:3] == close([value * factor for value in before[:3]])
    assert after[3:] == close(before[3:])


@examples
@given(shapes, st.data())
def test_labels_are_judged_one_by_one(shape, data):
    maps = hnp.arrays(np.int16, shape, elements=st.integers(0, 3))
    reference, prediction = data.draw(maps), data.draw(maps)
    spacing = tuple(data.draw(steps) for _ in shape)
    names = {1: "a", 2: "b", 3: "c"}
    scores = segmentation_scores(reference, prediction, spacing, labels=names, metrics=ASKED)
    # Numbered otherwise, and listed in another order: the same row for each name.
    renumber = np.array([0, *data.draw(st.permutations([5, 9, 300]))], np.int16)
    renamed = {int(renumber[label]): name for label, name in reversed(names.items())}
    again = segmentation_scores(renumber[reference], renumber[prediction], spacing, labels=renamed, metrics=ASKED)
    assert sorted(map(str, again)) == sorted(map(str, scores))
    # And each row is what its label alone gets.
    for label, name in names.items():
        alone = values((reference == label).astype(int), (prediction == label).astype(int), spacing, "surfel")
        assert [score.value for score in scores if score.label == name] == close(alone)


@examples
@given(cases())
def test_metrics_take_a_pair_directly(case):
    reference, prediction, spacing, kind = case
    pair = LabelPair(reference > 0, prediction > 0, spacing, kind)
    assert [assd(pair), hd(pair), hd95(pair), iou(pair)] == values(
        reference, prediction, spacing, kind, ["assd", "hd", "hd95", "iou"]
    )
