"""Pixels on a scale from 0 to 1, or as 8-bit pictures, and back to what they were stored as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.case import Array, Image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture


def extent(image: Image) -> tuple[float, float]:
    """Returns values of 0 and 1: 0 and 255, or extremes.

    The former of 8-bit pictures.
    """
    if image.array.dtype == np.uint8:
        return 0.0, 255.0
    low, high = float(image.array.min()), float(image.array.max())
    return low, high if high > low else low + 1


def as_unit(image: Image) -> Array:
    """Returns pixels scaled to [0, 1].

    float64 of 8-bit pictures, float32 of others.
    """
    low, high = extent(image)
    if image.array.dtype == np.uint8:
        return image.array / 255.0
    return (image.array.astype(np.float32) - np.float32(low)) / np.float32(high - low)


def from_unit(image: Image, pixels: Array) -> Array:
    """Returns pixels of [0, 1] clipped and stored as the image.

    8-bit ones are cut off.
    """
    low, high = extent(image)
    clipped = np.clip(pixels, 0, 1)
    if image.array.dtype == np.uint8:  # as MedMNIST-C and ImageNet-C do
        return (clipped * 255).astype(np.uint8)
    return stored_as(image, clipped * (high - low) + low)


def stored_as(image: Image, pixels: Array) -> Array:
    """Returns pixels in the image's dtype, rounded and clipped.

    Only a dtype of whole numbers rounds and clips.
    """
    kind = image.array.dtype
    if np.issubdtype(kind, np.integer):
        ends = np.iinfo(kind)
        pixels = np.clip(np.rint(pixels), ends.min, ends.max)
    return pixels.astype(kind, copy=False)


TOGETHER = 64
"""Lines along the first axis that are copied and smoothed at a time, so that they lie in the cache."""


def smoothed(array: Array, widths: Sequence[float]) -> Array:
    """Returns channels smoothed by Gaussians, float32, as scipy's `gaussian_filter`.

    Args:
        array: (channel, *spatial).
        widths: standard deviations along the spatial axes, in pixels.
    """
    from scipy.ndimage import gaussian_filter, gaussian_filter1d

    pixels = array.astype(np.float32, copy=False)
    if array.ndim < 4:
        return np.asarray(gaussian_filter(pixels, [0, *widths]))
    smooth = np.empty(array.shape, np.float32)
    for channel, target in zip(pixels, smooth, strict=True):
        lines, into = channel.reshape(len(channel), -1), target.reshape(len(channel), -1)
        for start in range(0, lines.shape[1], TOGETHER):
            some = np.ascontiguousarray(lines[:, start : start + TOGETHER])
            into[:, start : start + TOGETHER] = gaussian_filter1d(some, widths[0], axis=0)
        for axis, width in enumerate(widths[1:], start=1):
            gaussian_filter1d(target, width, axis=axis, output=target)
    return smooth


def by_picture(image: Image, change: Callable[[Picture], Picture]) -> Array:
    """Applies a function of Pillow pictures by picture or slice.

    8-bit ones, grey or with three colours.

    What is no 8-bit picture is put on a scale of 256 values first: what such a picture holds is all that remains.
    """
    return by_bytes(image, lambda picture: _through_pillow(picture, change))


def by_bytes(image: Image, change: Callable[[Array], Array]) -> Array:
    """Applies a function of uint8 (channel, row, column) as `by_picture`.

    It is given three channels where these are colours, else one.
    """
    low, high = extent(image)
    eight = image.array if image.array.dtype == np.uint8 else np.rint(as_unit(image) * 255).astype(np.uint8)
    parts = [eight] if eight.shape[0] == 3 else [eight[index : index + 1] for index in range(len(eight))]
    if eight.ndim == 4:
        slices = range(eight.shape[-1])
        parts_changed = [np.stack([change(part[..., index]) for index in slices], axis=-1) for part in parts]
    else:
        parts_changed = [change(part) for part in parts]
    changed = parts_changed[0] if len(parts_changed) == 1 else np.concatenate(parts_changed)
    return changed if image.array.dtype == np.uint8 else stored_as(image, changed / 255.0 * (high - low) + low)


def _through_pillow(pixels: Array, change: Callable[[Picture], Picture]) -> Array:
    """Returns uint8 pixels, (1 or 3, row, column), changed by Pillow."""
    from PIL import Image as Pillow

    if len(pixels) == 1:
        return np.array(change(Pillow.fromarray(np.ascontiguousarray(pixels[0]))))[None]
    if pixels[0].flags.c_contiguous:
        picture = Pillow.merge("RGB", [Pillow.fromarray(channel) for channel in pixels])
    else:
        picture = Pillow.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    return np.array(change(picture)).transpose(2, 0, 1)


AT_ONCE = 1 << 15
"""Bytes that are looked up in a table at a time."""


def through_table(pixels: Array, table: Array) -> Array:
    """Returns uint8 pixels mapped by a table of 256 values."""
    axes = sorted(range(pixels.ndim), key=lambda axis: -pixels.strides[axis])
    flat = pixels.transpose(axes)
    if not flat.flags.c_contiguous:  # there are gaps between them
        return table[pixels]
    mapped, words = np.empty_like(pixels), table.tobytes()
    flat, into = flat.reshape(-1), mapped.transpose(axes).reshape(-1)
    for start in range(0, flat.size, AT_ONCE):  # by small parts, whose memory needs not to be asked for
        some = flat[start : start + AT_ONCE].tobytes().translate(words)
        into[start : start + AT_ONCE] = np.frombuffer(some, np.uint8)
    return mapped


def through_jpeg(picture: Picture, **how: int) -> Picture:
    """Returns a picture after JPEG coding with Pillow's options."""
    from PIL import Image as Pillow

    stream = BytesIO()
    picture.save(stream, "JPEG", **how)
    # Size and mode are known, so that the decoder is asked without looking for its header first.
    return Pillow.frombytes(picture.mode, picture.size, stream.getvalue(), "jpeg", picture.mode, "")
