"""Table of a sweep: a row for each degradation, a column for each severity, and what is lost over all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval import metrics as known_metrics
from medimg_eval.errors import UserError
from medimg_eval.metrics.conditions import find_breaks
from medimg_eval.results.runs import Part, is_known, is_set, is_summary, list_sweeps
from medimg_eval.results.table.cells import Cell, Column, Row, Settings, make_cell, make_cells, make_column
from medimg_eval.results.table.columns import make_columns
from medimg_eval.results.table.footnotes import write_footnotes
from medimg_eval.results.table.table import Table, baselines_last, named_runs, ranked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medimg_eval.results.runs import RunScores

DEGRADATION = "degradation"
"""What the table is divided by."""

LOSSES = ("drop", "relative_drop", "severity_slope", "rood_degradation", "severities_held")
"""Summaries beside the severities, of metrics of cases."""

FIRST = 5
"""So many of the cases that break first are named."""


class _Sweep(NamedTuple):
    """One model's sweep over the severities of one degradation."""

    run: RunScores
    degradation: str
    severities: tuple[int, ...]


def build_severity_tables(
    runs: Sequence[RunScores],
    *,
    metrics: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    settings: Settings,
) -> list[Table]:
    """Builds tables of degraded cases, by task and first metric.

    Severity 0 is the cases as published. Of a metric of cases the losses are paired by case and resampled by patients:
    drop and relative drop of the mean over severities, slope, ROOD-MRI's weighted degradation, severities held.

    Args:
        runs: Of `test degrade=[...] severities=[...]`.
        metrics: The metric, of all tasks or of each by its name; None for the first of each task.
        settings: How means and intervals are computed.

    Raises:
        UsageError: If no run has scores of the metric.
        UserError: If no run has degraded cases.
    """
    tables = []
    swept = [run for run in runs if run.finished and list_sweeps(run.conditions)]
    if not swept:
        raise UserError("No run has degraded cases; make one by `test degrade=[NAME] severities=[1,3,5]`")
    first = {column.task: column for column in reversed(make_columns(swept, metrics)[0])}
    for task in dict.fromkeys(run.task for run in swept if run.task in first):
        named = named_runs([run for run in swept if run.task == task])
        tables.append(_build_table({name: by_task[task] for name, by_task in named.items()}, first[task], settings))
    return tables


def _build_table(named: Mapping[str, RunScores], column: Column, settings: Settings) -> Table:
    sweeps = {name: list(_list_run_sweeps(run)) for name, run in named.items()}
    severities = sorted(
        {severity for model_sweeps in sweeps.values() for sweep in model_sweeps for severity in sweep.severities}
    )
    of_cases = not (is_summary(column.metric) or is_set(column.metric))
    columns = [replace(column, title=f"{column.title} at {severity}") for severity in (0, *severities)]
    for loss in LOSSES if of_cases else ():
        named_loss = make_column(column.task, column.group, f"{loss}@NAME:{column.metric}", next(iter(named.values())))
        columns.append(replace(named_loss, title=known_metrics.get(loss).title))
    rows: list[Row] = []
    for degradation in dict.fromkeys(sweep.degradation for model_sweeps in sweeps.values() for sweep in model_sweeps):
        for name, model_sweeps in sweeps.items():
            sweep = next((sweep for sweep in model_sweeps if sweep.degradation == degradation), None)
            if sweep is not None:
                rows.append(Row(name, _sweep_cells(sweep, column.metric, severities, settings, of_cases), degradation))
    rows = ranked(columns, baselines_last(rows))
    clean_rows = [next(row for row in rows if row.name == name) for name in named]
    notes = write_footnotes(columns, clean_rows, shown=rows, settings=settings, hidden=(), by=DEGRADATION)
    notes = [note.replace(f"@NAME:{column.metric}", "") for note in notes]
    notes.append("Severity 0 is the cases as published. Losses are paired: of cases with a value at every severity.")
    if of_cases:
        notes += [note for name, run in named.items() for note in _first_to_break(name, run, column.metric)]
    return Table(tuple(columns), tuple(rows), notes, DEGRADATION, own_columns=True)


def _list_run_sweeps(run: RunScores) -> Iterator[_Sweep]:
    for degradation, severities in list_sweeps(run.conditions).items():
        yield _Sweep(run, degradation, tuple(severities))


def _sweep_cells(
    sweep: _Sweep, metric: str, severities: Sequence[int], settings: Settings, of_cases: bool
) -> tuple[Cell, ...]:
    cells = [make_cell(sweep.run, metric, settings)]
    for severity in severities:
        held = severity in sweep.severities
        cells.append(
            make_cell(sweep.run.under(f"{sweep.degradation}-{severity}"), metric, settings) if held else Cell()
        )
    if of_cases:
        wanted = [f"{loss}@{sweep.degradation}:{metric}" for loss in LOSSES]
        cells += make_cells(Part.whole(sweep.run), wanted, settings)
    return tuple(cells)


def _first_to_break(name: str, run: RunScores, metric: str) -> Iterator[str]:
    """Names the cases that stand the fewest severities, on average over the degradations."""
    held = break_severities(run, metric).mean(axis=1).dropna().sort_values(kind="stable")
    if len(held):
        cases = ", ".join(f"{case} ({value:.1f})" for case, value in held.head(FIRST).items())
        yield f"{name}: first to break, by severities held on average over the degradations: {cases}."


def break_severities(run: RunScores, metric: str) -> pd.DataFrame:
    """Returns severities that cases withstand, by case and degradation."""
    less = is_known(metric) and known_metrics.get(metric).higher_is_better is False
    clean = _case_means(run.scores, metric)
    breaks = {}
    for degradation, severities in list_sweeps(run.conditions).items():
        rows = run.varied
        values = [
            _case_means(rows[rows["condition"] == f"{degradation}-{severity}"], metric) for severity in severities
        ]
        wide = pd.concat([clean, *(means.reindex(clean.index) for means in values)], axis=1).to_numpy(np.float64)
        breaks[degradation] = pd.Series(find_breaks(wide, -1 if less else 1), index=clean.index)
    return pd.DataFrame(breaks)


def _case_means(scores: pd.DataFrame, metric: str) -> pd.Series[float]:
    rows = scores.loc[scores["metric"] == metric]
    means: pd.Series[float] = rows.groupby(rows["case"].astype(str))["value"].mean()
    return means
