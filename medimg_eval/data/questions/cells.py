"""Pictures inside tables, Parquet ones too: cells that know where they stand, and are read when they are needed."""

from __future__ import annotations

import base64
import binascii
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from medimg_eval.errors import CaseError, UserError

LARGE = 64 * 2**20
"""Bytes of a column in a row group above which its rows are read a batch at a time."""

ESCAPED = re.compile(rb"\s+|\\[nr]|\\(?=/)")
"""What may stand between the letters of base64: blanks, line breaks, and what JSON writes before them and slashes."""

STANDARD = bytes.maketrans(b"-_", b"+/")
"""From the alphabet for addresses to that for mail."""

UNPADDED = 64
"""Letters of base64 above which the signs that fill its end may be missing; less is no picture."""

BATCH, RECENT = 16, 8
"""Rows in a batch, and batches that are kept: neighbours are asked for in an order that is almost theirs."""


@dataclass(frozen=True)
class Cell(ABC):
    """Field content of a record, located as `row 7` or `line 7`."""

    path: Path
    column: str
    place: str

    @abstractmethod
    def content(self) -> bytes | str:
        """Stored content."""

    def read(self) -> bytes:
        """The stored file, decoded from base64; CaseError without."""
        content = self.content()
        if isinstance(content, str) or content[:5] == b"data:" or self.as_text:
            content = self._unpacked(content.encode() if isinstance(content, str) else content)
        if not content:
            raise CaseError(f"{self.where} holds no file")
        return content

    @property
    def as_text(self) -> bool:
        """Whether bytes are text in base64."""
        return False

    def text(self) -> str:
        """Stored content as text."""
        content = self.content()
        return content if isinstance(content, str) else content.decode("utf-8", errors="replace")

    def within(self, key: str) -> Cell:
        """The cell of a named part."""
        raise CaseError(f"{self.where} holds no {key!r}")

    @property
    def where(self) -> str:
        """File, place and column, for people."""
        return f"{self.path}, {self.place}: column {self.column!r}"

    def _unpacked(self, content: bytes) -> bytes:
        try:
            packed = ESCAPED.sub(b"", content.rpartition(b"base64,")[2]).translate(STANDARD)
            packed += b"=" * (-len(packed) % 4) if len(packed) > UNPADDED else b""
            return base64.b64decode(packed, validate=True)
        except (ValueError, binascii.Error) as error:
            raise CaseError(f"{self.where} holds no base64 ({error}); write or copy the table again") from error


@dataclass(frozen=True)
class TextCell(Cell):
    """A file in base64 that was read with its table."""

    held: str = field(repr=False, default="")

    def content(self) -> str:
        """The text."""
        return self.held


@dataclass(frozen=True)
class StreamedCell(Cell):
    """Byte range of a field in a text table."""

    start: int = 0
    stop: int = 0

    @property
    def as_text(self) -> bool:
        """Always: the table is a text."""
        return True

    def content(self) -> bytes:
        """The bytes of the stretch; raises CaseError where the table has become shorter."""
        with self.path.open("rb") as stream:
            stream.seek(self.start)
            content = stream.read(self.stop - self.start)
        if len(content) < self.stop - self.start:
            raise CaseError(f"{self.where} is cut short; the table has changed since it was looked through")
        return content


@dataclass(frozen=True)
class ParquetCell(Cell):
    """A field of a Parquet table: a row (`index`) of a row group.

    `item` says which item of a list, from 0 (None for a field that holds no list); `key` which member of an object,
    where that is not `bytes`.
    """

    group: int = 0
    index: int = 0
    item: int | None = None
    key: str = ""

    def within(self, key: str) -> Cell:
        """The cell of a member."""
        return replace(self, key=key)

    def content(self) -> bytes | str:
        """The bytes, or the text of base64; raises CaseError where there is neither."""
        try:
            value = rows_of(self.path, self.group, self.column, os.getpid()).value(self.index)
        except (OSError, ValueError, LookupError, StopIteration) as error:
            raise CaseError(f"{self.where} cannot be read ({error}); copy the table again") from error
        if self.item is not None:
            value = value[self.item]
        for part in filter(None, self.key.split(".")):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):
            value = self._file(value)
        if not value or not isinstance(value, bytes | str):
            raise CaseError(f"{self.where} holds no file")
        return value

    def _file(self, value: Mapping[str, Any]) -> Any:
        if value.get("bytes") or not value.get("path"):
            return value.get("bytes")
        path = self.path.parent / value["path"]
        if not path.is_file():
            raise CaseError(f"{self.where} names {path}, and there is no such file")
        return path.read_bytes()


class Rows:
    """Column of a row group, streamed where large."""

    def __init__(self, path: Path, group: int, column: str) -> None:
        """Opens the table."""
        import pyarrow.parquet as pq

        self._file = pq.ParquetFile(path)
        self._group, self._column = group, column
        metadata = self._file.metadata.row_group(group)
        parts = [metadata.column(index) for index in range(metadata.num_columns)]
        own = [part for part in parts if part.path_in_schema.split(".")[0] == column]
        if sum(int(part.total_uncompressed_size) for part in own) <= LARGE:
            self._whole: Any = self._file.read_row_group(group, columns=[column]).column(column)
        else:
            self._whole = None
            self._restart()

    def value(self, index: int) -> Any:
        """Value of a row, efficient for neighbouring rows."""
        if self._whole is not None:
            return self._whole[index].as_py()
        batch = index // BATCH
        if batch < self._next and batch not in self._recent:
            self._restart()
        while batch not in self._recent:
            self._recent[self._next] = next(self._batches).column(0)
            self._next += 1
            self._recent.pop(self._next - 1 - RECENT, None)
        return self._recent[batch][index % BATCH].as_py()

    def _restart(self) -> None:
        self._recent: dict[int, Any] = {}
        self._next = 0
        self._batches = self._file.iter_batches(BATCH, row_groups=[self._group], columns=[self._column])


@lru_cache(maxsize=2)
def rows_of(path: Path, group: int, column: str, _process: int) -> Rows:
    """Column reader of a row group, one per process."""
    return Rows(path, group, column)


def read_parquet(path: Path, *, pictures: Collection[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads a Parquet table, row by row; raises UserError where it is none.

    `pictures` are columns that hold images in base64; columns of bytes, of `{bytes, path}` as the `datasets` library
    writes them, and of lists of these are known by their type.

    Yields:
        The place, such as `row 7`, and the values. A picture is a `ParquetCell`, or a list of such, or None.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows_of.cache_clear()  # a file may have been written anew
    with UserError.about(path, "cannot be read as Parquet", pa.ArrowException, OSError, mend="copy the file again"):
        yield from _iterate_rows(pq.ParquetFile(path), path, pictures)


def _iterate_rows(file: Any, path: Path, pictures: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa

    schema = file.schema_arrow
    held = [field.name for field in schema if field.name in pictures or _holds_files(pa, field.type)]
    plain = [name for name in schema.names if name not in held]
    number = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        records = file.read_row_group(group, columns=plain).to_pylist() if plain else [{}] * count
        there = {name: _cell_presence(file, group, name) for name in held}
        for index, record in enumerate(records):
            number += 1
            location = f"row {number}"
            cells = {
                name: _present_cells(ParquetCell(path, name, location, group, index), there[name][index])
                for name in held
            }
            yield location, record | cells


def _present_cells(cell: ParquetCell, there: bool | list[bool]) -> ParquetCell | list[ParquetCell] | None:
    if isinstance(there, bool):
        return cell if there else None
    return [replace(cell, item=item) for item, cell_ in enumerate(there) if cell_]


def _cell_presence(file: Any, group: int, name: str) -> list[bool | list[bool]]:
    """Whether each row, or list item, holds something.

    An object may be there while its `bytes` are not, which only these say.
    """
    metadata = file.metadata.row_group(group)
    parts = [metadata.column(index) for index in range(metadata.num_columns)]
    own = [part for part in parts if part.path_in_schema == name or part.path_in_schema.startswith(f"{name}.")]
    smallest = min(own, key=lambda one: int(one.total_compressed_size))
    presence = _filled_cells(file, group, smallest.path_in_schema)
    held = next((part for part in own if part.path_in_schema.endswith(".bytes")), smallest)
    if held is smallest and len(own) == 1:
        return presence
    absent = sum(row is False or row == [] for row in presence) + sum(
        item is False for row in presence if isinstance(row, list) for item in row
    )
    statistics = held.statistics
    if statistics is not None and statistics.has_null_count and statistics.null_count <= absent:
        return presence
    return _filled_cells(file, group, name)


def _filled_cells(file: Any, group: int, column: str) -> list[bool | list[bool]]:
    batches = file.iter_batches(batch_size=BATCH, row_groups=[group], columns=[column])
    return [_is_there(value) for batch in batches for value in batch.column(0)]


def _is_there(value: Any) -> bool | list[bool]:
    """Whether a value is not empty: bytes, text or object."""
    if not value.is_valid:
        return False
    if hasattr(value, "keys"):  # an object, or as much of it as was read
        return len(value) == 1 or any(value[key].is_valid for key in value)
    if hasattr(value, "values"):  # a list
        return [bool(_is_there(item)) for item in value.values]
    held = value.as_py()
    return not isinstance(held, bytes | str) or bool(held)


def _holds_files(pa: Any, kind: Any) -> bool:
    if hasattr(kind, "value_type"):  # of lists of any kind, and of what is stored once for many rows
        return _holds_files(pa, kind.value_type)
    if pa.types.is_struct(kind):
        return any(kind.field(index).name == "bytes" for index in range(kind.num_fields))
    return str(kind) in ("binary", "large_binary", "binary_view")
