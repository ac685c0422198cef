"""Which scores are fresh, and which are missing or stale; loads neither a model nor torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case, Trial
from medimg_eval.codecs import Stored
from medimg_eval.evaluation.evidence_stages import required
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.run import FORMER, Run, TrialScores, answered
from medimg_eval.evaluation.scoring import RAISED, Due, Scorer, score_parts, scoring_workers
from medimg_eval.evidence import EMPTY, Context, Evidence, Observation
from medimg_eval.metrics import parse, present_name
from medimg_eval.metrics.registry import Requirement
from medimg_eval.tasks import QuestionTask, ReportTask, Task

if TYPE_CHECKING:
    from medimg_eval.evaluation.plan import Plan

MANY = 1000
"""Reports that are judged in one process."""

TOGETHER = 1000
"""Trials whose scores are written at once, where judging one takes less time than a disk needs to confirm it."""

Group = tuple[bytes, tuple[Requirement, ...], bool]
"""What metrics share that share their keys: hash of settings, requirements, whether they rest on all cases."""


class ScoreKeys:
    """What the scores of a run rest on: a key per metric and trial.

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
            how = [task.alone(metric).signature(), parse(metric)[0].settings]
            settings = hashlib.blake2b(json.dumps(how).encode(), digest_size=16).digest()
            group = (settings, _required(task, metric), getattr(parse(metric)[0], "scope", "set") == "set")
            self._groups.setdefault(group, []).append(metric)
        self._said = _by_owner(context.evidence)

    def early(self) -> list[str]:
        """The metrics that rest on nothing but a prediction and its case: they are scored beside the model."""
        settled = self._context.digest == ""
        return [name for (_, needs, of_set), names in self._groups.items() if not needs and settled for name in names]

    def of(self, trial: Trial, metrics: Iterable[str] | None = None) -> dict[str, list[str]]:
        """Key -> the metrics that rest on it, of a trial that has a prediction.

        Args:
            trial: the trial.
            metrics: those that are asked for; None for all.
        """
        found: dict[str, list[str]] = {}
        chosen = None if metrics is None else frozenset(metrics)
        for (settings, needs, of_set), names in self._groups.items():
            some = names if chosen is None else [name for name in names if name in chosen]
            if some:
                parts = [self._digests[trial.id], self._evidence(trial, needs), self._context.digest if of_set else ""]
                key = hashlib.blake2b(" ".join(parts).encode(), key=settings, digest_size=8).hexdigest()
                found.setdefault(key, []).extend(some)
        return found

    def due(
        self,
        trial: Trial,
        case: Case,
        prediction: Stored,
        scores: TrialScores | None,
        metrics: Sequence[str] | None = None,
    ) -> Due | None:
        """What is missing or stale of a trial's scores, or was lost to an error; None where all are fresh.

        Args:
            trial: the trial.
            case: what it is about.
            prediction: as it is stored.
            scores: what is stored of its scores.
            metrics: that are asked for; None for all.
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
        lost = {score.metric for score in scores.scores if score.status.startswith(RAISED)}
        fresh = {name for name, key in scores.keys.items() if name not in lost}
        stale = {
            key: [name for name in names if not (name in fresh and scores.keys[name] in (key, FORMER))]
            for key, names in wanted.items()
        }
        return {key: names for key, names in stale.items() if names}

    def current(self, trial: Trial, scores: TrialScores | None) -> frozenset[str]:
        """The metrics whose scores hold, also those that were lost to an error."""
        if scores is None:
            return frozenset()
        return frozenset(
            name for key, names in self.of(trial).items() for name in names if scores.keys.get(name) in (key, FORMER)
        )

    def _evidence(self, trial: Trial, needs: Sequence[Requirement]) -> str:
        if not needs:
            return ""
        said = {**self._said.get(trial.id, {}), **self._said.get(f"reference/{trial.case}", {})}
        return replace(self._context.evidence, observations=said).digest(trial.id, needs)


def _required(task: Task, metric: str) -> tuple[Requirement, ...]:
    extracts = isinstance(task, QuestionTask) and task.judge_extracts
    return (*required(metric), *([Requirement("verdict", "judge", "option")] if extracts else []))


def _by_owner(evidence: Evidence) -> dict[str, dict[Any, Observation]]:
    """Observations by owner, and by everything that an owner may be a part of."""
    found: dict[str, dict[Any, Observation]] = {}
    for place, observation in evidence.observations.items():
        owner = place[2]
        while owner:
            found.setdefault(owner, {})[place] = observation
            owner = owner.rpartition("/")[0]
    return found


def stored_scores(task: Task, run: Run) -> dict[str, TrialScores]:
    """What is stored of each trial's scores, by its id; of schema 1 those of predictions that lie in files."""
    former: Mapping[str, Any] = dict(run.manifest)
    if not task.codec.heavy or "scoring" not in former:
        return run.scores()
    said = {present_name(name): text for name, text in former.get("definitions", {}).items()}
    same = [name for name in task.metrics if name in said and task.alone(name).signature() == said[name]]
    return run.scores(former["scoring"], [part for name in same for part in parse(name)[0].needs or (name,)])


def score(plan: Plan, context: Context) -> ScoreKeys:
    """Scores what is missing or stale, metric by metric; returns what the scores then rest on."""
    task, run = plan.task, plan.run
    predictions, stored = run.predictions(), stored_scores(task, run)
    keys = ScoreKeys(task, run.digests(), context)
    waiting = [
        due
        for trial in plan.trials
        if answered(prediction := predictions.get(trial.id))
        and (due := keys.due(trial, plan.case_of[trial.case], prediction, stored.get(trial.id)))
    ]
    if not waiting:
        return keys
    run.note(status="running", ended=None)
    with run.stage("score", len(waiting)) as counts:
        if not task.codec.heavy:
            _score_light(plan, waiting)
        else:
            workers = min(scoring_workers(plan.settings.score_workers, beside_model=False), len(waiting))
            with Scorer(task, run, workers, patient=True) as scorer:
                for one in tracked(waiting, "scoring"):
                    scorer.submit(one)
        counts["done"] = len(waiting)
    return keys


def submit_early(plan: Plan, scorer: Scorer, keys: ScoreKeys) -> None:
    """Queues what an earlier start has predicted and left unscored, of metrics that rest on nothing else."""
    predictions, stored, early = plan.run.predictions(), stored_scores(plan.task, plan.run), keys.early()
    for trial in plan.trials:
        prediction = predictions.get(trial.id)
        if isinstance(prediction, Path):
            due = keys.due(trial, plan.case_of[trial.case], prediction, stored.get(trial.id), early)
            if due:
                scorer.submit(due)


def _score_light(plan: Plan, waiting: Sequence[Due]) -> None:
    """Scores predictions that are so small that handing them to another process takes longer than judging them.

    Only many reports are worth the seconds that further processes take to start: each takes some milliseconds.
    """
    task, verdicts = plan.task, _verdicts(plan.task, plan.run)
    waiting = [
        one._replace(prediction={**one.prediction, "judged": verdicts.get(one.case.id, {})})
        if isinstance(one.prediction, Mapping)
        else one
        for one in waiting
    ]
    many = isinstance(task, ReportTask) and len(waiting) > MANY
    workers = scoring_workers(None, beside_model=False) if many else 1
    step = TOGETHER if workers == 1 else min(TOGETHER, -(-len(waiting) // (4 * workers)))
    parts = [waiting[start : start + step] for start in range(0, len(waiting), step)]
    for part, results in zip(parts, score_parts(task, parts, workers), strict=True):
        plan.run.append_scores(zip((one.trial for one in part), (one.keys for one in part), results, strict=True))


def _verdicts(task: Task, run: Run) -> dict[str, dict[str, Any]]:
    """By case, what the judge said to the questions that the task still has."""
    still = task.judge if isinstance(task, QuestionTask) else {}
    return {
        case: {name: value for name, value in said.items() if name in still} for case, said in run.verdicts().items()
    }
