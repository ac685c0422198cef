"""`check` of a task of questions: its records, its files, a sample of its images, and how the data are got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.commands.common import printer
from medimg_eval.errors import SplitError, UserError

if TYPE_CHECKING:
    from rich.console import Console

    from medimg_eval.case import Case
    from medimg_eval.tasks import QuestionTask

SHOWN = 5
"""Doubts of one sort that are printed before the others are counted."""


def check_questions(task: QuestionTask, parts: Iterable[str], sample: int) -> None:
    """Prints what every part holds and every doubt about it, and how the data are got if there are doubts.

    Args:
        task: the benchmark.
        parts: `fit`, `validate`, `test`; one that the benchmark does not have is said to be none, and only of `test`
            that is a doubt.
        sample: questions of each part whose images are opened and whose prompts are made, evenly spaced.

    Raises:
        UserError: something is wrong with the data.
    """
    console = printer()
    doubts = 0
    for part in parts:
        try:
            cases = task.cases(part)
        except SplitError as error:
            if part == "test" or part in task.splits:
                _say(console, f"{part}: none; {error}")
            doubts += part == "test"
            continue
        except UserError as error:
            _say(console, f"{part}: {error}")
            doubts += 1
            continue
        found = [*_records(cases), *_missing(cases), *_opened(task, cases, sample)]
        _say(console, f"{part}: {_summary(cases)}")
        for sort, some in _sorted(found).items():
            for text in some[:SHOWN]:
                _say(console, f"{part}: {text}")
            if len(some) > SHOWN:
                _say(console, f"{part}: {len(some) - SHOWN} more {sort}")
        doubts += len(found)
    if doubts:
        for line in how_to_get(task.name, task.card):
            _say(console, line)
        raise UserError(f"task {task.name!r}: {doubts} doubts, listed above")


def how_to_get(name: str, card: Mapping[str, Any]) -> list[str]:
    """The steps by which a benchmark's data are got, from its card."""
    steps = card.get("download")
    access = str(card.get("access", ""))
    if isinstance(steps, Mapping):
        lines = [f"to get it: python -m medimg_eval download task={name} (from {steps.get('hub')}, {access})"]
    else:
        lines = [f"to get it ({access}):"]
        lines += [
            f"  {step}" for step in ([steps] if isinstance(steps, str) else steps or [str(card.get("source", ""))])
        ]
    return lines


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def _summary(cases: Sequence[Case]) -> str:
    asked = [case for case in cases if case.question is not None]
    kinds = Counter(case.question.kind for case in asked if case.question)
    options = Counter(len(case.question.options) for case in asked if case.question and case.question.options)
    images = Counter(len(case.images) for case in asked)
    parts = [f"{len(cases)} questions"]
    parts += [", ".join(f"{count} {kind}" for kind, count in kinds.most_common())]
    parts += [f"options: {_counts(options)}"] if options else []
    parts += [f"images: {_counts(images)}"]
    return "; ".join(parts)


def _counts(counter: Counter[int]) -> str:
    return ", ".join(f"{number} in {count}" for number, count in sorted(counter.items()))


def _records(cases: Sequence[Case]) -> list[tuple[str, str]]:
    found = []
    for case in cases:
        if case.question is None:
            try:
                case.target.read()
            except UserError as error:
                found.append(("records that cannot be understood", str(error)))
    return found


def _missing(cases: Sequence[Case]) -> list[tuple[str, str]]:
    files: dict[Path, str] = {}
    for case in cases:
        for image in case.images:
            for path in image.files:
                files.setdefault(path, case.id)
    lost = [path for path in files if not path.exists()]
    return [("missing files", f"{path}: missing (first asked about in {files[path]})") for path in lost]


def _opened(task: QuestionTask, cases: Sequence[Case], sample: int) -> list[tuple[str, str]]:
    asked = [case for case in cases if case.question is not None]
    some = asked[:: max(1, len(asked) // max(1, sample))][:sample]
    found = []
    for case in some:
        if not all(path.exists() for image in case.images for path in image.files):
            continue  # said above
        try:
            task.prompt(case, task.read_images(case))
        except UserError as error:
            found.append(("questions that cannot be put", f"case {case.id}: {error}"))
    return found


def _sorted(found: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    sorts: dict[str, list[str]] = {}
    for sort, text in found:
        sorts.setdefault(sort, []).append(text)
    return sorts
