"""What is done to images before they are shown: conditions of pixels, and of parts that are missing."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from medimg_eval.case import Array, Condition, Image
from medimg_eval.errors import UsageError
from medimg_eval.image import PART

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


PARTED = ("without", "only", "missing")
"""Conditions of cases with unlike parts: `without_oct`, `only_oct`, and `missing_oct-30`, of 30 % of the cases."""


def part_conditions(parts: Iterable[str]) -> frozenset[str]:
    """The conditions there are of cases with these parts."""
    return frozenset(f"{kind}_{part}" for part in parts for kind in PARTED)


def without_parts(images: tuple[Image, ...], condition: Condition) -> tuple[Image, ...]:
    """The images that are left of a case under a condition of `part_conditions`.

    Which cases lack a part under `missing_` their other images decide, so that they are the same for every model.
    """
    kind, _, part = condition.name.partition("_")
    if kind == "only":
        return tuple(image for image in images if image.attributes.get(PART) == part)
    others = tuple(image for image in images if image.attributes.get(PART) != part)
    if kind == "missing":
        code = 0
        for image in others or images:
            code = zlib.crc32(np.ascontiguousarray(image.array).tobytes(), code)
        return others if code % 100 < condition.severity else images
    return others
