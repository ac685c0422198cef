"""A model of risk that never looks: the survival of everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from medimg_eval.case import Case, Prompts, Survival
from medimg_eval.errors import UserError
from medimg_eval.metrics.survival import Curve, kaplan_meier
from medimg_eval.models.base import RiskModel


class KaplanMeierEstimate(RiskModel):
    """Baseline without images: Kaplan and Meier's curve, C-index 0.5."""

    reads_images: ClassVar[bool] = False
    uses_torch = False
    preferred_batch = 64

    def __init__(self) -> None:
        self._curve: Curve | None = None

    def study(self, cases: Sequence[Case]) -> None:
        """Estimates the curve once; raises UserError without any times."""
        held = [case.target.read() for case in cases]
        outcomes = [outcome for outcome in held if isinstance(outcome, Survival)]
        if not outcomes:
            raise UserError("kaplan_meier_estimate: none of the cases has a time")
        self._curve = kaplan_meier([outcome.time for outcome in outcomes], [outcome.event for outcome in outcomes])

    def estimate_risk(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Returns survival at the horizons and risk 0, for all."""
        curve = self._curve
        if curve is None:
            raise UserError("kaplan_meier_estimate: there were no cases to study")
        answers = []
        for prompt in prompts:
            times = {name: float(name[2:-1]) for name in prompt.labels.values() if name.startswith("S(")}
            answers.append({"risk": 0.0} | {name: float(curve.at([time])[0]) for name, time in times.items()})
        return answers
