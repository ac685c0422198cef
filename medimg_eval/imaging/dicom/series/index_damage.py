"""Which images the damaged files of a tree are meant for: such an image keeps all its files, and fails when read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from medimg_eval.imaging.dicom.headers.header import Header
from medimg_eval.imaging.dicom.series.grouping import close
from medimg_eval.imaging.dicom.series.index_store import Group

UNKNOWN = (0, 0)
"""Stands for size and time of a damaged file, which is never remembered."""


def take_back(groups: list[Group]) -> None:
    """Puts a lone file into the stack of its series where it differs from that in size or spacing, or states no place.

    As an image by itself it would be a case more; in its stack, reading names it. What faces another way stays, such
    as a scout.
    """
    stacks: dict[tuple[Any, ...], list[Group]] = defaultdict(list)
    for group in groups:
        if group.kind == "stack" and len(group.files) > 1:
            stacks[_series(group.facts)].append(group)
    for group in [group for group in groups if len(group.files) == 1 and group.facts["frames"] == 1]:
        found = stacks.get(_series(group.facts), [])
        facing = group.facts["orientation"]
        if len(found) == 1 and (facing is None or close(facing, found[0].facts["orientation"])):
            found[0].files.update(group.files)
            groups.remove(group)


def _series(facts: Mapping[str, Any]) -> tuple[Any, ...]:
    named = ("patient", "study", "series", "number", "modality", "sop_class", "localizer")
    return tuple(facts[name] for name in named)


def place(groups: Sequence[Group], damaged: Mapping[str, Header]) -> Iterator[list[str]]:
    """Puts damaged files into the images they are meant for.

    That is the stack of the series that the rest of the header names; without that the stack in the same folder, and
    of several those that its neighbours by name belong to.

    Args:
        groups: of the readable files; their `files` grow.
        damaged: name -> what is left of the header.

    Yields:
        The files of each image of which nothing else is known: of a series, of a folder of damaged files alone, or one.
    """
    by_series: dict[str, list[Group]] = defaultdict(list)
    by_folder: dict[str, list[tuple[str, Group]]] = defaultdict(list)
    for group in groups:
        by_series[group.facts["series"]].append(group)
        for name in group.files:
            by_folder[_folder(name)].append((name, group))
    alone: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, header in sorted(damaged.items()):
        series, beside = _known(header.series_uid, by_series), by_folder.get(_folder(name), [])
        homes = _largest(by_series.get(series, [])) if series else _neighbours(name, beside)
        for home in homes:
            home.files[name] = UNKNOWN
        if not homes:
            own = series in by_series if series else bool(beside)
            alone[(series, name if own else "" if series else _folder(name) + "/")].append(name)
    yield from alone.values()


def _known(series: str, by_series: Mapping[str, Any]) -> str:
    """The UID of a series, of which a file that ends within it holds only the beginning."""
    longer = [one for one in by_series if series and one.startswith(series)]
    return longer[0] if len(longer) == 1 and series not in by_series else series


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _largest(groups: Sequence[Group]) -> list[Group]:
    """The stack with most files; none among images of one file each."""
    stacks = [group for group in groups if group.kind == "stack"]
    return [max(stacks, key=lambda group: len(group.files))] if stacks else []


def _neighbours(name: str, beside: Sequence[tuple[str, Group]]) -> list[Group]:
    """The stacks in its folder that a file may be of: before and after it by name, where there are several."""
    stacks = {id(group): group for _, group in beside if group.kind == "stack"}
    if len(stacks) == 1:
        return list(stacks.values())
    ordered = sorted((_natural(other), id(group)) for other, group in beside if len(group.files) > 1)
    ordered = [(key, group) for key, group in ordered if group in stacks]
    before = [group for key, group in ordered if key < _natural(name)][-1:]
    after = [group for key, group in ordered if key > _natural(name)][:1]
    return [stacks[group] for group in dict.fromkeys(before + after)]


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = [part for part in re.split(r"(\d+)", name) if part]
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]
