"""What is asked of all cases of a task, whether they lie in memory or on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from medimg_eval.case import Case
from medimg_eval.case_index.stored_cases import StoredCases
from medimg_eval.system import file_digest

T = TypeVar("T")


class _StoredById(Mapping[str, Case]):
    """Stored cases by id."""

    def __init__(self, cases: StoredCases) -> None:
        self._cases = cases

    def __getitem__(self, name: str) -> Case:
        """The case of an id; raises KeyError where there is none."""
        place = self._cases.ids.place(name)
        if place is None:
            raise KeyError(name)
        return self._cases[place]

    def __contains__(self, name: object) -> bool:
        """Whether a case has the id."""
        return name in self._cases.ids

    def __iter__(self) -> Iterator[str]:
        """Yields ids in the order of the cases."""
        return iter(self._cases.ids)

    def __len__(self) -> int:
        """How many cases there are."""
        return len(self._cases)


def held(cases: Sequence[Case]) -> Sequence[Case]:
    """The cases themselves where they are stored, else a list of them."""
    return cases if isinstance(cases, StoredCases) else list(cases)


def ids_of(cases: Sequence[Case]) -> Sequence[str]:
    """The ids of cases, in their order."""
    return cases.ids if isinstance(cases, StoredCases) else [case.id for case in cases]


def by_id(cases: Sequence[Case]) -> Mapping[str, Case]:
    """The cases by id."""
    return _StoredById(cases) if isinstance(cases, StoredCases) else {case.id: case for case in cases}


def repeated_id(cases: Sequence[Case]) -> str | None:
    """An id that two cases have; None where there is none."""
    if isinstance(cases, StoredCases):  # which was made sure of when they were stored
        return None
    return next((name for name, count in Counter(case.id for case in cases).items() if count > 1), None)


def any_images(cases: Sequence[Case]) -> bool:
    """Whether any case has an image."""
    known: bool | None = getattr(cases, "has_images", None)
    return any(case.images for case in cases) if known is None else known


def any_patients(cases: Sequence[Case]) -> bool:
    """Whether any case has a patient."""
    return cases.has_patients if isinstance(cases, StoredCases) else any(case.patient is not None for case in cases)


def remembered(cases: Sequence[Case], name: str, make: Callable[[], T], *, of_files: bool = False) -> T:
    """Facts of all cases, as JSON; of stored cases found once.

    Args:
        cases: those of a task.
        name: of what is found.
        make: finds it; where the file that it is written in changes, it is found again.
        of_files: whether it rests on what files hold; then it is only remembered where the index knows all of them.
    """
    if not isinstance(cases, StoredCases) or (of_files and not cases.from_sources):
        return make()
    rule = file_digest(Path(make.__code__.co_filename))[:16]
    return cases.remember(f"{name}, {rule}", make)
