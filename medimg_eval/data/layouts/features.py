"""Features instead of images, one vector for each row of a table: in its columns, or in the rows of one array."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Reference
from medimg_eval.data.layouts.table import Table
from medimg_eval.data.records import Row
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.image import FEATURES


@dataclass(kw_only=True)
class FeatureVectors(Table):
    """A table with a row per case, whose features are in its columns or in the rows of one array.

    The image of a case is its vector, (1, 1, feature). Bags of tiles, a file each, are those of `Slides`.

    Args:
        features: columns of the table, of which any may be a pattern such as `mean *`; or the one file of an array
            (row, feature) below the root: .npy, .h5 or .pt, or a pattern of columns such as `{split}.npy`.
        row: with an array, the column of the row's number, from 0; the order of the table when empty.
        others: see `Table`.
    """

    features: str | Sequence[str]
    row: str = ""
    id: str = "id"

    def images(self, root: Path, row: Row, pattern: str) -> list[Reference[Image]]:
        """Raises UsageError: features stand in the place of images."""
        raise UsageError("task.layout.image is of no use beside task.layout.features; leave it out")

    def entries(self, root: Path) -> list[Any]:
        """The cases in the order of their rows; raises UserError where two rows have one id."""
        from dataclasses import replace

        found = super().entries(root)
        counted: dict[Path, int] = {}
        made = []
        for entry in found:
            if len(entry.rows) > 1:
                raise entry.rows[1].error(f"case {entry.id!r} has a row before; expected one row for each case")
            vector = self._vector(root, entry.row, counted)
            made.append(replace(entry, images=(vector,)))
        return made

    def _vector(self, root: Path, row: Row, counted: dict[Path, int]) -> Reference[Image]:
        if not isinstance(self.features, str):
            return CellVector(row, _columns(tuple(self.features), tuple(row.values)))
        path = root / (row.fill(self.features) if "{" in self.features else self.features)
        place = counted.get(path, 0)
        counted[path] = place + 1
        if self.row:
            number = row.number(self.row)
            if not number.is_integer() or number < 0:
                raise row.error(f"column {self.row!r} holds {number:g}, expected the number of a row from 0")
            place = int(number)
        return RowVector(path, place)


@dataclass(frozen=True, eq=False)
class CellVector:
    """A vector in the columns of a table's row."""

    row: Row
    columns: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The table."""
        return (self.row.path,)

    def read(self) -> Image:
        """Returns (1, 1, feature), float64; raises CaseError where a cell is no finite number."""
        try:
            values = np.array([self.row.number(column) for column in self.columns])
        except UserError as error:
            raise CaseError(str(error)) from error
        return _as_image(values, f"{self.row.path}, {self.row.place}")

    def geometry(self) -> Geometry:
        """One tile, and features."""
        return Geometry((1, len(self.columns)), np.eye(4), "pixel")


@dataclass(frozen=True)
class RowVector:
    """A vector in a row of an array."""

    path: Path
    place: int

    @property
    def files(self) -> tuple[Path, ...]:
        """The array's file."""
        return (self.path,)

    def read(self) -> Image:
        """Returns (1, 1, feature); raises CaseError where there is no such row, or it is not finite."""
        array = matrix_of(self.path)
        if self.place >= len(array):
            raise CaseError(f"{self.path}: has {len(array)} rows, and row {self.place} is asked for, counted from 0")
        return _as_image(np.asarray(array[self.place]), f"{self.path}, row {self.place}")

    def geometry(self) -> Geometry:
        """One tile, and features."""
        return Geometry((1, matrix_of(self.path).shape[1]), np.eye(4), "pixel")


def matrix_of(path: Path) -> Array:
    """The array (row, feature) of a file, read once while it stays as it is; an .npy is mapped into memory.

    Raises:
        CaseError: it is missing, damaged, or of another shape.
    """
    try:
        changed = path.stat()
    except OSError as error:
        raise CaseError(f"{path}: no such file") from error
    return _matrix(path, changed.st_mtime_ns, changed.st_size)


@lru_cache(maxsize=8)
def _matrix(path: Path, changed: int, size: int) -> Array:
    from medimg_eval.imaging.slides import read_features

    if path.suffix != ".npy":
        return read_features(path).features
    with CaseError.about(path, "cannot be read as .npy", ValueError, OSError, EOFError):
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise CaseError(f"{path}: expected numbers (row, feature), got {array.shape} of {array.dtype}")
    return array


@lru_cache(maxsize=8)
def _columns(wanted: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for pattern in wanted:
        some = [pattern] if pattern in known else fnmatch.filter(known, pattern)
        if not some:
            UsageError.refuse_unknown("task.layout.features names a column", known, pattern)
        found += some
    return tuple(dict.fromkeys(found))


def _as_image(values: Array, where: str) -> Image:
    kept = np.array(values, np.float64 if values.dtype == np.float64 else np.float32)
    if not np.isfinite(kept).all():
        raise CaseError(f"{where}: has NaN or infinite features")
    return Image(kept[None, None], np.eye(4), units="pixel", attributes=dict(FEATURES))
