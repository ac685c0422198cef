"""Degradations beside the libraries whose parameters they take, where these are installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from medimg_eval.case import Image
from medimg_eval.degradations.moves import Move, about_middle, rotation
from medimg_eval.degradations.mri import bias, ghosting, smoothing

SPACING = np.array([1, 1.5, 2])


class Chosen:
    """A generator that chooses an axis."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def integers(self, end: int) -> int:
        return self.axis


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Image, Any]:
    tio = pytest.importorskip("torchio")
    from scipy.ndimage import gaussian_filter

    pixels = gaussian_filter(np.random.default_rng(0).random((40, 44, 37)), 4).astype(np.float32)
    pixels = (pixels - pixels.min()) * 500
    image = Image(pixels[None], np.diag([*SPACING, 1]), modality="MR")
    return tio, image, tio.ScalarImage(tensor=pixels[None], affine=image.affine)


def test_bias_ghosts_and_blur_equal_those_of_torchio(pair: tuple[Any, Image, Any]) -> None:
    tio, image, theirs = pair
    factors = np.random.default_rng(1).uniform(-1, 1, 20)
    expected = tio.transforms.BiasField.generate_bias_field(theirs.data, 3, list(factors))
    np.testing.assert_allclose(bias(factors, image.array.shape[1:]), expected, rtol=1e-5)
    for axis, number, intensity in ((0, 3, 0.5), (1, 11, 2.5)):
        expected = np.maximum(tio.transforms.Ghosting(number, axis, intensity, None)(theirs).data.numpy(), 0)
        found = ghosting(image, Chosen(axis), number=number, intensity=intensity)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected, atol=1e-5 * expected.max())
    expected = tio.transforms.Blur((2.4,) * 3)(theirs).data.numpy()
    np.testing.assert_allclose(smoothing(image, np.random.default_rng(), millimetres=2.4), expected, atol=1e-4)


def test_turns_and_shifts_go_as_those_of_torchio_inside(pair: tuple[Any, Image, Any]) -> None:
    tio, image, theirs = pair
    degrees, millimetres, inside = np.array([20.0, -14, 17]), np.array([3.0, -2, 4]), (slice(11, -11),) * 3
    turned = tio.transforms.Affine((1, 1, 1), degrees, np.zeros(3))(theirs).data.numpy()[0]
    linear = rotation(degrees).T * SPACING / SPACING[:, None]
    found = Move(about_middle(linear, np.zeros(3), image.array.shape[1:])).image(image).array[0]
    np.testing.assert_allclose(found[inside], turned[inside], atol=1e-3 * turned.max())
    shifted = tio.transforms.Affine((1, 1, 1), np.zeros(3), millimetres)(theirs).data.numpy()[0]
    found = Move(about_middle(np.eye(3), -millimetres / SPACING, image.array.shape[1:])).image(image).array[0]
    np.testing.assert_allclose(found[inside], shifted[inside], atol=1e-3 * shifted.max())
