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
    from collections.abc import Iterator, Mapping, Sequence

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
        """Words on whether a published number is within our interval.

        Empty where we have none of this model.
        """
        if not self.inside:
            return ""
        if len(set(self.inside)) == 1:
            return INSIDE if self.inside[0] else OUTSIDE
        return f"in {sum(self.inside)} of our {len(self.inside)} intervals"

    def texts(self, column: Column) -> tuple[str, str]:
        """Returns number and interval with the paper's digits at most."""
        if self.number is None:
            return "", ""
        last = 2 * self.number.rounding * column.scale
        decimals = min(column.decimals, max(0, math.ceil(round(-math.log10(last), 9))))
        value, low, high = (
            f"{number * column.scale:.{decimals}f}" for number in (self.number.value, *self.number.bounds)
        )
        return value, f"[{low}, {high}]" if self.number.interval else ""


@dataclass(frozen=True)
class PublishedRow:
    """Published numbers of a model, label or group, by column."""

    name: str
    cells: tuple[PublishedCell, ...]
    group: str = ""


def published_rows(
    runs: Sequence[RunScores], columns: Sequence[Column], rows: Sequence[Row], *, by: str, compared: bool
) -> tuple[tuple[PublishedRow, ...], list[str]]:
    """Returns published numbers fitting a table, and footnotes.

    A row is what one source prints of a model. A number stands in the column of its metric whose cases are the same,
    or in a divided table in the row of its group. Numbers are those of the newest run of each task.

    Args:
        runs: The runs of the table.
        columns: Its columns.
        rows: Its own rows.
        by: What it is divided by, "" for nothing.
        compared: Whether its intervals are of what papers print: means over cases.
    """
    newest = {run.task: run for run in sorted(runs, key=lambda run: run.started)}
    numbers = {
        task: published_numbers((run.task_config.get("card") or {}).get("published"), task)
        for task, run in newest.items()
        if task in {column.task for column in columns}
    }
    stated = [number for of_task in numbers.values() for number in of_task]
    printed_rows, used = [], set()
    for group in dict.fromkeys(row.group for row in rows):
        where = () if group in ("", all_of(by)) else ((by, (group,)),)
        ours = [row for row in rows if row.group == group]
        for model, source in dict.fromkeys((number.model, number.source) for number in stated):
            matches = [
                next(
                    (
                        n
                        for n in numbers[c.task]
                        if (n.model, n.source, n.metric) == (model, source, c.metric)
                        and same_cases(n.where, (*c.where, *where))
                    ),
                    None,
                )
                for c in columns
            ]
            if any(matches):
                cells = tuple(
                    _published_cell(number, index, ours, compared=compared) for index, number in enumerate(matches)
                )
                printed_rows.append(PublishedRow(_row_name(model, source, stated), cells, group))
                used |= {number for number in matches if number is not None}
    titles = {column.task: column.group for column in columns}
    return tuple(printed_rows), list(_published_notes(numbers, used, titles, compared=compared))


def _row_name(model: str, source: str, stated: Sequence[PublishedNumber]) -> str:
    """Returns a row's name, with source where a model has several."""
    several = len({number.source for number in stated if number.model == model}) > 1
    return f"{model} ({PUBLISHED}, {source})" if several else f"{model} ({PUBLISHED})"


def _published_cell(
    number: PublishedNumber | None, place: int, ours: Sequence[Row], *, compared: bool
) -> PublishedCell:
    if number is None or not compared:
        return PublishedCell(number)
    cells, wanted = [row.cells[place] for row in ours], _plain_name(number.model)  # "GPT-4o" and "gpt4o" are the same
    same_model = [cell for cell in cells if cell.run is not None and _plain_name(cell.run.name) == wanted]
    return PublishedCell(
        number, tuple(number.within(cell.low, cell.high) for cell in same_model if not np.isnan(cell.low))
    )


def _plain_name(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def _published_notes(
    numbers: Mapping[str, Sequence[PublishedNumber]],
    used: set[PublishedNumber],
    titles: Mapping[str, str],
    *,
    compared: bool,
) -> Iterator[str]:
    """Yields sources of published rows, and tasks without."""
    if used:
        remark = (
            f'"{INSIDE}" is by its rounding and our run of that model.'
            if compared
            else ("They are not compared with ours, which are means over labels.")
        )
        yield f"Rows marked ({PUBLISHED}) are numbers as their authors print them, neither ranked nor tested; {remark}"
    for task, of_task in numbers.items():
        sources: dict[str, dict[str, None]] = {}
        for number in (number for number in of_task if number in used):
            sources.setdefault("; ".join(filter(None, (number.source, number.note))), {})[number.model] = None
        for source, models in sources.items():
            yield f"{titles[task]}, {PUBLISHED}: {', '.join(models)}: {source}."
        if unused := len(set(of_task) - used):
            yield f"{titles[task]}: {unused} published numbers are of other metrics or cases than this table's."
    if without := [titles[task] for task, of_task in numbers.items() if not of_task]:
        yield f"No published numbers on the card that the newest run holds: {listed(without)}."
