"""A classifier that never looks: how often each class is there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from medimg_eval.case import Case, Findings, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.classification import Classifier


class ClassFrequency(Classifier):
    """Says of every case how often each class is present: a baseline that sees no image, whose AUROC is 0.5.

    Frequencies are those of the task's cases to `fit` on, among cases of which the class is known.
    """

    reads_images: ClassVar[bool] = False
    uses_torch = False
    preferred_batch = 64

    def __init__(self) -> None:
        self._often: dict[str, float] = {}

    def study(self, cases: Sequence[Case]) -> None:
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
        CaseError.refuse_unknown(f"case {prompt.case_id!r}: no case to fit on knows class", self._often, *wanted)
        total = math.fsum(self._often[name] for name in wanted) if prompt.options else 1.0
        return {name: self._often[name] / (total or 1.0) for name in wanted}
