"""Trials of a run: of one that asks about each case once, none is made before it is asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import overload

from medimg_eval.case import Case, Trial
from medimg_eval.case_index.stored_cases import StoredCases, StoredIds
from medimg_eval.errors import UserError


class EachCase(Sequence[Trial]):
    """One trial for each case, in the order of the cases: as published, and not repeated.

    Args:
        ids: of the cases.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids
        self._named = ids if isinstance(ids, StoredIds) else frozenset(ids)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> Trial: ...
    @overload
    def __getitem__(self, place: slice) -> list[Trial]: ...
    def __getitem__(self, place: int | slice) -> Trial | list[Trial]:
        """The trial at a place, or a list of those of a slice."""
        return list(map(Trial, self._ids[place])) if isinstance(place, slice) else Trial(self._ids[place])

    def __iter__(self) -> Iterator[Trial]:
        """Yields them in their order."""
        return map(Trial, self._ids)

    def __contains__(self, trial: object) -> bool:
        """Whether it is one of them."""
        return isinstance(trial, Trial) and trial.id == trial.case and trial.case in self._named


def in_order(every: Sequence[Case], wanted: Sequence[Trial], further: Iterable[Trial] = ()) -> Sequence[Trial]:
    """Each trial of a case that there is once, by condition as first named, then by repeat and in the order of cases.

    Raises:
        UserError: two have the same id.
    """
    further = list(further)
    if isinstance(wanted, EachCase) and all(trial in wanted for trial in further):
        return wanted
    trials = [*wanted, *further]
    positions = _positions(every, {trial.case for trial in trials})
    order = {condition: number for number, condition in enumerate(dict.fromkeys(trial.condition for trial in trials))}
    valid = {trial for trial in trials if trial.case in positions}
    if len({trial.id for trial in valid}) < len(valid):
        twice = next(trial.id for trial in valid if trial.id != trial.case and _positions(every, {trial.id}))
        raise UserError(f"case {twice!r} is called as a repeat or condition of another case is; rename it")
    return sorted(valid, key=lambda trial: (order[trial.condition], trial.repeat, positions[trial.case]))


def cases_of(every: Sequence[Case], trials: Sequence[Trial]) -> Sequence[Case]:
    """The cases that trials are about, in the order of all."""
    if isinstance(trials, EachCase) and len(trials) == len(every):
        return every
    named = {trial.case for trial in trials}
    if isinstance(every, StoredCases):
        return [every[place] for place in sorted(_positions(every, named).values())]
    return [case for case in every if case.id in named]


def most_repeats(trials: Sequence[Trial]) -> int:
    """How often a case is asked about at most."""
    return 1 if isinstance(trials, EachCase) else 1 + max((trial.repeat for trial in trials), default=0)


def _positions(every: Sequence[Case], names: Collection[str]) -> dict[str, int]:
    """The places of named cases; of names that no case has nothing."""
    if isinstance(every, StoredCases):
        places = ((name, every.ids.place(name)) for name in names)
        return {name: place for name, place in places if place is not None}
    return {case.id: number for number, case in enumerate(every) if case.id in names}
