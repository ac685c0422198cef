"""Matrices of numbers with named rows and columns: .npz, HDF5, and AnnData's .h5ad, without its library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, UserError, nearest

VALUES = ("values", "embeddings", "features")
ROWS, COLUMNS = ("ids", "barcodes", "barcode", "cases"), ("columns", "genes", "names")
"""What files call the numbers, and the names of rows and of columns."""

SUFFIXES = (".npz", ".h5", ".hdf5", ".h5ad")


@dataclass(frozen=True, eq=False)
class Matrix:
    """Numbers (row, column) with names.

    Attributes:
        path: the file.
        rows: a name of each row, all different.
        columns: a name of each column; empty where the file does not tell.
        values: float, (row, column).
    """

    path: Path
    rows: Sequence[str]
    columns: Sequence[str]
    values: Array

    @cached_property
    def place(self) -> Mapping[str, int]:
        """Name of a row -> its place."""
        return {name: at for at, name in enumerate(self.rows)}

    @cached_property
    def _column(self) -> Mapping[str, int]:
        return {name: at for at, name in enumerate(self.columns)}

    def columns_of(self, names: Sequence[str]) -> list[int]:
        """The places of columns; those of a file without names are taken in the order of `names`.

        Raises:
            UserError: there is no such column, or another number of them.
        """
        if not self.columns:
            if len(names) != self.values.shape[1]:
                raise UserError(
                    f"{self.path}: holds {self.values.shape[1]} columns without names, and {len(names)} are asked for"
                )
            return list(range(len(names)))
        UserError.refuse_unknown(f"{self.path}: holds no column", self._column, *names)
        return [self._column[name] for name in names]

    def row(self, name: str) -> Array:
        """The numbers of a row, float64, (column,); raises CaseError where there is none."""
        if name not in self.place:
            raise CaseError(f"{self.path}: has no row of {name!r}{nearest(name, self.place)}")
        found: Array = np.asarray(self.values[self.place[name]], dtype=np.float64)
        return found


def read_matrix(path: str | Path, rows: str = "", columns: str = "") -> Matrix:
    """Reads a matrix with its names; the same file is read once.

    Args:
        path: .npz or .h5 with `values` (or `embeddings`) and `ids` (or `barcodes`), perhaps `columns`; or .h5ad, whose
            `X` is dense, or sparse by rows or columns, and whose names are the index of `obs` and `var`.
        rows: what the file calls the names of its rows, where that is something else.
        columns: the same of columns.

    Raises:
        UserError: the file is missing or damaged, or numbers and names do not fit.
    """
    given = Path(path).expanduser()
    if not given.is_file():
        raise UserError(f"{given}: no such file")
    if given.suffix.lower() not in SUFFIXES:
        raise UserError(f"{given}: expected a matrix as {', '.join(SUFFIXES)}")
    stamp = given.stat()
    return _read(given, rows, columns, (stamp.st_mtime_ns, stamp.st_size))


@lru_cache(maxsize=64)
def _read(path: Path, rows: str, columns: str, _: tuple[int, int]) -> Matrix:
    with UserError.about(path, "cannot be read as a matrix", OSError, LookupError, RuntimeError, ValueError, EOFError):
        names, labels, values = (_numpy if path.suffix.lower() == ".npz" else _hdf5)(path, rows, columns)
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise UserError(f"{path}: expected numbers (row, column), got {values.shape} of {values.dtype}")
    for what, found, count in (("rows", names, values.shape[0]), ("columns", labels, values.shape[1])):
        if found and len(found) != count:
            raise UserError(f"{path}: holds {count} {what}, and {len(found)} names of {what}")
        if len(set(found)) < len(found):
            twice = next(name for name in found if found.count(name) > 1)
            raise UserError(f"{path}: two {what} are called {twice!r}")
    if values.size and not names:
        raise UserError(f"{path}: does not name its rows; they are looked for as {', '.join(ROWS)}")
    return Matrix(path, names, labels, values)


def _numpy(path: Path, rows: str, columns: str) -> tuple[list[str], list[str], Array]:
    with np.load(path, allow_pickle=False) as file:
        return _named(file, list(file.files), rows, columns)


def _hdf5(path: Path, rows: str, columns: str) -> tuple[list[str], list[str], Array]:
    import h5py

    with h5py.File(path) as file:
        if path.suffix.lower() == ".h5ad":
            return _index(file["obs"]), _index(file["var"]), _x(file["X"])
        return _named(file, list(file), rows, columns)


def _named(file: Any, held: Sequence[str], rows: str, columns: str) -> tuple[list[str], list[str], Array]:
    """The names and numbers of a file that holds several arrays by name."""
    found = [
        [given] if given else [name for name in usual if name in held]
        for given, usual in (("", VALUES), (rows, ROWS), (columns, COLUMNS))
    ]
    if not found[0]:
        raise ValueError(f"it holds {', '.join(held)}; expected {' or '.join(VALUES)}")
    names, labels = (_texts(file[one[0]]) if one else [] for one in found[1:])
    return names, labels, np.asarray(file[found[0][0]])


def _index(group: Any) -> list[str]:
    """Names of an axis of AnnData: the data set that the group says is its index."""
    return _texts(group[group.attrs.get("_index", "_index")])


def _texts(stored: Any) -> list[str]:
    """Names as they are stored: bytes or text, (name,) or (name, 1)."""
    flat = np.asarray(stored).reshape(-1)
    return [one.decode() if isinstance(one, bytes) else str(one) for one in flat.tolist()]


def _x(stored: Any) -> Array:
    """AnnData's numbers, dense."""
    if not hasattr(stored, "keys"):
        return np.asarray(stored)
    kind = str(stored.attrs.get("encoding-type", ""))
    if kind not in ("csr_matrix", "csc_matrix"):
        raise ValueError(f"X is {kind or 'a group'}, expected an array, csr_matrix or csc_matrix")
    data, indices, starts = (np.asarray(stored[name]) for name in ("data", "indices", "indptr"))
    shape = tuple(int(one) for one in stored.attrs["shape"])
    major = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    dense = np.zeros(shape, data.dtype if data.dtype.kind == "f" else np.float64)
    dense[(major, indices) if kind == "csr_matrix" else (indices, major)] = data
    return dense
