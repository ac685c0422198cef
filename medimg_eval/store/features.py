"""Features on disk: one matrix that is mapped into memory, to which rows are added; killed at any moment, it goes on.

    NAME-HASH/                     what made the rows: encoder with its weights, preprocessing, plan of tiles
        manifest.json              the same in words, length and type of a row
        features.npy               (row, feature), float16 or float32: whatever NumPy opens
        coords.npy                 (row, 2), row and column in level-0 pixels, or -1
        index.csv                  key, first row, rows: a line for each item, written once its rows are on disk

An item is what is embedded at once: a picture, or a slide with all of its tiles. Its key is of its content, so that it
is computed once whatever task, run or folder it comes from, and anew when its file changes.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from filelock import FileLock, Timeout

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, UserError
from medimg_eval.system import whole

MANIFEST, INDEX, MATRIX, PLACES = "manifest.json", "index.csv", "features.npy", "coords.npy"
VERSION = 1
HEADER = 128
"""Bytes before the first row of an .npy of version 1, into whose blanks the number of rows can grow."""

COLUMNS = ("key", "first", "rows")
NOWHERE = -1
WAIT_S = 120.0
"""How long one process waits for another that adds rows."""

DTYPES = ("float16", "float32")


class Item(NamedTuple):
    """Features that are added at once.

    Attributes:
        key: of its content.
        features: (row, feature); no rows of what has nothing to embed, such as a slide without tissue.
        coordinates: int, (row, 2); None where rows lie nowhere.
    """

    key: str
    features: Array
    coordinates: Array | None = None


@dataclass
class FeatureStore:
    """A folder of features; made by `create`, found again by `open`.

    Attributes:
        path: the folder.
        made_by: what its rows are features of: `encoder`, `preprocessing`, `plan`, as JSON holds them.
        length: features in a row.
        dtype: `float16` or `float32`.
    """

    path: Path
    made_by: Mapping[str, Any]
    length: int
    dtype: str
    _index: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    _read_to: int = field(default=0, repr=False)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Opens a store.

        Raises:
            UserError: the folder is no store, or was written by a later version; the message names the file.
        """
        folder = Path(path).expanduser()
        manifest = folder / MANIFEST
        if not manifest.is_file():
            raise UserError(f"{folder}: is no feature store, it has no {MANIFEST}; name a folder that `embed` wrote")
        with UserError.about(manifest, "cannot be read as a feature store's manifest", OSError, ValueError, KeyError):
            manifest_content = json.loads(manifest.read_text(encoding="utf-8"))
            version, length, dtype = (
                manifest_content["version"],
                int(manifest_content["length"]),
                str(manifest_content["dtype"]),
            )
        if version != VERSION or dtype not in DTYPES:
            raise UserError(f"{manifest}: has version {version} and type {dtype}; this program reads {VERSION}")
        store = cls(folder, manifest_content["made_by"], length, dtype)
        store.refresh()
        return store

    @classmethod
    def create(cls, path: str | Path, made_by: Mapping[str, Any], length: int, dtype: str = "float32") -> Self:
        """Makes an empty store, or opens the one that is there.

        Raises:
            UserError: the one that is there is of another encoder, length or type, or the folder cannot be written.
        """
        folder = Path(path).expanduser()
        if not (folder / MANIFEST).is_file():
            with UserError.about(folder, "cannot be written", OSError, mend="name another folder by out=DIR"):
                folder.mkdir(parents=True, exist_ok=True)
                with _lock_store(folder):
                    if not (folder / MANIFEST).is_file():
                        _begin_store(folder, made_by, length, dtype)
        store = cls.open(folder)
        if (store.length, store.dtype) != (length, dtype):
            raise UserError(
                f"{folder}: holds rows of {store.length} x {store.dtype}, these are {length} x {dtype}; "
                "name another folder by out=DIR"
            )
        if json.loads(json.dumps(made_by)) != store.made_by:
            raise UserError(f"{folder}: was made by another encoder or plan; name another folder by out=DIR")
        return store

    def __len__(self) -> int:
        return sum(rows for _, rows in self._index.values())

    def __contains__(self, key: object) -> bool:
        return key in self._index

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the items, in the order of their rows."""
        return tuple(self._index)

    def refresh(self) -> None:
        """Takes in what other processes have added since."""
        path = self.path / INDEX
        read_error = UserError.about(path, "cannot be read", OSError, mend="delete the store; it is computed again")
        with read_error, path.open("rb") as stream:
            stream.seek(self._read_to)
            added = stream.read()
        added = added[: added.rfind(b"\n") + 1]  # a line that is cut short was never finished
        for number, row in enumerate(csv.reader(io.StringIO(added.decode("utf-8"), newline=""))):
            if self._read_to == 0 and number == 0:
                continue  # names of the columns
            try:
                key, first, rows = row[0], int(row[1]), int(row[2])
            except (ValueError, IndexError) as error:
                raise UserError(f"{path}: holds {row!r:.80}, no line of an index; delete the store") from error
            self._index[key] = (first, rows)
        self._read_to += len(added)
        self._check_size()

    def add(self, items: Iterable[Item]) -> None:
        """Adds new items, durable on return.

        Raises:
            CaseError: rows of another length, or that are NaN or infinite in the store's type.
            UserError: the files cannot be written, or another process holds them for minutes.
        """
        checked = [(item, self._checked(item)) for item in items]
        write_error = UserError.about(self.path, "cannot be written", OSError, mend="free space there, and start again")
        with write_error, _lock_store(self.path):
            self.refresh()
            new = {item.key: (item, rows) for item, rows in checked if item.key not in self._index}
            if new:
                self._append([*new.values()])
                self.refresh()

    def rows(self, key: str) -> Array:
        """The features of one item, (row, feature), mapped read-only.

        Raises:
            CaseError: it is not there.
        """
        first, count = self.span(key)
        rows: Array = self._matrix()[first : first + count]
        return rows

    def coordinates(self, key: str) -> Array | None:
        """Positions of an item's rows, int64, (row, 2), level-0; else None.

        Row and column in level-0 pixels.
        """
        first, count = self.span(key)
        coordinates = self._map(PLACES, 2, np.dtype(np.int64))[first : first + count]
        return None if not count or coordinates[0, 0] == NOWHERE else np.array(coordinates)

    def matrix(self, keys: Sequence[str] | None = None) -> Array:
        """Rows of all or some items, (row, feature), memory-mapped.

        Raises:
            CaseError: one is not there.
        """
        spans = [self.span(key) for key in keys or ()]  # first: it may find rows that others have added since
        whole_matrix = self._matrix()
        if keys is None:
            return whole_matrix
        if not spans:
            return whole_matrix[:0]
        together = all(span[0] + span[1] == following[0] for span, following in pairwise(spans))
        if together:
            return whole_matrix[spans[0][0] : spans[-1][0] + spans[-1][1]]
        selected = np.empty((sum(count for _, count in spans), self.length), self.dtype)
        start = 0
        for first, count in spans:
            selected[start : start + count] = whole_matrix[first : first + count]
            start += count
        return selected

    def counts(self, keys: Sequence[str]) -> list[int]:
        """How many rows items have; raises CaseError where one is not there."""
        return [self.span(key)[1] for key in keys]

    def span(self, key: str) -> tuple[int, int]:
        """First row and count of an item; CaseError where missing."""
        if key not in self._index:
            self.refresh()
        if key not in self._index:
            raise CaseError(f"{self.path}: holds no features of {key!r}; compute them by `embed`")
        return self._index[key]

    def _matrix(self) -> Array:
        return self._map(MATRIX, self.length, np.dtype(self.dtype))

    def _map(self, name: str, width: int, dtype: Any) -> Array:
        rows = self._end()
        if not rows:
            return np.empty((0, width), dtype)
        return np.memmap(self.path / name, dtype, "r", HEADER, (rows, width))

    def _end(self) -> int:
        return max((first + rows for first, rows in self._index.values()), default=0)

    def _check_size(self) -> None:
        for name, width in ((MATRIX, self.length * np.dtype(self.dtype).itemsize), (PLACES, 16)):
            path = self.path / name
            size = path.stat().st_size if path.is_file() else -1
            if size < HEADER + self._end() * width:
                raise UserError(
                    f"{path}: is {'missing' if size < 0 else 'shorter than its index says'}; "
                    f"delete {self.path}, and its features are computed again"
                )

    def _checked(self, item: Item) -> Array:
        features = np.asarray(item.features)
        if features.ndim != 2 or features.shape[1] != self.length:
            raise CaseError(f"expected features (row, {self.length}), got {features.shape}; is it another encoder?")
        if item.coordinates is not None and len(item.coordinates) != len(features):
            raise CaseError(f"{len(features)} rows of features, but {len(item.coordinates)} places")
        if "\n" in item.key or "\r" in item.key:
            raise CaseError(f"key {item.key!r} has several lines")
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(features, self.dtype)
        if not np.isfinite(rows).all():
            why = "larger than float16 holds: set dtype=float32" if np.isfinite(features).all() else "NaN or infinite"
            raise CaseError(f"{int((~np.isfinite(rows)).any(1).sum())} of {len(rows)} rows of features are {why}")
        return rows

    def _append(self, new: Sequence[tuple[Item, Array]]) -> None:
        """Appends rows, then their index lines, syncing in between."""
        start = self._end()
        lines = io.StringIO(newline="")
        writer = csv.writer(lines, lineterminator="\n")
        coordinates = []
        for item, rows in new:
            writer.writerow([item.key, start, len(rows)])
            start += len(rows)
            where = item.coordinates if item.coordinates is not None else np.full((len(rows), 2), NOWHERE)
            coordinates.append(np.ascontiguousarray(where, np.int64))
        _write_rows(self.path / MATRIX, self._end(), [rows for _, rows in new], self.length, self.dtype)
        _write_rows(self.path / PLACES, self._end(), coordinates, 2, "int64")
        with (self.path / INDEX).open("r+b") as stream:
            stream.seek(self._read_to)  # over what a killed process began
            stream.truncate()
            stream.write(lines.getvalue().encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())


@contextmanager
def _lock_store(folder: Path) -> Iterator[None]:
    """Locks the store for this process."""
    try:
        with FileLock(folder / ".lock", timeout=WAIT_S):
            yield
    except Timeout as error:
        raise UserError(f"{folder}: another process has been writing there for {WAIT_S:g} s; try again") from error


def _begin_store(folder: Path, made_by: Mapping[str, Any], length: int, dtype: str) -> None:
    _write_rows(folder / MATRIX, 0, [], length, dtype)
    _write_rows(folder / PLACES, 0, [], 2, "int64")
    (folder / INDEX).write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    content = {"version": VERSION, "made_by": made_by, "length": length, "dtype": dtype}
    with whole(folder / MANIFEST) as partial:  # last: a folder with a manifest is a store
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _write_rows(path: Path, at: int, parts: Sequence[Array], width: int, dtype: str) -> None:
    """Writes rows from an index, then the header's count."""
    path.touch()
    size = np.dtype(dtype).itemsize * width
    with path.open("r+b") as stream:
        stream.seek(HEADER + at * size)
        stream.truncate()
        for rows in parts:
            rows.tofile(stream) if rows.size else None
        stream.flush()
        os.fsync(stream.fileno())
        stream.seek(0)
        stream.write(_npy_header(at + sum(map(len, parts)), width, dtype))
        stream.flush()


def _npy_header(rows: int, width: int, dtype: str) -> bytes:
    """The first bytes of an .npy, always as many."""
    description = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
        "fortran_order": False,
        "shape": (rows, width),
    }
    text = repr(description).encode("latin-1")
    body = text + b" " * (HEADER - 10 - len(text) - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body
