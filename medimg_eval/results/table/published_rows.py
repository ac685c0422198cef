"""Rows of published numbers, which stand below a table's own and take part in no rank and no test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.published_numbers import PublishedNumber, published_numbers, same_cases
from medimg_eval.results.runs import listed
from medimg_eval.results.table.groups import all_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.table.cells import Column, Row

PUBLISHED = "published"
"""What follows the model's name, and the status of such a row in the frame."""
INSIDE, OUTSIDE = "in our interval", "not in our interval"


@dataclass(frozen=True)
class PublishedCell:
    """A published number in a column of the table.

    Attributes:
        number: What is printed of it; None where nothing is.
        inside: Of each run of the same model with an interval, whether the number lies within that.
    """

    number: PublishedNumber | None = None
    inside: tuple[bool, ...] = ()

    @property
    def absent(self) -> bool:
        """Whether nothing is published for this column."""
        return self.number is None

    @property
    def verdict(self) -> str:
        """Whether the number lies within our interval, in words; empty where we have none of this model."""
        if not self.inside:
            return ""
        if len(set(self.inside)) == 1:
            return INSIDE if self.inside[0] else OUTSIDE
        return f"in {sum(self.inside)} of our {len(self.inside)} intervals"

    def texts(self, column: Column) -> tuple[str, str]:
        """Returns the number and its interval as this column prints them, with no more digits than the paper."""
        if self.number is None:
            return "", ""
        last = 2 * self.number.rounding * column.scale
        decimals = min(column.decimals, max(0, math.ceil(round(-math.log10(last), 9))))
        value, low, high = (f"{one * column.scale:.{decimals}f}" for one in (self.number.value, *self.number.bounds))
        return value, f"[{low}, {high}]" if self.number.interval else ""


@dataclass(frozen=True)
class PublishedRow:
    """Published numbers of one model, or of one label or group of cases of it; a cell for each column of the table."""

    name: str
    cells: tuple[PublishedCell, ...]
    group: str = ""


def published_rows(
    runs: Sequence[RunScores], columns: Sequence[Column], rows: Sequence[Row], *, by: str, compared: bool
) -> tuple[tuple[PublishedRow, ...], list[str]]:
    """Returns the published numbers that fit into a table, and the footnotes on them.

    A row is what one source prints of a model. A number stands in the column of its metric whose cases are the same,
    or in a divided table in the row of its group. Numbers are those of the newest run of each task.

    Args:
        runs: The runs of the table.
        columns: Its columns.
        rows: Its own rows.
        by: What it is divided by, "" for nothing.
        compared: Whether its intervals are of what papers print: means over cases.
    """
    numbers = {task: _numbers(run) for task, run in _newest(runs).items() if task in {one.task for one in columns}}
    stated = [number for of_task in numbers.values() for number in of_task]
    made, used = [], set()
    for group in dict.fromkeys(row.group for row in rows):
        where = () if group in ("", all_of(by)) else ((by, (group,)),)
        ours = [row for row in rows if row.group == group]
        for model, source in dict.fromkeys((number.model, number.source) for number in stated):
            found = [
                next(
                    (n for n in numbers[c.task] if (n.model, n.source) == (model, source) and _fits(n, c, where)), None
                )
                for c in columns
            ]
            if any(found):
                cells = tuple(_cell(one, place, ours, compared=compared) for place, one in enumerate(found))
                made.append(PublishedRow(_name(model, source, stated), cells, group))
                used |= {one for one in found if one is not None}
    titles = {column.task: column.group for column in columns}
    return tuple(made), list(_notes(numbers, used, titles, compared=compared))


def _newest(runs: Iterable[RunScores]) -> dict[str, RunScores]:
    """Returns the newest run of each task, whose card counts."""
    return {run.task: run for run in sorted(runs, key=lambda run: run.started)}


def _numbers(run: RunScores) -> tuple[PublishedNumber, ...]:
    return published_numbers((run.task_config.get("card") or {}).get("published"), run.task)


def _name(model: str, source: str, stated: Sequence[PublishedNumber]) -> str:
    """Returns the name of a row, which tells the source where a model has several."""
    several = len({number.source for number in stated if number.model == model}) > 1
    return f"{model} ({PUBLISHED}, {source})" if several else f"{model} ({PUBLISHED})"


def _fits(number: PublishedNumber, column: Column, where: tuple[tuple[str, tuple[str, ...]], ...]) -> bool:
    return number.metric == column.metric and same_cases(number.where, (*column.where, *where))


def _cell(number: PublishedNumber | None, place: int, ours: Sequence[Row], *, compared: bool) -> PublishedCell:
    if number is None or not compared:
        return PublishedCell(number)
    cells, wanted = [row.cells[place] for row in ours], _plain(number.model)  # "GPT-4o" and "gpt4o" are the same
    same = [cell for cell in cells if cell.run is not None and _plain(cell.run.name) == wanted]
    return PublishedCell(number, tuple(number.within(cell.low, cell.high) for cell in same if not np.isnan(cell.low)))


def _plain(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def _notes(
    numbers: Mapping[str, Sequence[PublishedNumber]],
    used: set[PublishedNumber],
    titles: Mapping[str, str],
    *,
    compared: bool,
) -> Iterator[str]:
    """Yields what published rows are, where each number is printed, and which tasks have none."""
    if used:
        beside = (
            f'"{INSIDE}" is by its rounding and our run of that model.'
            if compared
            else ("They are not compared with ours, which are means over labels.")
        )
        yield f"Rows marked ({PUBLISHED}) are numbers as their authors print them, neither ranked nor tested; {beside}"
    for task, of_task in numbers.items():
        sources: dict[str, dict[str, None]] = {}
        for one in (number for number in of_task if number in used):
            sources.setdefault("; ".join(filter(None, (one.source, one.note))), {})[one.model] = None
        for source, models in sources.items():
            yield f"{titles[task]}, {PUBLISHED}: {', '.join(models)}: {source}."
        if rest := len(set(of_task) - used):
            yield f"{titles[task]}: {rest} published numbers are of other metrics or cases than this table's."
    if without := [titles[task] for task, of_task in numbers.items() if not of_task]:
        yield f"No published numbers on the card that the newest run holds: {listed(without)}."
