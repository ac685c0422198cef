"""What is made of records before they are questions: lists taken apart, tables joined, some left out."""

from __future__ import annotations

import json
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
    `{sort: ...}`, `{numbered: ...}`, `{conversation: ...}`, `{tagged: ...}`. Raises UsageError where there is no such
    step, or a step has no such key, UserError where one names a field that no record has, or a file that is missing.
    """
    expanded_records = list(records)
    for stated in steps:
        if stated == ROTATE:
            continue
        if not isinstance(stated, Mapping) or not stated:
            raise UsageError(f"task.layout.expand holds {stated!r}, expected a step such as {{explode: column}}")
        step = {"on" if key is True else key: value for key, value in stated.items()}  # YAML's old word for true
        name = next((key for key in step if key in STEPS), None)
        if name is None:
            raise UsageError(f"task.layout.expand knows no step {next(iter(step))!r}{nearest(next(iter(step)), STEPS)}")
        take, keys = STEPS[name]
        unknown = next((key for key in step if key != name and key not in keys), None)
        if unknown is not None:
            raise UsageError(f"task.layout.expand: {name} has no key {unknown!r}{nearest(unknown, keys)}")
        if not _is_meant(name, step[name]):
            raise UsageError(f"task.layout.expand: {name} is {step[name]!r:.60}, expected {EXPECTED[name]}")
        expanded_records = take(expanded_records, step, root)
    return expanded_records


def _is_meant(name: str, given: Any) -> bool:
    """Whether a step's input has its form; files are checked later."""
    if name in ("filter", "without", "fill"):
        return isinstance(given, Mapping) and bool(given)
    if name in ("shuffle", "first"):
        return isinstance(given, int) and given >= 0
    if name in ("one_line", "numbered", "conversation", "turns", "sort", "tagged"):
        return isinstance(given, str) and bool(given)
    if name == "pair":
        return isinstance(given, list | tuple) and bool(given) and all(isinstance(item, Mapping) for item in given)
    if name == "explode":
        several = [given] if isinstance(given, str) else given
        return isinstance(several, list | tuple) and bool(several) and all(isinstance(item, str) for item in several)
    return True


def _expand_each(records: Sequence[Record], make: Callable[[Record], Sequence[Record]]) -> list[Record]:
    """Records a step makes of each record, numbered by `row`."""
    expanded: list[Record] = []
    for record in records:
        made_records = [record] if record.fault else make(record)
        if len(made_records) > 1:
            rows = [f"{record.about['row']}-{number}" for number in range(1, len(made_records) + 1)]
            made_records = [
                replace(made_record, about={**made_record.about, "row": row})
                for made_record, row in zip(made_records, rows, strict=True)
            ]
        expanded += made_records
    return expanded


def _check_patterns(records: Sequence[Record], patterns: Sequence[str]) -> None:
    check_names([("expand", name) for pattern in patterns for name in names_in(pattern)], records)


def _explode_list(records: list[Record], step: Step, _root: Path) -> list[Record]:
    columns = [step["explode"]] if isinstance(step["explode"], str) else list(step["explode"])
    _check_patterns(records, columns)
    own = columns[0]

    def make(record: Record) -> list[Record]:
        items = record.find(own)
        if said_nothing(items) or items == []:
            return []
        if not isinstance(items, list | tuple):
            return [record.with_values(**{f"{own}_number": 1, f"{own}_index": 0})]
        lists = {column: record.find(column) for column in columns}
        as_long = {
            name for name, items_ in lists.items() if isinstance(items_, list | tuple) and len(items_) == len(items)
        }
        wrong = next((column for column in lists if column not in as_long), None)
        if wrong is not None:
            return [replace(record, fault=f"columns {own!r} and {wrong!r} are no lists of the same length")]
        return [
            record.with_values(
                **{column: items[index] for column, items in lists.items()},
                **{f"{own}_number": index + 1, f"{own}_index": index},
            )
            for index in range(len(items))
        ]

    return _expand_each(records, make)


def _split_turns(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """Assistant turns of a session, each with its past."""
    column = str(step["turns"])
    _check_patterns(records, [column])

    def make(record: Record) -> list[Record]:
        messages = record.find(column)
        if not isinstance(messages, list | tuple) or not all(isinstance(message, Mapping) for message in messages):
            return [replace(record, fault=f"column {column!r} is no list of messages")]
        indices = [index for index, message in enumerate(messages) if message.get("role") == "assistant"]
        return [
            record.with_values(history=list(messages[:index]), expected=dict(messages[index]), turn=number)
            for number, index in enumerate(indices, start=1)
        ]

    return _expand_each(records, make)


def _pair_options(records: list[Record], step: Step, _root: Path) -> list[Record]:
    members = step["pair"]
    _check_patterns(records, [column for member in members for column in member.values()])

    def make(record: Record) -> list[Record]:
        return [
            record.with_values(**{"member": number} | {name: record.value(column) for name, column in member.items()})
            for number, member in enumerate(members, start=1)
        ]

    return _expand_each(records, make)


def _cross_values(records: list[Record], step: Step, root: Path) -> list[Record]:
    stated = step["cross"]
    name = step.get("as", "item")
    if isinstance(stated, list | tuple) and not all(isinstance(item, str) and Path(item).suffix for item in stated):
        other_values: list[Any] = list(stated)
    else:
        source = source_of(stated, "expand.cross", at=step.get("at", ""), literal=step.get("literal", ()))
        other_values = [{**record.about, **record.values} for record in source.read(root)]
    return _expand_each(records, lambda record: [record.with_values(**{name: values}) for values in other_values])


@dataclass(frozen=True)
class _Keys:
    """Join keys of two files: patterns or columns."""

    own: tuple[str, ...]
    other: tuple[str, ...]

    def of(self, record: Record, patterns: Sequence[str]) -> tuple[str, ...]:
        return tuple(record.fill(pattern) for pattern in patterns)


def _join_keys(step: Step) -> _Keys:
    on = step.get("on")
    if isinstance(on, Mapping) and on:
        return _Keys(tuple(map(str, on)), tuple(map(str, on.values())))
    names = (on,) if isinstance(on, str) else tuple(on or ())
    if not names:
        raise UsageError("task.layout.expand: `on` names the columns that must be the same, and is not set")
    return _Keys(names, names)


def _read_other(step: Step, name: str, root: Path, keep: Sequence[str] | None) -> tuple[_Keys, list[Record]]:
    keys = _join_keys(step)
    source: Source = source_of(step[name], f"expand.{name}", at=step.get("at", ""), literal=step.get("literal", ()))
    wanted = None if keep is None else {*keep, *(column for pattern in keys.other for column in names_in(pattern))}
    other_records = []
    for record in source.read(root):
        held = record.values
        if wanted is not None:  # a table of reports may be many times as large as what is asked for
            held = {column: value for column in wanted if (value := record.find(column)) is not MISSING}
        other_records.append(replace(record, values=held))
    _check_patterns(other_records, [*keys.other, *(keep or ())])
    return keys, [record for record in other_records if not record.fault]


def _join_records(records: list[Record], step: Step, root: Path) -> list[Record]:
    keys, other_records = _read_other(step, "join", root, step.get("keep"))
    _check_patterns(records, keys.own)
    by_key: dict[tuple[str, ...], list[Record]] = {}
    for other_record in other_records:
        with suppress(CaseError):  # a key that does not fit its pattern is nobody's
            by_key.setdefault(keys.of(other_record, keys.other), []).append(other_record)
    missing = step.get("missing", "fail")
    UsageError.refuse_invalid("task.layout.expand: missing", ("fail", "drop", "keep"), missing)

    def make(record: Record) -> list[Record]:
        try:
            key = keys.of(record, keys.own)
        except CaseError as error:
            return [replace(record, fault=record.said(error))]
        there = by_key.get(key, [])
        named = ", ".join(key)
        if there and any(_kept_columns(record, step) != _kept_columns(there[0], step) for record in there):
            twice = f"{there[0].place} and {there[1].place} of {there[0].path}"
            return [replace(record, fault=f"{named!r} stands twice, in {twice}; mend one of them")]
        if there:
            kept_values = _kept_columns(there[0], step)
            joined = {step["as"]: kept_values} if "as" in step else {**kept_values, **record.values}
            return [record.with_values(**joined)]
        if missing == "fail":
            return [replace(record, fault=f"{named!r} is not found in {step['join']}; complete that file")]
        return [] if missing == "drop" else [record]

    return _expand_each(records, make)


def _kept_columns(other: Record, step: Step) -> dict[str, Any]:
    return {name: other.values.get(name) for name in step["keep"]} if "keep" in step else dict(other.values)


def _list_records(records: list[Record], step: Step, root: Path) -> list[Record]:
    keys, other_records = _read_other(step, "listed", root, ())
    _check_patterns(records, keys.own)
    wanted = set()
    for other_record in other_records:
        with suppress(CaseError):
            wanted.add(keys.of(other_record, keys.other))

    def make(record: Record) -> list[Record]:
        try:
            return [record] if keys.of(record, keys.own) in wanted else []
        except CaseError as error:
            return [replace(record, fault=record.said(error))]

    return _expand_each(records, make)


def _matches_condition(condition: Mapping[str, Any], record: Record) -> bool:
    for column, value in condition.items():
        several = value if isinstance(value, list | tuple) else [value]
        wanted = {as_text(record.about.get("split")) if item == "{split}" else as_text(item) for item in several}
        value_ = record.value(column)
        texts = {as_text(item) for item in value_} if isinstance(value_, list) else {as_text(value_)}
        if not wanted & texts:
            return False
    return True


def _filter_records(records: list[Record], step: Step, _root: Path) -> list[Record]:
    _check_patterns(records, list(step["filter"]))
    return [record for record in records if record.fault or _matches_condition(step["filter"], record)]


def _drop_records(records: list[Record], step: Step, _root: Path) -> list[Record]:
    _check_patterns(records, list(step["without"]))
    return [record for record in records if record.fault or not _matches_condition(step["without"], record)]


def _shuffle_records(records: list[Record], step: Step, _root: Path) -> list[Record]:
    # The order that the `datasets` library gives for the same seed.
    return [records[index] for index in np.random.default_rng(int(step["shuffle"])).permutation(len(records))]


def _one_line(records: list[Record], step: Step, _root: Path) -> list[Record]:
    column = step["one_line"]
    _check_patterns(records, [column])

    def make(record: Record) -> list[Record]:
        text = record.value(column)
        return [record.with_values(**{column: text.replace("\n", " ")} if isinstance(text, str) else {})]

    return _expand_each(records, make)


def _fill_columns(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """Fills empty or missing columns."""
    stated = step["fill"]

    def make(record: Record) -> list[Record]:
        empty = {column: value for column, value in stated.items() if said_nothing(record.find(column))}
        return [record.with_values(**empty)]

    return _expand_each(records, make)


def _sort_values(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """Group of a column's value; ungrouped values stay."""
    column, groups = str(step["sort"]), step.get("into")
    if not isinstance(groups, Mapping) or not groups:
        raise UsageError("task.layout.expand: sort needs `into`, an object of groups and the values that each holds")
    group_of = {_fold_text(value): str(group) for group, values in groups.items() for value in values}
    _check_patterns(records, [column])

    def make(record: Record) -> list[Record]:
        value = record.find(column)
        group = "" if said_nothing(value) else group_of.get(_fold_text(value), as_text(value))
        return [record.with_values(**{str(step.get("as", f"{column}_group")): group})]

    return _expand_each(records, make)


def _number_items(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """Numbers a list's items as lines in column `numbered`."""
    column = step["numbered"]
    _check_patterns(records, [column])

    def make(record: Record) -> list[Record]:
        items = record.value(column)
        if not isinstance(items, list | tuple):
            return [replace(record, fault=f"{column} is {items!r:.60}, expected a list to be numbered")]
        lines = (f"{number}. {' '.join(as_text(item).split())}" for number, item in enumerate(items, 1))
        return [record.with_values(numbered="\n".join(lines))]

    return _expand_each(records, make)


def _fold_text(value: Any) -> str:
    return " ".join(as_text(value).casefold().replace("_", " ").replace("-", " ").split())


def _read_conversation(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """Reads turns as `history`, and as text `conversation`."""
    column = str(step["conversation"])
    _check_patterns(records, [column])

    def make(record: Record) -> list[Record]:
        turns = record.value(column)
        if not isinstance(turns, list | tuple) or not all(isinstance(turn, Mapping) for turn in turns) or not turns:
            return [replace(record, fault=f"column {column!r} is no list of turns")]
        text = "\n\n".join(f"{turn.get('role')}: {turn.get('content')}" for turn in turns)
        return [record.with_values(history=[dict(turn) for turn in turns], conversation=text)]

    return _expand_each(records, make)


def _read_tags(records: list[Record], step: Step, _root: Path) -> list[Record]:
    """Joins tokens as `text`, and reads their BIO tags as `entities`."""
    column, words = str(step["tagged"]), str(step.get("tokens", "tokens"))
    names = step.get("names", ())
    _check_patterns(records, [column, words])

    def make(record: Record) -> list[Record]:
        tags, tokens = record.value(column), record.value(words)
        try:
            named = [names[tag] if isinstance(tag, int) else str(tag) for tag in tags]
            entities = _tagged_spans(tokens, named)
        except (TypeError, ValueError, IndexError) as error:
            return [replace(record, fault=f"{column} and {words} are no tags of tokens: {error}")]
        return [record.with_values(text=" ".join(tokens), entities=json.dumps({"entities": entities}))]

    return _expand_each(records, make)


def _tagged_spans(tokens: Sequence[str], tags: Sequence[str]) -> list[dict[str, Any]]:
    """Spans of BIO tags in the tokens joined by blanks; I- after another type begins one."""
    spans: list[dict[str, Any]] = []
    start, before = 0, "O"
    for token, tag in zip(tokens, tags, strict=True):
        mark, _, kind = tag.partition("-")
        end = start + len(token)
        if mark == "I" and before.partition("-")[2] == kind:
            spans[-1] |= {"end": end, "text": f"{spans[-1]['text']} {token}"}
        elif mark in ("B", "I"):
            spans.append({"text": token, "type": kind, "start": start, "end": end})
        elif tag != "O":
            raise ValueError(f"expected O, B-TYPE or I-TYPE, got {tag!r}")
        start, before = end + 1, tag
    return spans


STEPS: Mapping[str, tuple[Callable[[list[Record], Step, Path], list[Record]], set[str]]] = {
    "explode": (_explode_list, set()),
    "turns": (_split_turns, set()),
    "pair": (_pair_options, set()),
    "cross": (_cross_values, {"as", "at", "literal"}),
    "join": (_join_records, {"on", "keep", "as", "at", "literal", "missing"}),
    "filter": (_filter_records, set()),
    "without": (_drop_records, set()),
    "listed": (_list_records, {"on", "at", "literal"}),
    "shuffle": (_shuffle_records, set()),
    "first": (lambda records, step, _root: records[: int(step["first"])], set()),
    "one_line": (_one_line, set()),
    "fill": (_fill_columns, set()),
    "sort": (_sort_values, {"into", "as"}),
    "numbered": (_number_items, set()),
    "conversation": (_read_conversation, set()),
    "tagged": (_read_tags, {"tokens", "names"}),
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
    "tagged": "the name of a column",
    "fill": "an object of columns and values",
    "sort": "the name of a column",
}
"""What each step is given, for people."""
