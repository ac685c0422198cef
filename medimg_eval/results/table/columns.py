"""Which columns a table has, in the order of the tasks or as asked for, and how many decimals each is printed with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval import metrics
from medimg_eval.arguments import grouped
from medimg_eval.errors import UsageError, nearest
from medimg_eval.results.runs import is_evidence, is_known, is_summary, needed_rows
from medimg_eval.results.table.cells import NO_METRIC, Column, make_column

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.table.cells import Cell, Row


def make_columns(
    runs: Sequence[RunScores], asked: Sequence[str] | Mapping[str, Sequence[str]] | None
) -> tuple[list[Column], list[str]]:
    """Returns columns, and tasks without any wanted metric.

    Args:
        runs: The runs of the table.
        asked: Metrics to show, in this order; of all tasks, or of each task that is shown by its name. None shows those
            of each task.

    Raises:
        UsageError: If no run has scores of one of the metrics asked for, or of one of the tasks.
    """
    if isinstance(asked, Mapping):
        return _by_task(runs, asked), []
    by_task = grouped((run.task, run) for run in runs)
    scored = {task: _scored_metrics(members) for task, members in by_task.items()}
    everything = {metric for names in scored.values() for metric in names}
    for metric in asked or ():
        # Before anything is scored there is nothing to compare a name with, and the table says "unfinished".
        if everything and not any(_has_metric(names, metric) for names in scored.values()):
            raise UsageError(f"No run has scores of {metric!r}{_metric_hint(metric, everything)}")
    columns, hidden = [], []
    for task, title in titles(runs).items():
        chosen = (
            _shown_metrics(by_task[task], scored[task])
            if asked is None
            else [m for m in asked if _has_metric(scored[task], m)]
        )
        if scored[task] and not chosen:
            hidden.append(title)
        else:
            columns += [make_column(task, title, metric, by_task[task][0]) for metric in chosen or [NO_METRIC]]
    return columns, hidden


def _by_task(runs: Sequence[RunScores], asked: Mapping[str, Sequence[str]]) -> list[Column]:
    """Returns tasks' columns with their metrics, in given order."""
    title_of = titles(runs)
    columns: list[Column] = []
    for task, wanted in asked.items():
        if task not in title_of:
            raise UsageError(f"metrics names task {task!r}, which has no run{nearest(task, title_of)}")
        if not wanted:
            raise UsageError(f"metrics names none of task {task!r}; name at least one, or leave the task out")
        columns_, _ = make_columns([run for run in runs if run.task == task], wanted)
        columns += [replace(column, group=title_of[task]) for column in columns_]
    return columns


def titles(runs: Sequence[RunScores]) -> dict[str, str]:
    """Returns titles by task in `runs`, with names where ambiguous."""
    titles: dict[str, str] = {}
    for run in runs:
        titles.setdefault(run.task, run.task_title)
    times = Counter(titles.values())
    return {task: title if times[title] == 1 else f"{title} ({task})" for task, title in titles.items()}


def _scored_metrics(runs: Sequence[RunScores]) -> dict[str, None]:
    """Returns metrics in a task's rows, ordered."""
    rows = (part for run in runs for part in (run.scores, run.sets))
    return dict.fromkeys(metric for part in rows for metric in part["metric"].unique())


def _has_metric(scored: Collection[str], metric: str) -> bool:
    """Returns whether rows have a metric or a summary's parts."""
    if metric in scored:
        return True
    # Some rows do: a detector without a single candidate leaves none of those, and is still worth its 0.
    return is_summary(metric) and any(need in scored for need in needed_rows(metric, scored))


def _shown_metrics(runs: Sequence[RunScores], scored: dict[str, None]) -> list[str]:
    """Returns a task's listed metrics, else those of its rows."""
    listed: dict[str, None] = {}
    for run in runs:
        listed |= dict.fromkeys(run.metrics or run.scores["metric"].unique())
    # A summary of rows that no run left is shown as undefined, for the task asked for it.
    return [
        metric for metric in listed if (_has_metric(scored, metric) or is_summary(metric)) and not is_evidence(metric)
    ]


def _metric_hint(metric: str, scored: set[str]) -> str:
    """Returns what else could have been meant; of a summary, what it lacks."""
    if is_summary(metric):
        lacking = " or ".join(needed_rows(metric, scored))
        mend = f"add {metric} to the task's metrics and score the run again"
        return f", which is computed from those of {lacking}; {mend}"
    return nearest(metric, scored)


AUTO = "auto"
"""As many decimals as the width of the intervals supports."""
DIGITS = 2
"""Significant digits of an interval's half-width that are printed."""
MOST_DECIMALS = 6


def supported(half_width: float) -> int:
    """Returns decimals for two digits of the half-width, 0 to 6.

    The half-width is rounded to two digits first, so that 0.0999 counts as 0.10 and gets two decimals.
    """
    digits = float(f"{half_width:.{DIGITS - 1}e}")
    return min(max(DIGITS - 1 - math.floor(math.log10(digits)), 0), MOST_DECIMALS)


def restyled(
    columns: Sequence[Column], rows: Sequence[Row], *, percent: bool, precision: int | str | None
) -> list[Column]:
    """Returns columns with printed scale and decimals.

    Args:
        columns: Of the table.
        rows: Of the table; `precision="auto"` looks at their intervals.
        percent: Whether columns of shares are printed times 100.
        precision: Decimals of every column, as they are printed; "auto" for two significant digits of the median
            half-width of the column's intervals, models before baselines; None for those of the metrics. A column
            without any interval keeps those of its metric.
    """
    restyled_columns = []
    for index, column in enumerate(columns):
        restyled_column = _in_percent(column) if percent else column
        if precision == AUTO:
            widths = _half_widths([row.cells[index] for row in rows])
            if widths:
                restyled_column = replace(
                    restyled_column, decimals=supported(restyled_column.scale * float(np.median(widths)))
                )
        elif isinstance(precision, int):
            restyled_column = replace(restyled_column, decimals=precision)
        restyled_columns.append(restyled_column)
    return restyled_columns


def _in_percent(column: Column) -> Column:
    """Returns a share column times 100; unknown metrics stay."""
    if column.scale != 1 or not is_known(column.metric) or not metrics.get(column.metric).on_unit_scale:
        return column
    return replace(column, scale=100.0, decimals=max(column.decimals - 2, 0))


def _half_widths(cells: Sequence[Cell]) -> list[float]:
    """Returns positive half-widths, of baselines where models lack them."""
    widths: dict[bool, list[float]] = {False: [], True: []}
    for cell in cells:
        if cell.run is not None and cell.high > cell.low:
            widths[cell.run.baseline].append((cell.high - cell.low) / 2)
    return widths[False] or widths[True]
