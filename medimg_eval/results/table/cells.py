"""What stands in one column and one cell of a table: metrics as they are printed, Score rows as a mean."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from medimg_eval import metrics
from medimg_eval.errors import UserError
from medimg_eval.metrics.repeats import spread
from medimg_eval.results.runs import SET, Part, SetRow, is_known, is_set, is_summary, row_of_part, strata_of
from medimg_eval.results.statistics import (
    EQUAL,
    OWN,
    PERCENTILE,
    TOO_FEW,
    Bootstrap,
    Interval,
    Method,
    Sample,
    case_values,
    is_share,
    label_values,
    rows_of,
    summarise,
    table_intervals,
    units,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pandas as pd

    from medimg_eval.results.runs import RunScores

log = logging.getLogger(__name__)

Mark = Literal["best", "second", ""]
Mean = Literal["case", "class"]
"""Which mean: over cases, each with the mean over its labels; or over labels, each with the mean over its cases."""

NO_RUN = "\N{EN DASH}"
"""What stands in the cell of a model that was not run on the task, or never scored by the metric."""
SMALL_N, ALL_EQUAL = "[n too small]", "[all equal]"
"""What stands in the place of an interval that would rest on too few patients, or on values that are all the same."""
NO_INTERVAL = {TOO_FEW: SMALL_N, EQUAL: ALL_EQUAL}
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
    scale: float = 1.0
    """What values are multiplied by when they are printed: 100 where shares are shown in percent."""

    @property
    def arrow(self) -> str:
        """The direction of better values; empty where it is unknown."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    @property
    def heading(self) -> str:
        """The title with the direction of better values."""
        return f"{self.title} {self.arrow}".rstrip()

    def text(self, value: float) -> str:
        """Returns `value` at the precision of this column."""
        # Rounding first and adding zero keeps a small negative number from being printed as "-0.000".
        return f"{round(self.scale * value, self.decimals) + 0.0:.{self.decimals}f}"


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
    method: str = ""
    """How the interval was made, as in `Interval`; "" where there is none."""
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
    between: float | None = None
    """SD (n - 1) between the run's repeats; None of one."""
    within: float | None = None
    """SD within cases: the root of the mean variance (n - 1) over a case's repeats."""
    raised: str = ""
    """What the summary raised instead of a value."""
    mark: Mark = ""
    remark: str = ""
    """What is printed after the interval, such as "n = 12"."""
    sign: str = ""
    """What is printed behind the value: † or ‡ where a test found a difference."""
    matched: bool = True
    """False where the run has no case that the column is about."""
    of_set: SetRow | None = None
    """What a value of a set rests on, which brings its own interval."""

    @property
    def doubtful(self) -> bool:
        """Whether a value rests on too few images."""
        return self.of_set is not None and self.of_set.value.flagged("small_n")

    @property
    def absent(self) -> bool:
        """Whether the model was not run on this task."""
        return self.run is None

    @property
    def unscored(self) -> bool:
        """Whether the run is finished and was never scored by this metric."""
        return self.run is not None and self.run.finished and np.isnan(self.mean) and not (self.rows or self.raised)

    def text(self, column: Column) -> str:
        """Returns the printed mean, or the reason without one."""
        if self.run is None or not self.matched or self.unscored:
            return NO_RUN
        if not self.run.finished:
            return f"unfinished {self.run.predicted}/{self.run.cases}"
        return "undefined" if np.isnan(self.mean) else column.text(self.mean)

    def interval_text(self, column: Column) -> str:
        """Returns printed bounds, their reason of absence, or ""."""
        if self.method in NO_INTERVAL and not np.isnan(self.mean):
            return NO_INTERVAL[self.method]
        return "" if np.isnan(self.low) else f"[{column.text(self.low)}, {column.text(self.high)}]"


@dataclass(frozen=True)
class Row:
    """Table row: a model, or its label or group."""

    name: str
    cells: tuple[Cell, ...]
    group: str = ""
    """The label or group; empty in a table that is not divided."""

    @property
    def baseline(self) -> bool:
        """Whether all runs are baselines, unranked below models."""
        runs = [cell.run for cell in self.cells if cell.run is not None]
        return bool(runs) and all(run.baseline for run in runs)


class Settings(NamedTuple):
    """How the numbers of a table were computed."""

    resamples: int
    level: float
    seed: int
    mean: Mean = "case"
    interval: Method = PERCENTILE
    stratify_by: str = ""
    """Attribute within whose values clusters are drawn; "" for what each task says."""

    @property
    def bootstrap(self) -> Bootstrap:
        """Settings that intervals are made by."""
        return Bootstrap(self.resamples, self.level, self.seed, self.interval)


def make_column(task: str, group: str, metric: str, run: RunScores) -> Column:
    """Returns a metric's column, by registry or run."""
    if metric == NO_METRIC:
        return Column(task, group, metric, "no scores yet", None, 3)
    if not is_known(metric):
        # Of a plug-in that is not installed here, or computed elsewhere: without a direction it cannot be ranked.
        return Column(task, group, metric, metric, run.directions.get(metric), 3)
    definition = metrics.get(metric)
    title = metrics.title(metric)
    unit = "px" if definition.unit == "mm" and run.units == "pixel" else definition.unit
    return Column(
        task,
        group,
        metric,
        f"{title} ({unit})" if unit else title,
        definition.higher_is_better,
        2 if definition.unit else 4 if definition.kind == SET else 3,
    )


def make_cell(part: Part | RunScores, metric: str, settings: Settings) -> Cell:
    """Returns a run's value by one metric; none while unfinished."""
    return make_cells(part, [metric], settings)[0]


def make_cells(part: Part | RunScores, wanted: Sequence[str], settings: Settings) -> list[Cell]:
    """Returns cells of several metrics, sharing resamples.

    Means over the same patients.

    Raises:
        UsageError: If no case has the attribute that is to divide the patients into strata.
        UserError: If a patient is in two strata.
    """
    if not isinstance(part, Part):
        if not part.finished:
            return [Cell(run=part, failed=part.failed_cases) for _ in wanted]
        part = Part.whole(part)
    failed = int(part.scores.loc[part.scores["status"] == "failed", "case"].nunique())
    strata = strata_of(part.run, settings.stratify_by)
    cells: dict[str, Cell] = {}
    means: dict[str, tuple[pd.DataFrame, Sample]] = {}
    for metric in wanted:
        if is_set(metric):
            cells[metric] = _set_cell(part, metric, failed)
        elif is_summary(metric):
            rows = int(part.scores["metric"].isin(part.needed(metric)).sum())
            try:
                value = summarise(metric, part, **settings.bootstrap._asdict(), strata=strata)
            except UserError:
                raise
            except Exception as error:
                log.warning("%s of %s raised an error", metric, part.run.folder, exc_info=True)
                cells[metric] = Cell(run=part.run, rows=rows, failed=failed, raised=f"{type(error).__name__}: {error}")
                continue
            cells[metric] = Cell(run=part.run, **value._asdict(), rows=rows, failed=failed)
        elif (scores := part.scores.loc[part.scores["metric"] == metric]).empty:
            cells[metric] = Cell(run=part.run, failed=failed)
        else:
            cases = case_values(scores)
            means[metric] = (
                cases,
                _make_sample(part.run, metric, cases, scores, strata, by_label=settings.mean == "class"),
            )
    intervals = table_intervals([sample for _, sample in means.values()], settings.bootstrap)
    for (metric, (cases, _)), interval in zip(means.items(), intervals, strict=True):
        cells[metric] = _with_spread(_with_counts(part.run, cases, interval, failed), part, metric)
    return [cells[metric] for metric in wanted]


def _with_spread(cell: Cell, part: Part, metric: str) -> Cell:
    if part.run.repeats < 2:
        return cell
    between, within = spread(rows_of(part, (metric,), every=True))
    return replace(cell, between=between, within=within)


def _make_sample(
    run: RunScores,
    metric: str,
    cases: pd.DataFrame,
    scores: pd.DataFrame,
    strata: pd.Series[str] | None,
    *,
    by_label: bool,
) -> Sample:
    """Returns the values averaged: by case, or by label."""
    if not by_label:
        return _case_sample(run, metric, cases, units(run, cases), strata)
    scores = label_values(scores)
    return Sample(
        values=scores["value"].to_numpy(),
        clusters=scores["patient" if run.resampled == "patients" else "case"].to_numpy(dtype=str),
        labels=scores["label"].to_numpy(dtype=str),
        strata=None if strata is None else strata.reindex(scores["case"].astype(str)).to_numpy(dtype=str),
        share=is_share(metric, run),
    )


def _case_sample(
    run: RunScores, metric: str, cases: pd.DataFrame, unit: npt.NDArray[np.int64], strata: pd.Series[str] | None
) -> Sample:
    of_case = None if strata is None else strata.reindex(cases.index.astype(str)).to_numpy(dtype=str)
    return Sample(cases["value"].to_numpy(), unit, strata=of_case, share=is_share(metric, run))


def _set_cell(part: Part, metric: str, failed: int) -> Cell:
    """Returns a set's value and interval, noting failed cases."""
    set_row = row_of_part(part, metric)
    if set_row is None:
        return Cell(run=part.run, failed=failed)
    set_value = set_row.value
    count = 0 if np.isnan(set_value.value) else set_value.n_generated
    return Cell(
        run=part.run,
        mean=set_value.value,
        low=set_value.low,
        high=set_value.high,
        n=count,
        n_clusters=count,
        method="" if np.isnan(set_value.low) else OWN,
        rows=1,
        failed=failed,
        of_set=set_row,
    )


def case_mean_cell(
    run: RunScores,
    metric: str,
    cases: pd.DataFrame,
    unit: npt.NDArray[np.int64],
    failed: int,
    settings: Settings,
) -> Cell:
    """Returns the mean over cases.

    Args:
        run: The run.
        metric: Which metric.
        cases: Of it, as `case_values` returns them, or some of those.
        unit: Of each of them, as `units` returns it.
        failed: How many cases failed.
        settings: How the interval is computed.
    """
    sample = _case_sample(run, metric, cases, unit, strata_of(run, settings.stratify_by))
    return _with_counts(run, cases, table_intervals([sample], settings.bootstrap)[0], failed)


def _with_counts(run: RunScores, cases: pd.DataFrame, interval: Interval, failed: int) -> Cell:
    empty = cases["value"].isna()
    not_judged = empty & cases["failed"]
    return Cell(
        run=run,
        **interval._replace(n=int(cases["value"].count()))._asdict(),
        rows=int(cases["rows"].sum()),
        failed=failed,
        not_judged=int(not_judged.sum()),
        undefined_cases=int((empty & ~cases["failed"]).sum()),
        undefined_labels=int(cases.loc[~not_judged, "undefined"].sum()),
    )
