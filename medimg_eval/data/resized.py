"""Pictures and their masks at a stated size, for benchmarks that resize before they score."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Mask, Reference
from medimg_eval.errors import CaseError, UsageError

Size = tuple[int, int]


def size_of(wanted: object) -> Size:
    """Returns (rows, columns) as a config states them; raises UsageError for anything else."""
    if isinstance(wanted, list | tuple) and len(wanted) == 2:
        rows, columns = wanted
        if isinstance(rows, int) and isinstance(columns, int) and min(rows, columns) > 0:
            return rows, columns
    raise UsageError(f"task.layout.size is {wanted!r}, expected [rows, columns]")


@dataclass(frozen=True)
class ResizedImage:
    """A picture brought to a size by linear interpolation without smoothing, as `cv2.INTER_LINEAR` does.

    Attributes:
        image: the picture as it is stored.
        size: rows and columns.
    """

    image: Reference[Image]
    size: Size

    @property
    def files(self) -> tuple[Path, ...]:
        """The picture's files."""
        return self.image.files

    def read(self) -> Image:
        """Reads and resizes it; raises CaseError where it is no picture."""
        image = self.image.read()
        _refuse_volume(image.geometry, self.files)
        array = _linear(_linear(image.array, 1, self.size[0]), 2, self.size[1])
        return replace(image, array=array, affine=np.eye(4), units="pixel", valid=None)

    def geometry(self) -> Geometry:
        """The size, in pixels."""
        return Geometry(self.size, np.eye(4), "pixel")


@dataclass(frozen=True)
class ResizedMask:
    """A label map brought to a size, each pixel taking the label that `cv2.INTER_NEAREST` takes.

    Attributes:
        mask: the label map as it is stored.
        size: rows and columns.
    """

    mask: Reference[Mask]
    size: Size

    @property
    def files(self) -> tuple[Path, ...]:
        """The label map's files."""
        return self.mask.files

    def read(self) -> Mask:
        """Reads and resizes it; raises CaseError where it is no picture."""
        mask = self.mask.read()
        _refuse_volume(mask.geometry, self.files)
        rows, columns = (
            np.minimum(np.floor(np.arange(new) * (old / new)).astype(np.int64), old - 1)
            for old, new in zip(mask.labels.shape, self.size, strict=True)
        )
        return replace(mask, labels=mask.labels[np.ix_(rows, columns)], affine=np.eye(4), units="pixel")

    def geometry(self) -> Geometry:
        """The size, in pixels."""
        return Geometry(self.size, np.eye(4), "pixel")


def _refuse_volume(grid: Geometry, files: tuple[Path, ...]) -> None:
    if len(grid.shape) != 2:
        raise CaseError(f"{files[0]}: task.layout.size is for pictures, and its shape is {grid.shape}; leave size out")


def _linear(array: Array, axis: int, count: int) -> Array:
    """Interpolates along one axis between pixel centres; beyond the outermost ones their value holds."""
    old = array.shape[axis]
    if old == count:
        return array
    places = np.clip((np.arange(count) + 0.5) * (old / count) - 0.5, 0, old - 1)
    low = places.astype(np.int64)
    weight = np.expand_dims((places - low).astype(np.float32), tuple(i for i in range(array.ndim) if i != axis))
    first, second = array.take(low, axis), array.take(np.minimum(low + 1, old - 1), axis)
    mixed: Array = first * (1 - weight) + second * weight
    return (np.rint(mixed) if array.dtype.kind in "iub" else mixed).astype(array.dtype)
