"""Degradations of sections stained by haematoxylin and eosin: stain, focus, pen, folds."""

from __future__ import annotations

from functools import partial

import numpy as np

from medimg_eval.case import Array, Image
from medimg_eval.degradations.declaration import degradation
from medimg_eval.degradations.scaling import as_unit, from_unit
from medimg_eval.errors import CaseError

_section = partial(degradation, axes=2, modalities=("SM", "GM"))

MICROMETRES = 0.5
"""Edge of a pixel where the image says none: that of 20 times magnified slides."""

MOST_STROKES = 8


def _require_colour(image: Image) -> Array:
    if len(image.array) != 3:
        raise CaseError(f"the condition is of colours, and the image has {len(image.array)} channels")
    return as_unit(image)


@_section(
    "he_stain",
    levels={"share": (0.05, 0.1, 0.15, 0.2, 0.3)},
    unit="share by which each stain's density is more or less, and a fifth of it that is added",
    source="ours; stains of Ruifrok and Johnston 2001 (scikit-image's vectors), shifts as of Tellez et al. 2019 "
    "(doi 10.1016/j.media.2019.101544)",
)
def stain(image: Image, draw: np.random.Generator, *, share: float) -> Array:
    """Other densities of haematoxylin and eosin, each more or less."""
    from skimage.color import hed_from_rgb, rgb_from_hed

    signs = draw.choice([-1.0, 1.0], (2, 3))
    optical = -np.log10(np.maximum(np.moveaxis(_require_colour(image), 0, -1), 1 / 255))
    densities = optical @ hed_from_rgb  # those below 0 are kept, so that nothing changes without a share
    changed = densities * (1 + share * signs[0]) + 0.2 * share * signs[1] * densities.std(axis=(0, 1))
    return from_unit(image, np.moveaxis(10 ** -(changed @ rgb_from_hed), -1, 0))


@_section(
    "he_defocus",
    levels={"micrometres": (0.5, 1.0, 2.0, 3.0, 4.0)},
    unit="standard deviation in micrometres; a pixel is 0.5 where the image says nothing",
)
def defocus(image: Image, draw: np.random.Generator, *, micrometres: float) -> Array:
    """A section out of focus."""
    from scipy.ndimage import gaussian_filter

    edge = MICROMETRES if image.units == "pixel" else 1000 * image.spacing[0]
    return from_unit(image, gaussian_filter(as_unit(image), (0, micrometres / edge, micrometres / edge)))


def _draw_stroke(shape: tuple[int, ...], units: Array, width: float) -> Array:
    """Band along a bent line, bool (row, column)."""
    height, across = shape
    rows, columns = np.mgrid[:height, :across]
    angle = np.pi * units[0]
    along = (columns - units[1] * across) * np.cos(angle) + (rows - units[2] * height) * np.sin(angle)
    off = -(columns - units[1] * across) * np.sin(angle) + (rows - units[2] * height) * np.cos(angle)
    size = min(shape)
    bent = off + 0.08 * size * np.sin(2 * np.pi * along / size + 2 * np.pi * units[3])
    return np.asarray(np.abs(bent) < width * size / 2)


@_section("he_pen", levels={"strokes": (1, 2, 3, 4, 5)}, unit="number of strokes, a twentieth of the side wide")
def pen(image: Image, draw: np.random.Generator, *, strokes: int) -> Array:
    """Pen strokes, blue, green or black, nested by severity."""
    pixels, units = _require_colour(image).copy(), draw.random((MOST_STROKES, 5))
    for own in units[:strokes]:
        colour = np.array([(0.1, 0.15, 0.6), (0.05, 0.45, 0.2), (0.05, 0.05, 0.05)][int(3 * own[4])])
        band = _draw_stroke(pixels.shape[1:], own, 0.05)
        pixels[:, band] = 0.25 * pixels[:, band] + 0.75 * colour[:, None]
    return from_unit(image, pixels)


@_section("he_fold", levels={"folds": (1, 2, 3, 4, 5)}, unit="number of folds, a fifteenth of the side wide")
def fold(image: Image, draw: np.random.Generator, *, folds: int) -> Array:
    """Tissue folds of double density, nested by severity."""
    pixels, units = as_unit(image), draw.random((MOST_STROKES, 4))
    twice = np.zeros(pixels.shape[1:], bool)
    for own in units[:folds]:
        twice |= _draw_stroke(pixels.shape[1:], own, 1 / 15)
    return from_unit(image, np.where(twice, pixels**2, pixels))
