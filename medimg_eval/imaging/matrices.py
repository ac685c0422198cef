"""Matrices of numbers with named rows and columns: .npz, HDF5, and AnnData's .h5ad, without its library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, MissingDataError, UserError, nearest
from medimg_eval.imaging.voxel_data import check_own

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
        """Column indices by name; unnamed files follow `names`.

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
        row: Array = np.asarray(self.values[self.place[name]], dtype=np.float64)
        return row


def read_matrix(path: str | Path, rows: str = "", columns: str = "", only: Sequence[str] = ()) -> Matrix:
    """Reads a matrix with its names; the same file is read once.

    Args:
        path: .npz or .h5 with `values` (or `embeddings`) and `ids` (or `barcodes`), perhaps `columns`; or .h5ad, whose
            `X` is dense, or sparse by rows or columns, and whose names are the index of `obs` and `var`.
        rows: what the file calls the names of its rows, where that is something else.
        columns: the same of columns.
        only: the columns of an .h5ad that are kept, in this order, where thousands of others need not be held; all
            when empty.

    Raises:
        UserError: the file is missing or damaged, numbers and names do not fit, or a column is not there.
    """
    path_ = Path(path).expanduser()
    if not path_.is_file():
        raise UserError(f"{path_}: no such file")
    if path_.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path_}: expected a matrix as {', '.join(SUFFIXES)}")
    stamp = path_.stat()
    return _cached_matrix(path_, rows, columns, tuple(only), (stamp.st_mtime_ns, stamp.st_size))


@lru_cache(maxsize=64)
def _cached_matrix(path: Path, rows: str, columns: str, only: tuple[str, ...], _: tuple[int, int]) -> Matrix:
    with UserError.about(path, "cannot be read as a matrix", OSError, LookupError, RuntimeError, ValueError, EOFError):
        if path.suffix.lower() == ".npz":
            names, labels, values = _read_numpy(path, rows, columns)
        else:
            names, labels, values = _read_hdf5(path, rows, columns, only)
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise UserError(f"{path}: expected numbers (row, column), got {values.shape} of {values.dtype}")
    for what, labels_, count in (("rows", names, values.shape[0]), ("columns", labels, values.shape[1])):
        if labels_ and len(labels_) != count:
            raise UserError(f"{path}: holds {count} {what}, and {len(labels_)} names of {what}")
        if len(set(labels_)) < len(labels_):
            twice = next(name for name in labels_ if labels_.count(name) > 1)
            raise UserError(f"{path}: two {what} are called {twice!r}")
    if values.size and not names:
        raise UserError(f"{path}: does not name its rows; they are looked for as {', '.join(ROWS)}")
    return Matrix(path, names, labels, values)


def _read_numpy(path: Path, rows: str, columns: str) -> tuple[list[str], list[str], Array]:
    with np.load(path, allow_pickle=False) as file:
        return _read_named_arrays(file, list(file.files), rows, columns)


def _read_hdf5(path: Path, rows: str, columns: str, only: Sequence[str]) -> tuple[list[str], list[str], Array]:
    import h5py

    with h5py.File(path) as file:
        if path.suffix.lower() != ".h5ad":
            return _read_named_arrays(file, list(file), rows, columns)
        names, labels = anndata_names(path, file["obs"]), anndata_names(path, file["var"])
        shape = (len(names), len(labels))
        if not only:
            return names, labels, anndata_values(path, file["X"], shape)
        where = {name: at for at, name in enumerate(labels)}
        UserError.refuse_unknown(f"{path}: holds no column", where, *only)
        return names, list(only), anndata_values(path, file["X"], shape, [where[name] for name in only])


def _read_named_arrays(file: Any, held: Sequence[str], rows: str, columns: str) -> tuple[list[str], list[str], Array]:
    """The names and numbers of a file that holds several arrays by name."""
    keys = [
        [key] if key else [name for name in usual if name in held]
        for key, usual in (("", VALUES), (rows, ROWS), (columns, COLUMNS))
    ]
    if not keys[0]:
        raise ValueError(f"it holds {', '.join(held)}; expected {' or '.join(VALUES)}")
    names, labels = (_read_texts(file[key[0]]) if key else [] for key in keys[1:])
    return names, labels, np.asarray(file[keys[0][0]])


def _read_texts(stored: Any) -> list[str]:
    """Names as they are stored: bytes or text, (name,) or (name, 1)."""
    flat = np.asarray(stored).reshape(-1)
    return [text.decode() if isinstance(text, bytes) else str(text) for text in flat.tolist()]


def anndata_names(path: Path, table: Any) -> list[str]:
    """Axis names of AnnData, by its index of texts or categories.

    Raises:
        CaseError: they lie in another file.
        LookupError, OSError, ValueError: they are not as AnnData writes them.
    """
    index = table.attrs.get("_index", "_index")
    stored = table[index.decode() if isinstance(index, bytes) else str(index)]
    if hasattr(stored, "keys"):
        if "categories" in stored:
            words = _read_texts(stored["categories"])
            return [words[code] for code in stored["codes"][:].tolist()]
        stored = stored["values"]  # texts that may be missing
    return _read_texts(check_own(path, stored)[:])


def anndata_values(path: Path, stored: Any, shape: tuple[int, int], columns: Sequence[int] | None = None) -> Array:
    """AnnData numbers, dense or sparse, as dense array of columns.

    Raises:
        CaseError: they lie in another file.
        LookupError, OSError, ValueError: they are not as AnnData writes them.
    """
    if not hasattr(stored, "keys"):
        values = np.asarray(check_own(path, stored))  # whole, then its columns: h5py reads lists of them one by one
        return values if columns is None else values[:, columns]
    from scipy import sparse

    kind = stored.attrs.get("encoding-type", "")
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind not in ("csr_matrix", "csc_matrix"):
        raise ValueError(f"X is {kind or 'a group'}, expected an array, csr_matrix or csc_matrix")
    parts = tuple(np.asarray(check_own(path, stored[name])) for name in ("data", "indices", "indptr"))
    matrix: Any = getattr(sparse, kind)(parts, shape=shape)
    return np.asarray((matrix if columns is None else matrix.tocsc()[:, columns]).toarray())


def read_names(path: Path) -> list[str]:
    """Names in a file: text lines, JSON list or object.

    Raises:
        MissingDataError: there is no such file.
        UserError: it holds something else.
    """
    if not path.is_file():
        raise MissingDataError(f"{path}: no such file, which names the outputs; see task.outputs")
    with UserError.about(path, "cannot be read as a list of names", OSError, ValueError):
        text = path.read_text(encoding="utf-8-sig")
        content = json.loads(text) if path.suffix.lower() == ".json" else text.split("\n")
    if isinstance(content, dict):
        lists = [item for item in content.values() if isinstance(item, list)]
        content = lists[0] if len(lists) == 1 else None
    if not isinstance(content, list):
        raise UserError(f"{path}: expected a list of names, or an object that holds one list")
    return [name for item in content if (name := str(item).strip())]
