"""Degradations beside the libraries whose parameters they take, where these are installed."""

from __future__ import annotations

import re
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pillow
from scipy.ndimage import gaussian_filter

from medimg_eval.case import Array, Condition, Image
from medimg_eval.degradations import DrawKey, degrade_image
from medimg_eval.degradations.moves import Move, about_middle, rotation
from medimg_eval.degradations.mri import bias, ghosting, smoothing
from tests.helpers.authors import require_clone

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


@pytest.mark.slow
def test_kvasirs_weak_augmentation_changes_as_much_as_the_authors_script() -> None:
    clone = require_clone("simula/Kvasir-VQA-x1")
    transforms = pytest.importorskip("torchvision.transforms")
    text = (clone / "README.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^weak = lambda img:.*?\]\)\(img\)$", text, flags=re.DOTALL | re.MULTILINE)
    given = {"T": transforms, "IM": transforms.InterpolationMode}
    exec(source, given)  # noqa: S102
    torch.manual_seed(0)
    shown = _scene()
    pillow = Pillow.fromarray(np.moveaxis(shown.array, 0, -1))
    measured: list[tuple[Array, ...]] = []
    for number in range(400):
        stream = BytesIO()
        given["weak"](pillow).save(stream, "JPEG")
        theirs = np.moveaxis(np.asarray(Pillow.open(stream)), -1, 0)
        ours = degrade_image(shown, Condition("kvasir_x1_weak", 5), DrawKey(0, str(number))).array
        measured.append((_facts(theirs, shown), _facts(ours, shown)))
    theirs, ours = np.array(measured).swapaxes(0, 1)
    # Mean, and spread over draws, of: share of black, distance from the picture, mean, place of its brightest spot.
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), rtol=0.12)
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.2)


def _scene() -> Image:
    """A bright spot off the middle of a smooth coloured picture, nowhere black."""
    rows, columns = np.mgrid[:96, :128]
    spot = 120 * np.exp(-((rows - 30) ** 2 + (columns - 80) ** 2) / 60)
    pixels = np.stack([60 + 0.3 * rows + spot, 80 + 0.2 * columns + spot, 50 + 0.2 * rows + spot])
    return Image(np.rint(np.clip(pixels, 0, 255)).astype(np.uint8), np.eye(4), units="pixel")


def _facts(picture: Array, shown: Image) -> Array:
    black = float((picture.max(axis=0) < 16).mean())
    apart = float(np.abs(picture.astype(float) - shown.array).mean())
    smooth = gaussian_filter(picture.sum(axis=0).astype(float), 2)
    row, column = np.unravel_index(int(smooth.argmax()), smooth.shape)
    return np.array([black, apart, picture.mean(), row, column])
