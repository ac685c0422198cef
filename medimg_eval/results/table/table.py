"""Runs to a table: one row per model, one column per metric, tasks side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval.case import NO_IMAGE
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.runs import CONDITION
from medimg_eval.results.statistics import METHODS, Method
from medimg_eval.results.table.cells import Cell, Column, Mark, Mean, Row, Settings, make_cells
from medimg_eval.results.table.columns import make_columns, restyled
from medimg_eval.results.table.footnotes import write_footnotes
from medimg_eval.results.table.groups import GAP, divided
from medimg_eval.results.table.layout import USUAL, Look, lay_out_as
from medimg_eval.results.table.published_rows import PUBLISHED, PublishedRow, published_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.table.layout import Layout

FRAME_TYPES = {
    "task": "str",
    "model": "str",
    "group": "str",
    "run": "str",
    "column": "str",
    "metric": "str",
    "mean": "float64",
    "low": "float64",
    "high": "float64",
    "n": "int64",
    "patients": "int64",
    "failed": "int64",
    "status": "str",
    "interval": "str",
}
"""The columns of a table's frame with their types; `group` only where it is divided, `column` only where a metric alone
does not name what stands there."""
PUBLISHED_TYPES = {"source": "str", "in_our_interval": "str"}
"""Further columns of a frame that holds published numbers."""
SHARES = "Values are shares of 1, as in every table; papers print 100 times as much."
"""Stands below a paper's own table, unless it is printed in percent."""
PERCENT = "%: shares times 100; numbers in these notes are not."


@dataclass(frozen=True)
class Table:
    """Means with their intervals, ranks and footnotes, ready to be rendered."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: list[str]
    by: str = ""
    """What the rows are divided by: "label", or an attribute of the cases."""
    own_columns: bool = False
    """Whether its columns are those of a benchmark's own table, which a metric alone does not name."""
    look: Look = USUAL
    published: tuple[PublishedRow, ...] = ()
    """Rows of published numbers, which stand below the others and are neither ranked nor tested."""

    @property
    def runs(self) -> list[RunScores]:
        """The runs that its cells are of, each once."""
        runs_by_id = {id(cell.run): cell.run for row in self.rows for cell in row.cells if cell.run is not None}
        return list(runs_by_id.values())

    def looking(self, look: Look) -> Table:
        """Returns the table restyled for printing; numbers stay.

        Best and second are marked anew in the columns that have such marks, because equal as printed is equal.

        Raises:
            UsageError: If `look` is invalid.
        """
        look.check()
        columns = restyled(self.columns, self.rows, percent=look.percent, precision=look.precision)
        compared = [any(row.cells[index].mark for row in self.rows) for index in range(len(columns))]
        rows = [
            replace(
                row,
                cells=tuple(
                    new if is_compared else old
                    for is_compared, new, old in zip(compared, ranked_row.cells, row.cells, strict=True)
                ),
            )
            for row, ranked_row in zip(self.rows, ranked(columns, self.rows), strict=True)
        ]
        notes = self.footnotes
        if any(column.scale != 1 for column in columns):
            notes = [*(note for note in notes if note not in (SHARES, PERCENT)), PERCENT]
        return replace(self, columns=tuple(columns), rows=tuple(rows), footnotes=notes, look=look)

    def by_task(self) -> list[Table]:
        """Returns tables by task with its models, without footnotes."""
        tables = []
        for task in dict.fromkeys(column.task for column in self.columns):
            part = self._of([index for index, column in enumerate(self.columns) if column.task == task])
            filled_rows = tuple(row for row in part.rows if not all(cell.absent for cell in row.cells))
            printed = tuple(row for row in part.published if not all(cell.absent for cell in row.cells))
            tables.append(replace(part, rows=filled_rows, published=printed))
        return tables

    def _of(self, places: Sequence[int]) -> Table:
        """Returns the table of some columns, without footnotes."""
        rows = tuple(replace(row, cells=tuple(row.cells[index] for index in places)) for row in self.rows)
        published = tuple(replace(row, cells=tuple(row.cells[index] for index in places)) for row in self.published)
        columns = tuple(self.columns[index] for index in places)
        return replace(self, columns=columns, rows=rows, footnotes=[], published=published)

    def layout(self) -> Layout:
        """Returns every text of the table in its place and style."""
        return lay_out_as(self, self.look)

    def to_latex(self) -> str:
        """Returns the table in LaTeX, its footnotes below."""
        return self._as("latex")

    def to_markdown(self) -> str:
        """Returns the table and its footnotes in GitHub's Markdown."""
        return self._as("markdown")

    def to_html(self) -> str:
        """Returns the table as a page of its own."""
        return self._as("html")

    def to_csv(self) -> str:
        """Returns the tidy frame of the table, with unrounded numbers."""
        return self._as("csv")

    def _repr_html_(self) -> str:
        from medimg_eval.results.table import render

        return render.notebook_html(self)

    def _as(self, form: str) -> str:
        from medimg_eval.results.table import render  # which prints what is made here

        text: str = getattr(render, f"to_{form}")(self)
        return text

    def frame(self) -> pd.DataFrame:
        """Returns tidy unrounded rows by model, task and column.

        `patients` counts what the interval resamples, which is cases in a run whose manifest says so; `interval` says
        how it was made: "percentile", "bca", "wilson", "exact", "expansion" (the bootstrap of very many patients from
        their moments), "own" (of a set of pictures), "too few" (there is none) or "". Tasks that a model was not run on
        have no row. The types are those of `FRAME_TYPES`, also of an empty table. Published numbers have a row each, on
        our scale, whose `status` is "published"; then `source` says where they are printed and `in_our_interval`
        whether they lie there.
        """
        records = [
            {
                "task": column.task,
                "model": cell.run.name,
                "group": row.group,
                "run": cell.run.run,
                "column": column.title,
                "metric": column.metric,
                "mean": cell.mean,
                "low": cell.low,
                "high": cell.high,
                "n": cell.n,
                "patients": cell.n_clusters,
                "failed": cell.failed,
                "status": cell.run.status,
                "interval": cell.method if cell.n else "",
            }
            for row in self.rows
            for column, cell in zip(self.columns, row.cells, strict=True)
            if cell.run is not None
        ]
        types = FRAME_TYPES | (PUBLISHED_TYPES if self.published else {})
        records = [record | dict.fromkeys(PUBLISHED_TYPES, "") for record in records] + self._published_records()
        frame = pd.DataFrame(records, columns=list(types)).astype(types)
        left_out = [name for name, is_shown in (("group", self.by), ("column", self.own_columns)) if not is_shown]
        return frame.drop(columns=left_out)

    def _published_records(self) -> list[dict[str, Any]]:
        """Returns published numbers as frame rows, on our scale."""
        return [
            {
                "task": column.task,
                "model": cell.number.model,
                "group": row.group,
                "run": "",
                "column": column.title,
                "metric": column.metric,
                "mean": cell.number.value,
                "low": cell.number.bounds[0],
                "high": cell.number.bounds[1],
                "n": cell.number.n,
                "patients": 0,
                "failed": 0,
                "status": PUBLISHED,
                "interval": PUBLISHED if cell.number.interval else "",
                "source": cell.number.source,
                "in_our_interval": cell.verdict,
            }
            for row in self.published
            for column, cell in zip(self.columns, row.cells, strict=True)
            if cell.number is not None
        ]


def build_table(  # noqa: PLR0913 - one argument for each key of the command
    runs: Sequence[RunScores],
    *,
    metrics: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    by: str | None = None,
    mean: Mean = "case",
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    interval: Method = "percentile",
    stratify_by: str | None = None,
    published_numbers: bool = False,
) -> Table:
    """Builds the table of `runs`.

    A cell holds a mean with an interval (see `table_intervals`): over cases, of which each counts
    with the mean over its labels that have a value, or over labels, of which each counts with the mean over its
    cases. A summary is one number for the whole run (see `summarise`). In each column the best and the second-best
    value are marked among finished runs, if at least two models have one. Values that are equal as printed share
    their mark, and the next distinct one is second. Baselines stand below the models and are not marked.

    Args:
        runs: At least one run, as `load_runs` returns them.
        metrics: Metrics to show, in this order, of all tasks or of each task by its name, in the order of the tasks
            named; None shows all of a task, in its order. Summaries whose rows are there can be asked for even where
            the task does not list them.
        by: "label" for a row per label, or an attribute of the cases for a row per group; None for one per model.
        mean: "case" or "class".
        resamples: Number of bootstrap resamples; summaries take at most 1,000.
        level: Coverage of the intervals.
        seed: Seed of the bootstrap.
        interval: Which bounds the bootstrap takes: "percentile" or "bca".
        stratify_by: Attribute within whose values patients are drawn; None for what each task says.
        published_numbers: Whether the numbers that papers print, as the tasks' cards state them, stand below as rows of
            their own, each with whether it lies in our interval of the same model.

    Raises:
        UsageError: If no run has scores of one of `metrics`, no case has the attribute `by` or `stratify_by`, there is
            no such mean or interval, or a number of the bootstrap is invalid.
        UserError: If there is no run, one run is given twice, or a patient is in two strata.
    """
    if not runs:
        raise UserError("No run to make a table of; run `python -m medimg_eval test` first")
    UsageError.refuse_invalid("mean", ("case", "class"), mean)
    check_numbers(resamples, level, seed)
    check_interval(interval)
    if metrics is not None and not metrics:
        raise UsageError("metrics names none; name at least one, or leave it out for those of the tasks")
    if by == CONDITION:  # scores without images have a row of their run there
        runs = [run for run in runs if not run.run.endswith(f"~{NO_IMAGE}")]
    columns, hidden = make_columns(runs, metrics)
    settings = Settings(resamples, level, seed, mean, interval, stratify_by or "")
    shown_tasks = {column.task for column in columns}
    named = named_runs([run for run in runs if run.task in shown_tasks])
    whole_rows = baselines_last(
        Row(name, tuple(_model_cells(by_task, columns, settings))) for name, by_task in named.items()
    )
    rows = divided(columns, named, whole_rows, by=by, settings=settings) if by else whole_rows
    rows = ranked(columns, rows)
    notes = write_footnotes(columns, whole_rows, shown=rows, settings=settings, hidden=hidden, by=by or "")
    if not published_numbers:
        return Table(tuple(columns), tuple(rows), notes, by or "")
    printed, further_notes = published_rows(runs, columns, rows, by=by or "", compared=mean == "case")
    return Table(tuple(columns), tuple(rows), [*notes, *further_notes], by or "", published=printed)


def check_numbers(resamples: object, level: object, seed: object) -> None:
    """Raises UsageError for invalid settings of the bootstrap."""
    if not isinstance(resamples, int) or isinstance(resamples, bool) or resamples < 1:
        raise UsageError(f"resamples must be a whole number of at least 1, got {resamples!r}")
    if not isinstance(level, int | float) or not 0 < level < 1:
        raise UsageError(f"level must be a number between 0 and 1, got {level!r}")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, got {seed!r}")


def check_interval(interval: object) -> None:
    """Raises UsageError for a kind of interval that there is not."""
    UsageError.refuse_invalid("interval", METHODS, interval)


def named_runs(runs: Sequence[RunScores]) -> dict[str, dict[str, RunScores]]:
    """Returns runs by row name and task, ids where ambiguous."""
    times = Counter((run.task, run.name) for run in runs)
    named: dict[str, dict[str, RunScores]] = {}
    for run in runs:
        name = run.name if times[run.task, run.name] == 1 else f"{run.name} ({run.run})"
        by_task = named.setdefault(name, {})
        if run.task in by_task:
            raise UserError(f"{by_task[run.task].folder} and {run.folder} hold the same run ({run.run}); give only one")
        by_task[run.task] = run
    return named


def _model_cells(by_task: Mapping[str, RunScores], columns: Sequence[Column], settings: Settings) -> list[Cell]:
    """Returns the cells of one model, those of each task made together."""
    cells_made: dict[tuple[str, str], Cell] = {}
    for task, run in by_task.items():
        wanted = [column.metric for column in columns if column.task == task]
        cells_made |= {(task, name): cell for name, cell in zip(wanted, make_cells(run, wanted, settings), strict=True)}
    return [cells_made.get((column.task, column.metric), Cell()) for column in columns]


def baselines_last(rows: Iterable[Row]) -> list[Row]:
    """Returns rows with baselines last."""
    return sorted(rows, key=lambda row: row.baseline)


def ranked(columns: Sequence[Column], rows: Sequence[Row]) -> list[Row]:
    """Returns rows with column marks, compared within label or group."""
    marked = list(rows)
    for group in {row.group: row for row in rows if row.group != GAP}:
        row_indices = [row_index for row_index, row in enumerate(rows) if row.group == group]
        rivals = [[_comparable_mean(cell) for cell in rows[row_index].cells] for row_index in row_indices]
        marks = [_column_marks(column, means) for column, means in zip(columns, zip(*rivals, strict=True), strict=True)]
        for number, mark in enumerate(marks):
            if not _are_comparable([rows[row_index].cells[number] for row_index in row_indices]):
                marks[number] = [""] * len(mark)
        for index, row_index in enumerate(row_indices):
            cells = zip(rows[row_index].cells, marks, strict=True)
            marked[row_index] = replace(
                rows[row_index], cells=tuple(replace(cell, mark=of_column[index]) for cell, of_column in cells)
            )
    return marked


def _comparable_mean(cell: Cell) -> float:
    """Returns the comparable mean; NaN for a baseline."""
    return np.nan if cell.run is not None and cell.run.baseline else cell.mean


def _are_comparable(cells: Sequence[Cell]) -> bool:
    """Returns whether set values compare: equal size where it matters."""
    drifting = [cell.of_set.value for cell in cells if cell.of_set is not None and cell.of_set.value.depends_on_n]
    return len({(cell.n_real, cell.n_generated) for cell in drifting}) < 2


def _column_marks(column: Column, means: Sequence[float]) -> list[Mark]:
    """Returns marks of a column's means; NaN is never marked."""
    unmarked: list[Mark] = [""] * len(means)
    if column.higher_is_better is None or np.count_nonzero(~np.isnan(means)) < 2:
        return unmarked
    # What is compared is what is printed: a difference that the reader cannot see must not decide.
    printed = [None if np.isnan(mean) else float(column.text(mean)) for mean in means]
    levels = sorted({value for value in printed if value is not None}, reverse=column.higher_is_better)
    by_place: dict[float | None, Mark] = dict(zip(levels, ("best", "second"), strict=False))
    return [by_place.get(value, "") for value in printed]
