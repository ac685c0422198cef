"""Runs judged by their endpoints, or refused for what is not as planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medimg_eval.results.acceptance.criteria import Analysis, Endpoint, read_endpoints
from medimg_eval.results.acceptance.planning import Plan, deviations, read_plan, remarks
from medimg_eval.results.acceptance.signatures import verify_all
from medimg_eval.results.acceptance.verdicts import Verdict, judge, verdict_sheet
from medimg_eval.results.runs import RunScores
from medimg_eval.results.table import Sheet

ACCEPTANCE = "acceptance.json"
"""In a run's folder: what it was judged by last, and the verdicts."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """Verdict on one run.

    Attributes:
        run: which.
        verdicts: of its endpoints, in order; none where it was refused.
        deviations: what is not as planned; none where it was judged.
        plan: hash of the plan; "" without one.
        notes: what readers must know, such as who signed the plan.
    """

    run: RunScores
    verdicts: tuple[Verdict, ...] = ()
    deviations: tuple[str, ...] = ()
    plan: str = ""
    notes: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether it was not judged."""
        return bool(self.deviations)

    @property
    def accepted(self) -> bool:
        """Whether it was judged, and all primary endpoints are met."""
        return not self.refused and all(verdict.met for verdict in self.verdicts if not verdict.endpoint.secondary)

    def sheet(self) -> Sheet:
        """The verdicts as a printable table."""
        return verdict_sheet(self.run, self.verdicts, self.notes)

    def to_json(self) -> dict[str, Any]:
        """JSON that is kept beside the run."""
        return {
            "run": self.run.run,
            "plan": self.plan or None,
            "accepted": None if self.refused else self.accepted,
            "deviations": list(self.deviations),
            "endpoints": [verdict.to_json() for verdict in self.verdicts],
            "notes": list(self.notes),
        }


def judge_runs(
    runs: Sequence[RunScores], *, accept: Any = None, plan: str | Path | None = None, keys: Sequence[str | Path] = ()
) -> list[Judgement]:
    """Judges runs by a plan's, a command's or their task's endpoints.

    The first of the three that states endpoints decides.

    Args:
        runs: as `load_runs` returns them; baselines, and models that an endpoint is compared with, are not judged.
        accept: as `read_endpoints` takes it; None takes what the task of each run states.
        plan: file of a plan. A run that is not as planned is refused, and `accept` must say the same as the plan.
        keys: files of public keys, or secrets, by each of which the plan must be signed.

    Returns:
        One for each run that has endpoints; none where nothing is to be met.

    Raises:
        DeviationError: the plan was changed, or a signature does not fit.
        UsageError: an endpoint is invalid.
    """
    stated = read_endpoints(accept) if accept else []
    if plan is None:
        return [
            judgement for run in _rival_runs(runs, stated) if (judgement := _judge_run(run, stated, runs)) is not None
        ]
    fixed = read_plan(Path(plan).expanduser())
    checked = verify_all(fixed.hash, fixed.signatures, [Path(key).expanduser() for key in keys])
    notes = (*remarks(fixed), *(f"{text[0].upper()}{text[1:]}." for text in checked))
    endpoints = fixed.endpoints
    return [_as_planned(run, fixed, endpoints, stated, runs, notes) for run in _rival_runs(runs, endpoints)]


def _rival_runs(runs: Sequence[RunScores], endpoints: Sequence[Endpoint]) -> list[RunScores]:
    compared = {endpoint.baseline for endpoint in endpoints if endpoint.baseline}
    return [run for run in runs if run.finished and not run.baseline and run.name not in compared]


def _judge_run(run: RunScores, stated: Sequence[Endpoint], runs: Sequence[RunScores]) -> Judgement | None:
    own = stated or read_endpoints(run.task_config.get("acceptance") or {})
    return Judgement(run, tuple(judge(run, own, Analysis(), runs))) if own else None


def _as_planned(
    run: RunScores,
    plan: Plan,
    endpoints: Sequence[Endpoint],
    stated: Sequence[Endpoint],
    runs: Sequence[RunScores],
    notes: tuple[str, ...],
) -> Judgement:
    if deviations_ := deviations(plan, run, stated=stated):
        return Judgement(run, deviations=tuple(deviations_), plan=plan.hash, notes=notes)
    return Judgement(run, tuple(judge(run, endpoints, plan.analysis, runs)), plan=plan.hash, notes=notes)
