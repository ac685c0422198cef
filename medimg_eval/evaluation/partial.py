"""Part of a task's cases, for a first look: which are asked about, and what a table says of it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Any

from medimg_eval.case import Case
from medimg_eval.errors import UsageError
from medimg_eval.tasks import Task

NAMED = 5
"""Cases that a table names."""


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
