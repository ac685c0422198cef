"""The file an index of DICOM files is kept in."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from medimg_eval.patients import salt_name
from medimg_eval.system import user_cache, whole

OLD_NAME = ".medimg_eval_index.parquet"
"""Where earlier versions kept it, in the data's folder and with patients' ids."""

VERSION = "2"
"""Counted up when the columns change: an index of another version, or of another salt, is built again."""

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


def place_of(root: Path, cache: Path | None) -> Path:
    """Where the index lies: in a folder of the user's cache, or in `cache`."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32] + ".parquet"
    return (user_cache() / "index" if cache is None else Path(cache)) / name


def delete_old(root: Path) -> None:
    """Deletes the index that an earlier version left in the data, for it holds patients' ids in clear."""
    old = root / OLD_NAME
    if not old.is_file():
        return
    try:
        old.unlink()
        logger.warning("%s: held patients' ids and was deleted; the index now lies in your cache", old)
    except OSError:
        logger.warning("%s: is the index of an earlier version, and holds patients' ids; delete it", old)


def load(place: Path) -> tuple[list[Group], dict[str, Stamp]]:
    """Reads the index written last: the images, and the files that are not DICOM. Nothing where there is none."""
    import pyarrow as pa
    from pyarrow import parquet

    if not place.is_file():
        return [], {}
    try:
        table = parquet.read_table(place, memory_map=False)
        if (table.schema.metadata or {}).get(b"version") != _version():
            logger.info("%s: is of another version or salt and is built again", place)
            return [], {}
        groups = [_group(row) for row in table.to_pylist()]
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s: is damaged (%s) and is built again", place, type(error).__name__)
        return [], {}
    others = next((group.files for group in groups if group.kind == "other"), {})
    return [group for group in groups if group.kind != "other"], others


def save(place: Path, groups: Sequence[Group], others: dict[str, Stamp]) -> None:
    """Writes the index, whole or not at all, for its owner alone to read: names of files may be those of patients."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [_row(group) for group in (*groups, Group("other", {}, others))]
    table = pa.Table.from_pylist(rows, schema=_schema())
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.parent == user_cache() / "index":
            place.parent.chmod(0o700)  # it may be that of an earlier version
        with whole(place) as partial:
            partial.touch(mode=0o600)
            parquet.write_table(table, partial, compression="zstd")
    except OSError:
        logger.warning("%s: cannot be written; every call will look at all files", place)


def _version() -> bytes:
    return f"{VERSION} {salt_name()}".encode()


def _schema() -> Any:
    import pyarrow as pa

    whole, numbers = pa.int64(), pa.list_(pa.float64())
    columns = [(name, pa.string()) for name in ("kind", *TEXTS)]
    columns += [("localizer", pa.bool_()), ("rows", whole), ("columns", whole), ("frames", whole)]
    columns += [("spacing", numbers), ("orientation", numbers)]
    columns += [("files", pa.list_(pa.binary())), ("sizes", pa.list_(whole)), ("changed", pa.list_(whole))]
    return pa.schema(columns, metadata={b"version": _version()})


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
