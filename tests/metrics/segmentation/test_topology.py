"""Centrelines and Betti numbers: by hand, against scikit-image, and against homology done with matrices."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.ndimage import gaussian_filter, label
from skimage.measure import euler_number
from skimage.morphology import skeletonize

from medimg_eval.metrics import LabelPair, get, segmentation_scores
from medimg_eval.metrics.segmentation import topology
from medimg_eval.metrics.segmentation.topology import (
    betti0_error,
    betti1_error,
    betti2_error,
    betti_error,
    centreline,
    centreline_precision,
    centreline_sensitivity,
    cldice,
    euler_error,
)

LINES = (cldice, centreline_precision, centreline_sensitivity)
NUMBERS = (betti_error, betti0_error, betti1_error, betti2_error, euler_error)

small = hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=4)
masks = small.flatmap(lambda shape: hnp.arrays(bool, shape))


def pair_of(reference, prediction, spacing=None):
    return LabelPair(reference, prediction, spacing or (1,) * reference.ndim)


def blob(shape, seed):
    return gaussian_filter(np.random.default_rng(seed).standard_normal(shape), 1.2) > 0.03


def betti_by_matrices(mask):
    """Returns the Betti numbers from the ranks of the boundary matrices of the complex of closed voxels."""
    cells = set()
    for place in np.argwhere(mask):
        # A cell by its place in half voxels: odd where it spans the axis, even where it is flat.
        cells |= set(itertools.product(*((2 * i, 2 * i + 1, 2 * i + 2) for i in place.tolist())))
    by_dimension = [[c for c in cells if sum(i % 2 for i in c) == k] for k in range(mask.ndim + 1)]
    ranks = [0]
    for k in range(1, mask.ndim + 1):
        row = {cell: index for index, cell in enumerate(by_dimension[k - 1])}
        matrix = np.zeros((len(row), len(by_dimension[k])))
        for column, cell in enumerate(by_dimension[k]):
            for order, axis in enumerate(axis for axis in range(mask.ndim) if cell[axis] % 2):
                for side in (-1, 1):
                    face = (*cell[:axis], cell[axis] + side, *cell[axis + 1 :])
                    matrix[row[face], column] = side * (-1) ** order
        ranks.append(np.linalg.matrix_rank(matrix) if matrix.size else 0)
    ranks.append(0)
    numbers = [len(by_dimension[k]) - ranks[k] - ranks[k + 1] for k in range(mask.ndim + 1)]
    return tuple(int(number) for number in numbers[:3])


# --- centrelines ---


def test_lines_worked_out_by_hand():
    # Two lines of one voxel's width, which are their own centrelines, sharing 6 of 10 and of 8 voxels.
    reference, prediction = np.zeros((2, 3, 3, 14), bool)
    reference[1, 1, :10] = True
    prediction[1, 1, 4:12] = True
    pair = pair_of(reference, prediction, (1, 1, 3))
    assert centreline_precision(pair) == 6 / 8
    assert centreline_sensitivity(pair) == 6 / 10
    assert cldice(pair) == pytest.approx(2 * 0.75 * 0.6 / 1.35)


def test_a_thicker_vessel_has_the_same_centreline():
    thin, thick = np.zeros((2, 9, 40), bool)
    thin[4, 5:35] = True
    thick[3:6, 4:36] = True
    pair = pair_of(thin, thick)
    assert centreline_sensitivity(pair) == 1
    assert cldice(pair) > 0.95
    assert 2 * 30 / (30 + 96) < 0.5  # their Dice


def test_a_cut_vessel_costs_the_cut():
    whole = np.zeros((5, 5, 30), bool)
    whole[1:4, 1:4] = True
    cut = whole.copy()
    cut[:, :, 10:16] = False
    pair = pair_of(whole, cut)
    line = skeletonize(whole) > 0
    assert centreline_precision(pair) == 1
    assert centreline_sensitivity(pair) == pytest.approx(1 - line[:, :, 10:16].sum() / line.sum())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 10])
@pytest.mark.parametrize("axes", [2, 3])
def test_identical_cubes_score_one(size, axes):
    # scikit-image thins cubes of 2, 4, 8 and 10 voxels to nothing.
    cube = np.pad(np.ones((size,) * axes, bool), 1)
    assert cldice(pair_of(cube, cube)) == 1
    # A cube beside it, touching nowhere, has none of it.
    beside = np.concatenate([cube, np.zeros_like(cube)]), np.concatenate([np.zeros_like(cube), cube])
    assert [function(pair_of(*beside)) for function in LINES] == [0, 0, 0]


def test_a_part_that_thinning_loses_keeps_its_deepest_voxels():
    # A tube of 4 x 4 voxels, which vanishes, beside a line, which does not.
    mask = np.zeros((4, 12, 40), bool)
    mask[:, :4] = True
    mask[1, 10] = True
    assert not skeletonize(mask)[:, :4].any()
    line = centreline(mask, (1, 1, 1))
    assert line[1, 10].sum() == skeletonize(mask)[1, 10].sum() > 30
    expected = np.zeros_like(mask[:, :4])
    expected[1:3, 1:3, 1:-1] = True  # 2 mm from what is outside, all along
    assert np.array_equal(line[:, :4], expected)
    # Depth is in mm: with slices 5 mm apart the middle is where the other two axes say, up to the ends.
    assert centreline(mask, (1, 1, 5))[:, :4].sum() == 2 * 2 * 40


@pytest.mark.parametrize("shape", [(60, 70), (20, 24, 22)])
@pytest.mark.parametrize("seed", range(3))
def test_cldice_equals_its_formula_on_scikit_images_skeletons(shape, seed):
    reference, prediction = blob(shape, seed), blob(shape, seed) & ~blob(shape, seed + 10)
    for mask in (reference, prediction):
        parts, count = label(mask, np.ones((3,) * mask.ndim))
        # Without the parts that thinning loses, on which we and the formula differ.
        lost = set(range(1, count + 1)) - set(parts[skeletonize(mask)])
        mask[np.isin(parts, list(lost))] = False
    pair = pair_of(reference, prediction, (2.0, 0.8, 0.8)[: len(shape)])
    lines = [skeletonize(mask) for mask in (reference, prediction)]
    sensitivity = lines[0][prediction].sum() / lines[0].sum()
    precision = lines[1][reference].sum() / lines[1].sum()
    assert centreline_sensitivity(pair) == pytest.approx(sensitivity, rel=1e-12)
    assert centreline_precision(pair) == pytest.approx(precision, rel=1e-12)
    assert cldice(pair) == pytest.approx(2 * precision * sensitivity / (precision + sensitivity), rel=1e-12)


@settings(deadline=None, max_examples=30)
@given(small.flatmap(lambda shape: st.tuples(hnp.arrays(bool, shape), hnp.arrays(bool, shape))))
def test_centrelines_of_any_masks(case):
    reference, prediction = case
    for mask in case:
        line = centreline(mask, (1.5,) * mask.ndim)
        parts, count = label(mask, np.ones((3,) * mask.ndim))
        assert not (line & ~mask).any()
        assert len(set(parts[line])) == count
    pair, swapped = pair_of(reference, prediction), pair_of(prediction, reference)
    assert cldice(pair) == pytest.approx(cldice(swapped), nan_ok=True)
    assert centreline_precision(pair) == pytest.approx(centreline_sensitivity(swapped), nan_ok=True)
    if reference.any():
        assert cldice(pair_of(reference, reference)) == 1
        assert 0 <= centreline_sensitivity(pair) <= 1
        assert 0 <= cldice(pair) <= 1
        moved = [np.pad(mask, [(2, 3)] * mask.ndim) for mask in case]
        assert cldice(pair_of(*moved)) == cldice(pair)


# --- Betti numbers ---


def solid(*shape):
    return np.ones(shape, bool)


def without(mask, *place):
    mask[place] = False
    return mask


def both(one, other):
    gap = np.zeros((1, *one.shape[1:]), bool)
    return np.concatenate([one, gap, other])


BODIES = {
    "square": (solid(3, 3), (1, 0, 0)),
    "ring of pixels": (without(solid(3, 3), 1, 1), (1, 1, 0)),
    "ring of corners": (np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], bool), (1, 1, 0)),
    "two squares": (both(solid(2, 3), solid(2, 3)), (2, 0, 0)),
    "8": (without(without(solid(3, 5), 1, 1), 1, 3), (1, 2, 0)),
    "corner to corner": (np.eye(3, dtype=bool), (1, 0, 0)),
    "holes that touch by a corner": (without(without(solid(4, 4), 1, 1), 2, 2), (1, 2, 0)),
    "cube": (solid(3, 3, 3), (1, 0, 0)),
    "shell": (without(solid(3, 3, 3), 1, 1, 1), (1, 0, 1)),
    "torus": (without(solid(3, 3, 1), 1, 1, 0), (1, 1, 0)),
    "tube": (without(solid(3, 3, 5), 1, 1, slice(None)), (1, 1, 0)),
    "two shells": (both(*(without(solid(3, 3, 3), 1, 1, 1) for _ in range(2))), (2, 0, 2)),
    "frame of a cube": (
        np.pad(without(without(without(solid(3, 3, 3), 1, 1), slice(None), 1, 1), 1, slice(None), 1), 1),
        (1, 5, 0),
    ),
    "cube in a shell": (
        np.pad(np.pad(solid(1, 1, 1), 1), 1, constant_values=True),
        (2, 0, 1),
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_betti_numbers_of_known_bodies(name):
    body, numbers = BODIES[name]
    assert topology._betti_numbers(body) == betti_by_matrices(body) == numbers
    dot = np.zeros_like(body)
    dot[tuple(np.argwhere(body)[0])] = True
    pair = pair_of(body, dot)
    expected = [abs(numbers[0] - 1), numbers[1], numbers[2]]
    assert [betti0_error(pair), betti1_error(pair), betti2_error(pair)] == expected
    assert betti_error(pair) == sum(expected)
    assert euler_error(pair) == abs(numbers[0] - numbers[1] + numbers[2] - 1)
    # An empty mask has none of any.
    missed = pair_of(body, np.zeros_like(body))
    assert [betti0_error(missed), betti1_error(missed), betti2_error(missed)] == list(numbers)
    assert betti_error(missed) == sum(numbers)


@settings(deadline=None, max_examples=30)
@given(masks)
def test_betti_numbers_equal_homology(mask):
    assert topology._betti_numbers(mask) == betti_by_matrices(mask)
    assert topology._betti_numbers(np.pad(mask, 2)) == topology._betti_numbers(mask)


@pytest.mark.parametrize("shape", [(50, 60), (20, 24, 22)])
@pytest.mark.parametrize("seed", range(4))
def test_the_euler_characteristic_equals_scikit_images(shape, seed):
    rough = np.random.default_rng(seed).random(shape) < 0.4
    smooth = blob(shape, seed)
    expected = [euler_number(mask, connectivity=mask.ndim) for mask in (rough, smooth)]
    assert [topology._euler_characteristic(mask) for mask in (rough, smooth)] == expected
    assert euler_error(pair_of(rough, smooth)) == abs(expected[0] - expected[1])
    parts, tunnels, cavities = topology._betti_numbers(rough)
    assert parts - tunnels + cavities == expected[0]


# --- both ---


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5)])
def test_empty_masks(shape):
    empty, full = np.zeros(shape, bool), np.ones(shape, bool)
    asked = [function.__name__ for function in (*LINES, *NUMBERS)]

    def values(reference, prediction):
        scores = segmentation_scores(
            reference.astype(int), prediction.astype(int), (1,) * len(shape), labels=[1], metrics=asked
        )
        return [score.value for score in scores]

    # One part too few or too many.
    for masks in ((full, empty), (empty, full)):
        assert values(*masks) == [0, 0, 0, 1, 1, 0, 0, 1]
        assert cldice(pair_of(*masks)) == 0
    assert math.isnan(centreline_precision(pair_of(full, empty)))
    assert math.isnan(centreline_sensitivity(pair_of(empty, full)))
    assert np.isnan(values(empty, empty)).all()
    assert np.isnan([function(pair_of(empty, empty)) for function in (*LINES, *NUMBERS)]).all()
    assert values(full, full) == [1, 1, 1, 0, 0, 0, 0, 0]


def test_errors_without_a_bound_have_no_worst_value():
    assert all(math.isnan(get(function.__name__).worst) for function in NUMBERS)
