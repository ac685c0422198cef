"""The paper's own table of a benchmark, whose columns are groups of questions as its authors print them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval import metrics
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.metrics.fairness import UNKNOWN_GROUPS
from medimg_eval.published_numbers import cases_where
from medimg_eval.results.runs import LABEL, Part, attributes, is_known, is_set, is_summary, listed
from medimg_eval.results.statistics import case_values, units
from medimg_eval.results.table.cells import (
    NO_METRIC,
    Cell,
    Column,
    Row,
    Settings,
    case_mean_cell,
    make_cell,
    make_column,
)
from medimg_eval.results.table.columns import titles
from medimg_eval.results.table.footnotes import write_footnotes
from medimg_eval.results.table.groups import SMALL
from medimg_eval.results.table.published_rows import PublishedRow, published_rows
from medimg_eval.results.table.table import (
    SHARES,
    Table,
    baselines_last,
    check_interval,
    check_numbers,
    named_runs,
    ranked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    import pandas as pd

    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.statistics import Method

BETWEEN = ", "
"""Stands between the entries of an attribute that holds a list."""
_KEYS = ("title", "metric", "where", "by", "order", "titles")


class _Cases:
    """Cases of a finished run, and a column's share."""

    def __init__(self, run: RunScores) -> None:
        self.run = run
        self._first = run.scores.drop_duplicates("case").sort_values("case")
        self._masks: dict[tuple[str, tuple[str, ...]], npt.NDArray[np.bool_]] = {}
        self._metrics: dict[str, tuple[pd.DataFrame, npt.NDArray[np.int64], npt.NDArray[np.intp]]] = {}
        self._members: dict[str, tuple[list[str], npt.NDArray[np.intp]]] = {}

    @cached_property
    def _attributes(self) -> tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.str_]]]:
        return attributes(self._first)

    @property
    def names(self) -> set[str]:
        """The attributes that there are."""
        return {*self._attributes[1], LABEL}

    @cached_property
    def _failed(self) -> npt.NDArray[np.bool_]:
        scores = self.run.scores
        failed = scores.loc[scores["status"] == "failed", "case"].unique()
        return np.asarray(self._first["case"].isin(failed).to_numpy(), dtype=np.bool_)

    def values(self, attribute: str) -> tuple[list[str], npt.NDArray[np.intp]]:
        """Returns an attribute's values and each case's index, (case,)."""
        if attribute not in self._members:
            codes, values_of = self._attributes
            if attribute == LABEL:
                names, member = np.unique(self._first["label"].to_numpy(dtype=str), return_inverse=True)
            elif attribute in values_of:
                names, of_code = np.unique(values_of[attribute], return_inverse=True)
                member = of_code[codes]
            else:
                names, member = np.array([""]), np.zeros(len(self._first), dtype=np.intp)
            self._members[attribute] = [str(value) for value in names], member
        return self._members[attribute]

    def where(self, conditions: Sequence[tuple[str, tuple[str, ...]]]) -> npt.NDArray[np.bool_]:
        """Returns which cases meet all conditions, (case,)."""
        mask = np.ones(len(self._first), dtype=np.bool_)
        for attribute, wanted in conditions:
            if (attribute, wanted) not in self._masks:
                names, member = self.values(attribute)
                meets = np.array([not {value, *value.split(BETWEEN)}.isdisjoint(wanted) for value in names], np.bool_)
                self._masks[attribute, wanted] = meets[member]
            mask &= self._masks[attribute, wanted]
        return mask

    def cell(self, column: Column, settings: Settings) -> Cell:
        """Returns a run's cell on a column's cases."""
        mask = self.where(column.where)
        if not mask.any():
            return Cell(run=self.run, matched=not column.where)
        failed = int((mask & self._failed).sum())
        if is_set(column.metric) and not column.where:
            return make_cell(self.run, column.metric, settings)
        if is_summary(column.metric):
            part = Part.whole(self.run)
            return make_cell(
                part.of_cases(self._first["case"][mask]) if column.where else part, column.metric, settings
            )
        cases, unit, case_index = self._of_metric(column.metric)
        chosen = mask[case_index]
        if not chosen.any():
            return Cell(run=self.run, failed=failed)
        return case_mean_cell(self.run, column.metric, cases.loc[chosen], unit[chosen], failed, settings)

    def _of_metric(self, metric: str) -> tuple[pd.DataFrame, npt.NDArray[np.int64], npt.NDArray[np.intp]]:
        """Returns a metric's values by case, with units and indices."""
        if metric not in self._metrics:
            cases = case_values(self.run.scores.loc[self.run.scores["metric"] == metric])
            case_index = np.searchsorted(self._first["case"].to_numpy(dtype=object), cases.index.to_numpy(dtype=object))
            self._metrics[metric] = cases, units(self.run, cases), case_index
        return self._metrics[metric]


@dataclass(frozen=True)
class _Field:
    """Task with its runs by row name, and cases."""

    task: str
    title: str
    runs: Mapping[str, RunScores]
    cases: Mapping[str, _Cases]

    @cached_property
    def scored(self) -> set[str]:
        """Metrics with scores, and the default one."""
        return {NO_METRIC, *(metric for cases in self.cases.values() for metric in cases.run.scores["metric"].unique())}

    @property
    def newest(self) -> RunScores:
        """The run whose config is followed."""
        return max(self.runs.values(), key=lambda run: run.started)


def build_authors_tables(
    runs: Sequence[RunScores],
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    interval: Method = "percentile",
    stratify_by: str | None = None,
    published_numbers: bool = False,
) -> list[Table]:
    """Builds papers' tables, per task, from `table` in configs.

    A column is the mean of a metric over the cases whose attributes meet its `where`, or a summary of those cases, with
    an interval as `build_table` makes it; see docs/publish/tables.md for its keys.

    Args:
        runs: At least one run, as `load_runs` returns them.
        resamples: Number of bootstrap resamples; summaries take at most 1,000.
        level: Coverage of the intervals.
        seed: Seed of the bootstrap.
        interval: Which bounds the bootstrap takes: "percentile" or "bca".
        stratify_by: Attribute within whose values patients are drawn; None for what each task says.
        published_numbers: Whether the numbers on the tasks' cards stand below as rows of their own.

    Raises:
        UsageError: If a task has no such table, its columns cannot be understood, or an interval is asked for that
            there is not.
        UserError: If there is no run, or one run is given twice.
    """
    if not runs:
        raise UserError("No run to make a table of; run `python -m medimg_eval test` first")
    check_numbers(resamples, level, seed)
    check_interval(interval)
    settings = Settings(resamples, level, seed, interval=interval, stratify_by=stratify_by or "")
    named = named_runs(runs)
    tables = []
    for task, title in titles(runs).items():
        members = {name: by_task[task] for name, by_task in named.items() if task in by_task}
        cases = {name: _Cases(run) for name, run in members.items() if run.finished}
        tables.append(_published_table(_Field(task, title, members, cases), settings, published=published_numbers))
    return tables


def _published_table(field: _Field, settings: Settings, *, published: bool) -> Table:
    columns = _stated_columns(field)
    rows = baselines_last(
        Row(name, tuple(_value_cell(field, name, column, settings) for column in columns)) for name in field.runs
    )
    rows = ranked(columns, rows)
    notes = write_footnotes(columns, rows, shown=rows, settings=settings, hidden=[], by="")
    notes += _layout_notes(field, columns, rows)
    printed: tuple[PublishedRow, ...] = ()
    if published:
        printed, notes_ = published_rows([field.newest], columns, rows, by="", compared=True)
        notes += notes_
    return Table(tuple(columns), tuple(rows), notes, own_columns=True, published=printed)


def _value_cell(field: _Field, name: str, column: Column, settings: Settings) -> Cell:
    if name not in field.cases:
        return make_cell(field.runs[name], column.metric, settings)
    cell = field.cases[name].cell(column, settings)
    return replace(cell, remark=f"n = {cell.n}*") if 0 < cell.n < SMALL else cell


def _stated_columns(field: _Field) -> list[Column]:
    """Returns the columns that the config of the newest run asks for."""
    run = field.newest
    stated = run.task_config.get("table")
    if not stated:
        raise UsageError(
            f"task {field.task!r} has no `table` in its config, which table=authors prints; "
            "leave table=authors out, or add the columns of its paper (docs/publish/tables.md)"
        )
    if not isinstance(stated, list):
        raise UsageError(f"task {field.task!r}: expected `table` to be a list of columns, got {stated!r}")
    columns = [column for number, entry in enumerate(stated, 1) for column in _of_entry(field, entry, number)]
    return columns or [make_column(field.task, field.title, NO_METRIC, run)]


def _of_entry(field: _Field, entry: Any, number: int) -> Iterator[Column]:
    """Yields the columns of one entry of `table`."""
    location = f"task {field.task!r}, column {number} of `table`"
    if not isinstance(entry, dict):
        raise UsageError(f"{location}: expected keys such as `title` and `where`, got {entry!r}")
    UsageError.refuse_invalid(f"{location}: key", _KEYS, *entry)
    run = field.newest
    metric = str(entry.get("metric") or next(iter(run.metrics or run.task_config.get("metrics", ())), NO_METRIC))
    if metric not in field.scored:
        metrics.parse(metric)
    column = make_column(field.task, field.title, metric, run)
    where = cases_where(entry.get("where") or {}, location)
    if "by" not in entry:
        if wrong := [key for key in ("order", "titles") if key in entry]:
            raise UsageError(f"{location}: `{wrong[0]}` needs `by`, the attribute whose values are the columns")
        yield replace(column, title=str(entry.get("title") or column.title), where=where)
        return
    attribute, titles = str(entry["by"]), {str(key): str(text) for key, text in (entry.get("titles") or {}).items()}
    for value in _attribute_values(field, attribute, [str(value) for value in entry.get("order") or ()], location):
        yield replace(column, title=titles.get(value, value), where=(*where, (attribute, (value,))))


def _attribute_values(field: _Field, attribute: str, order: Sequence[str], place: str) -> list[str]:
    """Returns attribute values with columns, `order` first."""
    names = {name for cases in field.cases.values() for name in cases.names}
    if field.cases and attribute not in names:
        raise UsageError(f"{place}: no case has an attribute {attribute!r}{nearest(attribute, names)}")
    values = {value for cases in field.cases.values() for value in cases.values(attribute)[0]} - set(order)
    remaining = {part for value in values for part in value.split(BETWEEN)} - set(order) - UNKNOWN_GROUPS
    return [*dict.fromkeys(order), *sorted(remaining, key=_natural_key)]


def _natural_key(value: str) -> list[str | int]:
    """Returns what sorts "frame 2" before "frame 10"."""
    return [int(part) if position % 2 else part for position, part in enumerate(re.split(r"(\d+)", value))]


def _layout_notes(field: _Field, columns: Sequence[Column], rows: Sequence[Row]) -> Iterator[str]:
    """Yields the columns' meaning and case numbers, also empty ones."""
    if not field.cases:
        return
    noun = field.newest.noun
    by_metric: dict[str, list[str]] = {}
    sizes: dict[str, str] = {}
    empty: list[str] = []
    for index, column in enumerate(columns):
        by_metric.setdefault(column.metric, []).append(column.title)
        cells = [row.cells[index] for row in rows if row.cells[index].n]
        counts = sorted({cell.n for cell in cells})
        if counts:
            sizes[column.title] = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
        if not any(row.cells[index].matched for row in rows if row.name in field.cases):
            empty.append(f"{column.title} ({'; '.join(f'{name}: {BETWEEN.join(v)}' for name, v in column.where)})")
    *further, main = sorted(by_metric, key=lambda metric: len(by_metric[metric]))
    if further:
        parts = [
            f"{BETWEEN.join(by_metric[metric])}: {_metric_title(metric)}" for metric in by_metric if metric in further
        ]
        yield f"{field.title}: {'; '.join(parts)}; all other columns: {_metric_title(main)}."
    elif main != NO_METRIC:
        yield f"{field.title}: all columns are {_metric_title(main)}."
    if all(is_known(metric) and not metrics.get(metric).unit for metric in by_metric):
        yield SHARES
    yield f"n, in {noun}: {', '.join(f'{title} {size}' for title, size in sizes.items())}."
    if any(cell.remark for row in rows for cell in row.cells):
        yield f"*: fewer than {SMALL} {noun}."
    if empty:
        verb = "matches" if len(empty) == 1 else "match"
        yield f"{field.title}: {listed(empty)} {verb} none of its {noun}."


def _metric_title(metric: str) -> str:
    return metrics.title(metric) if is_known(metric) else metric
