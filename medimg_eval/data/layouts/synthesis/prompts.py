"""Tables of prompts: what pictures are to be made of, and the real images that belong to them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Case, Reference, Text
from medimg_eval.data.layouts.table import Table
from medimg_eval.data.records import Entry, Row, Target, given
from medimg_eval.errors import UsageError

FINDINGS = (
    "Atelectasis",
    "Cardiomegaly",
    "Consolidation",
    "Edema",
    "Enlarged Cardiomediastinum",
    "Fracture",
    "Lung Lesion",
    "Lung Opacity",
    "No Finding",
    "Pleural Effusion",
    "Pleural Other",
    "Pneumonia",
    "Pneumothorax",
    "Support Devices",
)
"""CheXpert's observations, in the order of their names."""

REDACTED = "___"
"""What de-identification left in the place of a name, a date or a number."""


@dataclass(frozen=True)
class PromptText:
    """A prompt in a column of a table, or a pattern of columns."""

    column: str

    def reference(self, entry: Entry) -> Reference[Text]:
        """The text; raises UserError naming the line where there is none."""
        text = entry.row.fill(self.column)
        if not text:
            raise entry.row.error(f"column {self.column!r} is empty, expected a prompt")
        return given(Text(text), entry)


@dataclass(kw_only=True)
class Prompts(Table):
    """A table with a row per prompt.

    Args:
        prompt: the column of the text, or a pattern of columns.
        parts: name of a split that is made of another -> `of`, that split; `distinct`, whether a prompt counts once, of
            rows with the same text the first; and `sample` with `seed`, how many of what is left are drawn.
        others: see `Table`. Where there is an `image`, it is the real one that belongs to the prompt.
    """

    id: str = "id"
    prompt: str = "prompt"
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The text."""
        return PromptText(self.prompt)

    def cases(self, split: str) -> list[Case]:
        """The cases of one split, or of a part of one."""
        if split not in self.parts:
            return super().cases(split)
        wanted = self.parts[split]
        strange = next((key for key in wanted if key not in ("of", "distinct", "sample", "seed")), None)
        if strange is not None or "of" not in wanted:
            raise UsageError(
                f"task.layout.parts.{split}: expected `of`, and at most distinct, sample and seed, got {sorted(wanted)}"
            )
        cases = super().cases(wanted["of"])
        if wanted.get("distinct"):
            first: dict[str, Case] = {}
            for case in cases:
                first.setdefault(case.target.read().text, case)
            cases = list(first.values())
        count = int(wanted.get("sample", len(cases)))
        if count >= len(cases):
            return cases
        # As pandas draws rows, so that the benchmarks' own draws are the same.
        rng = np.random.RandomState(int(wanted.get("seed", 0)))
        return [cases[index] for index in rng.choice(len(cases), size=count, replace=False)]


@dataclass(kw_only=True)
class CheXGenBench(Prompts):
    """CheXGenBench's tables of MIMIC-CXR with LLaVA-Rad's captions.

    Each of CheXpert's 14 observations becomes an attribute: `1` stated, `0` denied, `-1` uncertain, and no attribute
    where the report does not speak of it. `redacted` is `1` where the prompt holds a mark of de-identification: such
    prompts are memorised most. Arguments are those of `Prompts`.
    """

    table: str | Mapping[str, str]
    image: str | Sequence[str] = "images/{path}"
    prompt: str = "annotated_prompt"
    patient: str = "patientID"
    attributes: Sequence[str] = ("view",)
    labels: str = "chexpert_labels"

    def _entry(self, root: Path, row: Row, split: str | None) -> Entry:
        entry = super()._entry(root, row, split)
        redacted = "1" if REDACTED in row.fill(self.prompt) else "0"
        return replace(entry, attributes={**entry.attributes, **self._findings(row), "redacted": redacted})

    def _findings(self, row: Row) -> dict[str, str]:
        text = row.text(self.labels)
        try:
            findings = ast.literal_eval(text) if text else {}
            return {name: str(int(float(findings[name]))) for name in FINDINGS if findings.get(name) not in (None, "")}
        except (ValueError, SyntaxError, AttributeError, TypeError) as error:
            raise row.error(f"column {self.labels!r} holds {text!r:.60}, expected finding -> number") from error
