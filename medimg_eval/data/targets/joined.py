"""A truth that stands in another table than the one that lists the cases, or in several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.case import Geometry, Points, Reference
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.data.tables import read_table


@dataclass
class TableTarget:
    """Hands the rows of another table to a target that reads columns.

    Args:
        table: below the root.
        key: its column, or a pattern of its columns, that names the case.
        target: what is read from the rows of one case.
        key_is: pattern of what `key` holds: `{case}`, `{stem}` or `{name}` of the image, `{patient}`, or a field of the
            layout.
        absent: what a case without a row means: a mistake (`raise`), or the same as a row of empty cells (`empty`),
            such as a scan without a nodule.
        separator: between the fields of a text table.
    """

    table: str
    key: str
    target: Target
    key_is: str = "{case}"
    absent: Literal["raise", "empty"] = "raise"
    separator: str = ""
    _read: dict[tuple[Path, int], tuple[Row, dict[str, list[Row]]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def reference(self, entry: Entry) -> Reference[Any]:
        """Reference that the target makes of the case's rows."""
        first, rows = self._rows(entry.root / self.table)
        name = entry.fill(self.key_is)
        if name in rows:
            return self.target.reference(replace(entry, rows=tuple(rows[name])))
        if self.absent == "raise":
            raise entry.row.error(
                f"case {entry.id!r}: {first.path} has no row with {name!r} in {self.key!r}; complete the table, or set "
                "absent=empty where that means that there is nothing"
            )
        empty = Row(first.path, "", dict.fromkeys(first.values, ""))
        return self.target.reference(replace(entry, rows=(empty,)))

    def __getstate__(self) -> dict[str, Any]:
        """Drops the table from pickles; processes reread it on demand."""
        return {**self.__dict__, "_read": {}}

    def _rows(self, path: Path) -> tuple[Row, dict[str, list[Row]]]:
        state = (path, path.stat().st_mtime_ns if path.exists() else 0)
        if state not in self._read:
            table = read_table(path, separator=self.separator)
            by_key = grouped((row.fill(self.key), row) for row in table)
            first = table[0] if table else Row(path, "", {})
            self._read.clear()
            self._read[state] = (first, by_key)
        return self._read[state]


@dataclass
class JoinedPoints:
    """Points of several targets joined, such as nodules and ignorable findings.

    Those of the first come first.
    """

    targets: Sequence[Target]

    def reference(self, entry: Entry) -> Reference[Points]:
        """The points of every target."""
        return _AllPoints(tuple(target.reference(entry) for target in self.targets))


@dataclass(frozen=True)
class _AllPoints:
    """Points of one image, one set after another."""

    parts: tuple[Reference[Points], ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the points are read from."""
        return tuple(dict.fromkeys(path for part in self.parts for path in part.files))

    def read(self) -> Points:
        """Reads them all; a measurement that a set lacks is NaN."""
        read = [part.read() for part in self.parts]
        values = [np.full(len(points.names), np.nan) if points.values is None else points.values for points in read]
        return Points(
            np.concatenate([points.positions for points in read]),
            tuple(name for points in read for name in points.names),
            np.concatenate(values) if any(points.values is not None for points in read) else None,
        )

    def geometry(self) -> Geometry:
        """The grid of the image."""
        return self.parts[0].geometry()
