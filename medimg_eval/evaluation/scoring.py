"""Judges stored predictions in worker processes, beside the model."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case, Failure
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evidence import EMPTY, EMPTY_EVIDENCE, Context, Evidence
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.answers import UNREAD
from medimg_eval.tasks.base import Task

if TYPE_CHECKING:  # workers start in less time without what a run is written with
    from medimg_eval.evaluation.run import Run, Stored

log = logging.getLogger(__name__)

Scored = Sequence[LabelScore] | Failure
Given = tuple[Case, Mapping[str, Any]]
"""A case, and what its task made of a prediction for the run's own file."""

BACKLOG = 4
"""Cases per worker that wait at most, where no model is kept waiting."""

RAISED = "error: "
"""How the status of a score begins whose metric raised; what it raised follows."""


def score_case(task: Task, case: Case, prediction: Stored, context: Context = EMPTY) -> Scored:
    """Judges one stored prediction; what goes wrong costs a metric its value, or this case alone.

    A metric that raises, or gives an infinite value, is no fault of the model: it has NaN, of a status that begins with
    `RAISED`, and the others keep their values. The case fails where it cannot be judged by any.
    """
    try:
        return [_finite(score) for score in task.score(case, prediction, **_told(context))]
    except Exception as error:
        log.debug("case %s", case.id, exc_info=True)
        told = str(error) if isinstance(error, CaseError) else f"case {case.id!r}: {error_in_words(error)}"
        failure = Failure(case.id, "score", told)
        if isinstance(error, MemoryError):
            return failure
    try:
        task.score(
            case, prediction, [], **_told(context)
        )  # what has nothing to do with a metric goes wrong without any
    except Exception:
        log.debug("case %s", case.id, exc_info=True)
        return failure
    return [score for name in task.case_metrics for score in _by_itself(task, case, prediction, name, context)]


def is_settled(scored: Scored | None) -> bool:
    """Whether a case has been judged and no metric raised: one that did is tried again by the next start."""
    return isinstance(scored, list) and not any(score.status.startswith(RAISED) for score in scored)


def _by_itself(task: Task, case: Case, prediction: Stored, name: str, context: Context) -> list[LabelScore]:
    """The scores of one metric; NaN for every label if it raises."""
    try:
        return [_finite(score) for score in task.score(case, prediction, [name], **_told(context))]
    except Exception as error:
        log.debug("case %s, %s", case.id, name, exc_info=True)
        told = error_in_words(error)
    labels: list[str] = []
    with suppress(Exception):  # where the same metric may raise again
        labels = list(
            dict.fromkeys(score.label for score in task.worst(case, **_told(context)) if score.metric == name)
        )
    return [LabelScore(label, name, math.nan, f"{RAISED}{told}") for label in labels or [UNREAD]]


def _told(context: Context) -> dict[str, Context]:
    """The argument of a task's methods that names the context, which tasks without any need not know."""
    return {} if context == EMPTY else {"context": context}


def worst_of(task: Task, case: Case, context: Context) -> Sequence[LabelScore]:
    """What a case without an answer is worth."""
    return task.worst(case, **_told(context))


def _finite(score: LabelScore) -> LabelScore:
    if not math.isinf(score.value):
        return score
    # It would make every mean it enters infinite.
    return score._replace(value=math.nan, status=f"{RAISED}{score.label} is {score.value}")


def error_in_words(error: Exception) -> str:
    """What went wrong, with the kind of error where its message is not made for people."""
    return str(error) if isinstance(error, CaseError) else f"{type(error).__name__}: {error}"


def score_parts(
    task: Task, parts: Sequence[Sequence[Given]], workers: int, context: Context
) -> Iterator[dict[str, Scored]]:
    """Judges small predictions part by part, in other processes where several are wanted.

    Args:
        task: how to judge.
        parts: cases with what is stored of them.
        workers: processes; 1 judges in this one.
        context: of all cases; a process is sent what they share once, and of the evidence that of its part.

    Yields:
        By case, of one part after the other.
    """
    if workers == 1:
        yield from (_score_part((part, context.evidence), task, context) for part in parts)
        return
    # Not forked: torch may have started threads by now.
    context = multiprocessing.get_context("spawn")
    done = 0
    try:
        with ProcessPoolExecutor(workers, context, _hold, (task, replace(context, evidence=EMPTY_EVIDENCE))) as pool:
            for scored in pool.map(_score_part, ((part, _evidence_of(part, context)) for part in parts)):
                done += 1
                yield scored
    except BrokenProcessPool:  # such as of a script that cannot be imported again
        log.warning("scoring processes cannot be used; the reports are judged in this one")
        yield from (_score_part((part, context.evidence), task, context) for part in parts[done:])


_held: list[tuple[Task, Context]] = []
"""In a process of `score_parts`: its task, and what all cases share."""


def _hold(task: Task, shared: Context) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    _held.append((task, shared))


def _evidence_of(part: Sequence[Given], context: Context) -> Evidence:
    cases = [case.id for case, _ in part]
    return context.evidence.only([*cases, *(f"reference/{case}" for case in cases)])


def _score_part(
    part: tuple[Sequence[Given], Evidence], task: Task | None = None, context: Context = EMPTY
) -> dict[str, Scored]:
    given, evidence = part
    if task is None:
        task, context = _held[0]
        context = replace(context, evidence=evidence)
    return {case.id: score_case(task, case, stored, context) for case, stored in given}


class Scorer:
    """Takes cases as they are predicted and appends their scores to the run as they come.

    Each worker is looked after by a thread, which hands it the next case the moment it has judged the last. A case
    that takes its worker with it is set aside, and judged again at the end with nothing beside it: it may have been
    the victim of a machine short of memory. Only if that process dies too has the case failed.

    Args:
        task: how to judge.
        run: where the scores go.
        scoring: hash of the settings that judge.
        workers: processes; 0 judges in this one.
        patient: whether `submit` waits when workers fall behind; a model must not be kept waiting.
    """

    def __init__(self, task: Task, run: Run, scoring: str, workers: int, *, patient: bool = False) -> None:
        self._task, self._run, self._scoring, self._workers = task, run, scoring, workers
        self._backlog = workers * BACKLOG if patient else math.inf
        self._left = 0
        self._suspects: list[tuple[Case, Path]] = []
        self._pool = _Pool(task)

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

    def submit(self, case: Case, prediction: Path) -> None:
        """Queues a case, and notes the scores that have come in meanwhile.

        Raises:
            UserError: no worker can be started.
        """
        if self._workers == 0:
            self._run.append_scores({case.id: score_case(self._task, case, prediction)}, self._scoring)
            return
        self._pool.add(case, prediction, self._workers)
        self._left += 1
        self._note(self._pool.finished(wait=self._left >= self._backlog))

    def drain(self) -> None:
        """Waits until every queued case has its scores in the run.

        Raises:
            UserError: no worker can be started.
        """
        while self._left:
            self._note(self._pool.finished(wait=True))
        if self._suspects:
            self._pool.close()  # the memory of idle workers is the suspects' too
            for case, prediction in self._suspects:
                log.warning("case %s: its scoring process died; it is judged again, by itself", case.id)
                pool = _Pool(self._task)
                try:
                    pool.add(case, prediction, 1)
                    ((_, _, result),) = pool.finished(wait=True)
                finally:
                    pool.kill()
                if result is None:
                    result = Failure(case.id, "score", f"case {case.id!r}: the scoring process died (out of memory?)")
                self._run.append_scores({case.id: result}, self._scoring)
            self._suspects = []
            self._pool = _Pool(self._task)

    def _note(self, finished: Sequence[_Finished]) -> None:
        self._left -= len(finished)
        scored = {case.id: result for case, _, result in finished if result is not None}
        self._suspects += [(case, prediction) for case, prediction, result in finished if result is None]
        if scored:  # what came in together is written together: a disk takes its time to say that it has it
            self._run.append_scores(scored, self._scoring)


def scoring_workers(wanted: int | None, *, beside_model: bool = True) -> int:
    """How many scoring processes to use: as asked, or all cores; beside a model but the one that feeds it, up to 8."""
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, max(1, cores - 1)) if beside_model else cores


_Finished = tuple[Case, Path, Scored | None]
"""A case, its prediction, and its scores; None in their place when the worker died over it."""


class _Pool:
    """Workers for one task, and a thread for each that feeds it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._waiting: queue.SimpleQueue[tuple[Case, Path] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[_Finished | BaseException] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._alive: set[_Worker] = set()
        self._killed = False

    def add(self, case: Case, prediction: Path, workers: int) -> None:
        """Queues a case; as many workers come to be as there are cases, up to `workers`."""
        self._waiting.put((case, prediction))
        if len(self._threads) < workers:
            thread = threading.Thread(target=self._feed, name="scoring", daemon=True)
            self._threads.append(thread)
            thread.start()

    def finished(self, *, wait: bool) -> list[_Finished]:
        """Returns what has been judged since; waits for one case at least if it is to."""
        found: list[_Finished] = []
        while True:
            try:
                result = self._results.get(block=wait and not found)
            except queue.Empty:
                return found
            if isinstance(result, BaseException):
                raise result
            found.append(result)

    def close(self) -> None:
        """Lets the workers go once the queue is empty, and waits for that."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def kill(self) -> None:
        """Ends the workers, whatever they are at."""
        with self._lock:
            self._killed = True
            for worker in self._alive:
                worker.kill()
        self.close()

    def _feed(self) -> None:
        worker: _Worker | None = None
        try:
            while (item := self._waiting.get()) is not None and not self._killed:
                worker = worker or self._start()
                if worker is None:
                    return
                result = worker.judge(*item)
                if result is None:
                    self._end(worker)
                    worker = None
                self._results.put((*item, result))
        except BaseException as error:  # noqa: BLE001 - it is raised where the results are taken
            self._results.put(error)
        finally:
            if worker is not None:
                self._end(worker)

    def _start(self) -> _Worker | None:
        """Starts a worker; returns None when the pool was killed meanwhile."""
        with self._lock:
            if self._killed:
                return None
            worker = _Worker(self._task)
            self._alive.add(worker)
        if worker.ready() or self._killed:
            return worker
        self._end(worker)
        raise UserError(
            f"the scoring process ended before it began (exit code {worker.exit_code}), for a reason it printed above; "
            "score_workers=0 judges without such processes"
        )

    def _end(self, worker: _Worker) -> None:
        with self._lock:
            self._alive.discard(worker)
        worker.end()


class _Worker:
    """A process that judges for one task all its life."""

    def __init__(self, task: Task) -> None:
        # Spawned, for a forked process must not touch a GPU its parent uses; they import no torch.
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process: BaseProcess = context.Process(target=_serve, args=(other, task), name="scoring")
        try:
            self._process.start()
        finally:
            other.close()  # the worker alone holds it now, so that its death is the end of the line

    @property
    def exit_code(self) -> int | None:
        """What the process ended with; None while it runs."""
        return self._process.exitcode

    def ready(self) -> bool:
        """Waits until the process has started; returns whether it has."""
        try:
            self._connection.recv()
        except (EOFError, OSError):
            return False
        return True

    def judge(self, case: Case, prediction: Path) -> Scored | None:
        """Returns the case's scores, or None if the process died over it."""
        try:
            self._connection.send((case, prediction))
            scored: Scored = self._connection.recv()
        except (EOFError, OSError):
            return None
        return scored

    def kill(self) -> None:
        """Ends the process, whatever it is at."""
        self._process.kill()

    def end(self) -> None:
        """Lets the process go, and waits until it has."""
        self._connection.close()
        self._process.join()


def _serve(connection: Connection, task: Task) -> None:
    """What a worker does: judges case after case until the line is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, and its parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    connection.send("ready")
    while True:
        try:
            case, prediction = connection.recv()
        except EOFError:
            return
        connection.send(score_case(task, case, prediction))


def _die_with_parent() -> None:
    # A worker would otherwise judge its case to the end for a parent that was killed.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
