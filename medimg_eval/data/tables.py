"""One reader for every table: CSV, TSV, JSON, JSON lines and Parquet, each record knowing where it stands."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from medimg_eval.data.records import Row
from medimg_eval.errors import CaseError, MissingDataError, UserError, nearest

SEPARATORS = (";", "\t", "|", ",")
"""What else separates the fields of a table whose header seems to hold one column."""


LONGEST = 2**31 - 1
"""Characters in one field: some tables hold images."""


def read_table(
    path: Path, *, separator: str = "", header: Sequence[str] = (), strays: list[UserError] | None = None
) -> list[Row]:
    """Reads the records of a table, in its order.

    Names of columns lose the blanks about them. Cells of a Parquet table that hold files become `Cell`s, which are read
    later.

    Args:
        path: `.csv`, `.tsv`, `.txt`, `.json`, `.jsonl`, each also with `.gz`, or `.parquet`. A JSON object of lists
            gives one record per item, whose `split` is the list's name; an object of objects gives one
            record per object, whose `id` is its name.
        separator: between the fields of a text table; a tab in `.tsv` and a comma elsewhere when empty.
        header: the names of the columns, for a text table without a header line.
        strays: takes what is wrong with lines that are not understood, and the others are read; without it the first
            of them is raised. A quote that is left open is raised all the same: nothing after it can be told apart.

    Raises:
        UserError: the table is missing, or a line is not understood; the message names file and line.
    """
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    if not path.is_file():
        raise MissingDataError(f"{path}: no such table{_nearest_file(path)}")
    if kind == ".parquet":
        return _read_parquet(path)
    text = read_text(path)
    if kind in (".json", ".jsonl", ".ndjson"):
        return list(_read_json_rows(path, text, lines=kind != ".json", strays=strays))
    return list(_read_separated(path, text, separator or ("\t" if kind == ".tsv" else ","), header, strays))


def read_json(path: Path) -> Any:
    """Reads JSON; UserError names file and line of missing or invalid content."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: is no JSON ({error.msg})") from error


def read_lines(path: Path) -> list[Row]:
    """Nonblank lines as records of column `line`; raises as `read_text`."""
    lines = enumerate(io.StringIO(read_text(path), newline=None), start=1)
    return [Row(path, f"line {number}", {"line": line.strip()}) for number, line in lines if line.strip()]


def _nearest_file(path: Path) -> str:
    names = [entry.name for entry in path.parent.iterdir() if entry.is_file()] if path.parent.is_dir() else []
    return nearest(path.name, names) if 0 < len(names) <= 20 else ""


def read_text(path: Path) -> str:
    """Text of a file, decompressed from `.gz`, without BOM.

    Raises UserError, naming file and line, where it is missing, or no UTF-8 text.
    """
    if not path.is_file():
        raise MissingDataError(f"{path}: no such file{_nearest_file(path)}")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, EOFError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: is no UTF-8 text; convert the file to UTF-8") from error


def _read_separated(
    path: Path, text: str, separator: str, header: Sequence[str], strays: list[UserError] | None
) -> Iterator[Row]:
    # Not splitlines, which also parts lines at characters that texts hold, such as U+2028.
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=separator == " ", strict=True
    )
    csv.field_size_limit(LONGEST)
    names = list(header)
    start = 1
    try:
        for fields in reader:
            first, start = start, reader.line_num + 1
            alone = fields == [""] and len(names) == 1  # a quoted blank is a value, and a blank line has no fields
            if not alone and not any(field.strip() for field in fields):
                continue
            if not names:
                names = _check_header(path, first, fields, separator)
                continue
            if len(fields) != len(names):
                stray = UserError(
                    f"{path}, line {first}: has not as many fields ({len(fields)}) as the header's {len(names)}; "
                    "quote fields that hold the separator"
                )
                _note_stray(strays, stray)
                continue
            yield Row(path, f"line {first}", dict(zip(names, fields, strict=True)))
    except csv.Error as error:
        raise UserError(f"{path}, line {start}: cannot be read as a table ({error}); is a quote left open?") from error


def _check_header(path: Path, line: int, fields: Sequence[str], separator: str) -> list[str]:
    names = [name.strip() or f"column {number}" for number, name in enumerate(fields, start=1)]
    separator_ = next(
        (separator_ for separator_ in SEPARATORS if separator_ != separator and separator_ in names[0]), None
    )
    if len(names) == 1 and separator_ is not None:
        raise UserError(f"{path}, line {line}: holds one column, {names[0]!r}; set separator={separator_!r}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{path}, line {line}: column {twice[0]!r} occurs more than once; give one another name")
    return names


def _note_stray(strays: list[UserError] | None, error: UserError, cause: Exception | None = None) -> None:
    if strays is None:
        raise error from cause
    strays.append(error)


def _read_json_rows(path: Path, text: str, *, lines: bool, strays: list[UserError] | None = None) -> Iterator[Row]:
    held = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if lines or (len(held) > 1 and _is_object(held[0][1])):  # JSON lines, whatever the file is called
        for number, line in held:
            try:
                record = _make_row(path, f"line {number}", json.loads(line))
            except json.JSONDecodeError as error:
                _note_stray(strays, UserError(f"{path}, line {number}: is no JSON ({error.msg})"), error)
            else:
                yield record
        return
    content = read_json(path)
    if isinstance(content, list):
        yield from (_make_row(path, f"item {number}", item) for number, item in enumerate(content, start=1))
    elif isinstance(content, dict) and content and all(isinstance(value, list) for value in content.values()):
        for split, items in content.items():
            for number_, item in enumerate(items, start=1):
                yield _make_row(path, f"item {number_} of {split!r}", item, split=split)
    elif isinstance(content, dict) and content and all(isinstance(value, dict) for value in content.values()):
        yield from (_make_row(path, f"item {name!r}", item, id=name) for name, item in content.items())
    else:
        yield _make_row(path, "item 1", content)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except json.JSONDecodeError:
        return False


def _make_row(path: Path, place: str, item: Any, **more: str) -> Row:
    if not isinstance(item, Mapping):
        raise Row(path, place, {}).error(f"expected an object of named values, found {item!r:.40}")
    return Row(path, place, more | dict(item))


@dataclass(frozen=True)
class Encoded:
    """Base64 file in a text table, located such as `line 7`."""

    path: Path
    column: str
    place: str
    text: str = field(repr=False)

    def read(self) -> tuple[bytes, str]:
        """Returns the bytes and an empty name; CaseError for invalid base64."""
        with CaseError.about(f"{self.path}, {self.place}", f"column {self.column!r} holds no base64", ValueError):
            return base64.b64decode(self.text.rpartition("base64,")[2], validate=True), ""


@dataclass(frozen=True)
class Cell:
    """A file inside a Parquet table, read when it is needed.

    It is a row (`index`) of a row group; its place is such as `row 7` of the table.
    """

    path: Path
    group: int
    index: int
    column: str
    place: str

    def read(self) -> tuple[bytes, str]:
        """Returns the file's bytes, and its stored name or "".

        Raises CaseError for an empty cell.
        """
        value = _read_column(self.path, self.group, self.column)[self.index].as_py()
        data, name = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
        if not data:
            raise CaseError(f"{self.path}, {self.place}: holds no file in column {self.column!r}")
        return data, name or ""


@lru_cache(maxsize=2)
def _read_column(path: Path, group: int, column: str) -> Any:
    # Neighbours are asked for one after the other, and a row group is the least that can be read.
    import pyarrow.parquet as pq

    return pq.ParquetFile(path).read_row_group(group, columns=[column]).column(column)


def _read_parquet(path: Path) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with UserError.about(path, "cannot be read as Parquet", pa.ArrowInvalid, OSError):
        file = pq.ParquetFile(path)
    embedded = [field.name for field in file.schema_arrow if _holds_files(pa, field.type)]
    plain = [name for name in file.schema_arrow.names if name not in embedded]
    rows: list[Row] = []
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        records = file.read_row_group(group, columns=plain).to_pylist() if plain else [{}] * count
        for index, record in enumerate(records):
            location = f"row {len(rows) + 1}"
            cells = {name: Cell(path, group, index, name, location) for name in embedded}
            rows.append(Row(path, location, record | cells))
    return rows


def _holds_files(pa: Any, kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(kind.field(index).name == "bytes" for index in range(kind.num_fields))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
