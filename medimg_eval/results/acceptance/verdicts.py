"""Whether intervals lie within the bounds that were asked for, endpoint by endpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.acceptance.criteria import Analysis, Endpoint
from medimg_eval.results.runs import Part, RunScores, is_summary, strata_of
from medimg_eval.results.statistics import EQUAL, TOO_FEW, Interval, Sample, case_values, table_intervals, units
from medimg_eval.results.table import Cell, Layout, Line, Sheet, Span, bounded, make_cell, make_column

MET, NOT_MET, NOT_JUDGED = "met", "not met", "not judged"


@dataclass(frozen=True)
class Verdict:
    """Verdict on one endpoint.

    Attributes:
        endpoint: which.
        verdict: `met`, `not met`, or `not judged` because one before it was not met.
        value: its mean or summary; NaN where it has none, or was not judged.
        low: the bounds of its interval; NaN where there is none.
        high: see low.
        level: coverage of the interval.
        n: cases that it rests on.
        n_clusters: what the interval resamples, mostly patients.
        method: how the interval was made.
        reason: why it was not met, where it is no matter of a bound.
    """

    endpoint: Endpoint
    verdict: str
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    level: float = math.nan
    n: int = 0
    n_clusters: int = 0
    method: str = ""
    reason: str = ""

    @property
    def met(self) -> bool:
        """Whether its interval lies within its bounds."""
        return self.verdict == MET

    def to_json(self) -> dict[str, Any]:
        """Verdict as JSON holds it; what is undefined is null."""
        numbers = {key: getattr(self, key) for key in ("value", "low", "high", "level")}
        return {
            **self.endpoint.to_json(),
            "verdict": self.verdict,
            **{key: None if math.isnan(number) else number for key, number in numbers.items()},
            "n": self.n,
            "clusters": self.n_clusters,
            "interval": self.method,
            "reason": self.reason,
        }


def judge(
    run: RunScores, endpoints: Sequence[Endpoint], analysis: Analysis, others: Sequence[RunScores] = ()
) -> list[Verdict]:
    """Judges a run by the bounds of intervals; the mean alone decides nothing.

    Args:
        run: finished.
        endpoints: in their order; see `Analysis.order`.
        analysis: how intervals are made.
        others: runs among which baselines of differences are.

    Returns:
        One for each endpoint, in their order. The run is accepted where all primary ones are met.

    Raises:
        UsageError: the run has no such metric, label, attribute or baseline.
    """

    def at(level: float) -> Callable[[Endpoint], Verdict]:
        return lambda endpoint: _judge_endpoint(run, endpoint, analysis, level, others)

    primary = [endpoint for endpoint in endpoints if not endpoint.secondary]
    verdicts_ = dict(_primary_verdicts(primary, analysis, at))
    if not verdicts_:
        raise UsageError("accept: all endpoints are secondary; at least one must decide")
    secondary = [index for index, endpoint in enumerate(endpoints) if endpoint.secondary]
    primary_indices = [index for index, endpoint in enumerate(endpoints) if not endpoint.secondary]
    verdicts = {primary_indices[number]: verdict for number, verdict in verdicts_.items()}
    open_ = all(verdict.met for verdict in verdicts_.values())
    for index in secondary:
        verdicts[index] = at(analysis.level)(endpoints[index]) if open_ else Verdict(endpoints[index], NOT_JUDGED)
        open_ = open_ and verdicts[index].met
    return [verdicts[index] for index in range(len(endpoints))]


def _primary_verdicts(
    endpoints: Sequence[Endpoint], analysis: Analysis, at: Callable[[float], Callable[[Endpoint], Verdict]]
) -> Iterator[tuple[int, Verdict]]:
    """Yields the verdict of each primary endpoint with its place."""
    alpha = 1 - analysis.level
    if analysis.order == "holm":
        yield from _by_holm(endpoints, alpha, at)
        return
    level = 1 - alpha / len(endpoints) if analysis.order == "bonferroni" and endpoints else analysis.level
    open_ = True
    for index, endpoint in enumerate(endpoints):
        verdict = at(level)(endpoint) if open_ else Verdict(endpoint, NOT_JUDGED)
        open_ = open_ and (verdict.met or analysis.order != "sequence")
        yield index, verdict


def _by_holm(
    endpoints: Sequence[Endpoint], alpha: float, at: Callable[[float], Callable[[Endpoint], Verdict]]
) -> Iterator[tuple[int, Verdict]]:
    """Holm's procedure by intervals, loosening after each success.

    Source: Holm, Scandinavian Journal of Statistics 1979; an interval lies beyond a bound where the test of the bound
    has a p-value below its alpha.
    """
    remaining = dict(enumerate(endpoints))
    while remaining:
        verdicts = {index: at(1 - alpha / len(remaining))(endpoint) for index, endpoint in remaining.items()}
        met = {index: verdict for index, verdict in verdicts.items() if verdict.met}
        yield from (met or verdicts).items()
        if not met:
            return
        for index in met:
            del remaining[index]


def _judge_endpoint(
    run: RunScores, endpoint: Endpoint, analysis: Analysis, level: float, others: Sequence[RunScores]
) -> Verdict:
    part = part_of(run, endpoint)
    if endpoint.baseline:
        statistics = _endpoint_difference(part, endpoint, analysis, level, others)
    else:
        statistics = _endpoint_value(part, endpoint, analysis, level)
    reason = ""
    if math.isnan(statistics["value"]):
        reason = "it has no value"
    elif math.isnan(statistics["low"]):
        reason = {
            TOO_FEW: f"{statistics['n_clusters']} {run.unit} are too few for an interval",
            EQUAL: "all values are equal, so that they show no spread and have no interval",
        }.get(statistics["method"], "it has no interval")
    inside = not reason and (endpoint.lower is None or statistics["low"] >= endpoint.lower)
    inside = inside and (endpoint.upper is None or statistics["high"] <= endpoint.upper)
    return Verdict(endpoint, MET if inside else NOT_MET, level=level, reason=reason, **statistics)


def part_of(run: RunScores, endpoint: Endpoint) -> Part:
    """The Score rows that an endpoint is about."""
    part = Part.whole(run)
    for attribute, value in endpoint.where.items():
        groups = part.groups(attribute)
        UsageError.refuse_unknown(f"accept: no case has {attribute}", groups, value)
        part = groups[value]
    if endpoint.label:
        labels = part.labels()
        UsageError.refuse_unknown("accept: no case has label", labels, endpoint.label)
        part = labels[endpoint.label]
    return part


def _endpoint_value(part: Part, endpoint: Endpoint, analysis: Analysis, level: float) -> dict[str, Any]:
    cell = make_cell(part, endpoint.metric, analysis.settings(level))
    if not cell.rows and not cell.raised:
        scored = list(part.run.metrics)
        UsageError.refuse_unknown(f"accept: {part.run.model} was not scored by", scored, endpoint.metric)
    if cell.raised:
        raise UserError(f"accept: {endpoint.metric} of {part.run.folder} raised {cell.raised}")
    return _interval_fields(cell)


def _interval_fields(interval: Interval | Cell) -> dict[str, Any]:
    return {
        "value": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "n_clusters": interval.n_clusters,
        "method": interval.method,
    }


def _endpoint_difference(
    part: Part, endpoint: Endpoint, analysis: Analysis, level: float, others: Sequence[RunScores]
) -> dict[str, Any]:
    """Mean difference on shared cases, with a table's interval."""
    run = part.run
    models = {run_.name: run_ for run_ in others if run_.task == run.task and run_.finished and run_ is not run}
    if is_summary(endpoint.metric):
        raise UsageError(f"accept: {endpoint.metric} is one value for a whole run; a baseline is for means over cases")
    UsageError.refuse_unknown("accept: no other run is of model", models, endpoint.baseline)
    theirs = part_of(models[endpoint.baseline], endpoint)
    rows = [part.scores.loc[part.scores["metric"] == endpoint.metric] for part in (part, theirs)]
    cases, other_values = (case_values(some) for some in rows)
    cases = cases.assign(value=cases["value"] - other_values["value"].reindex(cases.index))
    strata = strata_of(run, analysis.stratify_by)
    within = None if strata is None else strata.reindex(cases.index.astype(str)).to_numpy(dtype=str)
    sample = Sample(cases["value"].to_numpy(), units(run, cases), strata=within)
    return _interval_fields(table_intervals([sample], analysis.settings(level).bootstrap)[0])


def verdict_sheet(run: RunScores, verdicts: Sequence[Verdict], notes: Sequence[str] = ()) -> Sheet:
    """Verdicts of a run as printable table, with footnotes."""
    lines, records = [], []
    for item in verdicts:
        column = make_column(run.task, run.task_title, item.endpoint.metric, run)
        verdict_text = f"{item.verdict}: {item.reason}" if item.reason else item.verdict
        value = bounded(item.value, item.low, item.high, column.text, "")
        cells = [[Span(item.endpoint.criterion)], value, [Span(str(item.n) if item.n else "")], [Span(verdict_text)]]
        lines.append(Line([item.endpoint.name + " (secondary)" * item.endpoint.secondary], cells))
        records.append({"run": run.run, "model": run.model, "task": run.task, **_flatten_verdict(item)})
    notes_ = [
        f"{item.endpoint.name}: {100 * item.level:.6g} % interval, {item.method}, over {item.n_clusters} {run.unit}."
        for item in verdicts
        if not math.isnan(item.low)
    ]
    title = f"Acceptance of {run.name} on {run.task_title}"
    heads = ["Criterion", "Value", "n", "Verdict"]
    layout = Layout.of_block(title, heads, lines, [*notes_, *notes], ["Endpoint"])
    return Sheet(layout, pd.DataFrame.from_records(records))


def _flatten_verdict(verdict: Verdict) -> Mapping[str, Any]:
    held = verdict.to_json()
    return {**held, "where": ", ".join(f"{key}={value}" for key, value in held.get("where", {}).items())}
