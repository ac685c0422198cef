"""Chest X-ray phantoms whose findings are to be told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from medimg_eval.case import Case, Findings
from medimg_eval.data.records import Given
from medimg_eval.phantoms.chest_reports import ChestReports
from medimg_eval.phantoms.report import DESCRIBED


@dataclass
class ChestFindings:
    """Chest X-ray phantoms with what is present in each: `Findings` of those that can be drawn.

    `root` holds `chest_reports` (None keeps it in the cache), written on first use; `count` is that of cases over all
    splits.
    """

    root: str | None = None
    count: int = 600
    seed: int = 0

    def cases(self, split: str) -> list[Case]:
        """The cases of `fit`, `validate` or `test`; raises as `ChestReports.cases` does."""
        layout = ChestReports(root=self.root, count=self.count, seed=self.seed)
        cases = []
        for case, table, row in layout.with_findings(split):
            findings = Findings({name: float(row[name]) for name in DESCRIBED})
            cases.append(replace(case, target=Given(findings, (table,), case.images[0]), question=None))
        return cases
