"""Pixels of pictures: decoded from bytes, and brought down to a size."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Reference
from medimg_eval.errors import CaseError


def decoded(data: bytes, name: str, modality: str, reading: Mapping[str, Any]) -> Image:
    """A picture out of the bytes of its file; raises CaseError with `name`."""
    from medimg_eval.imaging.pictures import decode

    image = decode(data, name, **reading)
    return image if image.modality else replace(image, modality=modality)


def size_of_bytes(data: bytes, name: str) -> Geometry:
    """Rows and columns of a picture, upright, out of its header where that is of a common format."""
    from PIL import Image as Pillow

    from medimg_eval.imaging.pictures import MAX_PIXELS

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            header = Pillow.open(io.BytesIO(data))
        columns, rows = header.size
        turned = header.format == "JPEG" and header.getexif().get(274, 1) in (5, 6, 7, 8)
        # A PNG's orientation may stand behind its pixels, and a TIFF has pages.
        plain = header.format in ("JPEG", "GIF", "BMP") or (header.format == "PNG" and b"eXIf" not in data)
    except (OSError, ValueError, SyntaxError, Pillow.DecompressionBombError):
        plain = False
    if not plain or rows * columns > MAX_PIXELS:
        return decoded(data, name, "", {}).geometry
    return Geometry((columns, rows) if turned else (rows, columns), np.eye(4), "pixel")


@dataclass(frozen=True)
class ShrunkPicture:
    """A picture whose longer side is brought down to a length, by Pillow's bicubic filter; smaller ones stay.

    Attributes:
        image: the picture as it is stored.
        longest: pixels of the longer side.
    """

    image: Reference[Image]
    longest: int

    @property
    def files(self) -> tuple[Path, ...]:
        """The picture's files."""
        return self.image.files

    def read(self) -> Image:
        """Reads it, and shrinks it where it is larger; raises CaseError where it is no picture."""
        image = self.image.read()
        rows, columns = self._size(image.geometry)
        if (rows, columns) == image.array.shape[1:]:
            return image
        return replace(image, array=shrunk(image.array, rows, columns), valid=None)

    def geometry(self) -> Geometry:
        """Rows and columns after it was shrunk."""
        grid = self.image.geometry()
        return Geometry(self._size(grid), grid.affine, grid.units)

    def _size(self, grid: Geometry) -> tuple[int, int]:
        if len(grid.shape) != 2:
            raise CaseError(f"{self.files[0]}: max_side is for pictures, and its shape is {grid.shape}; leave it out")
        rows, columns = grid.shape
        share = min(1.0, self.longest / max(rows, columns))
        return max(1, round(rows * share)), max(1, round(columns * share))


def shrunk(array: Array, rows: int, columns: int) -> Array:
    """Brings (channel, row, column) to other rows and columns by Pillow's bicubic filter, in its dtype."""
    from PIL import Image as Pillow

    def one(channel: Array) -> Array:
        whole = channel.dtype == np.uint8
        picture = Pillow.fromarray(channel if whole else channel.astype(np.float32))
        made = np.asarray(picture.resize((columns, rows), Pillow.Resampling.BICUBIC))
        if channel.dtype.kind in "iu" and not whole:
            limits = np.iinfo(channel.dtype)
            made = np.clip(np.rint(made), limits.min, limits.max)
        return made.astype(channel.dtype)

    return np.stack([one(channel) for channel in array])
