"""Parquet tables whose pictures stay in the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from medimg_eval.data.questions.cells import BATCH, ParquetCell, rows_of
from medimg_eval.errors import UserError


def read_parquet(path: Path, *, pictures: Collection[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads a Parquet table, row by row.

    Args:
        path: the table.
        pictures: columns that hold images in base64; columns of bytes, of `{bytes, path}` as the `datasets` library
            writes them, and of lists of these are known by their type.

    Yields:
        The place, such as `row 7`, and the values. A picture is a `ParquetCell`, or a list of such, or None.

    Raises:
        UserError: the file is no Parquet.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows_of.cache_clear()  # a file may have been written anew
    try:
        yield from _rows(pq.ParquetFile(path), path, pictures)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read as Parquet ({error}); copy the file again") from error


def _rows(file: Any, path: Path, pictures: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa

    schema = file.schema_arrow
    held = [one.name for one in schema if one.name in pictures or _holds_files(pa, one.type)]
    plain = [name for name in schema.names if name not in held]
    number = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        records = file.read_row_group(group, columns=plain).to_pylist() if plain else [{}] * count
        there = {name: _presence(file, group, name) for name in held}
        for index, record in enumerate(records):
            number += 1
            place = f"row {number}"
            cells = {name: _cells(ParquetCell(path, name, place, group, index), there[name][index]) for name in held}
            yield place, record | cells


def _cells(cell: ParquetCell, there: bool | list[bool]) -> ParquetCell | list[ParquetCell] | None:
    if isinstance(there, bool):
        return cell if there else None
    return [replace(cell, item=item) for item, one in enumerate(there) if one]


def _presence(file: Any, group: int, name: str) -> list[bool | list[bool]]:
    """Of each row whether there is something, or of a list of each item; read from the column's smallest part.

    An object may be there while its `bytes` are not, which only these say.
    """
    metadata = file.metadata.row_group(group)
    parts = [metadata.column(place) for place in range(metadata.num_columns)]
    own = [one for one in parts if one.path_in_schema == name or one.path_in_schema.startswith(f"{name}.")]
    smallest = min(own, key=lambda one: int(one.total_compressed_size))
    found = _there(file, group, smallest.path_in_schema)
    held = next((one for one in own if one.path_in_schema.endswith(".bytes")), smallest)
    if held is smallest and len(own) == 1:
        return found
    absent = sum(one is False or one == [] for one in found) + sum(
        item is False for one in found if isinstance(one, list) for item in one
    )
    told = held.statistics
    if told is not None and told.has_null_count and told.null_count <= absent:
        return found
    return _there(file, group, name)


def _there(file: Any, group: int, column: str) -> list[bool | list[bool]]:
    batches = file.iter_batches(batch_size=BATCH, row_groups=[group], columns=[column])
    return [_is_there(value) for batch in batches for value in batch.column(0)]


def _is_there(value: Any) -> bool | list[bool]:
    """Whether a value holds something, which no bytes, an empty text and an object of nothing do not."""
    if not value.is_valid:
        return False
    if hasattr(value, "keys"):  # an object, or as much of it as was read
        return len(value) == 1 or any(value[key].is_valid for key in value)
    if hasattr(value, "values"):  # a list
        return [bool(_is_there(one)) for one in value.values]
    held = value.as_py()
    return not isinstance(held, bytes | str) or bool(held)


def _holds_files(pa: Any, kind: Any) -> bool:
    if hasattr(kind, "value_type"):  # of lists of any kind, and of what is stored once for many rows
        return _holds_files(pa, kind.value_type)
    if pa.types.is_struct(kind):
        return any(kind.field(place).name == "bytes" for place in range(kind.num_fields))
    return str(kind) in ("binary", "large_binary", "binary_view")
