"""Measurements from tables: angles, lengths and ratios, read by one reader or by several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from medimg_eval.case import Findings
from medimg_eval.data.records import Entry, Given, Row, given
from medimg_eval.errors import UsageError
from medimg_eval.metrics.scores import BETWEEN

NOTHING = ("", "nan", "none")
"""What tables write where nothing was measured."""


@dataclass
class NumberColumns:
    """Measurements in a table: a column each, and for several readers a column or a row each.

    Args:
        columns: the measurements' columns, or measurement -> column. Where readers have columns of their own, the
            measurements are `name/reader`, or `name/reader/reading` if one read more than once; `name` alone is then
            the truth, which is otherwise the mean of the readers' means.
        reader: the column of the reader, for tables with one row for each; the rows of a case give `name/reader`.
        reading: the column that tells apart the readings of one reader, which then are `name/reader/reading`.
    """

    columns: Sequence[str] | Mapping[str, str]
    reader: str = ""
    reading: str = ""

    def __post_init__(self) -> None:
        """Refuses columns that are none, and readers that are named twice."""
        if isinstance(self.columns, str) or not self.columns:
            raise UsageError(f"expected a list of columns of numbers, got {self.columns!r}")
        named = self.columns.items() if isinstance(self.columns, Mapping) else [(name, name) for name in self.columns]
        self._columns = {str(name): str(column) for name, column in named}
        wrong = next((name for name in self._columns if not all(parts := name.split(BETWEEN)) or len(parts) > 3), None)
        if wrong is not None:
            raise UsageError(f"expected `name`, `name/reader` or `name/reader/reading` for a number, got {wrong!r}")
        if self.reading and not self.reader:
            raise UsageError("a column of readings needs `reader`, the column of who read")
        split = next((name for name in self._columns if self.reader and BETWEEN in name), None)
        if split is not None:
            raise UsageError(f"readers stand either in the column {self.reader!r} or in names such as {split!r}")

    def reference(self, entry: Entry) -> Given[Findings]:
        """The numbers of a case: of all its rows if they are readers', else what its rows agree on."""
        if not self.reader:
            return given(Findings(entry.agreed(self._numbers)), entry)
        found: dict[str, float] = {}
        for row in entry.rows:
            numbers = self._numbers(row)
            if all(math.isnan(value) for value in numbers.values()):
                continue
            reader = self._reader(row)
            twice = next((name for name in numbers if name + reader in found), None)
            if twice is not None:
                raise row.error(
                    f"case {entry.id!r} has {twice + reader!r} in an earlier row as well; "
                    f"{'correct' if self.reading else 'set `reading` to'} the column that numbers the readings"
                )
            found |= {name + reader: value for name, value in numbers.items()}
        return given(Findings(found), entry)

    def _reader(self, row: Row) -> str:
        """What is added to the name of a number: `/reader`, or `/reader/reading`."""
        parts = {column: row.text(column) for column in (self.reader, self.reading) if column}
        for column, text in parts.items():
            if not text or BETWEEN in text:
                raise row.error(f"column {column!r} holds {text!r:.60}, expected a name without {BETWEEN!r}")
        return "".join(BETWEEN + text for text in parts.values())

    def _numbers(self, row: Row) -> dict[str, float]:
        return {name: self._number(row, column) for name, column in self._columns.items()}

    def _number(self, row: Row, column: str) -> float:
        if row.text(column).lower() in NOTHING:
            return math.nan
        number = row.number(column)
        if math.isinf(number):
            raise row.error(f"column {column!r} holds {number}, expected a finite number, or nothing")
        return number
