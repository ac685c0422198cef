"""Risks and survival that already lie on disk, whichever program made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from medimg_eval.case import Prompts
from medimg_eval.models.base import RiskModel
from medimg_eval.models.precomputed.files import FromRecords
from medimg_eval.models.precomputed.points_boxes import PrecomputedNumbers


class PrecomputedRisks(FromRecords, RiskModel):
    """Stored risks: one table, or a file per case.

    Args:
        root: the table (`.csv`, `.tsv`), or a folder with a file per case.
        risk: the column of the risk; empty where survival alone is given.
        survival: time -> the column of the probability of surviving it, one for each of the task's horizons; or none.
        pattern: the file of a case in the folder, `.csv`, `.tsv` or `.json` (an object of numbers).
        case: the column that names the case, in a table for all.
        lower_is_worse: whether the risk counts the other way, as predicted times do.

    Raises:
        UserError: root is missing, or the table is not understood or lacks a column.
    """

    def __init__(
        self,
        root: str,
        risk: str = "risk",
        survival: Mapping[float, str] | None = None,
        *,
        pattern: str = "{case}.json",
        case: str = "case",
        lower_is_worse: bool = False,
    ) -> None:
        columns = ({"risk": risk} if risk else {}) | {
            f"S({float(time):g})": column for time, column in (survival or {}).items()
        }
        self._numbers = PrecomputedNumbers(root, columns, pattern=pattern, case=case)
        self.files = self._numbers.files
        self._sign = -1.0 if lower_is_worse else 1.0

    def estimate_risk(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Reads risks; CaseError names the file of invalid ones."""
        return [
            {name: value * self._sign if name == "risk" else value for name, value in numbers.items()}
            for numbers in self._numbers.complete(prompts)
        ]
