"""The cases of a task, each read once: every doubt, and what each part holds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from medimg_eval.errors import SplitError, UserError

if TYPE_CHECKING:
    from medimg_eval.tasks import Task


class Finding(NamedTuple):
    """Result of looking at a part of a task's data."""

    part: str
    """`fit`, `validate` or `test`."""
    text: str
    doubt: bool = True
    """Whether something is wrong; else it is only told."""
    sort: str = ""
    """Of doubts that there may be many of: which of them are alike."""


def findings(task: Task, parts: Iterable[str], sample: int = 100, *, lookalikes: bool = False) -> Iterator[Finding]:
    """Reads a task's cases, yielding findings as it goes.

    Args:
        task: whose.
        parts: such as `test`.
        sample: of a task of questions, how many of each part have their images opened.
        lookalikes: whether images of different parts are compared by what they show.
    """
    if task.sampled:
        from medimg_eval.checking.question_records import question_findings

        yield from question_findings(task, parts, sample)
    else:
        for part in parts:
            yield from _of_part(task, part)
    yield from _find_leaks(task, lookalikes)


def _find_leaks(task: Task, lookalikes: bool) -> Iterator[Finding]:
    """Leaks between parts; validation on test cases is only noted."""
    from medimg_eval.data.leaks import find_leaks
    from medimg_eval.tasks.base import overlap_accepted

    leaks, not_looked = find_leaks(task, seconds=math.inf, lookalikes=lookalikes)
    accepted = overlap_accepted(task.layout)
    for leak in leaks:
        is_note = leak.kind == "same cases" or (accepted and leak.kind not in ("images", "lookalikes"))
        yield Finding("leaks", leak.text + (f" (accepted: {accepted})" if accepted else ""), doubt=not is_note)
    if not_looked:
        yield Finding("leaks", not_looked, doubt=False)


def _of_part(task: Task, part: str) -> Iterator[Finding]:
    from medimg_eval.evaluation.progress import tracked

    try:
        cases = task.cases(part)
    except SplitError as error:  # many datasets hold no cases to fit on
        yield Finding(part, f"none; {error}", doubt=part == "test")
        return
    except UserError as error:
        yield Finding(part, str(error))
        return
    grids: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for case in tracked(cases, f"reading {part}"):
        faults = task.check_case(case)
        grids.update([faults.grid] if faults.grid else [])
        notes.update(faults.notes)
        for doubt in faults.doubts:
            yield Finding(part, f"case {case.id}: {doubt}")
    yield Finding(part, task.describe(cases, grids), doubt=False)
    for note, count in notes.most_common():
        yield Finding(part, f"{count} cases were read so: {note}", doubt=False)
