"""Geometry: when two grids are the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.case import Geometry, Image, Mask


def affine(spacing=(1.0, 1.0, 1.0), origin=(0.0, 0.0, 0.0)):
    matrix = np.diag([*spacing, 1.0])
    matrix[:3, 3] = origin
    return matrix


def test_spacing_is_the_length_of_each_step_whatever_the_rotation():
    turned = np.array([[0, -2.0, 0, 0], [0.5, 0, 0, 0], [0, 0, 3.0, 0], [0, 0, 0, 1]])
    assert Geometry((4, 4, 4), turned).spacing == (0.5, 2.0, 3.0)


def test_float32_rounding_of_an_affine_is_no_difference():
    exact = affine((0.7421875, 0.7421875, 1.3), (-181.2345678, 77.7777777, 1203.1))
    assert Geometry((512, 512, 300), exact).difference(Geometry((512, 512, 300), exact.astype(np.float32))) is None


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Geometry((4, 5, 7), affine()), r"shape \(4, 5, 7\) instead of \(4, 5, 6\)"),
        (Geometry((4, 5, 6), affine(origin=(0.5, 0, 0))), "up to 0.5 mm apart"),
        (Geometry((4, 5, 6), affine((1, 1, -1))), "up to 10 mm apart"),
        (Geometry((4, 5, 6), affine((1, 1, 1.01))), "0.05 mm apart"),
    ],
)
def test_differences_are_said_in_words(other, words):
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(Geometry((4, 5, 6), affine()).difference(other))


def test_a_flipped_axis_of_one_voxel_is_a_difference():
    assert Geometry((4, 5, 1), affine()).difference(Geometry((4, 5, 1), affine((1, 1, -1)))) is not None


@given(st.tuples(*[st.integers(1, 50)] * 3), st.floats(0.1, 10), st.floats(-500, 500))
def test_a_grid_is_itself_and_differences_go_both_ways(shape, step, start):
    one, moved = (Geometry(shape, affine((step,) * 3, (start + shift, 0, 0))) for shift in (0, step / 2))
    assert one.difference(one) is None
    assert one.difference(moved) is not None
    assert moved.difference(one) is not None


def test_images_have_channels_and_masks_do_not():
    assert Image(np.zeros((2, 3, 4, 5)), affine()).geometry.shape == (3, 4, 5)
    assert Mask(np.zeros((3, 4, 5), int), affine()).geometry.shape == (3, 4, 5)
