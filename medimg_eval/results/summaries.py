"""Summaries of a run: their rows, their values, and intervals by calling them on resampled rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.metrics import Metric, Rows, parse
from medimg_eval.metrics.fairness import case_means
from medimg_eval.results.intervals import Interval, class_mean_interval, draws
from medimg_eval.results.parts import Part, attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

MOST_RESAMPLES = 1_000
"""A summary is called once per resample, which costs more than a mean."""


_MOST_SUMS = 1 << 25
"""Sums of a group in a cluster that are held at a time: 256 MiB."""


class Summarised(NamedTuple):
    """The value of a summary with its interval and the counts it rests on."""

    mean: float
    low: float
    high: float
    n: int
    n_clusters: int
    dropped: int
    """Resamples on which the summary is undefined, left out of the interval."""


class _Attributes(Mapping[str, "npt.NDArray[np.str_]"]):
    """The attributes of rows, spelled out when one is asked for: most summaries ask for none."""

    def __init__(self, codes: npt.NDArray[np.int64], values: Mapping[str, npt.NDArray[np.str_]]) -> None:
        self.codes = codes
        self.values_by_name = values

    def __getitem__(self, name: str) -> npt.NDArray[np.str_]:
        return self.values_by_name[name][self.codes]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)


class _Source:
    """The rows of a part, those of one cluster next to each other, so that any clusters can be put together."""

    def __init__(self, part: Part, needs: tuple[str, ...]) -> None:
        names, cases = part.clusters.to_numpy(dtype=str), part.clusters.index.to_numpy(dtype=str)
        owner = np.unique(names, return_inverse=True)[1]
        order = np.lexsort((cases, owner))
        owner, cases = owner[order], cases[order]
        scores = part.scores.loc[part.scores["metric"].isin(needs)]
        case = pd.Index(cases).get_indexer(pd.Index(scores["case"].astype(str)))
        order = np.argsort(case, kind="stable")
        scores, self.case = scores.iloc[order], case[order].astype(np.int64)
        self.size = int(owner.max()) + 1 if owner.size else 0
        self.cases = np.bincount(owner, minlength=self.size)
        self.first_case = np.concatenate([[0], np.cumsum(self.cases)])[:-1]
        self.owner = owner[self.case]
        self.counts = np.bincount(self.owner, minlength=self.size)
        self.first_row = np.concatenate([[0], np.cumsum(self.counts)])[:-1]
        self.place = self.case - self.first_case[self.owner] if self.size else self.case
        self.metric = scores["metric"].to_numpy(dtype=str)
        self.label = scores["label"].to_numpy(dtype=str)
        self.value = scores["value"].to_numpy(dtype=np.float64)
        self.status = scores["status"].to_numpy(dtype=str)
        self.codes, self.values = attributes(scores)
        self.facts = part.run.facts

    def rows(self, clusters: npt.NDArray[np.int64]) -> Rows:
        """Returns the rows of some clusters; the cases of one that is named twice count as further cases."""
        counts, cases = self.counts[clusters], self.cases[clusters]
        skipped = self.first_row[clusters] - (np.cumsum(counts) - counts)
        chosen = np.repeat(skipped, counts) + np.arange(counts.sum())
        return Rows(
            case=self.place[chosen] + np.repeat(np.cumsum(cases) - cases, counts),
            metric=self.metric[chosen],
            label=self.label[chosen],
            value=self.value[chosen],
            status=self.status[chosen],
            attributes=_Attributes(self.codes[chosen], self.values),
            cases=int(cases.sum()),
            facts=self.facts,
        )


def rows_of(part: Part, needs: tuple[str, ...]) -> Rows:
    """Returns what a summary takes: the part's rows of the metrics that it needs."""
    source = _Source(part, needs)
    return source.rows(np.arange(source.size))


def summarise(name: str, part: Part, *, resamples: int, level: float, seed: int) -> Summarised:
    """Returns a summary of a part of a run, with a percentile interval from a cluster bootstrap.

    As in `mean_interval`, as many clusters (patients, or cases) as there are get drawn with replacement; their rows
    are put together, and the summary is computed from them anew. At most `MOST_RESAMPLES` are made.

    Args:
        name: The summary as it is asked for, such as "es_dice@race".
        part: What it is a summary of.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval.
        seed: Seed of the random draws.

    Returns:
        The value, its bounds, and counts of cases and clusters. The bounds are NaN below two clusters, and where
        most resamples have no value.
    """
    found, parameter = parse(name)
    call: Callable[..., float] = found.function
    arguments = () if parameter is None else (parameter,)
    source = _Source(part, found.needs)
    whole = source.rows(np.arange(source.size))
    value = float(call(whole, *arguments)) if whole.case.size else np.nan
    if np.isnan(value):
        return Summarised(np.nan, np.nan, np.nan, 0, 0, 0)
    if source.size < 2:
        return Summarised(value, np.nan, np.nan, whole.cases, source.size, 0)
    number = min(resamples, MOST_RESAMPLES)
    if found.pieces is not None:
        values = _of_sums(source, whole, found, arguments, resamples=number, seed=seed)
        return Summarised(value, *_bounds(values, number, level), whole.cases, source.size, _undefined(values))
    macro = _macro(source, whole, found, parameter, resamples=number, level=level, seed=seed)
    # It is the same number only if the summary leaves out nothing else and weighs its groups alike.
    if macro is not None and math.isclose(macro.mean, value, rel_tol=1e-9):
        return Summarised(value, macro.low, macro.high, whole.cases, source.size, 0)
    values = np.array(
        [
            call(source.rows(clusters), *arguments)
            for some in draws(source.size, resamples=number, seed=seed)
            for clusters in some
        ],
        dtype=np.float64,
    )
    return Summarised(value, *_bounds(values, number, level), whole.cases, source.size, _undefined(values))


def _bounds(values: npt.NDArray[np.float64], number: int, level: float) -> tuple[float, float]:
    """Returns the bounds of an interval; NaN where most resamples have no value."""
    known = values[~np.isnan(values)]
    if known.size * 2 < number:
        return np.nan, np.nan
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _undefined(values: npt.NDArray[np.float64]) -> int:
    return int(np.isnan(values).sum())


def _of_sums(
    source: _Source, whole: Rows, found: Metric, arguments: tuple[float | str, ...], *, resamples: int, seed: int
) -> npt.NDArray[np.float64]:
    """Returns the value on each resample of a summary that is a function of sums: (resample,)."""
    if found.pieces is None or found.total is None:
        raise TypeError(f"{found.name} is no function of sums")
    added = found.pieces(whole, *arguments)
    sums = np.zeros((source.size, added.shape[1]))
    np.add.at(sums, source.owner, added)
    values = []
    for some in draws(source.size, resamples=resamples, seed=seed):
        places = some + source.size * np.arange(len(some))[:, None]
        times = np.bincount(places.ravel(), minlength=some.size).reshape(some.shape)
        values.append(np.asarray(found.total(times @ sums, *arguments), dtype=np.float64))
    return np.concatenate(values)


def _macro(
    source: _Source, whole: Rows, found: Metric, attribute: float | str | None, **bootstrap: Any
) -> Interval | None:
    """Returns the mean over groups of cases of their means, all resamples at once, where that is what is asked for.

    To call a summary a thousand times costs a minute with 100,000 cases.
    """
    if found.name != f"macro_{found.needs[0]}" or attribute not in whole.attributes:
        return None
    means, at = case_means(whole, found.needs[0])
    names, name = np.unique(whole.attributes[str(attribute)][at], return_inverse=True)
    lists = [[part for one in str(value).split(",") if (part := one.strip())] for value in names]
    if len({part for parts in lists for part in parts}) * source.size > _MOST_SUMS:
        return None
    # A case of several groups counts in each.
    times = np.array([len(parts) for parts in lists], dtype=np.intp)[name]
    groups = [part for place in name.tolist() for part in lists[place]]
    return class_mean_interval(np.repeat(means, times), groups, np.repeat(source.owner[at], times), **bootstrap)
