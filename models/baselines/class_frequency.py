"""A classifier that never looks: how often each class is there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from medimg_eval.case import Case, Findings, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.base import Model
from medimg_eval.models.classification import Classifier


class MeansOfFit(Model):
    """Base of models that predict means over the `fit` cases."""

    reads_images: ClassVar[bool] = False
    uses_torch = False
    preferred_batch = 64

    nothing_known: ClassVar[str]
    """Says that no case to fit on tells anything."""

    not_known: ClassVar[str]
    """Says, before a name, that no case to fit on tells of it."""

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def study(self, cases: Sequence[Case]) -> None:
        """Averages once; raises UserError where no case has a target."""
        values_by_class: dict[str, list[float]] = {}
        for case in cases:
            held = case.target.read()
            for name, value in held.values.items() if isinstance(held, Findings) else ():
                values_by_class.setdefault(name, []).extend([] if math.isnan(value) else [float(value)])
        self._means = {name: float(np.mean(values)) for name, values in values_by_class.items() if values}
        if not self._means:
            raise UserError(self.nothing_known)

    def asked_means(self, prompt: Prompt) -> dict[str, float]:
        """Means of the asked outputs by name; CaseError for unknown ones."""
        wanted = list(prompt.labels.values())
        CaseError.refuse_unknown(f"case {prompt.case_id!r}: no case to fit on {self.not_known}", self._means, *wanted)
        return {name: self._means[name] for name in wanted}


class ClassFrequency(MeansOfFit, Classifier):
    """Baseline without images: class frequencies, whose AUROC is 0.5.

    Frequencies are those of the task's cases to `fit` on, among cases of which the class is known.
    """

    nothing_known = "class_frequency: none of the cases says which classes are present"
    not_known = "knows class"

    def classify(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns frequencies, equal for all; CaseError for an unknown class."""
        return [self._said(prompt) for prompt in prompts]

    def _said(self, prompt: Prompt) -> dict[str, float]:
        means = self.asked_means(prompt)
        total = math.fsum(means.values()) if prompt.options else 1.0
        return {name: value / (total or 1.0) for name, value in means.items()}
