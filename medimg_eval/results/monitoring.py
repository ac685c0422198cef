"""A metric over months or runs as a control chart: the table, the figure, and which rules are violated."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError, shortened
from medimg_eval.results.runs import Part, RunScores, attribute_names, is_evidence, is_set, is_summary
from medimg_eval.results.statistics import CHARTS, RULES, Charted, case_values, control_chart, is_share, violations
from medimg_eval.results.table import Layout, Line, Settings, Sheet, Span, bounded, make_cell, make_column

if TYPE_CHECKING:
    from medimg_eval.results.figures import Drawn

USUAL_BASELINE = 12
"""Periods that limits come from, where there are more; of fewer, all of them."""
PLAIN = Settings(resamples=10_000, level=0.95, seed=0)
_DATE = re.compile(r"(\d{4})-?(\d{2})(?:-?\d{2})?(?:[T ].*)?")
NAMES = {
    "p": "P chart",
    "laney": "Laney's p' chart",
    "xbar": "X-bar chart",
    "individuals": "Chart of individual values",
    "ewma": "EWMA chart",
    "cusum": "CUSUM chart",
}


class Period(NamedTuple):
    """Content of one period."""

    name: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Monitoring:
    """A control chart with its numbers.

    Attributes:
        title: of the task.
        metric: which.
        kind: of chart.
        chart: centre, limits and what is plotted.
        frame: a row for each period: `period`, `value`, `low`, `high` (the interval), `n`, `plotted`, `lower_limit`,
            `upper_limit`, `baseline`, `violations`, `direction`.
        notes: what it rests on.
    """

    title: str
    metric: str
    kind: str
    chart: Charted
    frame: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the chart."""
        return NAMES[self.kind]

    @property
    def violated(self) -> list[str]:
        """Periods that are out of control, a sentence for each."""
        rows = self.frame.loc[self.frame["violations"] != ""].to_dict("records")
        return [f"{row['period']}: {row['direction']}: {row['violations']}" for row in rows]

    def sheet(self) -> Sheet:
        """The chart as a printable table."""
        lines = []
        for row in self.frame.to_dict("records"):
            spans = bounded(row["value"], row["low"], row["high"], lambda number: f"{number:.3f}")
            limits = f"{row['lower_limit']:.3f} to {row['upper_limit']:.3f}"
            signal = f"{row['direction']}: {row['violations']}" if row["violations"] else ""
            cells = [spans, [Span(f"{row['n']:,}")], [Span(f"{row['plotted']:.3f}")], [Span(limits)], [Span(signal)]]
            lines.append(Line([str(row["period"]) + " (baseline)" * bool(row["baseline"])], cells))
        heads = [self.frame.attrs["column"], "n", "Plotted", "Limits", "Violated"]
        title = f"{self.name} of {self.title}"
        return Sheet(Layout.of_block(title, heads, lines, self.notes, ["Period"]), self.frame)

    def draw(self, width: str | float = "double") -> Drawn:
        """The chart as a figure."""
        from medimg_eval.results.figures import control_chart_figure

        return control_chart_figure(self, width)


def monitor(
    runs: Sequence[RunScores],
    metric: str,
    *,
    by: str = "",
    kind: str = "",
    baseline: int | None = None,
    settings: Settings = PLAIN,
) -> Monitoring:
    """Returns the control chart of one model's metric over periods.

    Args:
        runs: of one model on one task; without `by` each is a period, in the order in which they began.
        metric: of cases, a summary, or a metric of sets.
        by: attribute of the cases that tells their period, such as `month`; dates (2026-11-03) are taken by month.
            Cases of all runs are put together by it; other values are sorted as text.
        kind: of chart; "" takes `p` for shares of yes and no, `xbar` for means over cases, `individuals` for summaries.
        baseline: how many of the first periods limits come from; None takes the first 12, or all of fewer.
        settings: of the intervals.

    Raises:
        UsageError: there is no such metric, attribute or kind, or several models or tasks.
        UserError: there are too few periods, or one has no value.
    """
    finished = [run for run in runs if run.finished and not run.baseline]
    _check_settings(finished, metric, by, kind)
    periods = list(_by_attribute(finished, by) if by else _by_run(finished))
    if len(periods) < 3:
        raise UserError(f"a control chart needs three periods at least, and there are {len(periods)}")
    first = finished[0]
    share = is_share(metric, first)
    single = is_summary(metric) or is_set(metric)
    chosen = kind or ("p" if share else "individuals" if single else "xbar")
    if chosen in ("p", "laney") and not share:
        raise UsageError(f"kind={chosen} is for shares of yes and no, and {metric} is none")
    rows = [_period_row(period, metric, settings, single=single) for period in periods]
    if empty_periods := [row["period"] for row in rows if math.isnan(row["value"])]:
        raise UserError(f"{len(empty_periods)} periods have no value of {metric}: {shortened(empty_periods)}")
    number = min(USUAL_BASELINE, len(rows)) if baseline is None else baseline
    frame = pd.DataFrame.from_records(rows)
    try:
        chart = control_chart(chosen, frame["value"], frame["n"], frame["deviation"], number)  # type: ignore[arg-type]
    except ValueError as error:
        raise UserError(f"no control chart of {metric}: {error}") from error
    frame = _with_chart(frame.drop(columns="deviation"), chart, chosen, number, first, metric)
    return Monitoring(first.task_title, metric, chosen, chart, frame, tuple(_chart_notes(first, chosen, number, frame)))


def _check_settings(runs: Sequence[RunScores], metric: str, by: str, kind: str) -> None:
    if not runs:
        raise UserError("there is no finished run to monitor")
    for what, names in (("models", {run.model for run in runs}), ("tasks", {run.task for run in runs})):
        if len(names) > 1:
            raise UsageError(
                f"a control chart is of one model on one task; these are {len(names)} {what}: "
                f"{shortened(sorted(names))}; `score` calls all files of a product alike with masks={{product: FOLDER}}"
            )
    if kind:
        UsageError.refuse_invalid("kind", CHARTS, kind)
    names_ = list(dict.fromkeys(name for run in runs for name in (*run.metrics, *run.scores["metric"].unique())))
    UsageError.refuse_unknown("no run was scored by", [name for name in names_ if not is_evidence(name)], metric)
    if by:
        UsageError.refuse_unknown("by: no case has", attribute_names(runs), by)


def _by_run(runs: Sequence[RunScores]) -> Iterator[Period]:
    """Runs as periods, named by month, or day where several."""
    ordered = sorted(runs, key=lambda run: run.started)
    months = [run.started.strftime("%Y-%m") for run in ordered]
    days = [run.started.strftime("%Y-%m-%d") for run in ordered]
    names = months if len(set(months)) == len(months) else days
    if len(set(names)) < len(names):
        names = [f"{day} {run.run}" for day, run in zip(days, ordered, strict=True)]
    for name, run in zip(names, ordered, strict=True):
        yield Period(name, (Part.whole(run),))


def _by_attribute(runs: Sequence[RunScores], by: str) -> Iterator[Period]:
    parts: dict[str, list[Part]] = {}
    for run in runs:
        for value, part in Part.whole(run).groups(by).items():
            date = _DATE.fullmatch(value)
            name = f"{date[1]}-{date[2]}" if date else value
            parts.setdefault(name, []).append(part)
    for name in sorted(parts):
        yield Period(name, tuple(parts[name]))


def _join_parts(parts: Sequence[Part]) -> Part:
    """Parts of several runs, or of several days, as one."""
    if len(parts) == 1:
        return parts[0]
    scores = pd.concat([part.scores for part in parts], ignore_index=True)
    clusters = pd.concat([part.clusters for part in parts])
    if clusters.index.has_duplicates:
        twice = clusters.index[clusters.index.duplicated()][0]
        raise UserError(f"case {twice!r} is in two runs; name the runs of which each case counts once")
    return Part(parts[0].run, scores, clusters)


def _period_row(period: Period, metric: str, settings: Settings, *, single: bool) -> dict[str, Any]:
    part = _join_parts(period.parts)
    cell = make_cell(part, metric, settings)
    deviation = math.nan
    if not single:
        values = case_values(part.scores.loc[part.scores["metric"] == metric])["value"].dropna()
        deviation = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    held = {"period": period.name, "value": cell.mean, "low": cell.low, "high": cell.high}
    return {**held, "n": max(cell.n, 1), "interval": cell.method, "deviation": deviation}


def _with_chart(
    frame: pd.DataFrame, chart: Charted, kind: str, baseline: int, run: RunScores, metric: str
) -> pd.DataFrame:
    shown_chart = chart._replace(z=np.full(chart.z.shape, np.nan)) if kind in ("ewma", "cusum") else chart
    column = make_column(run.task, run.task_title, metric, run)
    middle = 0.0 if kind == "cusum" else chart.centre
    higher = chart.plotted > middle
    words = {True: ("better", "worse"), False: ("worse", "better"), None: ("higher", "lower")}[column.higher_is_better]
    charted = frame.assign(
        plotted=chart.plotted,
        centre=chart.centre,
        lower_limit=chart.low,
        upper_limit=chart.high,
        baseline=np.arange(len(frame)) < baseline,
        direction=[words[0] if up else words[1] for up in higher],
        violations=["; ".join(broken) for broken in violations(shown_chart)],
    )
    charted.attrs["column"] = column.heading
    return charted


def _chart_notes(run: RunScores, kind: str, baseline: int, frame: pd.DataFrame) -> Iterator[str]:
    yield f"Centre and limits come from the first {baseline} of {len(frame)} periods, the baseline."
    if baseline < USUAL_BASELINE:
        yield f"Limits from fewer than {USUAL_BASELINE} periods are preliminary."
    if kind in ("p", "laney", "xbar", "individuals"):
        yield f"Limits: centre +- 3 sigma. Rules: {'; '.join(RULES)}."
        yield "Without any change about one period in 92 breaks a rule."
    else:
        yield "Only limits count as a rule: without a change about one period in 370 is beyond them."
    methods = ", ".join(sorted({name for name in frame["interval"] if name}))
    yield f"Intervals of values: {methods or 'none'}, over {run.unit}."
    several = run.resampled == "patients" and run.scores["patient"].nunique() < run.scores["case"].nunique()
    if several and kind in ("p", "xbar"):
        yield "Some patients have several cases, which limits take for independent; kind=individuals does not."
