"""Survival: how soon an event comes, of cases some of which are censored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from medimg_eval.case import Case, Image, Prompt, Survival
from medimg_eval.codecs import Codec, Records, Weighed
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.survival import CENSORED, EVENT, FAILED, HORIZONS, Followed, at_horizon
from medimg_eval.tasks.base import NOBODY, SCORES, Task, TrainsOnPrompts, baseline_configs
from medimg_eval.tasks.checks import check_metrics

KIND = "survival"

RISK = "risk"

ROWS = ("follow_up", "predicted_risk", "predicted_survival")

SLACK = 1e-6
"""By so much a probability may leave 0 to 1, or survival rise from one horizon to the next."""


class Risk(Weighed):
    """Predicted `risk` and survival by horizon label, such as `S(365)`."""

    key = "risk"


@dataclass(frozen=True, kw_only=True)
class SurvivalTask(TrainsOnPrompts, Task):
    """Time until an event, of which a model says the risk.

    A case's target is `Survival`. A model answers by `estimate_risk`: a number, higher for an earlier event, of any
    scale; or name -> number with `risk`, and for each horizon the probability of surviving it, named such as `S(365)`.
    Of survival alone, the risk is the mean probability of the event over the horizons.

    Attributes:
        horizons: times, ascending, at which survival is asked for; metrics such as `survival_brier@365` need theirs.
        unit: of the times, which must be that of the data.
    """

    horizons: Sequence[float] = ()
    unit: str = field(default="months", metadata=SCORES)
    metrics: Sequence[str] = ("c_index", "uno_c_index")

    capability: ClassVar[str] = "estimate_risk"
    output: ClassVar[str] = "risk, and survival at times"
    codec: ClassVar[Codec] = Records(Risk)
    judges: ClassVar[frozenset[str]] = frozenset({KIND})

    def __post_init__(self) -> None:
        """Refuses invalid horizons and metrics, before anything is loaded."""
        try:
            times = [float(time) for time in self.horizons]
        except (TypeError, ValueError) as error:
            raise UsageError(f"task {self.name!r}: expected `horizons` to be a list of times ({error})") from error
        if any(not 0 < time < math.inf for time in times) or sorted(set(times)) != times:
            raise UsageError(f"task {self.name!r}: expected `horizons` to be ascending times above 0, got {times}")
        self.complete(horizons=times, facts={**self.facts, HORIZONS: times})
        check_metrics(self, "survival")
        for name in self.metrics:
            definition, parameter = parse(name)
            if "predicted_survival" in definition.needs and parameter not in (None, *times):
                raise UsageError(f"task {self.name!r}: {name!r} needs its time among `horizons`, got {times}")
            if (name == "integrated_brier" and len(times) < 2) or (name == "mean_dynamic_auc" and not times):
                least = "two `horizons`" if name == "integrated_brier" else "`horizons`"
                raise UsageError(f"task {self.name!r}: {name!r} needs {least}, got {times}")

    @property
    def case_metrics(self) -> list[str]:
        """All evidence, which is cheap and shown in figures."""
        return list(dict.fromkeys([*ROWS, *super().case_metrics]))

    @property
    def labels(self) -> dict[int, str]:
        """Output names numbered from 1: risk, then survival by horizon."""
        return dict(enumerate([RISK, *map(at_horizon, self.horizons)], 1))

    def baselines(self) -> Mapping[str, Mapping[str, Any]]:
        """The survival of everybody where models are fitted."""
        return baseline_configs({"Kaplan-Meier": "KaplanMeierEstimate"})

    def check_data(self, cases: Sequence[Case]) -> None:
        """Raises UserError where no case has the event."""
        if not any(self._truth(case).event for case in cases):
            raise UserError(
                f"task {self.name!r}: none of {len(cases)} cases has the event; is the target's column of events the "
                "right one, or does it count the other way (`event`, `censored`)?"
            )

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the risk, and survival at the horizons."""
        return Prompt(case.id, images, self.labels)

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Any:
        """Checks a risk, or one number per label.

        Survival must be from 0 to 1, and may not rise.

        Returns:
            `Risk`; of a reference, `Survival`.

        Raises:
            CaseError: it is something else, a name is unknown, a number is not finite, or survival is invalid.
        """
        if what == "reference":
            return self._truth(case)
        where = f"case {case.id!r}: the {what}"
        numbers_ = answer if isinstance(answer, Mapping) else {RISK: answer}
        names = list(self.labels.values())
        CaseError.refuse_unknown(f"{where} holds", names, *numbers_)
        with CaseError.about(where, "holds something that is no number", TypeError, ValueError):
            numbers = {str(name): float(value) for name, value in numbers_.items()}
        survival = [numbers[name] for name in names[1:] if name in numbers]
        if survival and len(survival) < len(names) - 1:
            missing = next(name for name in names[1:] if name not in numbers)
            raise CaseError(f"{where} has no {missing}; expected survival at all {len(names) - 1} horizons, or at none")
        if RISK not in numbers and not survival:
            raise CaseError(f"{where} holds neither `risk` nor survival at the horizons")
        odd = next((name for name, value in numbers.items() if not math.isfinite(value)), None)
        if odd is not None:
            raise CaseError(f"{where} holds {numbers[odd]} for {odd!r}, expected a finite number")
        for before, value in zip([1.0, *survival], survival, strict=False):
            if not -SLACK <= value <= before + SLACK:
                wrong = f"rises from {before:g} to {value:g}" if 0 <= value <= 1 else f"is {value:g}"
                raise CaseError(f"{where}: survival {wrong}; expected probabilities from 0 to 1 that do not rise")
        numbers |= {name: min(1.0, max(0.0, numbers[name])) for name in names[1:] if survival}
        numbers.setdefault(RISK, 1 - math.fsum(survival) / max(len(survival), 1))
        return Risk({name: numbers[name] for name in names if name in numbers}).weighed_as(answer)

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Pairs predictions with outcomes; every score is of a run."""
        stored_risk = prediction.get("risk") if isinstance(prediction, Mapping) else None
        risks = self.accept(case, stored_risk if isinstance(stored_risk, Mapping) else prediction)
        survival = {time: risks[at_horizon(time)] for time in self.horizons if at_horizon(time) in risks}
        truth = self._truth(case)
        followed = Followed(truth.time, truth.event, risks[RISK], survival)
        status = EVENT if truth.event else CENSORED
        rows = []
        for name in self.case_metrics if metrics is None else metrics:
            values: Any = parse(name)[0].function(followed)
            rows += [LabelScore(label, name, float(value), status) for label, value in values.items()]
        return rows

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """No risk, so each pair is wrong; nothing for unreadable truth."""
        try:
            truth = self._truth(case)
        except CaseError:
            return [LabelScore(RISK, name, math.nan, FAILED) for name in self.case_metrics]
        status = EVENT if truth.event else CENSORED
        rows = [LabelScore(RISK, "follow_up", float(truth.time), status)]
        rows += [LabelScore(RISK, "predicted_risk", math.nan, FAILED)]
        return rows + [LabelScore(at_horizon(time), "predicted_survival", math.nan, FAILED) for time in self.horizons]

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Settings that decide the numbers beside the risks."""
        horizons_text = f"; horizons {', '.join(f'{time:g}' for time in self.horizons)}" if self.horizons else ""
        return f"time in {self.unit}; ties of risk exact{horizons_text}"

    def _truth(self, case: Case) -> Survival:
        """Follow-up of a case; raises CaseError where the target does not say."""
        held = case.target.read()
        if not isinstance(held, Survival):
            raise CaseError(f"case {case.id!r}: the reference is {type(held).__name__}, expected Survival")
        if held.unit != self.unit:
            raise CaseError(f"case {case.id!r}: times are in {held.unit}, the task's `unit` is {self.unit}")
        if not 0 < held.time < math.inf:
            raise CaseError(f"case {case.id!r}: expected a time above 0, got {held.time:g} {held.unit}")
        return held
