"""A task of questions: its records, its files, a sample of its images, and how the data are got."""

from __future__ import annotations

import zipfile
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.arguments import as_list, grouped
from medimg_eval.checking.task_cases import Finding
from medimg_eval.errors import SplitError, UserError
from medimg_eval.tasks.base import left_out

if TYPE_CHECKING:
    from medimg_eval.case import Case
    from medimg_eval.tasks import Task

Place = tuple[Path, str]
"""A file, and the name within it where it is an archive."""


def question_findings(task: Task, parts: Iterable[str], sample: int) -> Iterator[Finding]:
    """Yields what every part holds and every doubt about it.

    Args:
        task: the benchmark.
        parts: `fit`, `validate`, `test`; one that the benchmark does not have is passed over, but for `test`.
        sample: questions of each part whose images are opened and whose prompts are made, evenly spaced.
    """
    for part in parts:
        if part not in task.splits and part != "test":
            continue
        try:
            cases, faults = _load_cases(task, part)
        except UserError as error:
            yield Finding(part, str(error))
            continue
        lacking = left_out(task.layout)
        missing = _find_lost_files(cases)
        faults += [*_check_records(cases), *_describe_missing(missing), *_open_sample(task, cases, missing, sample)]
        yield Finding(part, task.describe(cases, {}), doubt=False)
        if lacking:
            case, why = next(iter(lacking.items()))
            fault = f"{len(lacking)} more left out by the layout, the first of which is {case}: {why}"
            yield Finding(part, fault, doubt=False)
        for sort, some in grouped(faults).items():
            yield from (Finding(part, text, sort=sort) for text in some)


def how_to_get(name: str, card: Mapping[str, Any]) -> list[str]:
    """Steps to get a benchmark's data, by its card."""
    steps = card.get("download")
    access = str(card.get("access") or "access unknown")
    if isinstance(steps, Mapping):
        lines = [f"to get it: python -m medimg_eval download task={name} (from {steps.get('hub')}, {access})"]
        return lines + [f"  then: {step}" for step in as_list(steps.get("then") or [])]
    listed = as_list(steps or card.get("source") or [])
    if not listed and "access" not in card:
        return []
    return [f"to get it ({access}):", *(f"  {step}" for step in listed)]


def _load_cases(task: Task, part: str) -> tuple[list[Case], list[tuple[str, str]]]:
    """Cases, and faults of the whole set, such as its size."""
    try:
        return list(task.cases(part)), []
    except SplitError:
        raise
    except UserError as error:
        cases = list(task.layout.cases(task.splits[part]))  # raises the same again where there are none
        return cases, [("unexpected things", str(error))]


def _check_records(cases: Sequence[Case]) -> list[tuple[str, str]]:
    faults = []
    for case in cases:
        if case.question is None:
            try:
                case.target.read()
            except UserError as error:
                faults.append(("records that cannot be understood", str(error)))
    return faults


def _find_lost_files(cases: Sequence[Case]) -> dict[Place, str]:
    """Missing files and archive members -> first question using them."""
    first: dict[Place, str] = {}
    for case in cases:
        for place_ in _image_places(case):
            first.setdefault(place_, case.id)
    files = {path: path.exists() for path, _ in first}
    members = {path: _archive_members(path) for path, member in first if member and files[path]}
    missing = {}
    for (path, member), question in first.items():
        present = members.get(path) if member else None
        if not files[path] or (present is not None and member not in present):
            missing[path, member] = question
    return missing


def _describe_missing(lost: Mapping[Place, str]) -> list[tuple[str, str]]:
    texts: dict[Place, tuple[str, str]] = {}
    for (path, member), question in lost.items():
        if not path.exists():
            texts.setdefault((path, ""), ("missing files", f"{path}: missing (first asked about in {question})"))
        else:
            text = f"{path}: holds no {member!r} (first asked about in {question})"
            texts[path, member] = ("images that archives do not hold", text)
    return list(texts.values())


def _image_places(case: Case) -> Iterator[Place]:
    """Files of a case's images, with member names in archives."""
    for image in case.images:
        stored = getattr(image, "stored", image)  # of one that is shrunk when it is read
        for path in image.files:
            yield path, str(getattr(stored, "member", ""))


def _archive_members(path: Path) -> set[str] | None:
    """Member names of an archive; None where unreadable."""
    try:
        with zipfile.ZipFile(path) as archive:
            return set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return None


def _open_sample(task: Task, cases: Sequence[Case], lost: Container[Place], sample: int) -> list[tuple[str, str]]:
    """Errors of sampled questions on reading, prompting and placing keys."""
    readable = [
        case
        for case in cases
        if case.question is not None and not any(location in lost for location in _image_places(case))
    ]
    some = (
        readable if sample >= len(readable) else [readable[index * len(readable) // sample] for index in range(sample)]
    )
    sort = "questions that cannot be put"
    return [(sort, f"case {case.id}: {doubt}") for case in some for doubt in task.check_case(case).doubts]
