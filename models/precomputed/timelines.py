"""Structured findings of patients that already lie in a table, whichever program wrote them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from medimg_eval.arguments import grouped
from medimg_eval.case import Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.metrics.reports import timeline_row
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.question import Decoding


class PrecomputedTimelines(VisionLanguageModel):
    """Stored rows of each patient, as JSON.

    Columns are those of Lunguage's tables, gold or predicted: `ent` or `entity`, its attributes, `LLM_cluster` or
    `entity_group`, `temporal_group` or `episode`, `sequence`, and `IDX` where findings were given. A patient of whom it
    holds no row was found to have no finding.

    Args:
        file: CSV with a row per finding.
        patient: the column of the patient, who is the case.

    Raises:
        UserError: the file or the column is not there.
    """

    reads_images: ClassVar[bool] = False
    uses_torch = False
    file_arguments: ClassVar[tuple[str, ...]] = ("file",)
    preferred_batch = 1000

    def __init__(self, file: str, patient: str = "subject_id") -> None:
        self.file, self.patient = Path(file).expanduser(), patient

    @cached_property
    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        import pandas as pd

        with UserError.about(self.file, "cannot be read as a table", OSError, ValueError):
            table = pd.read_csv(self.file, dtype=str, keep_default_na=False)
        UserError.refuse_unknown(f"{self.file}: has no column", table, self.patient)
        lines: Any = table.to_dict("records")
        return grouped((str(line[self.patient]).strip(), timeline_row(line)) for line in lines)

    def check_ready(self) -> None:
        """Reads the table."""
        if not self._rows:
            raise UserError(f"{self.file}: holds no row; expected one for each finding")

    def held_cases(self) -> list[str]:
        """The patients that the table has rows of."""
        return list(self._rows)

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """Patients' rows; CaseError for rows without a finding."""
        for prompt in prompts:
            if any("entity" not in row and "idx" not in row for row in self._rows.get(prompt.case_id, ())):
                raise CaseError(f"{self.file}: a row of patient {prompt.case_id!r} names no finding; fill in `entity`")
        return [json.dumps(self._rows.get(prompt.case_id, [])) for prompt in prompts]
