"""Runs to a table: one row per model, one column per metric, tasks side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results.cells import NO_METRIC, Cell, Column, Mark, Row, make_cell, make_column
from medimg_eval.results.footnotes import Settings, write_footnotes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

    def by_task(self) -> list[Table]:
        """Returns one table per task, without footnotes, of the models that were run on it."""
        tables = []
        for task in dict.fromkeys(column.task for column in self.columns):
            places = [place for place, column in enumerate(self.columns) if column.task == task]
            rows = [replace(row, cells=tuple(row.cells[place] for place in places)) for row in self.rows]
            kept = tuple(row for row in rows if not all(cell.absent for cell in row.cells))
            tables.append(Table(tuple(self.columns[place] for place in places), kept, []))
        return tables

    def frame(self) -> pd.DataFrame:
        """Returns one row per model, task and metric, with unrounded numbers.

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
        return pd.DataFrame.from_records(records, columns=list(FRAME_COLUMNS))


def build_table(
    runs: Sequence[RunScores],
    *,
    metrics: Sequence[str] | None = None,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Table:
    """Builds the table of `runs`.

    A case counts with the mean over its labels that have a value; a cell holds the mean over cases with a
    percentile bootstrap interval (see `mean_interval`). In each column the best and the second-best mean are
    marked among finished runs, if at least two models have one. Means that are equal as printed share their
    mark, and the next distinct mean is second.

    Args:
        runs: At least one run, as `load_runs` returns them.
        metrics: Metrics to show, in this order; None shows all of them, in the order of the Score rows.
        resamples: Number of bootstrap resamples.
        level: Coverage of the intervals.
        seed: Seed of the bootstrap.

    Raises:
        UsageError: If no run has scores of one of `metrics`.
        UserError: If there is no run, or one run is given twice.
    """
    if not runs:
        raise UserError("No run to make a table of; run `python -m medimg_eval test` first")
    columns, hidden = _columns(runs, metrics)
    shown = {column.task for column in columns}
    rows = [
        Row(name, tuple(_cell(by_task, column, resamples, level, seed) for column in columns))
        for name, by_task in _named_runs([run for run in runs if run.task in shown]).items()
    ]
    rows = _ranked(columns, rows)
    settings = Settings(resamples=resamples, level=level, seed=seed)
    return Table(tuple(columns), tuple(rows), write_footnotes(columns, rows, settings=settings, hidden=hidden))


def _columns(runs: Sequence[RunScores], metrics: Sequence[str] | None) -> tuple[list[Column], list[str]]:
    """Returns the columns, and the titles of the tasks that none of the asked `metrics` was scored on."""
    scored: dict[str, dict[str, None]] = {}  # dicts for their order: metrics as the rows have them
    for run in runs:
        scored.setdefault(run.task, {}).update(dict.fromkeys(run.scores["metric"].unique()))
    available = {metric for names in scored.values() for metric in names}
    for metric in metrics or ():
        # Before anything is scored there is nothing to compare a name with, and the table says "unfinished".
        if available and metric not in available:
            raise UsageError(f"No run has scores of {metric!r}{nearest(metric, available)}")
    columns, hidden = [], []
    for task, title in _titles(runs).items():
        chosen = [metric for metric in scored[task] if metrics is None]
        chosen += [metric for metric in metrics or () if metric in scored[task]]
        if scored[task] and not chosen:
            hidden.append(title)
        else:
            units = next(run.units for run in runs if run.task == task)
            columns += [make_column(task, title, metric, units) for metric in chosen or [NO_METRIC]]
    return columns, hidden


def _titles(runs: Sequence[RunScores]) -> dict[str, str]:
    """Returns the title of each task in the order of `runs`, with the task's name if two tasks share one."""
    titles: dict[str, str] = {}
    for run in runs:
        titles.setdefault(run.task, run.task_title)
    times = Counter(titles.values())
    return {task: title if times[title] == 1 else f"{title} ({task})" for task, title in titles.items()}


def _named_runs(runs: Sequence[RunScores]) -> dict[str, dict[str, RunScores]]:
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


def _cell(by_task: Mapping[str, RunScores], column: Column, resamples: int, level: float, seed: int) -> Cell:
    run = by_task.get(column.task)
    return Cell() if run is None else make_cell(run, column.metric, resamples=resamples, level=level, seed=seed)


def _ranked(columns: Sequence[Column], rows: Sequence[Row]) -> list[Row]:
    """Returns the rows with the marks of every column set."""
    marks = [_marks(column, [row.cells[position].mean for row in rows]) for position, column in enumerate(columns)]
    return [
        replace(
            row,
            cells=tuple(
                replace(cell, mark=column_marks[index]) for cell, column_marks in zip(row.cells, marks, strict=True)
            ),
        )
        for index, row in enumerate(rows)
    ]


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
