"""Judges stored predictions in worker processes, beside the model."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.case import Case, Failure, Trial
from medimg_eval.codecs import Stored
from medimg_eval.errors import CaseError, error_in_words
from medimg_eval.evidence import EMPTY, EMPTY_EVIDENCE, Context, Evidence, Observation, Place
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.answers import UNREAD
from medimg_eval.metrics.nlp import Batch
from medimg_eval.metrics.scores import RAISED
from medimg_eval.system import uncollected
from medimg_eval.tasks.base import Task
from medimg_eval.workers import Workers

if TYPE_CHECKING:  # workers start in less time without what a run is written with
    from medimg_eval.evaluation.run import Keys, Run

log = logging.getLogger(__name__)

Scored = Sequence[LabelScore] | Failure


class Due(NamedTuple):
    """A trial whose scores are missing or stale.

    Attributes:
        trial: the trial.
        case: what it is about.
        prediction: as it is stored.
        keys: what the scores rest on -> the metrics that are due.
        metrics: the same metrics in the task's order; None for all.
        evidence: what providers said of it.
        batch: the trials that are judged with it; None for none.
    """

    trial: Trial
    case: Case
    prediction: Stored
    keys: Keys
    metrics: Sequence[str] | None = None
    evidence: Evidence = EMPTY_EVIDENCE
    batch: Batch | None = None


BACKLOG = 4
"""Cases per worker that wait at most, where no model is kept waiting."""


State = tuple[Task, Context]
"""What all trials are judged with: the task, and what they share; the evidence of each comes with it."""


def score_due(state: State, due: Due) -> Scored:
    """Judges a trial by the metrics that are due."""
    (task, shared), metrics = state, due.metrics
    context = replace(shared, evidence=due.evidence, batch=due.batch)
    scored = score_case(task, due.case, due.prediction, metrics, context)
    if metrics is None or isinstance(scored, Failure):
        return scored
    return [score for score in scored if score.metric in metrics]


def score_case(
    task: Task, case: Case, prediction: Stored, metrics: Sequence[str] | None = None, context: Context = EMPTY
) -> Scored:
    """Scores a stored prediction; errors cost a metric or this case.

    A metric that raises, or gives an infinite value, is no fault of the model: it has NaN, of a status that begins with
    `RAISED`, and the others keep their values. The case fails where it cannot be judged by any. It is judged by all of
    the task's metrics where none are named.
    """
    try:
        return [_require_finite(score) for score in task.score(case, prediction, metrics, **_context_argument(context))]
    except Exception as error:
        log.debug("case %s", case.id, exc_info=True)
        message = str(error) if isinstance(error, CaseError) else f"case {case.id!r}: {error_in_words(error)}"
        failure = Failure(case.id, "score", message)
        if isinstance(error, MemoryError):
            return failure
    try:
        task.score(
            case, prediction, [], **_context_argument(context)
        )  # what has nothing to do with a metric goes wrong without any
    except Exception:
        log.debug("case %s", case.id, exc_info=True)
        return failure
    names = task.case_metrics if metrics is None else metrics
    return [score for name in names for score in _by_itself(task, case, prediction, name, context)]


def _by_itself(task: Task, case: Case, prediction: Stored, name: str, context: Context) -> list[LabelScore]:
    """The scores of one metric; NaN for every label if it raises."""
    try:
        return [_require_finite(score) for score in task.score(case, prediction, [name], **_context_argument(context))]
    except Exception as error:
        log.debug("case %s, %s", case.id, name, exc_info=True)
        message = error_in_words(error)
    labels: list[str] = []
    with suppress(Exception):  # where the same metric may raise again
        labels = list(
            dict.fromkeys(
                score.label for score in task.worst(case, **_context_argument(context)) if score.metric == name
            )
        )
    return [LabelScore(label, name, math.nan, f"{RAISED}{message}") for label in labels or [UNREAD]]


def _context_argument(context: Context) -> dict[str, Any]:
    """Context argument of a task's methods, where it has one."""
    return {} if context == EMPTY else {"context": context}


def worst_of(task: Task, case: Case, context: Context) -> Sequence[LabelScore]:
    """Scores of a case without an answer."""
    return task.worst(case, **_context_argument(context))


def _require_finite(score: LabelScore) -> LabelScore:
    if not math.isinf(score.value):
        return score
    # It would make every mean it enters infinite.
    return score._replace(value=math.nan, status=f"{RAISED}{score.label} is {score.value}")


def score_parts(
    task: Task, parts: Sequence[Sequence[Due]], workers: int, context: Context = EMPTY
) -> Iterator[list[Scored]]:
    """Yields of one part after the other what each of its trials scores.

    One worker is this process; several are other processes, which are sent once what all cases share in the context,
    and the evidence of their part.
    """
    count = workers if workers > 1 else 0
    sent = [[due._replace(evidence=context.evidence) for due in part] for part in parts]
    if count:  # a process is sent the evidence of its own part
        split = evidence_by_trial(context.evidence)
        sent = [[due._replace(evidence=split.get(due.trial.id, EMPTY_EVIDENCE)) for due in part] for part in parts]
    batches = [Batch([(due.case, due.prediction, due.evidence) for due in part]) for part in sent]
    sent = [[due._replace(batch=batch) for due in part] for part, batch in zip(sent, batches, strict=True)]
    coming = _scoring_pool(task, count, context).ordered(sent, 2 * workers)
    for part, batch in zip(parts, batches, strict=True):
        # Judging texts leaves no garbage, and to search for it takes a tenth of the time.
        with nullcontext() if count else uncollected():
            results = next(coming)
            batch.clear()
        yield [_or_failure(due, result) for due, result in zip(part, results, strict=True)]
    next(coming, None)  # which lets the processes go


def evidence_by_trial(evidence: Evidence) -> dict[str, Evidence]:
    """Trial id -> evidence on it, its reference and parts."""
    split: dict[str, dict[Place, Observation]] = {}
    for key, observation in evidence.observations.items():
        owner = key[2].removeprefix("reference/")
        for trial in {owner, owner.rpartition("/")[0]}:
            split.setdefault(trial, {})[key] = observation
    return {trial: Evidence(evidence.provenance, observations) for trial, observations in split.items()}


def _or_failure(due: Due, result: Scored | None) -> Scored:
    """Scores of a trial, or failure after two crashes."""
    if result is not None:
        return result
    return Failure(due.case.id, "score", f"case {due.case.id!r}: the scoring process died (out of memory?)")


def _scoring_pool(task: Task, count: int, context: Context = EMPTY) -> Workers[State, Due, Scored]:
    state = (task, replace(context, evidence=EMPTY_EVIDENCE))
    return Workers(score_due, state, count, name="scoring", setting="score_workers", modules=_metric_modules(task))


def _metric_modules(task: Task) -> list[str]:
    """Modules with the task's metrics that the registry would miss."""
    modules = {parse(name)[0].function.__module__ for name in task.metrics}
    return sorted(module for module in modules if module.partition(".")[0] != "medimg_eval")


class Scorer:
    """Scores predicted cases as they come, appending to the run.

    A case that takes its worker with it is set aside, and judged again at the end with nothing beside it. Only if that
    process dies too has the case failed.

    Args:
        workers: processes; 0 judges in this one.
        patient: whether `submit` waits when workers fall behind; a model must not be kept waiting.
        context: what all trials share; the evidence of each comes with it.
    """

    def __init__(self, task: Task, run: Run, workers: int, *, patient: bool = False, context: Context = EMPTY) -> None:
        self._run = run
        self._backlog = workers * BACKLOG if patient else math.inf
        self._pool = _scoring_pool(task, workers, context)
        self._submitted: dict[int, Due] = {}
        self._suspects: list[Due] = []

    def __enter__(self) -> Scorer:
        """Starts nothing: workers come with the first cases."""
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Waits for what is left, unless an error is on its way out."""
        try:
            if kind is None:
                self.drain()
                self._pool.close()
        finally:
            self._pool.kill()

    def submit(self, due: Due) -> None:
        """Queues a trial, and notes the scores that have come in meanwhile.

        Raises:
            UserError: no worker can be started.
        """
        self._submitted[self._pool.submit([due])] = due
        self._note(self._pool.finished(wait=self._pool.left >= self._backlog))

    def drain(self) -> None:
        """Waits until every queued case has its scores in the run.

        Raises:
            UserError: no worker can be started.
        """
        while self._pool.left:
            self._note(self._pool.finished(wait=True))
        if self._suspects:
            for due, result in zip(self._suspects, self._pool.retry(self._suspects), strict=True):
                self._run.append_scores([(due.trial, due.keys, _or_failure(due, result))])
            self._suspects = []

    def _note(self, finished: Mapping[int, list[Scored] | None]) -> None:
        scored = []
        for ticket, results in finished.items():
            due = self._submitted.pop(ticket)
            if results is None:
                self._suspects.append(due)
            else:
                scored.append((due.trial, due.keys, results[0]))
        if scored:  # what came in together is written together: a disk takes its time to say that it has it
            self._run.append_scores(scored)


def scoring_workers(wanted: int | None, *, beside_model: bool = True) -> int:
    """Number of scoring processes: as asked, or cores, at most 8."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, max(1, cores - 1)) if beside_model else cores
