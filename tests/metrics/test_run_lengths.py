"""Masks as runs: by hand, against plain arrays, and to the pixel as pycocotools draws and compares them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as pycoco

from medimg_eval.metrics.run_lengths import (
    areas_of_runs,
    box_of_runs,
    coco_runs,
    mask_overlaps,
    mask_runs,
    objects_as_runs,
    shared_pixels,
)

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of pycocotools


def drawn(runs, shape):
    """A plain mask from runs, pixel by pixel."""
    flat = np.zeros(shape[0] * shape[1], np.uint8)
    for first, end in runs.tolist():
        flat[first:end] = 1
    return flat.reshape(shape[::-1]).T


def encoded(mask):
    return pycoco.encode(np.asfortranarray(mask.astype(np.uint8)))


def test_runs_go_down_the_columns():
    mask = np.array([[0, 1, 0], [1, 1, 0]])
    runs = mask_runs(mask)
    assert runs.tolist() == [[1, 4]]  # row 1 of column 0, then both of column 1
    assert areas_of_runs([runs, runs[:0]]).tolist() == [3, 0]
    assert box_of_runs(runs, 2) == (0, 0, 2, 2)
    assert box_of_runs(runs[:0], 2) == (0, 0, 0, 0)
    assert coco_runs({"size": [2, 3], "counts": [1, 3, 2]}, (2, 3)).tolist() == [[1, 4]]


def test_numbered_objects_have_their_own_runs():
    numbers = np.array([[3, 3, 0], [9, 3, 9]])
    found, runs = objects_as_runs(numbers)
    assert found == [3, 9]
    assert [one.tolist() for one in runs] == [[[0, 1], [2, 4]], [[1, 2], [5, 6]]]
    assert objects_as_runs(np.zeros((2, 3), int)) == ([], [])


def test_a_crowd_is_measured_by_the_candidate_alone():
    candidate, crowd = mask_runs(np.eye(2)), mask_runs(np.array([[1, 1], [0, 0]]))
    assert shared_pixels([candidate], [crowd]).tolist() == [[1]]
    both = mask_overlaps([candidate], [crowd, crowd], np.array([False, True]))
    np.testing.assert_allclose(both, [[1 / 3, 1 / 2]])
    nothing = mask_runs(np.zeros((2, 2)))
    assert mask_overlaps([nothing], [nothing, crowd], np.array([False, True])).tolist() == [[0, 0]]
    assert mask_overlaps([], [crowd], np.array([False])).shape == (0, 1)


@pytest.mark.parametrize(
    ("segmentation", "words"),
    [
        ("text", "expected outlines"),
        ({"size": [2, 3]}, "expected outlines"),
        ({"size": [3, 2], "counts": [6]}, "do not fill"),
        ({"size": [2, 3], "counts": [7, -1]}, "do not fill"),
        ({"size": [2, 3], "counts": [5]}, "runs of 5 pixels"),
        ([[0, 1, 2]], "expected lists"),
        ([[0, 1, 2, float("nan")]], "expected lists"),
    ],
)
def test_what_is_no_mask_is_refused(segmentation, words):
    with pytest.raises(ValueError, match=words):
        coco_runs(segmentation, (2, 3))


def test_no_outline_is_an_empty_mask():
    assert coco_runs([], (2, 3)).shape == coco_runs([[]], (2, 3)).shape == (0, 2)


shapes = st.tuples(st.integers(1, 20), st.integers(1, 20))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**31), shapes, st.integers(0, 2))
def test_outlines_are_drawn_as_pycocotools_draws_them(seed, shape, decimals):
    random = np.random.default_rng(seed)
    corners = [random.uniform(-3, 23, (random.integers(3, 9), 2)).round(decimals) for _ in range(random.integers(1, 4))]
    outlines = [part.ravel().tolist() for part in corners]
    expected = pycoco.decode(pycoco.merge(pycoco.frPyObjects(outlines, *shape)))
    runs = coco_runs(outlines, shape)
    np.testing.assert_array_equal(drawn(runs, shape), expected)
    np.testing.assert_array_equal(runs, mask_runs(expected))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), shapes, st.floats(0, 1))
def test_overlaps_areas_and_boxes_are_those_of_pycocotools(seed, shape, share):
    random = np.random.default_rng(seed)
    masks, others = (random.random((4, *shape)) < random.choice([0, share, 1], (4, 1, 1)) for _ in range(2))
    crowds = random.random(4) < 0.5
    runs, other_runs = ([mask_runs(mask) for mask in some] for some in (masks, others))
    expected = pycoco.iou([*map(encoded, masks)], [*map(encoded, others)], crowds.astype(int).tolist())
    np.testing.assert_allclose(mask_overlaps(runs, other_runs, crowds), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(shared_pixels(runs, other_runs), np.einsum("ihw,jhw->ij", masks * 1, others * 1))
    for mask, one in zip(masks, runs, strict=True):
        text = encoded(mask)
        assert box_of_runs(one, shape[0]) == tuple(pycoco.toBbox(text))
        np.testing.assert_array_equal(drawn(one, shape), mask)
        counts = {"size": list(shape), "counts": text["counts"].decode()}
        np.testing.assert_array_equal(coco_runs(counts, shape), one)
