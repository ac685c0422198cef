"""Published numbers of a benchmark as the card of its task states them: whose, of what, and where they are printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

Where = tuple[tuple[str, tuple[str, ...]], ...]
"""Attributes of cases with the values that they may have; all of them must hold."""

_NEEDED = ("model", "metric", "source")
_KEYS = (*_NEEDED, "number", "by", "where", "scale", "n", "interval", "note")


@dataclass(frozen=True)
class PublishedNumber:
    """One number that a paper, or the authors' repository, prints.

    Attributes:
        model: Whose it is, by the name that our run of the same model has.
        metric: The metric of ours that is defined as the paper's is.
        number: As it is printed, since its last digit says how far it is rounded.
        source: Where it is printed.
        where: Which cases it is of; () for all.
        scale: What a value of ours is multiplied by: 100 where percents are printed.
        n: Cases that it rests on; 0 where that is not said.
        interval: Its bounds as they are printed; () without any.
        note: In what it differs from what our metric and task compute; "" for nothing known.
    """

    model: str
    metric: str
    number: str
    source: str
    where: Where = ()
    scale: float = 1.0
    n: int = 0
    interval: tuple[str, ...] = ()
    note: str = ""

    @property
    def value(self) -> float:
        """The number on our scale."""
        return float(self.number) / self.scale

    @property
    def bounds(self) -> tuple[float, float]:
        """Its interval on our scale, NaN without one."""
        low, high = (float(bound) / self.scale for bound in self.interval or ("nan", "nan"))
        return low, high

    @property
    def rounding(self) -> float:
        """Half of its last digit, on our scale."""
        return half_digit(self.number) / self.scale

    def within(self, low: float, high: float) -> bool:
        """Returns whether it lies between two bounds on our scale, by its rounding."""
        slack = self.rounding * (1 + 1e-9)
        return low - slack <= self.value <= high + slack

    def same_as(self, other: PublishedNumber) -> bool:
        """Returns whether both state the same model, metric, cases and source."""
        mine, theirs = ((number.model, number.metric, number.source) for number in (self, other))
        return mine == theirs and same_cases(self.where, other.where)

    def __str__(self) -> str:
        cases = ", ".join(f"{attribute}={' or '.join(values)}" for attribute, values in self.where)
        parts = [f"{self.model}: {self.metric} {self.number}"]
        parts += [f"[{', '.join(self.interval)}]"] if self.interval else []
        parts += [f"({cases})"] if cases else []
        parts += [f"n = {self.n:,}"] if self.n else []
        return f"{' '.join(parts)}; {'; '.join(filter(None, (self.note, self.source)))}"


def half_digit(printed: str) -> float:
    """Returns half of a printed number's last digit: 0.005 of "17.11"."""
    digits, _, power = printed.lower().partition("e")
    return float(0.5 * 10.0 ** (int(power or 0) - len(digits.partition(".")[2])))


def cases_where(stated: Any, place: str) -> Where:
    """Parses a case condition: attribute: value, or list of values.

    Raises:
        UsageError: It is no mapping.
    """
    if not isinstance(stated, Mapping):
        raise UsageError(f"{place}: expected `where` to be attribute: value, got {stated!r}")
    return tuple(
        (str(attribute), tuple(map(str, wanted)) if isinstance(wanted, list | tuple) else (str(wanted),))
        for attribute, wanted in stated.items()
    )


def same_cases(where: Where, other: Where) -> bool:
    """Returns whether two conditions select the same cases, ignoring order."""
    return {(name, frozenset(values)) for name, values in where} == {
        (name, frozenset(conditions)) for name, conditions in other
    }


def published_numbers(stated: Any, task: str) -> tuple[PublishedNumber, ...]:
    """Parses `published` of a task's card into PublishedNumber entries.

    One with `by`, attribute: {value: number}, states a number of each group of cases. None and a text, which tells
    people in words, state none.

    Raises:
        UsageError: An entry lacks a key or has a strange one, or a value of the wrong kind, or a number stands twice.
    """
    if stated is None or isinstance(stated, str):
        return ()
    if not isinstance(stated, list | tuple):
        raise UsageError(f"task {task!r}: expected card.published to be a list of numbers, got {stated!r:.80}")
    numbers: list[PublishedNumber] = []
    for position, entry in enumerate(stated, 1):
        for number in _of_entry(entry, where := f"task {task!r}, number {position} of card.published"):
            if any(number.same_as(previous) for previous in numbers):
                raise UsageError(f"{where}: {number.model}, {number.metric} is stated twice from the same source")
            numbers.append(number)
    return tuple(numbers)


def _of_entry(entry: Any, place: str) -> Iterator[PublishedNumber]:
    if not isinstance(entry, Mapping):
        raise UsageError(f"{place}: expected keys such as `model` and `number`, got {entry!r:.80}")
    UsageError.refuse_invalid(f"{place}: key", _KEYS, *entry)
    if lacking := [key for key in _NEEDED if not (isinstance(entry.get(key), str) and entry[key].strip())]:
        raise UsageError(f"{place}: `{lacking[0]}` is {entry.get(lacking[0])!r}; expected a text")
    if "number" not in entry and "by" not in entry:
        raise UsageError(f"{place}: has no `number`, nor a number of each group in `by`")
    model, metric, source = (entry[key] for key in _NEEDED)
    where, note = cases_where(entry.get("where") or {}, place), str(entry.get("note") or "")
    of_all = PublishedNumber(model, metric, "", source, where, _read_scale(entry, place), note=note)
    if "number" in entry:
        n, interval = _read_case_count(entry, place), _read_interval(entry, place)
        yield replace(of_all, number=_format_number(entry["number"], f"{place}: `number`"), n=n, interval=interval)
    groups = entry.get("by") or {}
    if not isinstance(groups, Mapping) or not all(isinstance(numbers, Mapping) for numbers in groups.values()):
        raise UsageError(f"{place}: expected `by` to be attribute: {{value: number}}, got {groups!r:.80}")
    for attribute, numbers in groups.items():
        for value, number in numbers.items():
            of_group = (*where, (str(attribute), (str(value),)))
            yield replace(of_all, number=_format_number(number, f"{place}: {attribute}={value}"), where=of_group)


def _format_number(number: Any, place: str) -> str:
    """A number as a text, of which every digit is kept."""
    if isinstance(number, str):
        try:
            if math.isfinite(float(number)):
                return number
        except ValueError:
            pass
    raise UsageError(f'{place} is {number!r}; expected a number in quotes, as it is printed, such as "0.50"')


def _read_scale(entry: Mapping[str, Any], place: str) -> float:
    scale = entry.get("scale", 1)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not (math.isfinite(scale) and scale > 0):
        raise UsageError(f"{place}: `scale` is {scale!r}; expected a number above 0, such as 100 of percents")
    return float(scale)


def _read_case_count(entry: Mapping[str, Any], place: str) -> int:
    n = entry.get("n", 0)
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise UsageError(f"{place}: `n` is {n!r}; expected the number of cases, or leave it out")
    return n


def _read_interval(entry: Mapping[str, Any], place: str) -> tuple[str, ...]:
    interval = entry.get("interval")
    if interval is None:
        return ()
    if not isinstance(interval, list | tuple) or len(interval) != 2:
        raise UsageError(f"{place}: `interval` is {interval!r}; expected two bounds in quotes, as they are printed")
    low, high = (_format_number(bound, f"{place}: a bound of `interval`") for bound in interval)
    if float(low) > float(high):
        raise UsageError(f"{place}: `interval` goes from {low} to {high}; write the lower bound first")
    return (low, high)
