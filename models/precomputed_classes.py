"""Probabilities of classes that already lie on disk, and how often each class occurs: classifiers without a network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from medimg_eval.case import Case, Findings, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError, nearest
from medimg_eval.models.classifier import Classifier, log_softmax
from medimg_eval.models.precomputed_places import PrecomputedNumbers


class PrecomputedClasses(Classifier):
    """Probabilities from one table for all cases, a row each, or from a file per case with one record.

    Args:
        root: the table (`.csv`, `.tsv`), or a folder with a file per case.
        columns: the classes' columns, or class -> column; None takes the task's classes for columns.
        pattern: the file of a case in the folder, `.csv`, `.tsv` or `.json` (an object of numbers).
        case: the column that names the case, in a table for all.
        logits: whether the numbers are logits: they then go through a softmax where classes exclude each other, and
            elsewhere through a sigmoid each.

    Raises:
        UserError: root is missing, or the table is not understood or lacks a column.
        UsageError: columns is no list or mapping.
    """

    reads_images: ClassVar[bool] = False
    file_arguments: ClassVar[tuple[str, ...]] = ("root",)

    def __init__(
        self,
        root: str,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        *,
        pattern: str = "{case}.json",
        case: str = "case",
        logits: bool = False,
    ) -> None:
        self._numbers = PrecomputedNumbers(root, columns, pattern=pattern, case=case)
        self.logits = logits

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Reads the numbers; what is missing or no number raises CaseError naming the file."""
        return [self._said(prompt, found) for prompt, found in zip(prompts, self._numbers.detect(prompts), strict=True)]

    def _said(self, prompt: Prompt, numbers: Mapping[str, float]) -> Mapping[str, float]:
        lost = next((name for name, value in numbers.items() if math.isnan(value)), None)
        if lost is not None:
            raise CaseError(f"{self._numbers.files.root}: case {prompt.case_id!r} has no number for {lost!r}")
        if not self.logits:
            return numbers
        values = np.array(list(numbers.values()))
        found = np.exp(log_softmax(values)) if prompt.options else 0.5 * (1 + np.tanh(values / 2))
        return dict(zip(numbers, found.tolist(), strict=True))


class ClassFrequency(Classifier):
    """Says of every case how often each class is present: a baseline that sees no image, whose AUROC is 0.5.

    Frequencies are those of the task's cases to `fit` on, among cases of which the class is known; of the test cases
    themselves where the task has no others.
    """

    reads_images: ClassVar[bool] = False
    preferred_batch = 64

    def __init__(self) -> None:
        self._often: dict[str, float] = {}

    def study(self, cases: Sequence[Case], apart: bool) -> None:
        """Counts, once, before it is asked; raises UserError where no case says what is true."""
        told: dict[str, list[float]] = {}
        for case in cases:
            held = case.target.read()
            for name, value in held.values.items() if isinstance(held, Findings) else ():
                told.setdefault(name, []).extend([] if math.isnan(value) else [float(value)])
        self._often = {name: float(np.mean(values)) for name, values in told.items() if values}
        if not self._often:
            raise UserError("class_frequency: none of the cases says which classes are present")

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns the same for all; raises CaseError where nothing is known of a class."""
        return [self._said(prompt) for prompt in prompts]

    def _said(self, prompt: Prompt) -> dict[str, float]:
        wanted = list(prompt.labels.values())
        lost = next((name for name in wanted if name not in self._often), None)
        if lost is not None:
            raise CaseError(
                f"case {prompt.case_id!r}: no case to fit on knows class {lost!r}{nearest(lost, self._often)}"
            )
        total = math.fsum(self._often[name] for name in wanted) if prompt.options else 1.0
        return {name: self._often[name] / (total or 1.0) for name in wanted}
