"""What is settled before a model is asked: which cases it is asked about, and what it is told of the task."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Sequence
from typing import Any

from medimg_eval.case import Case, Image
from medimg_eval.errors import UsageError, UserError
from medimg_eval.tasks import Task

log = logging.getLogger(__name__)

NAMED = 5
"""Cases that a table names."""


def prepare_model(task: Task, model: Any, cases: Sequence[Case]) -> None:
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

    getattr(model, "prepare", lambda labels, example: None)(task.numbered_labels(), example)
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


def choose(task: Task, cases: Sequence[Case], limit: Any, only: Sequence[str]) -> frozenset[str]:
    """Returns the ids of the cases that are asked for.

    Args:
        task: whose cases.
        cases: all of them, in its order.
        limit: so many of them, the first ones; None for all.
        only: ids of those that count; empty for all.

    Raises:
        UsageError: the limit is no number of cases, or there is no such case.
    """
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise UsageError(f"expected limit to be a whole number of at least 1, got {limit!r}")
    known, asked = [case.id for case in cases], frozenset(only)
    lost = min(asked.difference(known), default=None)
    if lost is not None:
        near = difflib.get_close_matches(lost, known, n=3, cutoff=0)
        raise UsageError(f"task {task.name!r} has no case {lost!r}; the nearest of {len(known)} are {', '.join(near)}")
    return frozenset([one for one in known if not asked or one in asked][:limit])


def in_words(cases: Sequence[Case], judged: Collection[str]) -> str:
    """Returns which of all cases are judged, such as "the first 5 of 20 cases"; "" where all are."""
    if len(judged) == len(cases):
        return ""
    known = frozenset(judged)
    names = [case.id for case in cases if case.id in known]
    if names == [case.id for case in cases[: len(names)]]:
        return f"the first {len(names)} of {len(cases)} cases"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"only {', '.join(names[:NAMED])}{more} of {len(cases)} cases"
