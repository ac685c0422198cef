"""A record that a question is made of: values reached by name, by path into what is nested, or told by its file."""

from __future__ import annotations

import ast
import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medimg_eval.data.questions.cells import Cell
from medimg_eval.data.records import FIELD, Row
from medimg_eval.errors import CaseError, UserError, nearest

MISSING = object()
"""What a record says of a field that it has not."""

SHOWN = 1000
"""Records whose fields are looked through for the name that was meant."""


class Repeated(dict[str, Any]):
    """JSON object with repeated keys; `pairs` holds all."""

    pairs: list[tuple[str, Any]]


_NO_KEYS: Mapping[str, Any] = {}


class About(Mapping[str, Any]):
    """Facts shared by a file's records, which keep numbers only.

    Args:
        file: what is the same of all records of a file.
        name: of the file, with which `row` begins.
        index: of the record, from 0.
        keys: of the objects that it stands in.
    """

    __slots__ = ("_file", "_index", "_keys", "_name")
    OWN = ("row_number", "row_index", "row")

    def __init__(self, file: Mapping[str, Any], name: str, index: int, keys: Mapping[str, Any]) -> None:
        self._file, self._name, self._index, self._keys = file, name, index, keys or _NO_KEYS

    def __getitem__(self, name: str) -> Any:
        """Raises KeyError for what the file does not tell."""
        if name in self._keys:
            return self._keys[name]
        if name == "row_number":
            return self._index + 1
        if name == "row_index":
            return self._index
        return f"{self._name}-{self._index + 1}" if name == "row" else self._file[name]

    def __contains__(self, name: object) -> bool:
        """Whether the file tells it."""
        return name in self.OWN or name in self._file or name in self._keys

    def __iter__(self) -> Iterator[str]:
        """Names from a file's, its record's and enclosing objects."""
        return iter(dict.fromkeys([*self._file, *self.OWN, *self._keys]))

    def __len__(self) -> int:
        """How many names there are."""
        return len(list(iter(self)))


@dataclass(frozen=True, slots=True)
class Record(Row):
    """One record, before it is a question.

    Attributes:
        about: what its file tells: `path`, `folder` and `stem` of the file, `row_number` (from 1) and `row_index` (from
            0) in it, `row` (stem and number), `key1`, ... of the objects it stands in, `split`. A column of the same
            name goes first.
        fault: what is wrong with it, in words; empty for a sound record.
    """

    about: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""

    def error(self, message: str) -> CaseError:
        """Error of one record, starting with file and place."""
        return CaseError(f"{self.path}, {self.place}: {message}")

    def said(self, error: CaseError) -> str:
        """Message of an error of this record, without the place."""
        return str(error).removeprefix(f"{self.path}, {self.place}: ")

    def find(self, name: str) -> Any:
        """The value of a field, or `MISSING`.

        A field may be a path such as `actions.0.bbox` or `images.*.file`; `one|other` is the first that the record has.
        """
        if name in self.values:
            return self.values[name]
        if name in self.about:
            return self.about[name]
        parts = name.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            if (first := ".".join(parts[:cut])) in self.values:
                return _value_within(self.values[first], parts[cut:])
        if "|" in name:
            return next((value for either in name.split("|") if (value := self.find(either)) is not MISSING), MISSING)
        return MISSING

    def value(self, column: str) -> Any:
        """Field value; None where this record lacks it."""
        value = self.find(column)
        return None if value is MISSING else value

    def text(self, column: str) -> str:
        """Field text, stripped; "" for nothing, lists joined by `", "`."""
        return as_text(self.value(column))

    def place_alone(self) -> Record:
        """Copy without what the record holds, for messages."""
        return Record(self.path, self.place, _NO_KEYS, _NO_KEYS)

    def with_values(self, /, **more: Any) -> Record:
        """Copy of the record with other values."""
        return replace(self, values={**self.values, **more})


def as_text(value: Any) -> str:
    """Text of a value; "" for None or NaN, lists joined by `", "`."""
    if isinstance(value, str):
        return value.strip()
    if said_nothing(value):
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(as_text(item) for item in value)
    if isinstance(value, Cell):
        return value.text().strip()
    return str(value)


def said_nothing(value: Any) -> bool:
    """Whether a value is missing: None, NaN, blank, or `nan`."""
    if isinstance(value, str):
        return value.strip() in ("", "nan", "NaN")
    return value is None or value is MISSING or (isinstance(value, float) and math.isnan(value))


def _value_within(value: Any, path: Sequence[str]) -> Any:
    for index, part in enumerate(path):
        if isinstance(value, Cell):
            return value.within(".".join(path[index:]))
        if part == "*" and isinstance(value, list):
            inner = [_value_within(item, path[index + 1 :]) for item in value]
            return [item for item in inner if item is not MISSING]
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.lstrip("-").isdigit() and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            return MISSING
    return value


def literal(value: Any) -> Any:
    """JSON or Python literal of a text; other values unchanged.

    Raises ValueError for a text that is neither.
    """
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of backslashes, which are meant as they stand
                return ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            raise ValueError(f"{value!r:.60} is neither a JSON nor a Python literal") from error


def bracketed(value: Any) -> Any:
    """Literal of a bracketed text; other values unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return literal(value)
        except ValueError:
            return value
    return value


def names_in(pattern: Any) -> list[str]:
    """Fields of a pattern; without fields it names one."""
    if not isinstance(pattern, str) or not pattern:
        return []
    return [match[1] for match in FIELD.finditer(pattern)] if "{" in pattern else [pattern]


def check_names(names: Iterable[tuple[str, str]], records: Sequence[Record], known: Sequence[str] = ()) -> None:
    """Refuses the name of a field that no record has.

    Names come with the key of the config that gives them; `known` are no fields of records. Raises UserError, which
    offers the nearest name.
    """
    sound = [record for record in records if not record.fault]
    for key, name in dict.fromkeys(names):
        if sound and name not in known and all(record.find(name) is MISSING for record in sound):
            there = set(_field_names(sound[:SHOWN])) | set(known)
            files = ", ".join(dict.fromkeys(str(record.path) for record in sound[:3]))
            raise UserError(f"{files}: no record has the field {name!r} of task.layout.{key}{nearest(name, there)}")


def _field_names(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        for name, value in record.values.items():
            yield name
            if isinstance(value, Mapping):
                yield from (f"{name}.{inner}" for inner in value)
        yield from record.about
