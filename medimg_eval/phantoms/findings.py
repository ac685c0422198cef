"""Chest X-ray phantoms whose findings are to be told."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace

from medimg_eval.case import Case, Findings
from medimg_eval.data.records import Given
from medimg_eval.phantoms.chest_reports import ChestReports
from medimg_eval.phantoms.report import DESCRIBED


@dataclass
class ChestFindings:
    """Chest X-ray phantoms with what is present in each: `Findings` of those that can be drawn.

    Args:
        root: folder that holds `chest_reports`; None keeps it in the cache. Written on first use.
        count: cases, over all splits.
        seed: of the cohort.
    """

    root: str | None = None
    count: int = 600
    seed: int = 0

    def cases(self, split: str) -> list[Case]:
        """The cases of `fit`, `validate` or `test`; no patient lies in two of them.

        Raises:
            UserError: there is no such split, or the phantoms cannot be written.
        """
        cases = ChestReports(root=self.root, count=self.count, seed=self.seed).cases(split)
        if not cases:
            return []
        table = cases[0].target.files[0].parent / "findings.csv"
        with table.open(newline="", encoding="utf-8") as stream:
            found = {row["case"]: {name: float(row[name]) for name in DESCRIBED} for row in csv.DictReader(stream)}
        return [
            replace(case, target=Given(Findings(found[case.id]), (table,), case.images[0]), question=None)
            for case in cases
        ]
