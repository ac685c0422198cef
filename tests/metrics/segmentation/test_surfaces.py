"""The surface that each 2x2x2 code carries: by hand, and against two tables made by others."""

import math

import numpy as np
import pytest
from monai.metrics.utils import get_code_to_measure_table
from surface_distance import lookup_tables

from medimg_eval.metrics.segmentation import surfaces as _border
from medimg_eval.metrics.segmentation.surfaces import surfel_border, surfel_measures, voxel_border

SPACINGS = [(1.0, 1.0, 1.0), (0.8, 0.8, 1.5), (5.0, 1.0, 1.0), (0.7, 1.3, 2.9), (0.05, 11.0, 1.0)]
FLAT_SPACINGS = [(1.0, 1.0), (0.7, 1.9), (12.0, 0.3)]


@pytest.mark.parametrize("spacing", SPACINGS)
def test_all_256_areas_equal_surface_distance(spacing):
    expected = lookup_tables.create_table_neighbour_code_to_surface_area(spacing)
    np.testing.assert_allclose(surfel_measures(spacing), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("spacing", SPACINGS)
def test_all_256_areas_equal_monai(spacing):
    table = get_code_to_measure_table(spacing)[0].numpy().ravel()
    np.testing.assert_allclose(surfel_measures(spacing), table, rtol=1e-6, atol=0)  # MONAI's is float32


@pytest.mark.parametrize("spacing", FLAT_SPACINGS)
def test_all_16_lengths_equal_surface_distance_and_monai(spacing):
    expected = lookup_tables.create_table_neighbour_code_to_contour_length(spacing)
    np.testing.assert_allclose(surfel_measures(spacing), expected, rtol=1e-14, atol=0)
    table = get_code_to_measure_table(spacing)[0].numpy().ravel()
    np.testing.assert_allclose(surfel_measures(spacing), table, rtol=1e-6, atol=0)


def test_codes_worked_by_hand():
    areas = surfel_measures((1.0, 1.0, 1.0))
    assert areas[0] == areas[255] == 0
    # One corner: a triangle with sides of sqrt(1/2).
    assert areas[1] == pytest.approx(math.sqrt(3) / 8)
    # Two corners of an edge: a rectangle of 1 x sqrt(1/2).
    assert areas[0b11] == pytest.approx(math.sqrt(0.5))
    # Four corners of a face: the square in the middle.
    assert areas[0b1111] == pytest.approx(1)
    # Two opposite corners: two triangles.
    assert areas[0b10000001] == pytest.approx(math.sqrt(3) / 4)
    # The first axis is the last to change, so bits 0-3 are one slice along it: spanned by axes 1 and 2.
    assert surfel_measures((5.0, 2.0, 3.0))[0b1111] == pytest.approx(2 * 3)


def test_a_table_is_not_changed_by_who_reads_it():
    with pytest.raises(ValueError, match="read-only"):
        surfel_measures((1.0, 1.0))[0] = 1


def surface(label_map, spacing, kind, label=1):
    """Points (mm from the centre of the first voxel) and weights of a label's surface."""
    codes, labels = np.pad(np.asarray(label_map, np.uint8), 2), int(np.max(label_map))
    border = voxel_border(codes, labels) if kind == "voxel" else surfel_border(codes, labels, spacing)
    mine = border.label == label
    places = np.stack(np.unravel_index(border.index[mine], codes.shape), axis=1) - 2
    shift = 0 if kind == "voxel" else 0.5  # a corner lies half a voxel after the first voxel at it
    return (places + shift) * np.asarray(spacing), border.weights[border.cell[mine]]


def test_voxel_surface_leaves_out_the_inside():
    # 3 x 3 x 3 without its centre, at (3, 3, 3) voxels from the first.
    points, weights = surface(np.pad(np.ones((3, 3, 3), bool), 2), (5, 1, 2), "voxel")
    assert len(points) == 26
    assert (weights == 1).all()
    assert [15, 3, 6] not in points.tolist()
    assert points.min(axis=0).tolist() == [10, 2, 4]
    assert points.max(axis=0).tolist() == [20, 4, 8]


def test_voxel_surface_has_the_image_border():
    points, _ = surface(np.ones((3, 3, 3), bool), (1, 1, 1), "voxel")
    assert len(points) == 26


def test_surfel_surface_of_a_cube():
    # 2 x 2 x 2 voxels: 8 corners sqrt(3)/8, 12 edge middles 1 x sqrt(1/2), 6 face middles 1.
    points, weights = surface(np.ones((2, 2, 2), bool), (1, 1, 1), "surfel")
    assert len(points) == 26
    assert weights.sum() == pytest.approx(math.sqrt(3) + 12 * math.sqrt(0.5) + 6)
    assert points.min() == -0.5
    assert points.max() == 1.5


def test_surfel_surface_of_a_square():
    # 2 x 2 pixels of 1 x 3 mm: 4 corners cut by sqrt(.5^2 + 1.5^2), two sides of 1 and two of 3.
    points, weights = surface(np.pad(np.ones((2, 2), bool), 1), (1, 3), "surfel")
    assert len(points) == 8
    assert weights.sum() == pytest.approx(4 * math.sqrt(2.5) + 2 * 1 + 2 * 3)


@pytest.mark.parametrize("tables", [True, False])
def test_a_corner_belongs_to_each_label_at_it(monkeypatch, tables):
    if not tables:
        monkeypatch.setattr(_border, "LONGEST_TABLE", 0)
    labels = np.array([[1, 2], [3, 4]])
    for label, middle in ((1, (0.5, 0.5)), (4, (0.5, 0.5))):
        points, weights = surface(labels, (1.0, 1.0), "surfel", label)
        # Each pixel has four corners, of sqrt(1/2) each; the middle one is everybody's.
        assert len(points) == 4
        assert list(middle) in points.tolist()
        assert weights == pytest.approx(math.sqrt(0.5))
    border = surfel_border(np.pad(labels.astype(np.uint8), 2), 4, (1.0, 1.0))
    assert len(border.places) == 9
    middle = border.places.tolist().index(2 * 6 + 2)
    assert border.sets[border.numbers[middle] - 5].tolist() == [False, True, True, True, True]
