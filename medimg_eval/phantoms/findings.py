"""Chest X-ray phantoms whose findings are to be told, or asked about."""

from __future__ import annotations

from dataclasses import dataclass, replace

from medimg_eval.case import Case, Findings
from medimg_eval.data.records import Given
from medimg_eval.phantoms.chest_reports import ChestReports
from medimg_eval.phantoms.report import DESCRIBED
from medimg_eval.question import Key, Question


@dataclass
class ChestFindings:
    """Chest X-ray phantoms with `Findings` of each.

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


@dataclass
class ChestQuestions(ChestFindings):
    """Yes-or-no questions on chest X-ray phantoms' findings.

    Questions about one phantom share its patient, and have the attribute `finding`. See `ChestFindings`.
    """

    count: int = 40

    def cases(self, split: str) -> list[Case]:
        """The questions of `fit`, `validate` or `test`; raises as `ChestReports.cases` does."""
        layout = ChestReports(root=self.root, count=self.count, seed=self.seed)
        cases = []
        for case, table, row in layout.with_findings(split):
            for name in DESCRIBED:
                key = Key("yes" if float(row[name]) else "no")
                question_case = replace(
                    case,
                    id=f"{case.id}-{name.replace(' ', '_')}",
                    target=Given(key, (table,), case.images[0]),
                    question=Question(f"Is there {WITH_ARTICLE.get(name, name)} in the radiograph?", "yes_no"),
                    attributes={**case.attributes, "finding": name},
                )
                cases.append(question_case)
        return cases


WITH_ARTICLE = {
    "endotracheal tube": "an endotracheal tube",
    "nodule": "a nodule",
    "pacemaker": "a pacemaker",
    "pleural effusion": "a pleural effusion",
    "pneumothorax": "a pneumothorax",
    "consolidation": "a consolidation",
}
