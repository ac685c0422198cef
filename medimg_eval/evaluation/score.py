"""Which scores are fresh, and which are missing or stale; loads neither a model nor torch."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case, Trial
from medimg_eval.codecs import Stored
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.run import FORMER, Run, TrialScores, answered
from medimg_eval.evaluation.scoring import Due, Scorer, evidence_by_trial, score_parts, scoring_workers
from medimg_eval.evidence import EMPTY, EMPTY_EVIDENCE, Context, Evidence, Observation
from medimg_eval.metrics import parse, present_name
from medimg_eval.metrics.registry import Requirement, required
from medimg_eval.metrics.scores import RAISED
from medimg_eval.tasks import Task

if TYPE_CHECKING:
    from medimg_eval.evaluation.plan import Plan

TRIED = 100
"""Trials that tell how long judging takes, after as many that also pay for what is made once."""

WORTH_PROCESSES = 10.0
"""Seconds of judging above which further processes are started, which takes each of them one or two."""

TRIED_S = 1.0
"""Seconds of judging predictions in files after which is known how long it takes."""

TOGETHER = 1000
"""Trials whose scores are written at once, where judging one takes less time than a disk needs to confirm it."""

Group = tuple[bytes, tuple[Requirement, ...], bool]
"""What metrics share that share their keys: hash of settings, requirements, whether they rest on all cases."""


class ScoreKeys:
    """Keys that the scores of a run rest on, per metric and trial.

    Args:
        task: how predictions are judged.
        digests: of predictions, by trial id.
        context: what scores depend on beside their own case.
    """

    def __init__(self, task: Task, digests: Mapping[str, str], context: Context = EMPTY) -> None:
        self._digests, self._context = digests, context
        self._groups: dict[Group, list[str]] = {}
        self._metrics = task.case_metrics
        for metric in self._metrics:
            needs = _metric_requirements(task, metric)
            how = [task.alone(metric).signature(), parse(metric)[0].settings, *filter(None, map(task.reads_as, needs))]
            settings = hashlib.blake2b(json.dumps(how).encode(), digest_size=16).digest()
            group = (settings, needs, parse(metric)[0].scope == "set")
            self._groups.setdefault(group, []).append(metric)
        self._said = _by_owner(context.evidence)

    def early(self) -> list[str]:
        """Metrics of prediction and case alone, scored beside the model."""
        return [name for (_, needs, of_set), names in self._groups.items() if not (needs or of_set) for name in names]

    def of(self, trial: Trial, metrics: Iterable[str] | None = None) -> dict[str, list[str]]:
        """Key -> metrics that rest on it, for a predicted trial; None asks for all."""
        keys: dict[str, list[str]] = {}
        chosen = None if metrics is None else frozenset(metrics)
        digest = self._digests[trial.id]
        for (settings, needs, of_set), names in self._groups.items():
            some = names if chosen is None else [name for name in names if name in chosen]
            if some:
                parts = [digest, self._evidence(trial, needs), self._context.digest if of_set else ""]
                key = hashlib.blake2b(" ".join(parts).encode(), key=settings, digest_size=8).hexdigest()
                keys.setdefault(key, []).extend(some)
        return keys

    def due(
        self,
        trial: Trial,
        case: Case,
        prediction: Stored,
        scores: TrialScores | None,
        metrics: Sequence[str] | None = None,
    ) -> Due | None:
        """Returns missing, stale or lost scores; None where all are fresh.

        All metrics are asked for where none are named; `scores` is what is stored of them.
        """
        wanted = self.of(trial, metrics)
        if scores is not None and scores.keys:
            wanted = self._stale(wanted, scores)
        count = sum(map(len, wanted.values()))
        if count in (0, len(self._metrics)):
            return Due(trial, case, prediction, wanted) if count else None
        named = {name for names in wanted.values() for name in names}
        return Due(trial, case, prediction, wanted, [name for name in self._metrics if name in named])

    @staticmethod
    def _stale(wanted: Mapping[str, list[str]], scores: TrialScores) -> dict[str, list[str]]:
        raised = {score.metric for score in scores.scores if score.status.startswith(RAISED)}
        fresh = {name for name, key in scores.keys.items() if name not in raised}
        stale = {
            key: [name for name in names if not (name in fresh and scores.keys[name] in (key, FORMER))]
            for key, names in wanted.items()
        }
        return {key: names for key, names in stale.items() if names}

    def current(self, trial: Trial, scores: TrialScores | None) -> frozenset[str]:
        """The metrics whose scores hold, also those that were lost to an error."""
        if scores is None:
            return frozenset()
        held = scores.keys.get
        keys = self.of(trial).items()
        return frozenset([name for key, names in keys for name in names if held(name) in (key, FORMER)])

    def _evidence(self, trial: Trial, needs: Sequence[Requirement]) -> str:
        if not needs:
            return ""
        observations = {**self._said.get(trial.id, {}), **self._said.get(f"reference/{trial.id}", {})}
        return replace(self._context.evidence, observations=observations).digest(trial.id, needs)


def _metric_requirements(task: Task, metric: str) -> tuple[Requirement, ...]:
    """Requirements of a metric, with those common to the task's."""
    own = required(metric)
    return (*own, *(need for need in task.requirements() if need.topic == "option" and need not in own))


def _by_owner(evidence: Evidence) -> dict[str, dict[Any, Observation]]:
    """Observations by owner, and by its possible parents."""
    by_owner: dict[str, dict[Any, Observation]] = {}
    for key, observation in evidence.observations.items():
        owner = key[2]
        while owner:
            by_owner.setdefault(owner, {})[key] = observation
            owner = owner.rpartition("/")[0]
    return by_owner


def stored_scores(task: Task, run: Run) -> dict[str, TrialScores]:
    """Stored scores by trial; schema 1 covers file predictions."""
    former: Mapping[str, Any] = dict(run.manifest)
    if not task.codec.heavy or "scoring" not in former:
        return run.scores()
    definitions = {present_name(name): text for name, text in former.get("definitions", {}).items()}
    unchanged = [
        name for name in task.metrics if name in definitions and task.alone(name).signature() == definitions[name]
    ]
    return run.scores(former["scoring"], [part for name in unchanged for part in parse(name)[0].needs or (name,)])


def score(plan: Plan, context: Context) -> ScoreKeys:
    """Scores what is missing or stale; returns its basis."""
    task, run = plan.task, plan.run
    predictions, stored = run.predictions(), stored_scores(task, run)
    keys = ScoreKeys(task, run.digests(), context)
    waiting = [
        due
        for trial in plan.trials
        if answered(prediction := predictions.get(trial.id))
        and (due := keys.due(trial, plan.judged_as(trial), prediction, stored.get(trial.id)))
    ]
    if not waiting:
        return keys
    run.note(status="running", ended=None)
    with run.stage("score", len(waiting)) as counts:
        if not task.codec.heavy:
            _score_light(plan, waiting, context)
        else:
            _score_heavy(plan, waiting, context)
        counts["done"] = len(waiting)
    return keys


def submit_early(plan: Plan, scorer: Scorer, keys: ScoreKeys) -> None:
    """Queues unscored predictions of earlier starts for independent metrics."""
    predictions, stored, early = plan.run.predictions(), stored_scores(plan.task, plan.run), keys.early()
    for trial in plan.trials:
        prediction = predictions.get(trial.id)
        if isinstance(prediction, Path):
            due = keys.due(trial, plan.judged_as(trial), prediction, stored.get(trial.id), early)
            if due:
                scorer.submit(due)


def _score_heavy(plan: Plan, waiting: Sequence[Due], context: Context) -> None:
    """Scores predictions in files, writing each at once.

    Where nobody has said how many processes, the first of them are scored in this one, and tell whether more are worth
    their start.
    """
    task, run, wanted = plan.task, plan.run, plan.settings.score_workers
    by_trial = evidence_by_trial(context.evidence)
    sent = iter(
        tracked([due._replace(evidence=by_trial.get(due.trial.id, EMPTY_EVIDENCE)) for due in waiting], "scoring")
    )
    remaining = len(waiting)
    if wanted is None:
        with Scorer(task, run, 0, patient=True, context=context) as scorer:
            for due in islice(sent, 1):  # which also pays for what is made once
                scorer.submit(due)
                remaining -= 1
            tried, begun = remaining, time.perf_counter()
            for due in sent:
                scorer.submit(due)
                remaining, seconds = remaining - 1, time.perf_counter() - begun
                if seconds > TRIED_S and seconds / (tried - remaining) * remaining > WORTH_PROCESSES:
                    break
    with Scorer(
        task, run, min(scoring_workers(wanted, beside_model=False), remaining), patient=True, context=context
    ) as scorer:
        for due in sent:
            scorer.submit(due)


def _score_light(plan: Plan, waiting: Sequence[Due], context: Context) -> None:
    """Scores predictions too small to be worth another process.

    Further processes take seconds to start, which only long work repays; the time of a first part decides.
    """
    task, run = plan.task, plan.run
    first, tried, remaining = waiting[:TRIED], waiting[TRIED : 2 * TRIED], waiting[2 * TRIED :]
    _score_part(run, task, [first], 1, context)
    begun = time.process_time()  # whoever else is at work on this machine is no reason for more processes
    _score_part(run, task, [tried], 1, context)
    expected = (time.process_time() - begun) / TRIED * len(remaining)
    workers = scoring_workers(None, beside_model=False) if expected > WORTH_PROCESSES else 1
    step = TOGETHER if workers == 1 else min(TOGETHER, -(-len(remaining) // (4 * workers)))
    _score_part(
        run, task, [remaining[start : start + step] for start in range(0, len(remaining), step)], workers, context
    )


def _score_part(run: Run, task: Task, parts: Sequence[Sequence[Due]], workers: int, context: Context) -> None:
    for part, results in zip(parts, score_parts(task, parts, workers, context), strict=True):
        run.append_scores(zip((due.trial for due in part), (due.keys for due in part), results, strict=True))
