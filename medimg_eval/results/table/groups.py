"""Rows of a table that is divided by label or by an attribute of the cases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.errors import UsageError, nearest
from medimg_eval.results.runs import CONDITION, LABEL, UNKNOWN, Part, attribute_names, crossed_attributes, is_set
from medimg_eval.results.statistics import NONE, PERCENTILE, SMALLEST, DisparitySettings, gap_between
from medimg_eval.results.table.cells import Cell, Column, Row, Settings, make_cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medimg_eval.results.runs import RunScores

SMALL = SMALLEST
"""A group of fewer cases is flagged, and has no part in gaps and tests."""
GAP = "gap (max - min)"


def all_of(by: str) -> str:
    """Returns what the group is called that holds every case and label."""
    if by == CONDITION:
        return "as published"
    return "all labels" if by == LABEL else "all cases"


def divided(
    columns: Sequence[Column],
    named: Mapping[str, Mapping[str, RunScores]],
    whole: Sequence[Row],
    *,
    by: str,
    settings: Settings,
) -> list[Row]:
    """Returns the rows of a divided table.

    Division by label has a block per label with a row per model, and a last block of all labels. Division by an
    attribute has a block per model with a row for all cases, one per group, and the gap between the largest and the
    smallest mean of a known group of at least `SMALL` cases.

    Args:
        columns: The table's columns.
        named: Runs by row name and task.
        whole: The rows of the table that is not divided.
        by: "label", or the name of an attribute, or several that are crossed, as in "sex*site".
        settings: How means and intervals are computed.

    Raises:
        UsageError: If no case has such an attribute.
    """
    runs = [run for by_task in named.values() for run in by_task.values()]
    names_ = attribute_names(runs)
    lacking = next((name for name in crossed_attributes(by, names_) if name not in names_), None)
    if by not in (LABEL, CONDITION) and lacking is not None and any(run.finished for run in runs):
        raise UsageError(
            f"No case has an attribute {lacking!r} to divide the table by{nearest(lacking, names_ | {LABEL})}"
        )
    shown_tasks = {column.task for column in columns}
    parts = {
        (name, task): _run_parts(run, by)
        for name, by_task in named.items()
        for task, run in by_task.items()
        if task in shown_tasks
    }
    names = dict.fromkeys(group for part in parts.values() for group in part)
    if by == CONDITION and not names and any(run.finished for run in runs):
        raise UsageError("No run was shown its cases under a condition; run test with conditions= first")
    totals = [replace(row, group=all_of(by), cells=tuple(map(_counted_cell, row.cells))) for row in whole]

    def row(name: str, group: str) -> Row:
        cells = (
            _group_cell(named[name].get(c.task), parts.get((name, c.task), {}).get(group), c, settings) for c in columns
        )
        return Row(name, tuple(cells), group)

    if by == LABEL:
        rows = [row(total.name, label) for label in names for total in totals]
        return [line for line in rows if _has_part(line, parts, columns)] + totals
    order = list(names) if by == CONDITION else [*sorted(names.keys() - {UNKNOWN}), *names.keys() & {UNKNOWN}]
    blocks: list[Row] = []
    for total in totals:
        groups = [line for line in (row(total.name, group) for group in order) if _has_part(line, parts, columns)]
        blocks += [total, *groups]
        if by != CONDITION:
            blocks += _gap_row(total, [line for line in groups if line.group != UNKNOWN], columns, by, settings)
    return blocks


def _run_parts(run: RunScores, by: str) -> dict[str, Part]:
    if not run.finished:
        return {}
    part = Part.whole(run)
    if by == CONDITION:
        return part.conditions()
    return part.labels() if by == LABEL else part.groups(by)


def _has_part(row: Row, parts: Mapping[tuple[str, str], Mapping[str, Part]], columns: Sequence[Column]) -> bool:
    return any(row.group in parts.get((row.name, column.task), {}) for column in columns)


def _group_cell(run: RunScores | None, part: Part | None, column: Column, settings: Settings) -> Cell:
    if run is None or (part is None and run.finished):
        return Cell()
    return _counted_cell(make_cell(run if part is None else part, column.metric, settings))


def _counted_cell(cell: Cell) -> Cell:
    """Returns the cell with its case number, flagged if few."""
    return replace(cell, remark=f"n = {cell.n}{'*' if cell.n < SMALL else ''}") if cell.n else cell


def _gap_row(
    total: Row, groups: Sequence[Row], columns: Sequence[Column], by: str, settings: Settings
) -> Iterator[Row]:
    """Yields the gap row, for at least two large groups."""
    cells = []
    for index, (total_cell, column) in enumerate(zip(total.cells, columns, strict=True)):
        means = [line.cells[index].mean for line in groups if line.cells[index].n >= SMALL]
        if len(means) < 2 or total_cell.run is None:
            cells.append(replace(total_cell, mean=np.nan, low=np.nan, high=np.nan, n=0, n_clusters=0, remark=""))
            continue
        bounds = NONE
        # Of a mean over labels, and of sets, groups are not resampled together.
        if settings.mean == "case" and not is_set(column.metric):
            how = DisparitySettings(
                settings.resamples, settings.level, settings.seed, SMALL, stratify_by=settings.stratify_by
            )
            bounds = gap_between(total_cell.run, column.metric, by, how)
        method = "" if np.isnan(bounds.low) else PERCENTILE
        gap = Cell(total_cell.run, max(means) - min(means), bounds.low, bounds.high, n=len(means), method=method)
        cells.append(gap)
    if any(cell.n for cell in cells):
        yield Row(total.name, tuple(cells), GAP)
