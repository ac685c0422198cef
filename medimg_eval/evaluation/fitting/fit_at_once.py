"""Fits a model that learns from all cases at once, in seconds, such as a head on features."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from medimg_eval.case import Case
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.fitting.embedding import features_for
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import prepare_model
from medimg_eval.evaluation.predict import model_info
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.probe import Lesson
from medimg_eval.system import threads
from medimg_eval.tasks import Task

log = logging.getLogger(__name__)

PIECE = 64
"""Cases that one thread reads after another."""


def learn_at_once(
    task: Task, candidate: ModelSpec, cases: Mapping[str, Sequence[Case]], settings: Settings, run: Run
) -> float | None:
    """Fits a model at once; returns the mean of the monitor in validation.

    The mean is None without cases to validate on, or where no metric is followed.

    Raises:
        UserError: a case to fit on cannot be read, or nothing can be learned.
    """
    model: Any = candidate.model
    prepare_model(task, model, cases["fit"])
    cases = {part: features_for(task, some, candidate, settings) for part, some in cases.items()}
    held = cases.get("validate")
    learned = model.learn(
        lessons(task, cases["fit"]), None if held is None else lessons(task, held), run.folder, task.capability
    )
    run.note(model_info=model_info(candidate))
    log.info("%s: fitted %s", run.folder, ", ".join(f"{name} {value}" for name, value in learned.items()))
    return None if held is None or not task.monitor else _validation_score(task, model, held)


def lessons(task: Task, cases: Sequence[Case]) -> Iterator[Lesson]:
    """Yields cases in order, read ahead by threads; UserError names one that cannot be."""

    def read(some: Sequence[Case]) -> list[Lesson]:
        return [_make_lesson(task, case) for case in some]

    pieces = iter([cases[at : at + PIECE] for at in range(0, len(cases), PIECE)])
    count = threads(len(cases)) or 1
    pool = ThreadPoolExecutor(count)
    try:
        waiting = [pool.submit(read, some) for some in islice(pieces, 2 * count)]
        while waiting:
            yield from waiting.pop(0).result()
            waiting += [pool.submit(read, some) for some in islice(pieces, 1)]
    finally:
        pool.shutdown(cancel_futures=True)


def _make_lesson(task: Task, case: Case) -> Lesson:
    try:
        prompt, target = task.training_pair(case, task.training_images(case))
    except CaseError as error:
        raise UserError(f"cannot learn from case {case.id!r}: {error}; leave it out of the split") from error
    return Lesson(prompt, target, case.id if case.patient is None else case.patient)


def _validation_score(task: Task, model: Any, cases: Sequence[Case]) -> float | None:
    """Mean validation score over cases and labels; None without scores."""
    values = []
    size = int(getattr(model, "preferred_batch", 1))
    for at in range(0, len(cases), size):
        some = cases[at : at + size]
        prompts = [task.prompt(case, task.read_images(case)) for case in some]
        for case, answer in zip(some, task.ask(model, prompts), strict=True):
            scores = task.score(case, task.accept(case, answer), [task.monitor])
            case_values = [
                score.value for score in scores if score.metric == task.monitor and not math.isnan(score.value)
            ]
            if case_values:
                values.append(sum(case_values) / len(case_values))
    return sum(values) / len(values) if values else None
