"""Cases of another layout as a table lists them: which there are, whose they are, what tables divide by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from medimg_eval.case import Case
from medimg_eval.data.layouts.base import texts
from medimg_eval.data.layouts.folders import shortened
from medimg_eval.data.tables import read_table
from medimg_eval.errors import UserError
from medimg_eval.tasks.base import Layout, split_source


@dataclass(kw_only=True)
class Listed(Layout):
    """The cases that a table names, in its order, with the patients and attributes that it states.

    Args:
        layout: which has the cases.
        table: with a column `case`, optionally `patient`; every other column becomes an attribute.
        keep: whether cases that it does not name stay as they are, and it may name others.
    """

    layout: Layout
    table: str
    keep: bool = False

    def cases(self, split: str) -> list[Case]:
        """The cases of one split; raises UserError where the table names one that is not there, or one twice."""
        cases = {case.id: case for case in self.layout.cases(split)}
        named: dict[str, Case] = {}
        lost: list[str] = []
        for row in read_table(Path(self.table)):
            name = row.text("case")
            if name in named:
                raise row.error(f"case {name!r} stands on an earlier row, too; leave one out")
            if name not in cases:
                lost.append(name)
                continue
            case, patient = cases[name], row.text("patient") if "patient" in row.values else ""
            attributes = {**case.attributes, **texts(row.values, without=("case", "patient"))}
            named[name] = replace(case, patient=patient or case.patient, attributes=attributes)
        if self.keep:
            return [named.get(name, case) for name, case in cases.items()]
        if lost:
            raise UserError(f"{self.table}: {len(lost)} cases have no reference: {shortened(lost)}")
        return list(named.values())

    def split_source(self) -> Mapping[str, str]:
        """As the layout has it."""
        return split_source(self.layout)
