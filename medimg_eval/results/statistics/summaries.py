"""Score rows as one value for each case, and as summaries of a run with intervals by calling them on resampled rows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval import metrics
from medimg_eval.metrics import Metric, ScoreTable, parse
from medimg_eval.metrics.fairness import case_means
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.weighing import OfRows
from medimg_eval.results.runs import Part, attributes, is_known
from medimg_eval.results.statistics.intervals import (
    BCA,
    FEWEST,
    PERCENTILE,
    TOO_FEW,
    Bootstrap,
    Interval,
    Method,
    Sample,
    acceleration,
    bca_bounds,
    bootstrap_intervals,
)
from medimg_eval.results.statistics.resampling import Resamples

if TYPE_CHECKING:
    import numpy.typing as npt

    from medimg_eval.metrics.registry import Weighed
    from medimg_eval.results.runs import RunScores

MOST_RESAMPLES = 1_000
"""A summary is called once per resample, which costs more than a mean."""
MOST_LEFT_OUT = 1_000
"""BCa needs a summary without each cluster in turn; of more clusters its interval is the percentile interval."""

PATIENT = "patient"
"""The attribute that every row has: the patient, or the case where none is known."""

_MOST_SUMS = 1 << 25
"""Sums of a group in a cluster that are held at a time: 256 MiB."""

_MOST_WEIGHTS = 1 << 19
"""Weights of a row in a resample that are held at a time: 4 MiB, which stay in the cache."""


class Summarised(NamedTuple):
    """Summary value with interval and counts."""

    mean: float
    low: float
    high: float
    n: int
    n_clusters: int
    dropped: int
    """Resamples on which the summary is undefined, left out of the interval."""
    method: str = PERCENTILE
    """How the bounds were made, as in `Interval`; "" where there are none."""
    between: float | None = None
    """SD (n - 1) between the run's repeats; None of one."""


class _Attributes(Mapping[str, "npt.NDArray[np.str_]"]):
    """Row attributes, expanded on demand."""

    def __init__(
        self,
        codes: npt.NDArray[np.int64],
        values: Mapping[str, npt.NDArray[np.str_]],
        patients: tuple[npt.NDArray[np.str_], npt.NDArray[np.int64]],
    ) -> None:
        """`patients`: resampling units, and each row's unit."""
        self.codes = codes
        self.values_by_name = values
        self.patients = patients

    def __getitem__(self, name: str) -> npt.NDArray[np.str_]:
        if name == PATIENT and name not in self.values_by_name:
            names, owner = self.patients
            return names[owner]
        return self.values_by_name[name][self.codes]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.values_by_name, PATIENT: None})

    def __len__(self) -> int:
        return len({**self.values_by_name, PATIENT: None})


class Source:
    """Rows of a part, grouped by cluster for resampling."""

    def __init__(self, part: Part, needs: tuple[str, ...], away: Collection[str] = ()) -> None:
        """Collects rows; `away` cases only keep their cluster."""
        names, cases = part.clusters.to_numpy(dtype=str), part.clusters.index.to_numpy(dtype=str)
        self.units, owner = np.unique(names, return_inverse=True)
        held = ~np.isin(cases, list(away)) if away else np.ones(cases.size, dtype=bool)
        order = np.lexsort((cases, ~held, owner))
        owner, cases, held = owner[order], cases[order], held[order]
        self.names = cases
        scores = part.scores.loc[part.scores["metric"].isin(needs)]
        case = pd.Index(cases).get_indexer(pd.Index(scores["case"].astype(str)))
        order = np.argsort(case, kind="stable")
        scores, self.case = scores.iloc[order], case[order].astype(np.int64)
        self.size = int(owner.max()) + 1 if owner.size else 0
        self.cases = np.bincount(owner[held], minlength=self.size)
        self.first_case = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=self.size))])[:-1]
        self.owner = owner[self.case]
        self.counts = np.bincount(self.owner, minlength=self.size)
        self.first_row = np.concatenate([[0], np.cumsum(self.counts)])[:-1]
        self.place = self.case - self.first_case[self.owner] if self.size else self.case
        self.metric = scores["metric"].to_numpy(dtype=str)
        self.label = scores["label"].to_numpy(dtype=str)
        self.value = scores["value"].to_numpy(dtype=np.float64)
        self.status = scores["status"].to_numpy(dtype=str)
        self.repeat = _score_column(scores, "repeat", np.int64)
        self.condition = _score_column(scores, "condition", np.str_)
        self.codes, self.values = attributes(scores)
        self.facts = part.run.facts

    def of_clusters(self, by_case: pd.Series[str]) -> npt.NDArray[np.str_]:
        """Returns first cases' attributes by cluster, (cluster,); else ""."""
        first = by_case.reindex(self.names[self.first_case]).fillna("")
        return first.to_numpy(dtype=str)

    def rows(self, clusters: npt.NDArray[np.int64]) -> ScoreTable:
        """Returns rows of clusters; repeated clusters become further cases."""
        counts, cases = self.counts[clusters], self.cases[clusters]
        skipped = self.first_row[clusters] - (np.cumsum(counts) - counts)
        chosen = np.repeat(skipped, counts) + np.arange(counts.sum())
        return ScoreTable(
            case=self.place[chosen] + np.repeat(np.cumsum(cases) - cases, counts),
            metric=self.metric[chosen],
            label=self.label[chosen],
            value=self.value[chosen],
            status=self.status[chosen],
            attributes=_Attributes(self.codes[chosen], self.values, (self.units, self.owner[chosen])),
            cases=int(cases.sum()),
            facts=self.facts,
            repeat=self.repeat[chosen] if self.repeat.size else self.repeat,
            condition=self.condition[chosen] if self.condition.size else self.condition,
        )


def _score_column(scores: pd.DataFrame, name: str, kind: type) -> npt.NDArray[Any]:
    return scores[name].to_numpy(dtype=kind) if name in scores.columns else np.zeros(0, kind)


def _summary_sources(part: Part, metric: str) -> list[Source]:
    """Returns a summary's rows by repeat, or all together.

    A case that has rows in other repeats alone is not counted, as in the folds of a cross-validation; one that has
    none anywhere is counted in each.
    """
    definition, needs = parse(metric)[0], part.needed(metric)
    if (key := (needs, definition.over)) not in part.kept:
        part.kept.clear()  # those of one metric after the other need the same rows, if at all
        part.kept[key] = _sources_over(part, needs, definition.over)
    sources: list[Source] = part.kept[key]
    return sources


def _sources_over(part: Part, needs: tuple[str, ...], over: str) -> list[Source]:
    if over == "conditions":
        part = part.with_conditions()
    if over or "repeat" not in part.scores.columns:
        return [Source(part, needs)]
    every, sources = set(part.scores["case"].astype(str)), []
    for _, rows in part.scores.groupby("repeat", sort=True):
        restricted = Part(part.run, rows, part.clusters, part.of)
        sources.append(Source(restricted, needs, every - set(rows["case"].astype(str))))
    return sources


def rows_of(part: Part, needs: tuple[str, ...], *, every: bool = False) -> ScoreTable:
    """Returns a summary's input rows, of first or all repeats."""
    if "repeat" in part.scores.columns and not every:
        rows = part.scores.loc[part.scores["repeat"] == part.scores["repeat"].min()]
        part = Part(part.run, rows, part.clusters, part.of)
    source = Source(part, needs)
    return source.rows(np.arange(source.size))


def by_times(name: str, part: Part) -> Weighed:
    """Returns values as function of cluster counts: (resample,).

    Counts are (resample, cluster).

    Clusters are in the order of their names; a value is NaN where none counts, or there are no rows.
    """
    of_each = [_times_of(name, source) for source in _summary_sources(part, name)]
    if len(of_each) == 1:
        return of_each[0]
    return lambda times: _known_mean(np.array([weighed(times) for weighed in of_each]))


def _known_mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the mean over repeats that are defined: (repeat, resample) to (resample,)."""
    is_known = ~np.isnan(values)
    return quotient(np.where(is_known, values, 0).sum(axis=0), is_known.sum(axis=0))


def _times_of(name: str, source: Source) -> Weighed:
    definition, parameter = parse(name)
    every = np.arange(source.size)
    summary = _Summary(source, source.rows(every), definition, () if parameter is None else (parameter,))
    if not summary.whole.case.size:
        return lambda times: np.full(len(times), np.nan)
    judge = summary.judge()

    def values(times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        some = np.full(len(times), np.nan)
        held = times.any(axis=1)
        if definition.pieces is not None:
            some[held] = summary.total(times[held] @ summary.sums())
        elif judge is not None and held.any():
            some[held] = summary.weighed(judge, times[held])
        else:
            some[held] = [summary.called(np.repeat(every, row.astype(np.intp))) for row in times[held]]
        return some

    return values


def summarise(
    name: str,
    part: Part,
    *,
    resamples: int,
    level: float,
    seed: int,
    method: Method = PERCENTILE,
    strata: pd.Series[str] | None = None,
) -> Summarised:
    """Returns a summary of a part, with cluster bootstrap interval.

    As in `mean_interval`, as many clusters (patients, or cases) as there are get drawn with replacement; their rows
    are put together, and the summary is computed from them anew. At most `MOST_RESAMPLES` are made.

    Args:
        name: The summary as it is asked for, such as "es_dice@race".
        part: What it is a summary of.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval.
        seed: Seed of the random draws.
        method: "percentile" or "bca". BCa leaves out each cluster in turn, and gives way to the percentile interval
            with more than `MOST_LEFT_OUT` clusters, unless the summary is a function of sums.
        strata: The stratum of each case, by case id; None where clusters are drawn from all.

    Returns:
        The value, its bounds, and counts of cases and clusters. The bounds are NaN below `FEWEST` clusters, and where
        most resamples have no value.
    """
    definition, parameter = parse(name)
    how = Bootstrap(min(resamples, MOST_RESAMPLES), level, seed, method)
    sources = _summary_sources(part, name)
    if len(sources) > 1:
        return _over_repeats(sources, definition, () if parameter is None else (parameter,), how, strata)
    source = sources[0]
    summary = _Summary(
        source, source.rows(np.arange(source.size)), definition, () if parameter is None else (parameter,)
    )
    if np.isnan(value := summary.value()):
        return Summarised(np.nan, np.nan, np.nan, 0, 0, 0, "")
    whole_value, size = summary.whole, source.size
    if size < FEWEST:
        return Summarised(value, np.nan, np.nan, whole_value.cases, size, 0, TOO_FEW)
    stratum = None if strata is None else source.of_clusters(strata)
    if definition.pieces is None and definition.weighed is None:
        macro = _macro_interval(summary, how, stratum)
        # It is the same number only if the summary leaves out nothing else and weighs its groups alike.
        if macro is not None and math.isclose(macro.mean, value, rel_tol=1e-9):
            return Summarised(value, macro.low, macro.high, whole_value.cases, size, 0, macro.method)
    drawn = summary.resampled(Resamples(size, resamples=how.resamples, seed=seed, strata=stratum))
    return _with_bounds(
        Summarised(value, np.nan, np.nan, whole_value.cases, size, 0, ""), [summary], drawn, how, stratum
    )


def _with_bounds(
    of: Summarised,
    each: Sequence[_Summary],
    drawn: npt.NDArray[np.float64],
    how: Bootstrap,
    stratum: npt.NDArray[np.generic] | None,
) -> Summarised:
    """Returns a value with resampled bounds; `each` is by repeat."""
    defined = drawn[~np.isnan(drawn)]
    of = of._replace(dropped=drawn.size - defined.size)
    if defined.size * 2 < drawn.size:
        return of
    pieces = each[0].found.pieces is not None
    if how.method == BCA and (pieces or of.n_clusters <= MOST_LEFT_OUT):
        jackknife = np.mean([summary.left_out() for summary in each], axis=0)
        corrected = bca_bounds(of.mean, defined, float(acceleration(jackknife, stratum)), how.level)
        if corrected is not None:
            return of._replace(low=corrected[0], high=corrected[1], method=BCA)
    low, high = np.quantile(defined, [(1 - how.level) / 2, (1 + how.level) / 2])
    return of._replace(low=float(low), high=float(high), method=PERCENTILE)


def _over_repeats(
    sources: Sequence[Source],
    found: Metric,
    arguments: tuple[float | str, ...],
    how: Bootstrap,
    strata: pd.Series[str] | None,
) -> Summarised:
    """Returns a summary's mean over repeats, on shared resamples."""
    size = sources[0].size
    each = [_Summary(source, source.rows(np.arange(size)), found, arguments) for source in sources]
    values = {index: value for index, summary in enumerate(each) if not np.isnan(value := summary.value())}
    if not values:
        return Summarised(np.nan, np.nan, np.nan, 0, 0, 0, "")
    each, of_each = [each[index] for index in values], list(values.values())
    value = float(np.mean(of_each))
    between = float(np.std(of_each, ddof=1)) if len(of_each) > 1 else None
    n = len(sources[0].names)
    if size < FEWEST:
        return Summarised(value, np.nan, np.nan, n, size, 0, TOO_FEW, between)
    stratum = None if strata is None else sources[0].of_clusters(strata)
    resamples = Resamples(size, resamples=how.resamples, seed=how.seed, strata=stratum)
    drawn = np.mean([summary.resampled(resamples) for summary in each], axis=0)
    return _with_bounds(Summarised(value, np.nan, np.nan, n, size, 0, "", between), each, drawn, how, stratum)


class _Summary(NamedTuple):
    """A summary of the rows of a part."""

    source: Source
    whole: ScoreTable
    found: Metric
    arguments: tuple[float | str, ...]

    def value(self) -> float:
        """Returns its value; NaN without rows."""
        return float(self.found.function(self.whole, *self.arguments)) if self.whole.case.size else np.nan

    def resampled(self, resamples: Resamples) -> npt.NDArray[np.float64]:
        """Returns the value by resample, (resample,)."""
        if self.found.pieces is not None:
            return self.total(resamples.sums(self.sums()))
        if (judge := self.judge()) is not None:
            return np.concatenate([self.weighed(judge, times) for times in resamples.times()])
        return np.array([self.called(clusters) for some in resamples.drawn() for clusters in some], dtype=np.float64)

    def left_out(self) -> npt.NDArray[np.float64]:
        """Returns its value without each cluster in turn, (cluster,)."""
        every = np.arange(self.source.size)
        if self.found.pieces is not None:
            sums = self.sums()
            return self.total(sums.sum(axis=0) - sums)
        if (judge := self.judge()) is not None:
            leave_one_out = np.ones((every.size, every.size), dtype=np.uint8) - np.eye(every.size, dtype=np.uint8)
            return self.weighed(judge, leave_one_out)
        return np.array([self.called(np.delete(every, index)) for index in every], dtype=np.float64)

    def sums(self) -> npt.NDArray[np.float64]:
        """Returns each cluster's terms, (cluster, quantity), of additive summaries."""
        if self.found.pieces is None:
            raise TypeError(f"{self.found.name} is no function of sums")
        added = self.found.pieces(self.whole, *self.arguments)
        sums = np.zeros((self.source.size, added.shape[1]))
        np.add.at(sums, self.source.owner, added)
        return sums

    def total(self, sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if self.found.total is None:
            raise TypeError(f"{self.found.name} is no function of sums")
        return np.asarray(self.found.total(sums, *self.arguments), dtype=np.float64)

    def judge(self) -> Weighed | None:
        """Returns the summary of row counts; None if it needs rows."""
        return None if self.found.weighed is None else self.found.weighed(self.whole, *self.arguments)

    def weighed(self, judge: Weighed, times: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        """Returns the values where each cluster counts so often: (resample, cluster) to (resample,)."""
        owner = self.source.owner
        if isinstance(judge, OfRows):
            owner, judge = owner[judge.rows], judge.judge
        step = max(1, _MOST_WEIGHTS // max(1, owner.size))
        parts = (times[start : start + step] for start in range(0, len(times), step))
        return np.concatenate([judge(np.take(part, owner, axis=1).astype(np.float64)) for part in parts])

    def called(self, clusters: npt.NDArray[np.intp]) -> float:
        return self.found.function(self.source.rows(clusters), *self.arguments)


def _macro_interval(one: _Summary, how: Bootstrap, strata: npt.NDArray[np.generic] | None) -> Interval | None:
    """Returns macro means over case groups, resampled at once.

    Resampling at once saves calling the summary a thousand times, a minute with 100,000 cases.
    """
    source, whole_value, definition, _ = one
    attribute = str(one.arguments[0]) if one.arguments else ""
    if definition.name != f"macro_{definition.needs[0]}" or attribute not in whole_value.attributes:
        return None
    means, at = case_means(whole_value, definition.needs[0])
    names, name = np.unique(whole_value.attributes[attribute][at], return_inverse=True)
    lists = [[part for name in str(value).split(",") if (part := name.strip())] for value in names]
    if len({part for parts in lists for part in parts}) * source.size > _MOST_SUMS:
        return None
    # A case of several groups counts in each.
    times = np.array([len(parts) for parts in lists], dtype=np.intp)[name]
    groups = [part for group in name.tolist() for part in lists[group]]
    owner = np.repeat(source.owner[at], times)
    sample = Sample(np.repeat(means, times), owner, groups, None if strata is None else strata[owner])
    return bootstrap_intervals([sample], how)[0]


def is_share(metric: str, run: RunScores) -> bool:
    """Whether a metric's values are declared yes (1) or no (0).

    Nothing is concluded from values or ends: Dice of 0 and 1 alone are no answers of yes or no.
    """
    return metrics.get(metric).value_kind == "proportion" if is_known(metric) else metric in run.proportions


def units(run: RunScores, cases: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Returns resampling unit indices of `cases`, (case,)."""
    return sorted_places(cases["patient"] if run.resampled == "patients" else cases.index.to_series())


def sorted_places(names: pd.Series[str]) -> npt.NDArray[np.int64]:
    """Returns the place of each name among the sorted ones, (name,)."""
    codes, distinct = pd.factorize(names, use_na_sentinel=False)  # sorting what differs alone, which is far less
    order = np.unique(np.asarray(distinct, dtype=str), return_inverse=True)[1]
    return order[codes].astype(np.int64)


def case_values(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per case: value, patient, failed, rows, undefined.

    The value is the mean over the case's labels that have one, and NaN where none has; `rows` counts its labels, and
    `undefined` those without a value. Of several repeats the value is the mean over those that have one.
    """
    repeated = "repeat" in rows.columns
    rows = rows.assign(failed=rows["status"] == "failed", rows=1, undefined=rows["value"].isna())
    columns = ["value", "patient", "failed", "rows", "undefined"]
    if rows["case"].is_unique:
        return rows.set_index("case")[columns].sort_index()
    together: dict[str, Any] = {
        "value": ("value", "mean"),
        "patient": ("patient", "first"),
        "failed": ("failed", "any"),
        "rows": ("rows", "sum"),
        "undefined": ("undefined", "sum"),
    }
    if repeated:
        rows = rows.groupby(["case", "repeat"], observed=True, sort=True).agg(**together).reset_index("case")
    table: pd.DataFrame = rows.groupby("case", observed=True, sort=True).agg(**together)
    return table


def label_values(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns a row per case and label, averaged over repeats."""
    if "repeat" not in rows.columns:
        return rows
    means = rows.groupby(["case", "label"], observed=True, sort=False)["value"].mean()
    first = rows.drop_duplicates(["case", "label"])
    return first.assign(value=means.reindex(pd.MultiIndex.from_frame(first[["case", "label"]])).to_numpy())
