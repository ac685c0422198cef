"""What stands in one column and one cell of a table: metrics as they are printed, Score rows as a mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from medimg_eval import metrics
from medimg_eval.results.intervals import Interval, class_mean_interval, mean_interval
from medimg_eval.results.kinds import SET, is_known, is_set, is_summary
from medimg_eval.results.parts import Part
from medimg_eval.results.set_values import SetRow, row_of_part
from medimg_eval.results.summaries import summarise

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from medimg_eval.results.load import RunScores

Mark = Literal["best", "second", ""]
Mean = Literal["case", "class"]
"""Which mean: over cases, each with the mean over its labels; or over labels, each with the mean over its cases."""

NO_RUN = "\N{EN DASH}"
"""What stands in the cell of a model that was not run on the task."""
NO_METRIC = ""
"""Metric of the one column of a task that has no scores yet."""


@dataclass(frozen=True)
class Column:
    """One metric of one task."""

    task: str
    group: str
    """The task's title, which stands over all its columns."""
    metric: str
    title: str
    """The metric's title with its unit, such as "HD95 (mm)"."""
    higher_is_better: bool | None
    """None where the metric is not registered, so that its direction is unknown."""
    decimals: int
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Which cases count, if not all: attribute and the values that it may have; all of them must hold."""

    @property
    def arrow(self) -> str:
        """The direction of better values; empty where it is unknown."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    def text(self, value: float) -> str:
        """Returns `value` at the precision of this column."""
        # Rounding first and adding zero keeps a small negative number from being printed as "-0.000".
        return f"{round(value, self.decimals) + 0.0:.{self.decimals}f}"


@dataclass(frozen=True)
class Cell:
    """One model on one task by one metric."""

    run: RunScores | None = None
    """None where the model was not run on this task."""
    mean: float = np.nan
    low: float = np.nan
    high: float = np.nan
    n: int = 0
    """Cases that the mean rests on."""
    n_clusters: int = 0
    """Patients (or cases, where the run says so) that the interval resamples."""
    rows: int = 0
    """Score rows of this metric; 0 where the run was never scored by it."""
    failed: int = 0
    """Failed cases of the run."""
    not_judged: int = 0
    """Failed cases without a value, because the metric has no worst value for them."""
    undefined_cases: int = 0
    """Other cases without a value."""
    undefined_labels: int = 0
    """Label values left out because they are undefined, except those of cases that were not judged."""
    dropped: int = 0
    """Resamples on which a summary is undefined, left out of its interval."""
    mark: Mark = ""
    remark: str = ""
    """What is printed after the interval, such as "n = 12"."""
    matched: bool = True
    """False where the run has no case that the column is about."""
    of_set: SetRow | None = None
    """What a value of a set rests on, which brings its own interval."""

    @property
    def doubtful(self) -> bool:
        """Whether it is a value of so few images that it hardly means anything."""
        return self.of_set is not None and self.of_set.value.flagged("small_n")

    @property
    def absent(self) -> bool:
        """Whether the model was not run on this task."""
        return self.run is None

    @property
    def unfinished(self) -> bool:
        """Whether the run stopped early or still runs; its values are then not averaged."""
        return self.run is not None and not self.run.finished

    def text(self, column: Column) -> str:
        """Returns the mean as it is printed, or the reason why there is none."""
        if self.run is None or not self.matched:
            return NO_RUN
        if not self.run.finished:
            return f"unfinished {self.run.predicted}/{self.run.cases}"
        return "undefined" if np.isnan(self.mean) else column.text(self.mean)

    def interval_text(self, column: Column) -> str:
        """Returns the bounds as they are printed; empty where there is no interval."""
        return "" if np.isnan(self.low) else f"[{column.text(self.low)}, {column.text(self.high)}]"


@dataclass(frozen=True)
class Row:
    """One model, or one label or group of cases of it, with one cell for each column of the table."""

    name: str
    cells: tuple[Cell, ...]
    group: str = ""
    """The label or group; empty in a table that is not divided."""

    @property
    def baseline(self) -> bool:
        """Whether all its runs are baselines, which stand below the models and are not ranked."""
        runs = [cell.run for cell in self.cells if cell.run is not None]
        return bool(runs) and all(run.baseline for run in runs)


class Settings(NamedTuple):
    """How the numbers of a table were computed."""

    resamples: int
    level: float
    seed: int
    mean: Mean = "case"


def make_column(task: str, group: str, metric: str, run: RunScores) -> Column:
    """Returns the column of a metric as the registry describes it, or the run where the registry lacks it."""
    if metric == NO_METRIC:
        return Column(task, group, metric, "no scores yet", None, 3)
    if not is_known(metric):
        # Of a plug-in that is not installed here, or computed elsewhere: without a direction it cannot be ranked.
        return Column(task, group, metric, metric, run.directions.get(metric), 3)
    known = metrics.get(metric)
    title = metrics.title(metric)
    unit = "px" if known.unit == "mm" and run.units == "pixel" else known.unit
    return Column(
        task,
        group,
        metric,
        f"{title} ({unit})" if unit else title,
        known.higher_is_better,
        2 if known.unit else 4 if known.kind == SET else 3,
    )


def make_cell(part: Part | RunScores, metric: str, settings: Settings) -> Cell:
    """Returns what a run, or a part of it, is worth by one metric; an unfinished run is worth nothing yet."""
    if not isinstance(part, Part):
        if not part.finished:
            return Cell(run=part, failed=part.failed_cases)
        part = Part.whole(part)
    failed = int(part.scores.loc[part.scores["status"] == "failed", "case"].nunique())
    if is_set(metric):
        return _set_cell(part, metric, failed)
    if is_summary(metric):
        rows = int(part.scores["metric"].isin(metrics.get(metric).needs).sum())
        value = summarise(metric, part, resamples=settings.resamples, level=settings.level, seed=settings.seed)
        return Cell(run=part.run, **value._asdict(), rows=rows, failed=failed)
    scores = part.scores.loc[part.scores["metric"] == metric]
    return Cell(run=part.run, failed=failed) if scores.empty else _mean_cell(part.run, scores, failed, settings)


def _set_cell(part: Part, metric: str, failed: int) -> Cell:
    """Returns the value of a set with its own interval; of fewer cases than were asked for if some failed."""
    found = row_of_part(part, metric)
    if found is None:
        return Cell(run=part.run, failed=failed)
    one = found.value
    count = 0 if np.isnan(one.value) else one.n_generated
    return Cell(
        run=part.run,
        mean=one.value,
        low=one.low,
        high=one.high,
        n=count,
        n_clusters=count,
        rows=1,
        failed=failed,
        of_set=found,
    )


def _mean_cell(run: RunScores, scores: pd.DataFrame, failed: int, settings: Settings) -> Cell:
    """Returns the mean of the Score rows of one metric."""
    cases = case_values(scores)
    if settings.mean == "case":
        return case_mean_cell(run, cases, units(run, cases), failed, settings)
    values, labels = scores["value"].to_numpy(), scores["label"].to_numpy(dtype=str)
    unit = scores["patient" if run.resampled == "patients" else "case"].to_numpy(dtype=str)
    interval = class_mean_interval(
        values, labels, unit, resamples=settings.resamples, level=settings.level, seed=settings.seed
    )
    return _with_counts(run, cases, interval._replace(n=int(cases["value"].count())), failed)


def case_mean_cell(
    run: RunScores, cases: pd.DataFrame, unit: npt.NDArray[np.int64], failed: int, settings: Settings
) -> Cell:
    """Returns the mean over cases.

    Args:
        run: The run.
        cases: As `case_values` returns them, or some of those.
        unit: Of each of them, as `units` returns it.
        failed: How many cases failed.
        settings: How the interval is computed.
    """
    interval = mean_interval(
        cases["value"].to_numpy(), unit, resamples=settings.resamples, level=settings.level, seed=settings.seed
    )
    return _with_counts(run, cases, interval, failed)


def _with_counts(run: RunScores, cases: pd.DataFrame, interval: Interval, failed: int) -> Cell:
    empty = cases["value"].isna()
    not_judged = empty & cases["failed"]
    return Cell(
        run=run,
        **interval._asdict(),
        rows=int(cases["rows"].sum()),
        failed=failed,
        not_judged=int(not_judged.sum()),
        undefined_cases=int((empty & ~cases["failed"]).sum()),
        undefined_labels=int(cases.loc[~not_judged, "undefined"].sum()),
    )


def units(run: RunScores, cases: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Returns what is resampled with each of `cases`, (case,), as its place among the sorted names."""
    names = cases["patient"] if run.resampled == "patients" else cases.index.to_series()
    return np.unique(names.to_numpy(dtype=str), return_inverse=True)[1].astype(np.int64)


def case_values(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per case for the Score rows of one metric: value, patient, failed, rows, undefined.

    The value is the mean over the case's labels that have one, and NaN where none has; `rows` counts its labels, and
    `undefined` those without a value.
    """
    rows = rows.assign(failed=rows["status"] == "failed", rows=1, undefined=rows["value"].isna())
    kept = ["value", "patient", "failed", "rows", "undefined"]
    if rows["case"].is_unique:
        return rows.set_index("case")[kept].sort_index()
    return rows.groupby("case", observed=True, sort=True).agg(
        value=("value", "mean"),
        patient=("patient", "first"),
        failed=("failed", "any"),
        rows=("rows", "sum"),
        undefined=("undefined", "sum"),
    )
