"""Boundary IoU: by hand, and against the definition voxel by voxel."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.ndimage import binary_erosion, gaussian_filter

from medimg_eval.errors import UsageError
from medimg_eval.metrics import LabelPair, segmentation_scores
from medimg_eval.metrics.segmentation import boundary
from medimg_eval.metrics.segmentation.boundary import boundary_iou
from medimg_eval.metrics.segmentation.overlap import iou

maps = hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=5).flatmap(
    lambda shape: st.tuples(hnp.arrays(bool, shape), hnp.arrays(bool, shape))
)
steps = st.sampled_from([0.3, 0.8, 1.0, 1.5, 5.0])
lengths = st.sampled_from([0, 0.5, 0.8, 1, 1.6, 2.4, 3, 7])


def border(mask, spacing, distance):
    """The inner border by its definition: every voxel against every voxel outside."""
    padded = np.pad(mask, 1)
    outside = np.argwhere(~padded)
    found = np.zeros_like(padded)
    for place in np.argwhere(padded):
        apart = np.abs(outside - place)
        near = np.sqrt(((apart * spacing) ** 2).sum(axis=1)) <= distance * (1 + 1e-6)
        found[tuple(place)] = near.any() or (apart.sum(axis=1) == 1).any()
    return found


def by_definition(reference, prediction, spacing, distance):
    one, other = (border(mask, spacing, distance) for mask in (reference, prediction))
    return (one & other).sum() / (one | other).sum()


@pytest.fixture(params=[math.inf, 0], ids=["shifts", "distance transform"])
def way(request, monkeypatch):
    """Either way of finding the border."""
    monkeypatch.setattr(boundary, "MANY_SHIFTS", request.param)


def test_squares_worked_out_by_hand(way):
    # A square of 6 x 6 pixels against one of 4 x 4 in its middle.
    large = np.pad(np.ones((6, 6), bool), 2)
    small = np.pad(np.ones((4, 4), bool), 3)
    pair = LabelPair(large, small, (1, 1))
    assert boundary_iou(pair, 1) == 0  # outlines of 20 and 12 pixels, side by side
    assert boundary_iou(pair, 2) == 12 / 36  # 32 of the large one, and all 16 of the small one
    assert boundary_iou(pair, 3) == 16 / 36 == iou(pair)  # both fully


def test_the_distance_is_in_mm(way):
    # 5 x 5 pixels of 3 x 1 mm, and the same without the middle row.
    full = np.ones((5, 5), bool)
    split = full & (np.arange(5) != 2)[:, None]
    pair = LabelPair(full, split, (3, 1))
    # The outline of 16; split, all of 20. At 2 mm the full square has the columns beside its outline too.
    assert boundary_iou(pair, 1) == 14 / 22
    assert boundary_iou(pair, 2) == 18 / 24
    assert boundary_iou(pair, 3) == 20 / 25


def test_a_band_is_never_empty(way):
    # A distance below the voxel's size is the outline.
    mask = np.ones((4, 4, 4), bool)
    shell = mask.copy()
    shell[1:3, 1:3, 1:3] = False
    for distance in (0, 0.1, 4.9):
        assert boundary_iou(LabelPair(mask, shell, (5, 5, 5)), distance) == 1
    assert boundary_iou(LabelPair(mask, shell, (5, 1, 5)), 1) == 1


def test_the_image_border_is_a_border(way):
    reference, prediction = np.ones((6, 5), bool), np.ones((6, 5), bool)
    prediction[:2] = False
    touching = boundary_iou(LabelPair(reference, prediction, (1, 1)), 1)
    inside = boundary_iou(LabelPair(np.pad(reference, 3), np.pad(prediction, 3), (1, 1)), 1)
    assert touching == inside == 11 / 21


def test_a_distance_at_the_limit_is_within_it(way):
    # 3 * 0.8 is 2.4000000000000004 in float64.
    full = np.ones((1, 9, 9), bool)[0]
    dot = full.copy()
    dot[3:6, 3:6] = False
    assert boundary_iou(LabelPair(full, dot, (0.8, 0.8)), 2.4) == 1


def test_one_pixel_equals_an_erosion(way):
    random = np.random.default_rng(0)
    one, other = (gaussian_filter(random.standard_normal((40, 50)), 2) > 0 for _ in range(2))
    edges = [mask & ~binary_erosion(mask) for mask in (one, other)]
    expected = (edges[0] & edges[1]).sum() / (edges[0] | edges[1]).sum()
    assert boundary_iou(LabelPair(one, other, (1, 1)), 1) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (2.5, 0.8, 0.8), (0.7, 0.9, 4.0)])
def test_values_equal_the_definition(way, spacing):
    random = np.random.default_rng(1)
    noise = random.standard_normal((2, 9, 10, 8))
    one, other = (gaussian_filter(field, 1.5) > 0 for field in (noise[0], noise[0] + 0.5 * noise[1]))
    for distance in (0.5, 0.8, 1.6, 2.5, 4):
        found = boundary_iou(LabelPair(one, other, spacing), distance)
        assert found == pytest.approx(by_definition(one, other, spacing, distance), rel=1e-12)


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5)])
def test_empty_masks(shape):
    empty, full = np.zeros(shape, np.uint8), np.ones(shape, np.uint8)
    spacing = (1,) * len(shape)
    for one, other, value in ((full, empty, 0), (empty, full, 0), (empty, empty, math.nan), (full, full, 1)):
        score = segmentation_scores(one, other, spacing, labels=[1], metrics=["boundary_iou@2"])[0].value
        assert score == pytest.approx(value, nan_ok=True)
        direct = boundary_iou(LabelPair(one > 0, other > 0, spacing), 2)
        assert direct == pytest.approx(value, nan_ok=True)


def test_the_distance_must_be_given():
    mask = np.eye(3, dtype=int)
    with pytest.raises(UsageError, match=r"'boundary_iou' needs a parameter \(distance in mm\)"):
        segmentation_scores(mask, mask, (1, 1), labels=[1], metrics=["boundary_iou"])


@settings(deadline=None, max_examples=30)
@given(maps, steps, steps, steps, lengths)
def test_either_way_equals_the_definition(case, x, y, z, distance):
    reference, prediction = case
    spacing = (x, y, z)[: reference.ndim]
    pair = LabelPair(reference, prediction, spacing)
    found = boundary_iou(pair, distance)
    assert found == pytest.approx(boundary_iou(LabelPair(prediction, reference, spacing), distance), nan_ok=True)
    if not (reference | prediction).any():
        assert math.isnan(found)
        return
    expected = pytest.approx(by_definition(reference, prediction, spacing, distance), rel=1e-12)
    assert found == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boundary, "MANY_SHIFTS", 0)
        assert boundary_iou(pair, distance) == expected
    assert boundary_iou(pair, 1000) == pytest.approx(iou(pair))


def test_turning_the_image_changes_nothing():
    random = np.random.default_rng(2)
    masks = [gaussian_filter(random.standard_normal((7, 9, 8)), 1) > 0 for _ in range(2)]
    spacing = (2.0, 0.7, 1.0)
    expected = boundary_iou(LabelPair(*masks, spacing), 1.5)
    for order in itertools.permutations(range(3)):
        turned = [mask.transpose(order)[::-1] for mask in masks]
        assert boundary_iou(LabelPair(*turned, [spacing[axis] for axis in order]), 1.5) == expected
