"""What is made of records before they are questions: lists taken apart, tables joined, some left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.data.questions.records import MISSING, Record, as_text, check_names, names_in, said_nothing
from medimg_eval.data.questions.sources import Source, source_of
from medimg_eval.errors import CaseError, UsageError, nearest

ROTATE = "rotate_options"
"""The step that is taken when options and answer are known: see `medimg_eval.data.layouts.Questions`."""

Step = Mapping[str, Any]


def expanded(records: Sequence[Record], steps: Sequence[Any], root: Path) -> list[Record]:
    """Takes the steps one after the other; records with a fault pass through.

    They are `{explode: ...}`, `{turns: ...}`, `{pair: ...}`, `{cross: ...}`, `{join: ...}`, `{filter: ...}`,
    `{without: ...}`, `{listed: ...}`, `{shuffle: ...}`, `{first: ...}`, `{one_line: ...}`, `{fill: ...}`,
    `{sort: ...}`, `{numbered: ...}`, `{conversation: ...}`. Raises UsageError where there is no such step, or a step
    has no such key, UserError where one names a field that no record has, or a file that is missing.
    """
    made = list(records)
    for given in steps:
        if given == ROTATE:
            continue
        if not isinstance(given, Mapping) or not given:
            raise UsageError(f"task.layout.expand holds {given!r}, expected a step such as {{explode: column}}")
        step = {"on" if key is True else key: value for key, value in given.items()}  # YAML's old word for true
        name = next((key for key in step if key in STEPS), None)
        if name is None:
            raise UsageError(f"task.layout.expand knows no step {next(iter(step))!r}{nearest(next(iter(step)), STEPS)}")
        take, known = STEPS[name]
        unknown = next((key for key in step if key != name and key not in known), None)
        if unknown is not None:
            raise UsageError(f"task.layout.expand: {name} has no key {unknown!r}{nearest(unknown, known)}")
        if not _is_meant(name, step[name]):
            raise UsageError(f"task.layout.expand: {name} is {step[name]!r:.60}, expected {EXPECTED[name]}")
        made = take(made, step, root)
    return made


def _is_meant(name: str, given: Any) -> bool:
    """Whether what a step is given is of the form it needs; names of files are looked at where they are read."""
    if name in ("filter", "without", "fill"):
        return isinstance(given, Mapping) and bool(given)
    if name in ("shuffle", "first"):
        return isinstance(given, int) and given >= 0
    if name in ("one_line", "numbered", "conversation", "turns", "sort"):
        return isinstance(given, str) and bool(given)
    if name == "pair":
        return isinstance(given, list | tuple) and bool(given) and all(isinstance(one, Mapping) for one in given)
    if name == "explode":
        several = [given] if isinstance(given, str) else given
        return isinstance(several, list | tuple) and bool(several) and all(isinstance(one, str) for one in several)
    return True


def _each(records: Sequence[Record], make: Callable[[Record], Sequence[Record]]) -> list[Record]:
    """Records that a step makes of each record, told apart by `row` where it makes several."""
    found: list[Record] = []
    for record in records:
        made = [record] if record.fault else make(record)
        if len(made) > 1:
            rows = [f"{record.about['row']}-{number}" for number in range(1, len(made) + 1)]
            made = [replace(one, about={**one.about, "row": row}) for one, row in zip(made, rows, strict=True)]
        found += made
    return found


def _check(records: Sequence[Record], patterns: Sequence[str]) -> None:
    check_names([("expand", name) for pattern in patterns for name in names_in(pattern)], records)


def _explode(records: list[Record], step: Step, _root: Path) -> list[Record]:
    columns = [step["explode"]] if isinstance(step["explode"], str) else list(step["explode"])
    _check(records, columns)
    own = columns[0]

    def make(record: Record) -> list[Record]:
        items = record.find(own)
        if said_nothing(items) or items == []:
            return []
        if not isinstance(items, list | tuple):
            return [record.with_values(**{f"{own}_number": 1, f"{own}_index": 0})]
        lists = {column: record.find(column) for column in columns}
        as_long = {name for name, one in lists.items() if isinstance(one, list | tuple) and len(one) == len(items)}
        wrong = next((column for column in lists if column not in as_long), None)
        if wrong is not None:
            return [replace(record, fault=f"columns {own!r} and {wrong!r} are no lists of the same length")]
        return [
            record.with_values(
                **{column: one[place] for column, one in lists.items()},
                **{f"{own}_number": place + 1, f"{own}_index": place},
            )
            for place in range(len(items))
        ]

    return _each(records, make)


def _turns(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """Each turn of the assistant in a recorded session: what stands before it, and itself."""
    column = str(step["turns"])
    _check(records, [column])

    def make(record: Record) -> list[Record]:
        messages = record.find(column)
        if not isinstance(messages, list | tuple) or not all(isinstance(one, Mapping) for one in messages):
            return [replace(record, fault=f"column {column!r} is no list of messages")]
        places = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
        return [
            record.with_values(history=list(messages[:place]), expected=dict(messages[place]), turn=number)
            for number, place in enumerate(places, start=1)
        ]

    return _each(records, make)


def _pair(records: list[Record], step: Step, _root: Path) -> list[Record]:
    members = step["pair"]
    _check(records, [column for member in members for column in member.values()])

    def make(record: Record) -> list[Record]:
        return [
            record.with_values(**{"member": number} | {name: record.value(column) for name, column in member.items()})
            for number, member in enumerate(members, start=1)
        ]

    return _each(records, make)


def _cross(records: list[Record], step: Step, root: Path) -> list[Record]:
    given = step["cross"]
    name = step.get("as", "item")
    if isinstance(given, list | tuple) and not all(isinstance(one, str) and Path(one).suffix for one in given):
        others: list[Any] = list(given)
    else:
        source = source_of(given, "expand.cross", at=step.get("at", ""), literal=step.get("literal", ()))
        others = [{**other.about, **other.values} for other in source.read(root)]
    return _each(records, lambda record: [record.with_values(**{name: other}) for other in others])


@dataclass(frozen=True)
class _Keys:
    """Keys that join a record to one of another file: patterns, or columns, of each."""

    own: tuple[str, ...]
    other: tuple[str, ...]

    def of(self, record: Record, patterns: Sequence[str]) -> tuple[str, ...]:
        return tuple(record.fill(pattern) for pattern in patterns)


def _keys(step: Step) -> _Keys:
    on = step.get("on")
    if isinstance(on, Mapping) and on:
        return _Keys(tuple(map(str, on)), tuple(map(str, on.values())))
    names = (on,) if isinstance(on, str) else tuple(on or ())
    if not names:
        raise UsageError("task.layout.expand: `on` names the columns that must be the same, and is not set")
    return _Keys(names, names)


def _other(step: Step, name: str, root: Path, keep: Sequence[str] | None) -> tuple[_Keys, list[Record]]:
    keys = _keys(step)
    source: Source = source_of(step[name], f"expand.{name}", at=step.get("at", ""), literal=step.get("literal", ()))
    wanted = None if keep is None else {*keep, *(one for pattern in keys.other for one in names_in(pattern))}
    others = []
    for record in source.read(root):
        held = record.values
        if wanted is not None:  # a table of reports may be many times as large as what is asked for
            held = {one: value for one in wanted if (value := record.find(one)) is not MISSING}
        others.append(replace(record, values=held))
    _check(others, [*keys.other, *(keep or ())])
    return keys, [record for record in others if not record.fault]


def _join(records: list[Record], step: Step, root: Path) -> list[Record]:
    keys, others = _other(step, "join", root, step.get("keep"))
    _check(records, keys.own)
    found: dict[tuple[str, ...], list[Record]] = {}
    for other in others:
        with suppress(CaseError):  # a key that does not fit its pattern is nobody's
            found.setdefault(keys.of(other, keys.other), []).append(other)
    missing = step.get("missing", "fail")
    UsageError.refuse_unknown("task.layout.expand: missing is", ("fail", "drop", "keep"), missing)

    def make(record: Record) -> list[Record]:
        try:
            key = keys.of(record, keys.own)
        except CaseError as error:
            return [replace(record, fault=record.said(error))]
        there = found.get(key, [])
        named = ", ".join(key)
        if there and any(_kept(one, step) != _kept(there[0], step) for one in there):
            twice = f"{there[0].place} and {there[1].place} of {there[0].path}"
            return [replace(record, fault=f"{named!r} stands twice, in {twice}; mend one of them")]
        if there:
            kept = _kept(there[0], step)
            joined = {step["as"]: kept} if "as" in step else {**kept, **record.values}
            return [record.with_values(**joined)]
        if missing == "fail":
            return [replace(record, fault=f"{named!r} is not found in {step['join']}; complete that file")]
        return [] if missing == "drop" else [record]

    return _each(records, make)


def _kept(other: Record, step: Step) -> dict[str, Any]:
    return {name: other.values.get(name) for name in step["keep"]} if "keep" in step else dict(other.values)


def _listed(records: list[Record], step: Step, root: Path) -> list[Record]:
    keys, others = _other(step, "listed", root, ())
    _check(records, keys.own)
    wanted = set()
    for other in others:
        with suppress(CaseError):
            wanted.add(keys.of(other, keys.other))

    def make(record: Record) -> list[Record]:
        try:
            return [record] if keys.of(record, keys.own) in wanted else []
        except CaseError as error:
            return [replace(record, fault=record.said(error))]

    return _each(records, make)


def _matching(condition: Mapping[str, Any], record: Record) -> bool:
    for column, value in condition.items():
        several = value if isinstance(value, list | tuple) else [value]
        wanted = {as_text(record.about.get("split")) if one == "{split}" else as_text(one) for one in several}
        found = record.value(column)
        said = {as_text(one) for one in found} if isinstance(found, list) else {as_text(found)}
        if not wanted & said:
            return False
    return True


def _filter(records: list[Record], step: Step, _root: Path) -> list[Record]:
    _check(records, list(step["filter"]))
    return [record for record in records if record.fault or _matching(step["filter"], record)]


def _without(records: list[Record], step: Step, _root: Path) -> list[Record]:
    _check(records, list(step["without"]))
    return [record for record in records if record.fault or not _matching(step["without"], record)]


def _shuffle(records: list[Record], step: Step, _root: Path) -> list[Record]:
    # The order that the `datasets` library gives for the same seed.
    return [records[place] for place in np.random.default_rng(int(step["shuffle"])).permutation(len(records))]


def _one_line(records: list[Record], step: Step, _root: Path) -> list[Record]:
    column = step["one_line"]
    _check(records, [column])

    def make(record: Record) -> list[Record]:
        said = record.value(column)
        return [record.with_values(**{column: said.replace("\n", " ")} if isinstance(said, str) else {})]

    return _each(records, make)


def _fill(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """What records say where a column is empty, or is not there at all."""
    given = step["fill"]

    def make(record: Record) -> list[Record]:
        empty = {column: value for column, value in given.items() if said_nothing(record.find(column))}
        return [record.with_values(**empty)]

    return _each(records, make)


def _sort(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """The group that the value of a column belongs to; of a value that no group names that value."""
    column, groups = str(step["sort"]), step.get("into")
    if not isinstance(groups, Mapping) or not groups:
        raise UsageError("task.layout.expand: sort needs `into`, an object of groups and the values that each holds")
    group_of = {_folded(value): str(group) for group, values in groups.items() for value in values}
    _check(records, [column])

    def make(record: Record) -> list[Record]:
        value = record.find(column)
        found = "" if said_nothing(value) else group_of.get(_folded(value), as_text(value))
        return [record.with_values(**{str(step.get("as", f"{column}_group")): found})]

    return _each(records, make)


def _numbered(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """A list as one text in a column `numbered`, an item a line behind its number."""
    column = step["numbered"]
    _check(records, [column])

    def make(record: Record) -> list[Record]:
        given = record.value(column)
        if not isinstance(given, list | tuple):
            return [replace(record, fault=f"{column} is {given!r:.60}, expected a list to be numbered")]
        lines = (f"{number}. {' '.join(as_text(one).split())}" for number, one in enumerate(given, 1))
        return [record.with_values(numbered="\n".join(lines))]

    return _each(records, make)


def _folded(value: Any) -> str:
    return " ".join(as_text(value).casefold().replace("_", " ").replace("-", " ").split())


def _conversation(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """A list of turns as `history`, and as one text in a column `conversation`, a paragraph behind its role."""
    column = str(step["conversation"])
    _check(records, [column])

    def make(record: Record) -> list[Record]:
        turns = record.value(column)
        if not isinstance(turns, list | tuple) or not all(isinstance(one, Mapping) for one in turns) or not turns:
            return [replace(record, fault=f"column {column!r} is no list of turns")]
        said = "\n\n".join(f"{turn.get('role')}: {turn.get('content')}" for turn in turns)
        return [record.with_values(history=[dict(turn) for turn in turns], conversation=said)]

    return _each(records, make)


STEPS: Mapping[str, tuple[Callable[[list[Record], Step, Path], list[Record]], set[str]]] = {
    "explode": (_explode, set()),
    "turns": (_turns, set()),
    "pair": (_pair, set()),
    "cross": (_cross, {"as", "at", "literal"}),
    "join": (_join, {"on", "keep", "as", "at", "literal", "missing"}),
    "filter": (_filter, set()),
    "without": (_without, set()),
    "listed": (_listed, {"on", "at", "literal"}),
    "shuffle": (_shuffle, set()),
    "first": (lambda records, step, _root: records[: int(step["first"])], set()),
    "one_line": (_one_line, set()),
    "fill": (_fill, set()),
    "sort": (_sort, {"into", "as"}),
    "numbered": (_numbered, set()),
    "conversation": (_conversation, set()),
    ROTATE: (lambda records, _step, _root: records, set()),
}

EXPECTED = {
    "explode": "the name of a column or a list of names",
    "pair": "a list of objects that say which column gives which field",
    "filter": "an object of columns and values",
    "without": "an object of columns and values",
    "shuffle": "a whole number",
    "first": "a whole number",
    "one_line": "the name of a column",
    "numbered": "the name of a column",
    "conversation": "the name of a column",
    "turns": "the name of a column",
    "fill": "an object of columns and values",
    "sort": "the name of a column",
}
"""What each step is given, for people."""
