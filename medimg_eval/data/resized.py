"""Pictures and their masks cut and brought to a size: that a benchmark scores at, or the longest that models take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Mask, Reference
from medimg_eval.errors import CaseError, UsageError

T = TypeVar("T")
Size = tuple[int, int]


def size_of(wanted: object, key: str = "size") -> Size:
    """Returns (rows, columns) as a config states them; raises UsageError for anything else."""
    if isinstance(wanted, list | tuple) and len(wanted) == 2:
        rows, columns = wanted
        if isinstance(rows, int) and isinstance(columns, int) and min(rows, columns) > 0:
            return rows, columns
    raise UsageError(f"task.layout.{key} is {wanted!r}, expected [rows, columns]")


@dataclass(frozen=True)
class _Made(Generic[T]):
    """Change of a stored picture or label map when it is read."""

    stored: Reference[T]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of what is stored."""
        return self.stored.files


@dataclass(frozen=True)
class _Resized(_Made[T]):
    size: Size

    def geometry(self) -> Geometry:
        """The size, in pixels."""
        return Geometry(self.size, np.eye(4), "pixel")


@dataclass(frozen=True)
class ResizedImage(_Resized[Image]):
    """Resized picture, (rows, columns), linear as `cv2.INTER_LINEAR`."""

    def read(self) -> Image:
        """Reads and resizes it; raises CaseError where it is no picture."""
        image = self.stored.read()
        _refuse_volume(image.geometry, self.files)
        array = _interpolate_axis(_interpolate_axis(image.array, 1, self.size[0]), 2, self.size[1])
        return replace(image, array=array, affine=np.eye(4), units="pixel", valid=None)


@dataclass(frozen=True)
class ResizedMask(_Resized[Mask]):
    """Resized label map, (rows, columns), nearest as `cv2.INTER_NEAREST`."""

    def read(self) -> Mask:
        """Reads and resizes it; raises CaseError where it is no picture."""
        mask = self.stored.read()
        _refuse_volume(mask.geometry, self.files)
        rows, columns = (
            np.minimum(np.floor(np.arange(new) * (old / new)).astype(np.int64), old - 1)
            for old, new in zip(mask.labels.shape, self.size, strict=True)
        )
        grid = np.ix_(rows, columns)
        numbers = None if mask.instances is None else mask.instances[grid]
        return replace(mask, labels=mask.labels[grid], affine=np.eye(4), units="pixel", instances=numbers)


@dataclass(frozen=True)
class _Cropped(_Made[T]):
    size: Size

    def geometry(self) -> Geometry:
        """The size, in pixels; of a side that is shorter all of it."""
        rows, columns = _middle_slices(self.stored.geometry().shape, self.size)
        return Geometry((rows.stop - rows.start, columns.stop - columns.start), np.eye(4), "pixel")


@dataclass(frozen=True)
class CroppedImage(_Cropped[Image]):
    """Centre crop starting at n // 2 - size // 2.

    Attributes:
        stored: the picture.
        size: rows and columns.
    """

    def read(self) -> Image:
        """Reads and cuts it; raises CaseError where it is no picture."""
        image = self.stored.read()
        _refuse_volume(image.geometry, self.files)
        array = image.array[:, *_middle_slices(image.array.shape[1:], self.size)]
        return replace(image, array=array, affine=np.eye(4), units="pixel", valid=None)


@dataclass(frozen=True)
class CroppedMask(_Cropped[Mask]):
    """The middle of a label map, as of its picture.

    Attributes:
        stored: the label map.
        size: rows and columns.
    """

    def read(self) -> Mask:
        """Reads and cuts it; raises CaseError where it is no picture."""
        mask = self.stored.read()
        _refuse_volume(mask.geometry, self.files)
        slices = _middle_slices(mask.labels.shape, self.size)
        numbers = None if mask.instances is None else mask.instances[slices]
        return replace(mask, labels=mask.labels[slices], affine=np.eye(4), units="pixel", instances=numbers)


def _middle_slices(shape: Sequence[int], size: Size) -> tuple[slice, slice]:
    starts = [max(0, old // 2 - new // 2) for old, new in zip(shape, size, strict=True)]
    rows, columns = (slice(start, min(start + new, old)) for start, new, old in zip(starts, size, shape, strict=True))
    return rows, columns


@dataclass(frozen=True)
class ShrunkPicture(_Made[Image]):
    """Picture shrunk to a longest side, by Pillow's bicubic filter."""

    longest: int

    def read(self) -> Image:
        """Reads the picture, shrinking larger ones; CaseError for others."""
        image = self.stored.read()
        rows, columns = self._size(image.geometry)
        if (rows, columns) == image.array.shape[1:]:
            return image
        return replace(image, array=shrunk(image.array, rows, columns), valid=None)

    def geometry(self) -> Geometry:
        """Grid of rows and columns after shrinking."""
        grid = self.stored.geometry()
        return Geometry(self._size(grid), grid.affine, grid.units)

    def _size(self, grid: Geometry) -> tuple[int, int]:
        if len(grid.shape) != 2:
            raise CaseError(f"{self.files[0]}: max_side is for pictures, and its shape is {grid.shape}; leave it out")
        rows, columns = grid.shape
        share = min(1.0, self.longest / max(rows, columns))
        return max(1, round(rows * share)), max(1, round(columns * share))


def _refuse_volume(grid: Geometry, files: tuple[Path, ...]) -> None:
    if len(grid.shape) != 2:
        raise CaseError(
            f"{files[0]}: task.layout.size and crop are for pictures, and its shape is {grid.shape}; leave them out"
        )


def _interpolate_axis(array: Array, axis: int, count: int) -> Array:
    """Interpolates along an axis between pixel centres, replicating borders."""
    old = array.shape[axis]
    if old == count:
        return array
    positions = np.clip((np.arange(count) + 0.5) * (old / count) - 0.5, 0, old - 1)
    low = positions.astype(np.int64)
    weight = np.expand_dims((positions - low).astype(np.float32), tuple(i for i in range(array.ndim) if i != axis))
    first, second = array.take(low, axis), array.take(np.minimum(low + 1, old - 1), axis)
    mixed: Array = first * (1 - weight) + second * weight
    return (np.rint(mixed) if array.dtype.kind in "iub" else mixed).astype(array.dtype)


def shrunk(array: Array, rows: int, columns: int) -> Array:
    """Resizes (channel, row, column) by Pillow's bicubic filter, keeping dtype."""
    from PIL import Image as Pillow

    def one(channel: Array) -> Array:
        is_uint8 = channel.dtype == np.uint8
        picture = Pillow.fromarray(channel if is_uint8 else channel.astype(np.float32))
        resized = np.asarray(picture.resize((columns, rows), Pillow.Resampling.BICUBIC))
        if channel.dtype.kind in "iu" and not is_uint8:
            limits = np.iinfo(channel.dtype)
            resized = np.clip(np.rint(resized), limits.min, limits.max)
        return resized.astype(channel.dtype)

    return np.stack([one(channel) for channel in array])
