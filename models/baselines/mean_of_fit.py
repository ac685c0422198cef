"""A regressor that never looks: the mean of each output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from medimg_eval.case import Case, Findings, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.base import Regressor


class MeanOfFit(Regressor):
    """Says of every case the mean of each output over those to `fit` on: a baseline whose R² is about 0.

    Its predictions are constant, so their correlation with anything counts 0.
    """

    reads_images: ClassVar[bool] = False
    uses_torch = False
    preferred_batch = 64

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def study(self, cases: Sequence[Case]) -> None:
        """Averages, once, before it is asked; raises UserError where no case has a number."""
        told: dict[str, list[float]] = {}
        for case in cases:
            held = case.target.read()
            for name, value in held.values.items() if isinstance(held, Findings) else ():
                told.setdefault(name, []).extend([] if math.isnan(value) else [float(value)])
        self._means = {name: float(np.mean(values)) for name, values in told.items() if values}
        if not self._means:
            raise UserError("mean_of_fit: none of the cases has a number")

    def regress(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns the same for all; raises CaseError where nothing is known of an output."""
        return [self._said(prompt) for prompt in prompts]

    def _said(self, prompt: Prompt) -> dict[str, float]:
        wanted = list(prompt.labels.values())
        CaseError.refuse_unknown(f"case {prompt.case_id!r}: no case to fit on has output", self._means, *wanted)
        return {name: self._means[name] for name in wanted}
