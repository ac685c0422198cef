"""The file an index of DICOM files is kept in."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from medimg_eval.imaging.system import user_cache, whole

NAME = ".medimg_eval_index.parquet"
VERSION = "1"
"""Counted up when the columns change: an index of another version is built again."""

TEXTS = (
    "patient", "study", "series", "number", "description", "modality", "sop_class", "body_part", "view", "laterality",
)  # fmt: skip

logger = logging.getLogger(__name__)

Stamp = tuple[int, int]
"""Size in bytes and time of the last change in ns: what tells that a file is still the same."""


@dataclass
class Group:
    """A row of the index.

    Attributes:
        kind: slices of one geometry, a file that is an image by itself, or the files that are not DICOM.
        facts: what is said of the image: the fields of `Series`.
        files: by name relative to the root.
    """

    kind: Literal["stack", "single", "other"]
    facts: dict[str, Any]
    files: dict[str, Stamp]


def places(root: Path, cache: Path | None) -> list[Path]:
    """Where the index may lie, best first: in the folder, then in the user's cache; or in `cache` alone."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32] + ".parquet"
    if cache is not None:
        return [Path(cache) / name]
    return [root / NAME, user_cache() / "index" / name]


def load(places: Sequence[Path]) -> tuple[list[Group], dict[str, Stamp]]:
    """Reads the index written last: the images, and the files that are not DICOM. Nothing where there is none."""
    import pyarrow as pa
    from pyarrow import parquet

    found = [(place.stat().st_mtime_ns, place) for place in places if place.is_file()]
    if not found:
        return [], {}
    place = max(found)[1]
    try:
        table = parquet.read_table(place, memory_map=False)
        if (table.schema.metadata or {}).get(b"version") != VERSION.encode():
            logger.info("%s: is of another version and is built again", place)
            return [], {}
        groups = [_group(row) for row in table.to_pylist()]
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s: is damaged (%s) and is built again", place, type(error).__name__)
        return [], {}
    others = next((group.files for group in groups if group.kind == "other"), {})
    return [group for group in groups if group.kind != "other"], others


def save(places: Sequence[Path], groups: Sequence[Group], others: dict[str, Stamp]) -> None:
    """Writes the index to the first place that can be written, whole or not at all."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [_row(group) for group in (*groups, Group("other", {}, others))]
    table = pa.Table.from_pylist(rows, schema=_schema())
    for place in places:
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with whole(place) as partial:
                parquet.write_table(table, partial, compression="zstd")
        except OSError:
            continue
        return
    logger.warning("%s: cannot be written, nor the user's cache; every call will look at all files", places[0])


def _schema() -> Any:
    import pyarrow as pa

    whole, numbers = pa.int64(), pa.list_(pa.float64())
    columns = [(name, pa.string()) for name in ("kind", *TEXTS)]
    columns += [("localizer", pa.bool_()), ("rows", whole), ("columns", whole), ("frames", whole)]
    columns += [("spacing", numbers), ("orientation", numbers)]
    columns += [("files", pa.list_(pa.binary())), ("sizes", pa.list_(whole)), ("changed", pa.list_(whole))]
    return pa.schema(columns, metadata={"version": VERSION})


def _group(row: dict[str, Any]) -> Group:
    kind = row.pop("kind")
    names = [os.fsdecode(name) for name in row.pop("files")]
    stamps = zip(row.pop("sizes"), row.pop("changed"), strict=True)
    for name in ("spacing", "orientation"):
        row[name] = None if row[name] is None else tuple(row[name])
    return Group(kind, row, dict(zip(names, stamps, strict=True)))


def _row(group: Group) -> dict[str, Any]:
    return group.facts | {
        "kind": group.kind,
        "files": [os.fsencode(name) for name in group.files],
        "sizes": [size for size, _ in group.files.values()],
        "changed": [time for _, time in group.files.values()],
    }
