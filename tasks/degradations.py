"""What is done to images before they are shown: the pixel conditions that any family can be asked under."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from medimg_eval.case import Array, Condition, Image
from medimg_eval.errors import UsageError

NOISE = 0.04
"""Standard deviation of the noise of severity 1, as a fraction of the image's range."""


def degraded(image: Image, condition: Condition) -> Image:
    """Applies a condition to an image; shape and dtype stay.

    Raises:
        UsageError: there is no such condition.
    """
    UsageError.refuse_unknown("there is no condition", DEGRADATIONS, condition.name)
    pixels = DEGRADATIONS[condition.name](image.array, condition.severity or 1)
    return replace(image, array=pixels, notes=())


def _grey(array: Array, severity: int) -> Array:
    return np.full_like(array, 128 if array.dtype == np.uint8 else 0)


def _blur(array: Array, severity: int) -> Array:
    """Gaussian blur; its standard deviation is the severity, in pixels along every spatial axis."""
    from scipy.ndimage import gaussian_filter

    return _like(array, gaussian_filter(array.astype(np.float32), (0, *[severity] * (array.ndim - 1))))


def _noise(array: Array, severity: int) -> Array:
    """Gaussian noise, the same for the same image; its standard deviation is `NOISE` of the range for each degree."""
    rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(array).tobytes()))
    width = float(array.max()) - float(array.min())
    return _like(array, array + rng.normal(0, NOISE * severity * width, array.shape))


def _like(array: Array, pixels: Array) -> Array:
    if np.issubdtype(array.dtype, np.integer):
        pixels = np.clip(np.rint(pixels), array.min(), array.max())
    return pixels.astype(array.dtype)


DEGRADATIONS: dict[str, Callable[[Array, int], Array]] = {"grey": _grey, "blur": _blur, "noise": _noise}
"""By name: takes pixels, (channel, *spatial), and a severity from 1 on."""
