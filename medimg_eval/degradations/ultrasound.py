"""Degradations of ultrasound pictures, whose values are a compressed echo: speckle, gain, shadows."""

from __future__ import annotations

from functools import partial

import numpy as np

from medimg_eval.case import Array, Image
from medimg_eval.degradations.declaration import degradation
from medimg_eval.degradations.scaling import as_unit, from_unit

_ultrasound = partial(degradation, axes=2, modalities=("US", "IVUS"))

DECIBELS = 60.0
"""Dynamic range of a picture: its values are taken as echoes from -60 to 0 dB, logarithmically."""

MOST_WEDGES = 8


def _shift_echoes(image: Image, decibels: Array) -> Array:
    """Adds decibels to each echo; where there is none, there stays none."""
    pixels = as_unit(image)
    return from_unit(image, np.where(pixels > 0, pixels + decibels / DECIBELS, 0))


@_ultrasound(
    "us_speckle",
    levels={"sd": (0.1, 0.2, 0.3, 0.4, 0.5)},
    unit="standard deviation of the factor of the amplitude; values are taken as -60 to 0 dB",
)
def speckle(image: Image, draw: np.random.Generator, *, sd: float) -> Array:
    """Rayleigh-distributed factors of the amplitude, alike over one row and three columns."""
    from scipy.ndimage import gaussian_filter1d

    real, imaginary = draw.standard_normal((2, *image.array.shape[1:]))
    both = [gaussian_filter1d(part, 3 / 2.355, axis=1) for part in (real, imaginary)]
    rayleigh = np.hypot(*both)
    factor = 1 + sd * (rayleigh - rayleigh.mean()) / rayleigh.std()
    return _shift_echoes(image, 20 * np.log10(np.maximum(factor, 1e-3)))


@_ultrasound(
    "us_gain_slope",
    levels={"decibels": (3, 6, 9, 12, 18)},
    unit="dB from the top of the picture to its bottom; values are taken as -60 to 0 dB",
)
def gain_slope(image: Image, draw: np.random.Generator, *, decibels: float) -> Array:
    """Wrong compensation of depth: brighter or darker towards the bottom."""
    sign = 1 if draw.random() < 0.5 else -1
    slope = np.linspace(-0.5, 0.5, image.array.shape[1])[:, None]
    return _shift_echoes(image, sign * decibels * slope)


@_ultrasound(
    "us_shadow",
    levels={"wedges": (1, 2, 3, 4, 5)},
    unit="number of wedges, 12 dB darker from a depth on; values are taken as -60 to 0 dB",
)
def shadow(image: Image, draw: np.random.Generator, *, wedges: int) -> Array:
    """Acoustic shadows: dark wedges below echoes, nested by severity."""
    from scipy.ndimage import gaussian_filter

    height, width = image.array.shape[1:]
    units = draw.random((MOST_WEDGES, 3))
    rows, columns = np.mgrid[:height, :width]
    dark = np.zeros((height, width), bool)
    for across, down, size in units[:wedges]:
        first = (0.1 + 0.4 * down) * height
        reach = (0.02 + 0.04 * size) * width * (1 + (rows - first) / height)
        dark |= (rows > first) & (np.abs(columns - across * width) < reach)
    return _shift_echoes(image, -12 * gaussian_filter(dark.astype(np.float32), min(height, width) / 100 + 0.5))


@_ultrasound(
    "us_range",
    levels={"decibels": (50, 42, 34, 27, 20)},
    unit="dB that are shown of 60",
)
def dynamic_range(image: Image, draw: np.random.Generator, *, decibels: float) -> Array:
    """A smaller dynamic range: weak echoes are black."""
    return from_unit(image, 1 + (as_unit(image) - 1) * DECIBELS / decibels)
