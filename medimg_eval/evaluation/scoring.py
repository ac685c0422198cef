"""Judges stored predictions in worker processes, beside the model."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType

from medimg_eval.case import Case, Failure
from medimg_eval.errors import CaseError
from medimg_eval.evaluation.run import Run
from medimg_eval.metrics import LabelScore
from medimg_eval.tasks.base import Task

log = logging.getLogger(__name__)

Scored = Sequence[LabelScore] | Failure


def score_case(task: Task, case: Case, prediction: Path) -> Scored:
    """Judges one stored prediction; whatever goes wrong is this case's failure alone."""
    try:
        scores = task.score(case, prediction)
    except CaseError as error:
        return Failure(case.id, "score", str(error))
    except Exception as error:
        log.debug("case %s", case.id, exc_info=True)
        return Failure(case.id, "score", f"case {case.id!r}: {type(error).__name__}: {error}")
    endless = next((score for score in scores if math.isinf(score.value)), None)
    if endless is not None:  # it would make every mean it enters infinite
        return Failure(case.id, "score", f"case {case.id!r}: {endless.metric} of {endless.label} is {endless.value}")
    return scores


class Scorer:
    """Takes cases as they are predicted and appends their scores to the run as they come.

    Args:
        task: how to judge.
        run: where the scores go.
        scoring: hash of the settings that judge.
        workers: processes; 0 judges in this one.
    """

    def __init__(self, task: Task, run: Run, scoring: str, workers: int) -> None:
        self._task, self._run, self._scoring, self._workers = task, run, scoring, workers
        self._pool: ProcessPoolExecutor | None = None
        self._pending: dict[Future[Scored], tuple[Case, Path]] = {}

    def __enter__(self) -> Scorer:
        """Starts nothing: workers come with the first case."""
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Waits for what is left, unless an error is on its way out."""
        if kind is None:
            self.drain()
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def submit(self, case: Case, prediction: Path) -> None:
        """Queues a case, and notes the scores that have come in meanwhile."""
        if self._workers == 0:
            self._run.append_scores({case.id: score_case(self._task, case, prediction)}, self._scoring)
            return
        self._queue(case, prediction)
        self._note([future for future in self._pending if future.done()])

    def drain(self) -> None:
        """Waits until every queued case has its scores in the run."""
        while self._pending:
            for future in as_completed(list(self._pending)):
                self._note([future])

    def _queue(self, case: Case, prediction: Path) -> None:
        if self._pool is None:
            self._pool = self._start_pool(self._workers)
        try:
            self._pending[self._pool.submit(_score_in_worker, case, prediction)] = (case, prediction)
        except BrokenProcessPool:
            self._recover()
            self._queue(case, prediction)

    def _start_pool(self, workers: int) -> ProcessPoolExecutor:
        # Spawned, for a forked process must not touch a GPU its parent uses; they import no torch.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(self._task,))

    def _note(self, done: Sequence[Future[Scored]]) -> None:
        scored: dict[str, Scored] = {}
        broken = False
        for future in done:
            if future not in self._pending:  # scored while the others were recovered
                continue
            if isinstance(future.exception(), BrokenProcessPool):
                broken = True
                continue
            case, _ = self._pending.pop(future)
            scored[case.id] = future.result()
        if scored:
            self._run.append_scores(scored, self._scoring)
        if broken:
            self._recover()

    def _recover(self) -> None:
        """After a worker has died: judges what was queued one by one, so that only the culprit fails."""
        waiting = [pair for future, pair in self._pending.items() if not (future.done() and not future.exception())]
        self._note([future for future in self._pending if future.done() and not future.exception()])
        self._pending.clear()
        self._pool = None
        for case, prediction in waiting:
            with self._start_pool(1) as pool:
                try:
                    result: Scored = pool.submit(_score_in_worker, case, prediction).result()
                except BrokenProcessPool:
                    result = Failure(case.id, "score", f"case {case.id!r}: the scoring process died (out of memory?)")
            self._run.append_scores({case.id: result}, self._scoring)


def scoring_workers(wanted: int | None) -> int:
    """How many scoring processes to use: as asked, or all cores but the one that feeds the model, up to 8."""
    return min(8, max(1, (os.cpu_count() or 2) - 1)) if wanted is None else wanted


_task: Task | None = None


def _start_worker(task: Task) -> None:
    global _task  # noqa: PLW0603 - a worker judges for one task all its life
    _task = task
    threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    # A pool's workers outlive a parent that is killed: they wait for work that never comes.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _score_in_worker(case: Case, prediction: Path) -> Scored:
    if _task is None:
        raise RuntimeError("the scoring process was not initialised")
    return score_case(_task, case, prediction)
