"""Parquet tables whose pictures stay in the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from medimg_eval.data.questions.cells import ParquetCell, rows_of
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
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: cannot be read as Parquet ({error}); copy the file again") from error
    schema = file.schema_arrow
    held = [one.name for one in schema if one.name in pictures or _holds_files(pa, one.type)]
    plain = [name for name in schema.names if name not in held]
    number = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        records = file.read_row_group(group, columns=plain).to_pylist() if plain else [{}] * count
        sizes = {name: _sizes(file, group, name) for name in held}
        for index, record in enumerate(records):
            number += 1
            place = f"row {number}"
            cells = {name: _cells(ParquetCell(path, name, place, group, index), sizes[name][index]) for name in held}
            yield place, record | cells


def _cells(cell: ParquetCell, size: int | None) -> ParquetCell | list[ParquetCell] | None:
    if size is None:
        return None
    if size < 0:
        return cell
    return [ParquetCell(cell.path, cell.column, cell.place, cell.group, cell.index, item) for item in range(size)]


def _sizes(file: Any, group: int, name: str) -> list[int | None]:
    """Of each row: None where there is nothing, the length of a list, or -1; read from the column's smallest part."""
    metadata = file.metadata.row_group(group)
    parts = [metadata.column(place) for place in range(metadata.num_columns)]
    own = [one for one in parts if one.path_in_schema == name or one.path_in_schema.startswith(f"{name}.")]
    smallest = min(own, key=lambda one: int(one.total_compressed_size)).path_in_schema
    found: list[int | None] = []
    for batch in file.iter_batches(batch_size=64, row_groups=[group], columns=[smallest]):
        column = batch.column(0)
        listed = hasattr(column, "offsets")
        for value in column:
            if not value.is_valid:
                found.append(None)
            else:
                found.append(len(value) if listed else _presence(value))
    return found


def _presence(value: Any) -> int | None:
    """-1 for something; None for an empty text or no bytes, which some tables write for no image."""
    held = value.as_py()
    return None if isinstance(held, bytes | str) and not held else -1


def _holds_files(pa: Any, kind: Any) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _holds_files(pa, kind.value_type)
    if pa.types.is_struct(kind):
        return any(kind.field(place).name == "bytes" for place in range(kind.num_fields))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
