"""Cases of files without images: as a table lists those of another layout, and points in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from medimg_eval.case import Case
from medimg_eval.data.layouts.base import texts
from medimg_eval.data.layouts.table import Table
from medimg_eval.data.records import Entry, StatedGrid
from medimg_eval.data.tables import read_table
from medimg_eval.errors import UserError, shortened
from medimg_eval.tasks.base import Layout, answered_elsewhere, split_source


@dataclass(kw_only=True)
class Listed(Layout):
    """Cases listed in a table, in its order, with patients and attributes.

    Args:
        layout: which has the cases.
        table: with a column `case`, optionally `patient`; every other column becomes an attribute.
        keep: whether cases that it does not name stay as they are, and it may name others.
    """

    layout: Layout
    table: str
    keep: bool = False

    def cases(self, split: str) -> list[Case]:
        """Cases of a split; UserError for missing or repeated ones."""
        cases = {case.id: case for case in self.layout.cases(split)}
        named: dict[str, Case] = {}
        unreadable: list[str] = []
        for row in read_table(Path(self.table)):
            name = row.text("case")
            if name in named:
                raise row.error(f"case {name!r} stands on an earlier row, too; leave one out")
            if name not in cases:
                unreadable.append(name)
                continue
            case, patient = cases[name], row.text("patient") if "patient" in row.values else ""
            attributes = {**case.attributes, **texts(row.values, without=("case", "patient"))}
            named[name] = replace(case, patient=patient or case.patient, attributes=attributes)
        if self.keep:
            return [named.get(name, case) for name, case in cases.items()]
        if unreadable:
            raise UserError(f"{self.table}: {len(unreadable)} cases have no reference: {shortened(unreadable)}")
        return list(named.values())

    @property
    def answered(self) -> bool:
        """Whether its questions were asked elsewhere."""
        return answered_elsewhere(self.layout)

    def split_source(self) -> Mapping[str, str]:
        """Files defining splits, as the layout has them."""
        return split_source(self.layout)


@dataclass(kw_only=True)
class PointTable(Table):
    """Table of points without images; the grid encloses them all.

    Args:
        columns: x and y, or x, y and z.
        spacing: mm that a step of a coordinate is; None where nobody knows, and distances are in such steps.
        others: see `Table` and the target.
    """

    columns: Sequence[str]
    spacing: float | None = None

    def entries(self, root: Path) -> list[Entry]:
        """The cases, each on the same grid."""
        entries = super().entries(root)
        rows = [row for entry in entries for row in entry.rows if row.text(self.columns[0])]
        points = np.array([[row.number(column) for column in self.columns] for row in rows])
        points = points.reshape(-1, len(self.columns))
        sides = np.ptp(points, axis=0) + 1 if len(points) else np.ones(len(self.columns))
        sides = sides[::-1] if len(self.columns) == 2 else sides  # rows before columns
        grid = StatedGrid(tuple(int(np.ceil(side)) for side in sides), self.spacing)
        return [replace(entry, images=(grid,)) for entry in entries]
