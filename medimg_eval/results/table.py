"""Runs to a table: one row per model, one column per metric, tasks side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results.cells import Cell, Column, Mark, Mean, Row, Settings, make_cell
from medimg_eval.results.columns import make_columns
from medimg_eval.results.footnotes import write_footnotes
from medimg_eval.results.groups import GAP, divided
from medimg_eval.results.layout import Layout, lay_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.load import RunScores

FRAME_COLUMNS = (
    "task",
    "model",
    "run",
    "metric",
    "mean",
    "low",
    "high",
    "n",
    "patients",
    "failed",
    "status",
)


@dataclass(frozen=True)
class Table:
    """Means with their intervals, ranks and footnotes, ready to be rendered."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: list[str]
    by: str = ""
    """What the rows are divided by: "label", or an attribute of the cases."""

    def by_task(self) -> list[Table]:
        """Returns one table per task, without footnotes, of the models that were run on it."""
        tables = []
        for task in dict.fromkeys(column.task for column in self.columns):
            places = [place for place, column in enumerate(self.columns) if column.task == task]
            rows = [replace(row, cells=tuple(row.cells[place] for place in places)) for row in self.rows]
            kept = tuple(row for row in rows if not all(cell.absent for cell in row.cells))
            tables.append(Table(tuple(self.columns[place] for place in places), kept, [], self.by))
        return tables

    def layout(self) -> Layout:
        """Returns every text of the table in its place and style."""
        return lay_out(self)

    def frame(self) -> pd.DataFrame:
        """Returns one row per model, task and metric, with unrounded numbers; in a divided table also per group.

        `patients` counts what the interval resamples, which is cases in a run whose manifest says so. Tasks
        that a model was not run on have no row.
        """
        records = [
            (
                *(column.task, cell.run.model, cell.run.run, column.metric),
                *(cell.mean, cell.low, cell.high, cell.n, cell.n_clusters, cell.failed, cell.run.status),
            )
            for row in self.rows
            for column, cell in zip(self.columns, row.cells, strict=True)
            if cell.run is not None
        ]
        frame = pd.DataFrame.from_records(records, columns=list(FRAME_COLUMNS))
        if self.by:
            shown = [row.group for row in self.rows for cell in row.cells if cell.run is not None]
            frame.insert(FRAME_COLUMNS.index("run"), "group", pd.Series(shown, dtype=str))
        return frame


def build_table(
    runs: Sequence[RunScores],
    *,
    metrics: Sequence[str] | None = None,
    by: str | None = None,
    mean: Mean = "case",
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Table:
    """Builds the table of `runs`.

    A cell holds a mean with a percentile bootstrap interval (see `mean_interval`): over cases, of which each counts
    with the mean over its labels that have a value, or over labels, of which each counts with the mean over its
    cases. A summary is one number for the whole run (see `summarise`). In each column the best and the second-best
    value are marked among finished runs, if at least two models have one. Values that are equal as printed share
    their mark, and the next distinct one is second.

    Args:
        runs: At least one run, as `load_runs` returns them.
        metrics: Metrics to show, in this order; None shows all of a task, in its order. Summaries whose rows are
            there can be asked for even where the task does not list them.
        by: "label" for a row per label, or an attribute of the cases for a row per group; None for one per model.
        mean: "case" or "class".
        resamples: Number of bootstrap resamples; summaries take at most 1,000.
        level: Coverage of the intervals.
        seed: Seed of the bootstrap.

    Raises:
        UsageError: If no run has scores of one of `metrics`, no case has the attribute `by`, there is no such
            mean, or a number of the bootstrap cannot be meant.
        UserError: If there is no run, or one run is given twice.
    """
    if not runs:
        raise UserError("No run to make a table of; run `python -m medimg_eval test` first")
    if mean not in ("case", "class"):
        raise UsageError(f"there is no mean {mean!r}{nearest(mean, ('case', 'class'))}")
    _check_numbers(resamples, level, seed)
    if metrics is not None and not metrics:
        raise UsageError("metrics names none; name at least one, or leave it out for those of the tasks")
    columns, hidden = make_columns(runs, metrics)
    settings = Settings(resamples, level, seed, mean)
    shown = {column.task for column in columns}
    named = named_runs([run for run in runs if run.task in shown])
    whole = [
        Row(name, tuple(_cell(by_task.get(column.task), column, settings) for column in columns))
        for name, by_task in named.items()
    ]
    rows = divided(columns, named, whole, by=by, settings=settings) if by else whole
    rows = _ranked(columns, rows)
    notes = write_footnotes(columns, whole, shown=rows, settings=settings, hidden=hidden, by=by or "")
    return Table(tuple(columns), tuple(rows), notes, by or "")


def _check_numbers(resamples: object, level: object, seed: object) -> None:
    """Raises UsageError for settings of the bootstrap that cannot be meant."""
    if not isinstance(resamples, int) or isinstance(resamples, bool) or resamples < 1:
        raise UsageError(f"resamples must be a whole number of at least 1, got {resamples!r}")
    if not isinstance(level, int | float) or not 0 < level < 1:
        raise UsageError(f"level must be a number between 0 and 1, got {level!r}")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, got {seed!r}")


def named_runs(runs: Sequence[RunScores]) -> dict[str, dict[str, RunScores]]:
    """Returns the runs by row name and task; two runs of one model on one task get a row each, by run id."""
    times = Counter((run.task, run.model) for run in runs)
    named: dict[str, dict[str, RunScores]] = {}
    for run in runs:
        name = run.model if times[run.task, run.model] == 1 else f"{run.model} ({run.run})"
        by_task = named.setdefault(name, {})
        if run.task in by_task:
            raise UserError(f"{by_task[run.task].folder} and {run.folder} hold the same run ({run.run}); give only one")
        by_task[run.task] = run
    return named


def _cell(run: RunScores | None, column: Column, settings: Settings) -> Cell:
    return Cell() if run is None else make_cell(run, column.metric, settings)


def _ranked(columns: Sequence[Column], rows: Sequence[Row]) -> list[Row]:
    """Returns the rows with the marks of every column set; models are compared within one label or group."""
    ranked = list(rows)
    for group in {row.group: row for row in rows if row.group != GAP}:
        places = [place for place, row in enumerate(rows) if row.group == group]
        marks = [_marks(column, [rows[place].cells[at].mean for place in places]) for at, column in enumerate(columns)]
        for index, place in enumerate(places):
            cells = zip(rows[place].cells, marks, strict=True)
            ranked[place] = replace(
                rows[place], cells=tuple(replace(cell, mark=of_column[index]) for cell, of_column in cells)
            )
    return ranked


def _marks(column: Column, means: Sequence[float]) -> list[Mark]:
    """Returns the mark of each mean of one column; NaN (absent, unfinished or undefined) is never marked."""
    unmarked: list[Mark] = [""] * len(means)
    if column.higher_is_better is None or np.count_nonzero(~np.isnan(means)) < 2:
        return unmarked
    # What is compared is what is printed: a difference that the reader cannot see must not decide.
    printed = [None if np.isnan(mean) else float(column.text(mean)) for mean in means]
    places = sorted({value for value in printed if value is not None}, reverse=column.higher_is_better)
    by_place: dict[float | None, Mark] = dict(zip(places, ("best", "second"), strict=False))
    return [by_place.get(value, "") for value in printed]
