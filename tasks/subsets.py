"""Smaller sets to fit on: a share of the patients, or a few of each class, each size drawn several times."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case, Findings, Survival
from medimg_eval.errors import UsageError, UserError

if TYPE_CHECKING:
    from medimg_eval.tasks.base import Task

FRACTION, SHOTS, DRAWS, NUMBER = "fraction", "shots", "draws", "number"
"""Keys of `Task.subsets`: the sizes, as one or the other; how often each is drawn; and which of all draws is meant."""

SIZES = (FRACTION, SHOTS)

_STRATIFIED = ("classify", "estimate_risk")
"""What tasks ask whose cases show classes, or an event."""


def checked(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes and draws, the sizes ascending, each once.

    Raises:
        UsageError: a size or a number of draws is invalid, or both kinds of sizes are given.
    """
    kinds = [kind for kind in SIZES if drawn.get(kind) is not None]
    if len(kinds) != 1:
        raise UsageError("expected sizes of what is fitted on as one of fraction=[0.1, 1] and shots=[1, 4]")
    (kind,) = kinds
    sizes_, draws = drawn[kind], drawn.get(DRAWS, 1)
    sizes = list(sizes_) if isinstance(sizes_, Sequence) and not isinstance(sizes_, str) else [sizes_]
    for size in sizes:
        number = isinstance(size, int | float) and not isinstance(size, bool)
        if not number or (not 0 < size <= 1 if kind == FRACTION else size < 1 or size != int(size)):
            meant = "shares above 0, at most 1" if kind == FRACTION else "whole numbers from 1"
            raise UsageError(f"{kind}={sizes_}: expected {meant}")
    if not sizes or not isinstance(draws, int) or isinstance(draws, bool) or draws < 1:
        raise UsageError(f"expected a list of sizes and draws from 1, got {kind}={sizes_}, draws={draws}")
    settings = {kind: sorted({float(size) if kind == FRACTION else int(size) for size in sizes}), DRAWS: draws}
    return settings | ({NUMBER: drawn[NUMBER]} if NUMBER in drawn else {})


def kind_of(drawn: Mapping[str, Any]) -> str:
    """`fraction` or `shots`."""
    return next(kind for kind in SIZES if drawn.get(kind) is not None)


def numbers(drawn: Mapping[str, Any]) -> range:
    """Numbers of all draws, by size."""
    return range(len(drawn[kind_of(drawn)]) * drawn[DRAWS])


def size_and_draw(drawn: Mapping[str, Any]) -> tuple[float, int]:
    """Size of a numbered draw, and its index within that size."""
    size_index, draw = divmod(drawn[NUMBER], drawn[DRAWS])
    return drawn[kind_of(drawn)][size_index], draw


def subset(task: Task, cases: Sequence[Case], shows: Sequence[frozenset[str]] | None = None) -> list[Case]:
    """Fit cases kept by one draw, in their order.

    Patients (cases, where no patient is known) come in an order that their names and the draw decide alone. A share
    keeps the first ones of each class, at least one; a patient of several classes counts as of the rarest, and the
    first one of each class is always kept. `shots` keeps of each class the first so many patients, of each one case.
    Both ways, what a smaller size of the same draw keeps is kept by a larger one too.

    Args:
        task: whose `subsets` names the draw.
        cases: all there are to fit on.
        shows: what `classes_shown` gives of them, where it was read before.

    Raises:
        UsageError: shots are asked for of a task without classes.
        UserError: a class has fewer patients than shots.
    """
    size, draw = size_and_draw(task.subsets)
    few = kind_of(task.subsets) == SHOTS
    if few and task.capability not in _STRATIFIED:
        raise UsageError(f"task {task.name!r}: shots are cases of a class, and it has none; use fraction=[0.1, 1]")
    shows = classes_shown(task, cases) if shows is None else shows
    held: dict[str, set[str]] = defaultdict(set)
    for case, classes in zip(cases, shows, strict=True):
        held[case.patient or case.id] |= classes
    ranked = sorted(held, key=lambda who: hashlib.sha256(f"{draw}\n{who}".encode()).digest())
    of_class: dict[str, list[str]] = defaultdict(list)
    for who in ranked:
        for name in held[who]:
            of_class[name].append(who)
    rarest = sorted(of_class, key=lambda name: (len(of_class[name]), name))
    if few:
        return _of_each(task, cases, shows, {name: of_class[name] for name in rarest}, int(size))
    selected: set[str] = set()
    for name in rarest:
        if not selected.intersection(of_class[name]):
            selected.add(of_class[name][0])
    ranks = {name: at for at, name in enumerate(rarest)}
    stratum = {who: min(held[who], key=ranks.__getitem__) for who in ranked}
    sizes, taken = Counter(stratum.values()), Counter[str]()
    for who in ranked:
        if taken[stratum[who]] < max(1, math.floor(size * sizes[stratum[who]] + 0.5)):
            taken[stratum[who]] += 1
            selected.add(who)
    return [case for case in cases if (case.patient or case.id) in selected]


def _of_each(
    task: Task,
    cases: Sequence[Case],
    shows: Sequence[frozenset[str]],
    of_class: Mapping[str, Sequence[str]],
    count: int,
) -> list[Case]:
    first: dict[tuple[str, str], int] = {}
    for at, (case, classes) in enumerate(zip(cases, shows, strict=True)):
        for name in classes:
            first.setdefault((name, case.patient or case.id), at)
    selected: set[int] = set()
    for name, members in of_class.items():
        if len(members) < count:
            subject = f"class {name!r}" if name else "what shows no class"
            raise UserError(
                f"task {task.name!r}: shots={count} of {subject}, and there are {len(members)} patients of it to fit on"
            )
        selected.update(first[name, who] for who in members[:count])
    return [cases[at] for at in sorted(selected)]


def classes_shown(task: Task, cases: Sequence[Case]) -> list[frozenset[str]]:
    """The classes that each case shows, read from its target."""
    return [_shown_by(task, case) for case in cases]


def _shown_by(task: Task, case: Case) -> frozenset[str]:
    """Classes of a case; "" for none, or without classes."""
    if task.capability in _STRATIFIED:
        held = case.target.read()
        if isinstance(held, Survival):
            return frozenset(["event" if held.event else ""])
        if isinstance(held, Findings):
            names = set(task.numbered_labels().values())
            return frozenset(name for name, value in held.values.items() if name in names and value > 0.5) or _NONE
    return _NONE


_NONE = frozenset([""])


def described(task: Task) -> list[dict[str, Any]]:
    """Facts of draws: `repeat`, `kind`, `size`, `draw`, fitted `patients`, `cases`."""
    pool, subsets = task.cases("fit"), []
    shows = classes_shown(task, pool)  # the same of each draw
    for number, fold_task in task.folds().items():
        size, draw = size_and_draw(fold_task.subsets)
        chosen = subset(fold_task, pool, shows)
        who = {case.patient or case.id for case in chosen}
        subsets.append(
            {
                "repeat": number,
                "kind": kind_of(task.subsets),
                "size": size,
                "draw": draw,
                "patients": len(who),
                "cases": len(chosen),
            }
        )
    return subsets
