"""Findings and measurements from tables: one column per class or number, or one column of names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from medimg_eval.case import Findings
from medimg_eval.data.records import Entry, Given, Row, given
from medimg_eval.errors import UsageError, invalid, nearest
from medimg_eval.metrics.scores import BETWEEN

POLICIES = {"ignore": math.nan, "zeros": 0.0, "ones": 1.0, "half": 0.5}
"""What a statement becomes under each policy; the CheXpert paper calls them U-Ignore, U-Zeros and U-Ones."""

CHEXPERT = {"1": "present", "0": "absent", "-1": "uncertain", "": "blank"}
"""How CheXpert and MIMIC-CXR write what is said of a class."""


@dataclass
class ClassColumns:
    """One column per class, holding whether it is present, absent, uncertain, or nothing.

    Args:
        columns: the classes' columns, or class -> column.
        uncertain: what an uncertain statement becomes: `ignore` (not judged), `zeros`, `ones`, `half` (0.5, for tasks
            that treat it apart), or class -> one of these with `ignore` for classes it leaves out.
        blank: what an empty cell becomes: the same words.
        words: what cells hold -> `present`, `absent`, `uncertain` or `blank`; numbers are compared as numbers.
        reader: the column of the reader, for tables with one row for each; the truth is then the majority of readers,
            and not known where they are divided evenly.
    """

    columns: Sequence[str] | Mapping[str, str]
    uncertain: str | Mapping[str, str] = "ignore"
    blank: str | Mapping[str, str] = "ignore"
    words: Mapping[str, str] = field(default_factory=lambda: dict(CHEXPERT))
    reader: str = ""

    def __post_init__(self) -> None:
        """Refuses policies that do not exist, and columns that are none."""
        self._columns = _name_mapping(self.columns)
        self._words = {_normalise_label(str(key)): meaning for key, meaning in self.words.items()}
        UsageError.refuse_invalid("statement of a finding", CHEXPERT.values(), *self._words.values())
        for policy in (self.uncertain, self.blank):
            if isinstance(policy, Mapping):
                UsageError.refuse_unknown("a policy names the class", self._columns, *policy)
        self._becomes = {name: self._statements(name) for name in self._columns}

    def reference(self, entry: Entry) -> Given[Findings]:
        """Findings on which a case's records agree, unless by readers."""
        if not self.reader:
            return given(Findings(entry.agreed(self._values)), entry)
        readers: dict[str, dict[str, float]] = {}
        for row in entry.rows:
            name = row.text(self.reader)
            if not name or name in readers:
                raise row.error(
                    f"case {entry.id!r}: reader is invalid: expected another name in column {self.reader!r} "
                    f"of each row, got {name!r}"
                )
            readers[name] = self._values(row)
        return given(Findings({name: _majority_label(readers, name) for name in self._columns}, readers=readers), entry)

    def _values(self, row: Row) -> dict[str, float]:
        return {name: self._value(row, name, column) for name, column in self._columns.items()}

    def _statements(self, name: str) -> dict[str, float]:
        return {
            "present": 1.0,
            "absent": 0.0,
            "uncertain": _policy_value(self.uncertain, name),
            "blank": _policy_value(self.blank, name),
        }

    def _value(self, row: Row, name: str, column: str) -> float:
        meaning = self._words.get(_normalise_label(row.text(column)))
        if meaning is None:
            held = ", ".join(repr(word) for word in self._words)
            raise row.error(f"column {column!r} holds {row.text(column)!r}, expected one of {held}; see `words`")
        return self._becomes[name][meaning]


def _majority_label(readers: Mapping[str, Mapping[str, float]], name: str) -> float:
    """Returns the majority of readers; NaN where tied or silent."""
    values = [value[name] for value in readers.values() if not math.isnan(value[name])]
    present = sum(value > 0.5 for value in values)
    return float(2 * present > len(values)) if 2 * present != len(values) else math.nan


@dataclass
class ClassName:
    """One column with the name of what is present, or several names.

    Args:
        column: the column, or a pattern; a list in a JSON or Parquet table is taken as it is.
        classes: every class, or what the column holds -> class.
        separator: between several names; empty for one name alone.
        none: what the column holds where no class is present.
    """

    column: str
    classes: Sequence[str] | Mapping[str, str]
    separator: str = ""
    none: str | None = None

    def __post_init__(self) -> None:
        """Refuses classes that are none."""
        # Several spellings may mean one class.
        self._classes = _name_mapping(self.classes)
        self._names = list(dict.fromkeys(self._classes.values()))

    def reference(self, entry: Entry) -> Given[Findings]:
        """The findings, on which all records of the case must agree."""
        present = entry.agreed(lambda row: self._present(row, entry))
        return given(Findings({name: float(name in present) for name in self._names}), entry)

    def _present(self, row: Row, entry: Entry) -> list[str]:
        value = row.values.get(self.column)
        if isinstance(value, list):
            names = [str(name).strip() for name in value]
        else:
            text = replace(entry, rows=(row,)).fill(self.column)
            names = [name.strip() for name in (text.split(self.separator) if self.separator else [text])]
        held = [name for name in names if name and name != self.none]
        unknown = next((name for name in held if name not in self._classes), None)
        if unknown is not None or (not held and self.none is None):
            raise row.error(
                f"{self.column!r} names no known class: {unknown or ''!r}{nearest(unknown or '', self._classes)}"
            )
        return sorted({self._classes[name] for name in held})


def _name_mapping(names: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(names, Mapping):
        return {str(key): str(value) for key, value in names.items()}
    if isinstance(names, str) or not names:
        raise UsageError(f"expected a list of classes or columns, got {names!r}")
    return {str(name): str(name) for name in names}


def _policy_value(policy: str | Mapping[str, str], name: str) -> float:
    chosen = policy.get(name, "ignore") if isinstance(policy, Mapping) else policy
    word = chosen.lower().removeprefix("u-")
    if word not in POLICIES:
        raise UsageError(invalid("policy", chosen, POLICIES, like=word))
    return POLICIES[word]


@lru_cache(maxsize=1024)  # large tables hold few words
def _normalise_label(text: str) -> str:
    """The same for `1`, `1.0` and ` 1`."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text.strip()


NOTHING = ("", "nan", "none")
"""What tables write where nothing was measured."""


@dataclass
class NumberColumns:
    """Measurements in columns, of readers in columns or rows.

    Args:
        columns: the measurements' columns, or measurement -> column. Where readers have columns of their own, the
            measurements are `name/reader`, or `name/reader/reading` if one read more than once; `name` alone is then
            the truth, which is otherwise the mean of the readers' means.
        reader: the column of the reader, for tables with one row for each; the rows of a case give `name/reader`.
        reading: the column that tells apart the readings of one reader, which then are `name/reader/reading`.
    """

    columns: Sequence[str] | Mapping[str, str]
    reader: str = ""
    reading: str = ""

    def __post_init__(self) -> None:
        """Refuses columns that are none, and readers that are named twice."""
        if isinstance(self.columns, str) or not self.columns:
            raise UsageError(f"expected a list of columns of numbers, got {self.columns!r}")
        named = self.columns.items() if isinstance(self.columns, Mapping) else [(name, name) for name in self.columns]
        self._columns = {str(name): str(column) for name, column in named}
        wrong = next((name for name in self._columns if not all(parts := name.split(BETWEEN)) or len(parts) > 3), None)
        if wrong is not None:
            raise UsageError(f"expected `name`, `name/reader` or `name/reader/reading` for a number, got {wrong!r}")
        if self.reading and not self.reader:
            raise UsageError("a column of readings needs `reader`, the column of who read")
        split = next((name for name in self._columns if self.reader and BETWEEN in name), None)
        if split is not None:
            raise UsageError(f"readers stand either in the column {self.reader!r} or in names such as {split!r}")

    def reference(self, entry: Entry) -> Given[Findings]:
        """Numbers of readers' rows, or those a case's rows share."""
        if not self.reader:
            return given(Findings(entry.agreed(self._numbers)), entry)
        values: dict[str, float] = {}
        for row in entry.rows:
            numbers = self._numbers(row)
            if all(math.isnan(value) for value in numbers.values()):
                continue
            reader = self._reader(row)
            twice = next((name for name in numbers if name + reader in values), None)
            if twice is not None:
                raise row.error(
                    f"case {entry.id!r} has {twice + reader!r} in an earlier row as well; "
                    f"{'correct' if self.reading else 'set `reading` to'} the column that numbers the readings"
                )
            values |= {name + reader: value for name, value in numbers.items()}
        return given(Findings(values), entry)

    def _reader(self, row: Row) -> str:
        """Suffix of the name of a number: `/reader`, or `/reader/reading`."""
        parts = {column: row.text(column) for column in (self.reader, self.reading) if column}
        for column, text in parts.items():
            if not text or BETWEEN in text:
                raise row.error(f"column {column!r} holds {text!r:.60}, expected a name without {BETWEEN!r}")
        return "".join(BETWEEN + text for text in parts.values())

    def _numbers(self, row: Row) -> dict[str, float]:
        return {name: self._number(row, column) for name, column in self._columns.items()}

    def _number(self, row: Row, column: str) -> float:
        if row.text(column).lower() in NOTHING:
            return math.nan
        number = row.number(column)
        if math.isinf(number):
            raise row.error(f"column {column!r} holds {number}, expected a finite number, or nothing")
        return number
