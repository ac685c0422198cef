"""How unequal groups of cases are served: worst group, gap, ratio, equity-scaled value, and a test of all of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval import metrics
from medimg_eval.results.runs import UNKNOWN, Part, is_known, is_summary, strata_of
from medimg_eval.results.statistics.intervals import FEWEST, Estimate
from medimg_eval.results.statistics.resampling import Resamples, quantiles
from medimg_eval.results.statistics.summaries import MOST_RESAMPLES, by_times, case_values, units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from medimg_eval.results.runs import Bins, RunScores

    Floats = npt.NDArray[np.float64]
    Weighed = Callable[[Floats], Floats]

NONE = Estimate()


def spread(values: Floats) -> Floats:
    """Returns largest minus smallest: (..., group) to (...); missing is NaN."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.max(axis=-1) - values.min(axis=-1), dtype=np.float64)


def worst(values: Floats, better: bool) -> Floats:
    """Returns the worst value by direction, (..., group) to (...).

    The smallest where higher is better, else the largest.
    """
    return np.asarray(values.min(axis=-1) if better else values.max(axis=-1), dtype=np.float64)


def ratio(values: Floats, better: bool) -> Floats:
    """Returns worst / best, (..., group) to (...); NaN unless positive."""
    low, high = worst(values, better), worst(values, not better)
    fine = (low > 0) & (high > 0)
    return np.asarray(np.divide(low, high, out=np.full(low.shape, np.nan), where=fine), dtype=np.float64)


def equity(overall: Floats, values: Floats, *, better: bool, bounded: bool) -> Floats:
    """Returns equity-scaled values: (resample,) and (resample, group) to (resample,).

    With D the sum of the distances of the groups' values to the overall one, of metrics between 0 and 1 it is FairSeg's
    overall / (1 + D); where lower is better, 1 - (1 - overall) / (1 + D), which is the same of 1 - value. Others have
    units, so that distances are first divided by the overall value: overall / (1 + D / overall), and where lower is
    better overall times that, which is overall + D. NaN of values below 0 that are not between 0 and 1.

    Source: FairSeg (Tian et al., ICLR 2024), whose first version sums distances; its other takes a standard deviation.
    """
    apart = np.abs(values - overall[:, None]).sum(axis=-1)
    if bounded:
        scaled = overall / (1 + apart) if better else 1 - (1 - overall) / (1 + apart)
    else:
        scale = 1 + np.divide(apart, overall, out=np.full(overall.shape, np.nan), where=overall > 0)
        scaled = overall / scale if better else overall * scale
    return np.asarray(scaled, dtype=np.float64)


def percentile(value: float, drawn: Floats, level: float) -> Estimate:
    """Returns a percentile interval of (resample,), mostly defined."""
    bounds = () if np.isnan(value) else quantiles(drawn, (1 - level) / 2, (1 + level) / 2)
    return Estimate(float(value), *bounds)


def largest(drawn: Iterable[Floats], number: int, level: float) -> tuple[float, float]:
    """Returns an interval for the largest of several true values.

    It reaches from the largest of their lower bounds to the largest of their upper bounds. The upper bound fails only
    if that of the truly largest does, so that it needs no correction; the lower one may fail by any of them, so that
    each of these has the level that Bonferroni asks for. It covers at least as often as it says, as far as percentile
    bounds do.

    Args:
        drawn: (resample, value), some values after the other, without NaN.
        number: How many values there are.
        level: Coverage.
    """
    tail = (1 - level) / 2
    bounds = np.array([np.quantile(some, [tail / number, 1 - tail], axis=0).max(axis=1) for some in drawn])
    low, high = bounds.max(axis=0)
    return float(low), float(high)


def worst_interval(drawn: Floats, level: float, *, better: bool) -> tuple[float, float]:
    """Returns an interval for the truly worst of groups, from (resample, group)."""
    low, high = largest([-drawn if better else drawn], drawn.shape[1], level)
    return (-high, -low) if better else (low, high)


def gap_bounds(drawn: Sequence[Floats], level: float) -> tuple[float, float]:
    """Returns an interval for the largest difference of groups.

    It is of their true values, by resamples (resample, group).

    Of several sets of groups, for the largest difference within any of them. It holds 0 unless two groups differ.
    """
    number = sum(group_values.shape[1] * (group_values.shape[1] - 1) for group_values in drawn)
    pairs = (
        _compare_others(group_values, index, np.subtract)
        for group_values in drawn
        for index in range(group_values.shape[1])
    )
    low, high = largest(pairs, number, level)
    return max(low, 0.0), high


def ratio_bounds(drawn: Floats, level: float, *, better: bool) -> tuple[float, float]:
    """Returns an interval for worst / best, from (resample, group).

    NaN of values <= 0.
    """
    if (drawn <= 0).any():
        return np.nan, np.nan
    groups = drawn.shape[1]
    pairs = (_compare_others(drawn, index, np.divide) for index in range(groups))
    low, high = largest(pairs, groups * (groups - 1), level)
    low = max(low, 1.0)
    return (1 / high, 1 / low) if better else (low, high)


def _compare_others(drawn: Floats, place: int, compared: np.ufunc) -> Floats:
    """Returns one group minus or over others: (resample, group - 1)."""
    return np.asarray(compared(drawn[:, [place]], np.delete(drawn, place, axis=1)), dtype=np.float64)


SMALLEST = 10
"""A group of fewer cases is shown as such, and counts in no worst group and no gap."""
PERMUTATIONS = 2_000
"""Of the test, for metrics of single cases; summaries take half."""
_MOST_DRAWS = 1 << 22
"""Of permutations, held at a time."""


@dataclass(frozen=True)
class DisparitySettings:
    """How disparities are computed.

    Attributes:
        resamples: Number of bootstrap resamples; summaries take at most 1,000.
        level: Coverage of the intervals.
        seed: Seed of the random draws.
        min_group_size: Cases that a group needs to count in worst group, gap and everything else that compares groups.
        bins: Attribute that is a number -> the edges of its groups.
        stratify_by: Attribute within whose values patients are drawn; "" for what the task says.
    """

    resamples: int = 10_000
    level: float = 0.95
    seed: int = 0
    min_group_size: int = SMALLEST
    bins: Bins = field(default_factory=dict)
    stratify_by: str = ""


@dataclass(frozen=True)
class Disparity:
    """Inequality of an attribute's groups under one model and metric.

    Attributes:
        attribute: What divides the cases.
        whole: The value of all cases.
        n: Cases with a value, by known group.
        by_group: Value of each group that is large enough.
        worst: Name of the worst of these; "" where there are fewer than two, or no direction is better.
        worst_value: Its value. The interval is for the value of whichever group is truly worst.
        bias: How much too low (of a metric of which lower is better: high) the worst value is, as resampling has it.
        gap: Largest minus smallest.
        luck: The gap that groups which do not differ have on average, as permutations have it.
        ratio: Worst by best.
        equity: Equity-scaled value.
        p: That the groups do not differ; NaN where it is not known.
        torn: Whether patients have cases in several groups, so that it comes from the bootstrap.
    """

    attribute: str
    whole: float
    n: Mapping[str, int]
    by_group: Mapping[str, float]
    worst: str = ""
    worst_value: Estimate = NONE
    bias: float = np.nan
    gap: Estimate = NONE
    luck: float = np.nan
    ratio: Estimate = NONE
    equity: Estimate = NONE
    p: float = np.nan
    torn: bool = False

    def small(self, min_group_size: int) -> list[str]:
        """Returns the known groups of fewer cases."""
        return [name for name, number in self.n.items() if number < min_group_size]


class Judged(NamedTuple):
    """Part of a run as function of its clusters."""

    clusters: npt.NDArray[np.str_]
    """(cluster,), their names in order."""
    n: int
    """Cases that count."""
    values: Weighed
    """How often each cluster counts, (resample, cluster), to values, (resample,)."""

    @property
    def value(self) -> float:
        """Value of the disparity without resampling."""
        return float(self.values(np.ones((1, len(self.clusters))))[0]) if len(self.clusters) else np.nan


class Divided(NamedTuple):
    """Resampled values of a run's groups and whole."""

    whole: float
    n: dict[str, int]
    by_group: dict[str, float]
    drawn_whole: Floats
    """(resample,)."""
    drawn: Floats
    """(resample, group); NaN where a resample has no value of the group."""
    clusters: int
    """Patients (or cases, where these are resampled) of the group that has fewest."""

    @property
    def kept(self) -> Floats:
        """Resamples with every group's value; none where too few."""
        kept = self.drawn[~np.isnan(self.drawn).any(axis=1)]
        return kept if self.clusters >= FEWEST and len(kept) * 2 >= len(self.drawn) else kept[:0]


def judged(part: Part, metric: str) -> Judged:
    """Returns a part by a case metric or summary."""
    if is_summary(metric):
        clusters = np.unique(part.clusters.to_numpy(dtype=str))
        held = part.scores["metric"].isin(part.needed(metric)).any()
        # As in tables: a case that leaves no row, such as one without any lesion, was judged all the same.
        return Judged(clusters, len(part.clusters) if held else 0, by_times(metric, part))
    cases = case_values(part.scores.loc[part.scores["metric"] == metric])
    cases = cases.loc[cases["value"].notna()]
    owner = units(part.run, cases)
    named = cases["patient"] if part.run.resampled == "patients" else cases.index.to_series()
    clusters = np.unique(named.to_numpy(dtype=str))
    sums = np.stack([np.bincount(owner, cases["value"].to_numpy(np.float64), len(clusters)), np.bincount(owner)], 1)

    def values(times: Floats) -> Floats:
        total, means = times @ sums, np.full(len(times), np.nan)
        np.divide(total[:, 0], total[:, 1], out=means, where=total[:, 1] > 0)
        return means

    return Judged(clusters, len(cases), values)


def divide(run: RunScores, metric: str, attribute: str, how: DisparitySettings) -> Divided:
    """Returns whole and large groups' values, with shared resamples.

    Clusters are drawn from the whole run, so that a patient with cases in two groups is in both or in neither.
    """
    whole_part, groups = judged(Part.whole(run), metric), _judged_groups(run, metric, attribute, how)
    large = {
        name: group for name, group in groups.items() if group.n >= how.min_group_size and not np.isnan(group.value)
    }
    cluster_places = [np.searchsorted(whole_part.clusters, group.clusters) for group in large.values()]
    drawn_whole: list[Floats] = []
    drawn: list[Floats] = []
    for times in _cluster_resamples(run, whole_part, metric, how).times():
        drawn_whole.append(whole_part.values(times.astype(np.float64)))
        of_groups = [
            group.values(times[:, indices].astype(np.float64))
            for group, indices in zip(large.values(), cluster_places, strict=True)
        ]
        drawn.append(np.stack(of_groups, axis=1) if of_groups else np.empty((len(times), 0)))
    return Divided(
        whole_part.value,
        {name: group.n for name, group in groups.items()},
        {name: group.value for name, group in large.items()},
        np.concatenate(drawn_whole),
        np.concatenate(drawn),
        min((len(group.clusters) for group in large.values()), default=len(whole_part.clusters)),
    )


def disparity(
    run: RunScores, metric: str, attribute: str, how: DisparitySettings, *, bounded: bool | None = None
) -> Disparity:
    """Returns how unequal the groups of an attribute are in one finished run.

    The intervals of worst group, gap and ratio are those of `disparity_values.largest`: for the truly worst group, and
    for the two groups that truly lie farthest apart, whichever these are. That of the equity-scaled value is the
    percentile interval of the cluster bootstrap.

    The test is a permutation test of whole patients between groups; its statistic is the sum over groups of their
    patients times the squared distance of the group's value to the mean of these values. Where patients have cases in
    several groups they cannot be put into others, and the same statistic is held against that of the resampled values,
    less the values themselves (Davison and Hinkley 1997, section 4.4).

    Args:
        run: The run.
        metric: A metric of single cases, or a summary.
        attribute: What divides the cases, as in `Part.groups`.
        how: Which groups count, and how intervals are made.
        bounded: Whether the metric lies between 0 and 1, for `equity`; None takes `on_unit_scale`.
    """
    divided = divide(run, metric, attribute, how)
    if len(divided.by_group) < 2:
        return Disparity(attribute, divided.whole, divided.n, divided.by_group)
    better = direction(run, metric)
    values, names = np.array(list(divided.by_group.values())), list(divided.by_group)
    complete, gap = divided.kept, _largest_gap([divided], how)
    p, luck, torn = _permutation_test(run, metric, attribute, names, how)
    if torn:
        p, luck = _against_resamples(divided)
    plain = Disparity(attribute, divided.whole, divided.n, divided.by_group, gap=gap, luck=luck, p=p, torn=torn)
    if better is None:
        return plain
    bounded = on_unit_scale([run], metric) if bounded is None else bounded
    scaled = float(equity(np.array([divided.whole]), values[None], better=better, bounded=bounded)[0])
    scaled_drawn = equity(divided.drawn_whole, divided.drawn, better=better, bounded=bounded)
    far, part = float(worst(values, better)), float(ratio(values, better))
    return replace(
        plain,
        worst=names[int(np.flatnonzero(values == far)[0])],
        worst_value=Estimate(far, *(worst_interval(complete, how.level, better=better) if len(complete) else ())),
        bias=float(worst(complete, better).mean() - far) if len(complete) else np.nan,
        ratio=Estimate(part, *(ratio_bounds(complete, how.level, better=better) if len(complete) else ())),
        equity=percentile(scaled, scaled_drawn, how.level) if len(complete) else Estimate(scaled),
    )


def odds(run: RunScores, attribute: str, how: DisparitySettings) -> dict[str, Estimate]:
    """Returns gaps of groups' rates; NaN with fewer than two.

    The run has rows of `probability`.

    Of the rate of true positives (equal opportunity), that of false positives, and the larger of both, the difference
    in equalised odds (Hardt et al., NeurIPS 2016). Classes are said to be present as `class_sensitivity` has it; of
    several classes the rates are means over classes.
    """
    hit = divide(run, "class_sensitivity@macro", attribute, how)
    clear = divide(run, "class_specificity@macro", attribute, how)
    sets = {"true positives": [hit], "false positives": [clear], "either": [hit, clear]}
    if any(len(side.by_group) < 2 for side in (hit, clear)):
        return dict.fromkeys(sets, NONE)
    return {name: _largest_gap(some, how) for name, some in sets.items()}


def gap_between(run: RunScores, metric: str, attribute: str, how: DisparitySettings) -> Estimate:
    """Returns an attribute's gap alone, as by `disparity`."""
    divided = divide(run, metric, attribute, how)
    return _largest_gap([divided], how) if len(divided.by_group) > 1 else NONE


def _largest_gap(some: Sequence[Divided], how: DisparitySettings) -> Estimate:
    """Returns the largest gap between groups of one set of them."""
    value = max(float(spread(np.array(list(divided.by_group.values())))) for divided in some)
    complete = [divided.kept for divided in some]
    return Estimate(value, *(gap_bounds(complete, how.level) if all(map(len, complete)) else ()))


def direction(run: RunScores, metric: str) -> bool | None:
    """Returns whether higher is better; None where neither is, or nobody says."""
    return metrics.get(metric).higher_is_better if is_known(metric) else run.directions.get(metric)


def on_unit_scale(runs: Sequence[RunScores], metric: str) -> bool:
    """Returns whether a metric ranges over 0 to 1."""
    if is_known(metric):
        definition = metrics.get(metric)
        if is_summary(metric):
            return not definition.unit and definition.best in (0.0, 1.0) and definition.higher_is_better is not None
        if not definition.on_unit_scale:
            return False
    held = [run.scores.loc[run.scores["metric"] == metric, "value"].to_numpy(dtype=np.float64) for run in runs]
    values = np.concatenate(held)
    return bool(((values >= 0) & (values <= 1) | np.isnan(values)).all())


def _judged_groups(run: RunScores, metric: str, attribute: str, how: DisparitySettings) -> dict[str, Judged]:
    """Returns known groups by a metric, without empty ones."""
    parts = Part.whole(run).groups(attribute, how.bins)
    groups = {name: judged(part, metric) for name, part in parts.items() if name != UNKNOWN}
    return {name: group for name, group in groups.items() if group.n}


def _cluster_resamples(run: RunScores, whole: Judged, metric: str, how: DisparitySettings) -> Resamples:
    number = min(how.resamples, MOST_RESAMPLES) if is_summary(metric) else how.resamples
    strata = strata_of(run, how.stratify_by)
    if strata is None:
        return Resamples(len(whole.clusters), resamples=number, seed=how.seed)
    of_case = Part.whole(run).clusters
    of_cluster = dict(zip(of_case.to_numpy(dtype=str), strata.reindex(of_case.index).fillna(""), strict=True))
    named = np.array([of_cluster[name] for name in whole.clusters.tolist()], dtype=str)
    return Resamples(len(whole.clusters), resamples=number, seed=how.seed, strata=named)


def _permutation_test(
    run: RunScores, metric: str, attribute: str, names: Sequence[str], how: DisparitySettings
) -> tuple[float, float, bool]:
    """Returns permutation p-value, mean permuted gap, and impossibility."""
    parts = Part.whole(run).groups(attribute, how.bins)
    chosen = [judged(parts[name], metric).clusters for name in names]
    clusters = np.concatenate(chosen)
    if len(np.unique(clusters)) < len(clusters):
        return np.nan, np.nan, True
    cases = np.concatenate([parts[name].clusters.index.to_numpy(dtype=str) for name in names])
    every = judged(Part.whole(run).of_cases(pd.Series(cases)), metric)
    label = np.empty(len(every.clusters), dtype=np.intp)
    for index, group_clusters in enumerate(chosen):
        label[np.searchsorted(every.clusters, group_clusters)] = index
    numbers = np.bincount(label, minlength=len(names)).astype(np.float64)
    rng = np.random.default_rng(how.seed)
    most = PERMUTATIONS // 2 if is_summary(metric) else PERMUTATIONS
    permutations, step = min(how.resamples, most), max(1, _MOST_DRAWS // max(1, label.size))
    observed = _group_distance(_regroup_values(every, label[None], len(names)), numbers)[0]
    statistics, gaps = [], []
    for start in range(0, permutations, step):
        shuffled = rng.permuted(np.tile(label, (min(step, permutations - start), 1)), axis=1)
        values = _regroup_values(every, shuffled, len(names))
        statistics.append(_group_distance(values, numbers))
        gaps.append(spread(values))
    drawn, gap = np.concatenate(statistics), np.concatenate(gaps)
    is_known = ~np.isnan(drawn)
    if is_known.sum() * 2 < permutations:
        return np.nan, np.nan, False
    reached = drawn[is_known] >= observed * (1 - 1e-9) - 1e-15
    return float((1 + reached.sum()) / (1 + is_known.sum())), float(gap[is_known].mean()), False


def _against_resamples(found: Divided) -> tuple[float, float]:
    """Returns p-value from recentred resamples, and their mean gap."""
    values = np.array(list(found.by_group.values()))
    numbers = np.array([found.n[name] for name in found.by_group], dtype=np.float64)
    deviations = found.kept - values
    if not len(deviations):
        return np.nan, np.nan
    reached = _group_distance(deviations, numbers) >= _group_distance(values[None], numbers)[0] * (1 - 1e-9) - 1e-15
    return float((1 + reached.sum()) / (1 + len(deviations))), float(spread(deviations).mean())


def _regroup_values(every: Judged, label: npt.NDArray[np.intp], groups: int) -> Floats:
    """Returns group values of permuted clusters: (permutation, group)."""
    return np.stack([every.values((label == group).astype(np.float64)) for group in range(groups)], axis=1)


def _group_distance(values: Floats, numbers: Floats) -> Floats:
    """Returns the spread of group values: (permutation, group) to (permutation,)."""
    mean = values @ numbers / numbers.sum()
    return np.asarray(((values - mean[:, None]) ** 2) @ numbers, dtype=np.float64)
