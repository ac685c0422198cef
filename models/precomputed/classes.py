"""Probabilities of classes that already lie on disk, and how often each class occurs: classifiers without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import CaseError, nearest
from medimg_eval.models.classification import Classifier, log_softmax
from medimg_eval.models.precomputed.files import FromRecords
from medimg_eval.models.precomputed.points_boxes import PrecomputedNumbers


class PrecomputedClasses(FromRecords, Classifier):
    """Stored class probabilities: one table, or a file per case.

    Args:
        root: the table (`.csv`, `.tsv`), or a folder with a file per case.
        columns: the classes' columns, or class -> column; None takes the task's classes for columns.
        pattern: the file of a case in the folder, `.csv`, `.tsv` or `.json` (an object of numbers).
        case: the column that names the case, in a table for all.
        logits: whether the numbers are logits: they then go through a softmax where classes exclude each other, and
            elsewhere through a sigmoid each.
        label: instead of columns of numbers: the column that names one class, whose probability then is 1.

    Raises:
        UserError: root is missing, or the table is not understood or lacks a column.
        UsageError: columns is no list or mapping.
    """

    def __init__(
        self,
        root: str,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        *,
        pattern: str = "{case}.json",
        case: str = "case",
        logits: bool = False,
        label: str = "",
    ) -> None:
        self._numbers = PrecomputedNumbers(root, [label] if label else columns, pattern=pattern, case=case)
        self.files = self._numbers.files
        self.logits, self.label = logits, label

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Reads probabilities; CaseError names the file of invalid ones."""
        if self.label:
            return [self._named(prompt) for prompt in prompts]
        return [
            self._probabilities(prompt, numbers)
            for prompt, numbers in zip(prompts, self._numbers.complete(prompts), strict=True)
        ]

    def _named(self, prompt: Prompt) -> Mapping[str, float]:
        line, classes = self._numbers.line(prompt), list(prompt.labels.values())
        if (name := line.text(self.label)) not in classes:
            raise CaseError(f"{line.place}: column {self.label!r} names no class: {name!r}{nearest(name, classes)}")
        return {class_name: float(class_name == name) for class_name in classes}

    def _probabilities(self, prompt: Prompt, numbers: Mapping[str, float]) -> Mapping[str, float]:
        if not self.logits:
            return numbers
        values = np.array(list(numbers.values()))
        probabilities = np.exp(log_softmax(values)) if prompt.options else 0.5 * (1 + np.tanh(values / 2))
        return dict(zip(numbers, probabilities.tolist(), strict=True))
