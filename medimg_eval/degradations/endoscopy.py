"""Degradations of endoscopic pictures: reflections, movement, smoke, blood, light at the border."""

from __future__ import annotations

from functools import partial

import numpy as np

from medimg_eval.case import Array, Image
from medimg_eval.degradations.declaration import degradation
from medimg_eval.degradations.scaling import as_unit, from_unit
from medimg_eval.degradations.xray import blurred_along

_endoscopy = partial(degradation, axes=2, modalities=("ES",))

BLOOD = (0.45, 0.05, 0.04)
"""Colour of blood, red, green and blue from 0 to 1."""


def _cloud_noise(draw: np.random.Generator, shape: tuple[int, ...], width: float) -> Array:
    """Smooth noise with uniform ranks in [0, 1], (row, column)."""
    from scipy.ndimage import gaussian_filter

    smooth = gaussian_filter(draw.standard_normal(shape), width * min(shape), mode="wrap")
    ranks = np.empty(smooth.size)
    ranks[np.argsort(smooth, axis=None)] = (np.arange(smooth.size) + 0.5) / smooth.size
    return ranks.reshape(shape)


def _soften_mask(mask: Array, pixels: float = 1.0) -> Array:
    from scipy.ndimage import gaussian_filter

    return np.asarray(gaussian_filter(mask.astype(np.float32), pixels))


@_endoscopy(
    "endo_specular", levels={"share": (0.005, 0.01, 0.02, 0.04, 0.08)}, unit="share of the picture that is white"
)
def specular(image: Image, draw: np.random.Generator, *, share: float) -> Array:
    """Specular reflections at bright areas, nested by severity."""
    pixels = as_unit(image)
    bright = _soften_mask(pixels.mean(axis=0), 2)
    rank = _cloud_noise(draw, pixels.shape[1:], 0.02) + 0.5 * (bright - bright.min()) / max(np.ptp(bright), 1e-6)
    white = _soften_mask(rank >= np.quantile(rank, 1 - share))
    return from_unit(image, pixels + (1 - pixels) * white)


@_endoscopy("endo_motion", levels={"pixels": (3, 7, 11, 15, 21)}, unit="pixels of a path")
def motion(image: Image, draw: np.random.Generator, *, pixels: int) -> Array:
    """Blur of a movement of the camera along a line."""
    return from_unit(image, blurred_along(as_unit(image), pixels, draw.uniform(0, np.pi)))


@_endoscopy("endo_smoke", levels={"opacity": (0.1, 0.2, 0.35, 0.5, 0.65)}, unit="mean opacity of grey haze")
def smoke(image: Image, draw: np.random.Generator, *, opacity: float) -> Array:
    """Grey haze, thicker in some places."""
    pixels = as_unit(image)
    haze = np.clip(opacity * (0.6 + 0.8 * _cloud_noise(draw, pixels.shape[1:], 0.1)), 0, 1)
    return from_unit(image, pixels * (1 - haze) + 0.75 * haze)


@_endoscopy("endo_blood", levels={"share": (0.02, 0.05, 0.1, 0.2, 0.3)}, unit="share of the picture under blood")
def blood(image: Image, draw: np.random.Generator, *, share: float) -> Array:
    """Blood pools, a fifth transparent, nested by severity."""
    pixels = as_unit(image)
    pool = 0.8 * _soften_mask(_cloud_noise(draw, pixels.shape[1:], 0.05) >= 1 - share)
    colour = np.array(BLOOD if len(pixels) == 3 else (0.2,)).reshape(-1, 1, 1)
    return from_unit(image, pixels * (1 - pool) + colour * pool)


@_endoscopy("endo_dark_border", levels={"radius": (1.0, 0.85, 0.7, 0.55, 0.4)}, unit="radius over half the diagonal")
def dark_border(image: Image, draw: np.random.Generator, *, radius: float) -> Array:
    """Light that falls off towards the border, by Gauss."""
    height, width = image.array.shape[1:]
    rows, columns = np.mgrid[:height, :width]
    far = np.hypot(rows - (height - 1) / 2, columns - (width - 1) / 2) / (np.hypot(height, width) / 2)
    return from_unit(image, as_unit(image) * np.exp(-((far / radius) ** 2)))
