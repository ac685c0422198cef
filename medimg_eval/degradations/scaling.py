"""Pixels on a scale from 0 to 1, or as 8-bit pictures, and back to what they were stored as."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.case import Array, Image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


def extent(image: Image) -> tuple[float, float]:
    """Returns what 0 and 1 stand for: 0 and 255 of 8-bit pictures, the least and the largest value of others."""
    if image.array.dtype == np.uint8:
        return 0.0, 255.0
    low, high = float(image.array.min()), float(image.array.max())
    return low, high if high > low else low + 1


def as_unit(image: Image) -> Array:
    """Returns pixels on a scale from 0 to 1: float64 of 8-bit pictures, float32 of others."""
    low, high = extent(image)
    if image.array.dtype == np.uint8:
        return image.array / 255.0
    return (image.array.astype(np.float32) - np.float32(low)) / np.float32(high - low)


def from_unit(image: Image, pixels: Array) -> Array:
    """Returns pixels of a scale from 0 to 1, clipped to it, as the image stores them; 8-bit ones are cut off."""
    low, high = extent(image)
    clipped = np.clip(pixels, 0, 1)
    if image.array.dtype == np.uint8:  # as MedMNIST-C and ImageNet-C do
        return (clipped * 255).astype(np.uint8)
    return stored_as(image, clipped * (high - low) + low)


def stored_as(image: Image, pixels: Array) -> Array:
    """Returns pixels in the image's dtype, rounded and clipped to its range where it holds whole numbers."""
    kind = image.array.dtype
    if np.issubdtype(kind, np.integer):
        ends = np.iinfo(kind)
        pixels = np.clip(np.rint(pixels), ends.min, ends.max)
    return pixels.astype(kind, copy=False)


def by_picture(image: Image, change: Callable[[Array], Array]) -> Array:
    """Applies a function of 8-bit pictures, (row, column) or (row, column, 3), to a picture or to each slice.

    What is no 8-bit picture is put on a scale of 256 values first: what such a picture holds is all that remains.
    """
    low, high = extent(image)
    eight = image.array if image.array.dtype == np.uint8 else np.rint(as_unit(image) * 255).astype(np.uint8)
    together = eight.shape[0] == 3
    volume = eight.ndim == 4
    stack = np.moveaxis(eight, -1, 0) if volume else eight[None]
    changed = np.stack([_changed(picture, change, together) for picture in stack])
    changed = np.moveaxis(changed, 0, -1) if volume else changed[0]
    return changed if image.array.dtype == np.uint8 else stored_as(image, changed / 255.0 * (high - low) + low)


def _changed(picture: Array, change: Callable[[Array], Array], together: bool) -> Array:
    if together:
        return np.moveaxis(change(np.ascontiguousarray(np.moveaxis(picture, 0, -1))), -1, 0)
    return np.stack([change(np.ascontiguousarray(channel)) for channel in picture])


def through_jpeg(picture: Picture, **how: int) -> Array:
    """Returns what is left of a picture that was kept as JPEG, uint8; `how` is as Pillow's encoder takes it."""
    from PIL import Image as Pillow

    stream = BytesIO()
    picture.save(stream, "JPEG", **how)
    return np.array(Pillow.open(stream))
