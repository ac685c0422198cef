"""What a model is told of a task before it is asked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from medimg_eval.case import Case, Image
from medimg_eval.errors import UsageError, UserError
from medimg_eval.tasks import QuestionTask, Task

log = logging.getLogger(__name__)


TRIED = 20
"""Questions of which one at least must fit the prompt template, or none will."""


def refuse_unaskable(task: Task, cases: Sequence[Case]) -> None:
    """Raises UsageError, before a model is loaded, when the first questions name a field that none of them has."""
    if not isinstance(task, QuestionTask):
        return
    found: UsageError | None = None
    for case in cases[:TRIED]:
        try:
            task.prompt(case, ())
        except UsageError as error:
            found = error
        except Exception as error:  # noqa: BLE001 - a case that cannot be read fails alone, when it is asked about
            log.debug("case %s cannot be tried: %s", case.id, error)
        else:
            return
    if found is not None:
        raise UsageError(f"task {task.name!r}: {found}") from found


def prepare(task: Task, model: Any, cases: Sequence[Case]) -> None:
    """Lets a model take from the task what its config left open, when it has a `prepare`.

    Args:
        task: its labels are passed on.
        model: a wrapper.
        cases: the first whose image can be read is the example; always the same, so that a run that is resumed
            goes on with the same model.

    Raises:
        UserError: the model cannot serve the task, or no image can be read.
    """

    def example() -> Image:
        for case in cases:
            try:
                return task.read_images(case)[0]
            except Exception as error:  # noqa: BLE001 - a case that cannot be read fails alone, when it is asked about
                log.debug("case %s is no example: %s", case.id, error)
        raise UserError(f"task {task.name!r}: none of {len(cases)} images can be read; see python -m medimg_eval check")

    getattr(model, "prepare", lambda labels, example: None)(getattr(task, "labels", {}), example)
    study = getattr(model, "study", None)  # of a baseline, which answers from the answer key of other cases alone
    if callable(study) and not getattr(model, "studied", False):
        try:
            fit = task.cases("fit")
        except UserError as error:
            raise UserError(
                f"{type(model).__name__} learns from cases to fit on, and there are none ({error}); leave it out, or "
                "name a split for them by task.splits.fit"
            ) from error
        study(fit)
