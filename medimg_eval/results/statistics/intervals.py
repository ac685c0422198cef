"""Intervals around a mean, by resampling what is independent of each other (patients, not images)."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.proportions import proportion_interval
from medimg_eval.results.statistics.expansion import expand
from medimg_eval.results.statistics.resampling import Resamples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_SAME = 1e-12
"""Values that differ by less, relative to the value itself, differ by rounding."""


def acceleration(
    left_out: npt.NDArray[np.float64], strata: npt.NDArray[np.generic] | None = None
) -> npt.NDArray[np.float64]:
    """Returns the acceleration of BCa from the values with one cluster left out.

    Each cluster's influence is U = (n - 1) (mean of the values left out - its own); the acceleration is
    sum(U^3 / n^3) / (6 sum(U^2 / n^2)^1.5), n being the clusters of its stratum.

    Source: Efron & Tibshirani, An Introduction to the Bootstrap (1993), equation 14.15; for several samples Davison &
    Hinkley, Bootstrap Methods and their Application (1997), equation 5.27.

    Args:
        left_out: (cluster, ...), the value without each cluster.
        strata: (cluster,), the stratum of each; None where there is one.

    Returns:
        (...); NaN where no cluster matters, or a value is undefined.
    """
    _, stratum = np.unique(np.zeros(len(left_out)) if strata is None else strata, return_inverse=True)
    squares, cubes = np.zeros(left_out.shape[1:]), np.zeros(left_out.shape[1:])
    for members in (left_out[stratum == stratum_number] for stratum_number in range(int(stratum.max()) + 1)):
        influence = (len(members) - 1) * (members.mean(axis=0) - members) / len(members)
        squares += (influence**2).sum(axis=0)
        cubes += (influence**3).sum(axis=0)
    level = np.abs(left_out).max(axis=0)
    varies = squares > (_SAME * level) ** 2
    accelerations = np.divide(cubes, 6 * squares**1.5, out=np.full(np.shape(squares), np.nan), where=varies)
    return np.asarray(accelerations, dtype=np.float64)


def bca_bounds(value: float, drawn: npt.NDArray[np.float64], speed: float, level: float) -> tuple[float, float] | None:
    """Returns BCa bounds; None where the percentile interval must do.

    The bounds are quantiles of the resampled values (linear interpolation), at shares moved by the bias, which is how
    many of these values lie below the value itself (half of those equal to it), and by the acceleration.

    Source: Efron & Tibshirani (1993), equations 14.9 to 14.14.

    Args:
        value: Of the data.
        drawn: (resample,), of each resample, none of them NaN.
        speed: The acceleration.
        level: Coverage of the interval.

    Returns:
        None where all resampled values lie on one side, or the acceleration is NaN.
    """
    near = _SAME * abs(value)
    below = (np.count_nonzero(drawn < value - near) + np.count_nonzero(drawn <= value + near)) / (2 * drawn.size)
    if not 0 < below < 1 or not np.isfinite(speed):
        return None
    from scipy.special import ndtr, ndtri  # takes longer to import than to score a short table

    bias = ndtri(below)
    tails = bias + ndtri(np.array([(1 - level) / 2, (1 + level) / 2]))
    if (1 - speed * tails <= 0).any():
        return None
    low, high = np.quantile(drawn, ndtr(bias + tails / (1 - speed * tails)))
    return float(low), float(high)


Method = Literal["percentile", "bca"]
"""How the bounds are taken from the resampled means."""
PERCENTILE: Final = "percentile"
BCA: Final = "bca"
WILSON, EXACT, TOO_FEW, EQUAL, OWN, EXPANSION = "wilson", "exact", "too few", "all equal", "own", "expansion"
"""What else `Interval.method` may be: "own" is that of a set of pictures, "expansion" the bootstrap of very many
clusters from their moments; "" without a value."""
METHODS: tuple[Method, ...] = (PERCENTILE, BCA)
FEWEST = 5
"""Clusters that a table's bootstrap interval needs at least: of fewer, one that says 95 % covers less than 80 %."""
_MOST_FEATURES = 256
"""Sums of each resample that are held at a time: 20 MiB at 10,000 resamples."""


class Interval(NamedTuple):
    """A mean with its interval and the counts it rests on."""

    mean: float
    low: float
    high: float
    n: int
    n_clusters: int
    method: str = PERCENTILE
    """How the bounds were made; "too few" where there are none for want of clusters, "all equal" where no value
    differs from another."""


class Estimate(NamedTuple):
    """A number with its interval; NaN where it is undefined."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan

    def reversed(self) -> Estimate:
        """Returns the same for a difference taken the other way round."""
        return Estimate(-self.value, -self.high, -self.low)


class Bootstrap(NamedTuple):
    """How intervals are made."""

    resamples: int = 10_000
    level: float = 0.95
    """Coverage of the interval, between 0 and 1."""
    seed: int = 0
    method: Method = PERCENTILE


class Sample(NamedTuple):
    """Values of one metric, as parallel arrays (value,)."""

    values: npt.ArrayLike
    """NaN where undefined."""
    clusters: npt.ArrayLike
    """The patient (or other independent unit) of each."""
    labels: npt.ArrayLike | None = None
    """Of each; the mean is then that over labels of the label's mean."""
    strata: npt.ArrayLike | None = None
    """Of each: clusters are drawn within strata."""
    share: bool = False
    """Whether the metric declares that 1 is yes and 0 is no; other values are seen, and make it none."""


def mean_interval(
    values: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = PERCENTILE,
    strata: npt.ArrayLike | None = None,
) -> Interval:
    """Returns the mean of `values` with an interval from a cluster bootstrap.

    Definition: of K clusters draw K with replacement, pool the values of the drawn clusters, take their mean;
    repeat `resamples` times. The bounds are the (1 - level) / 2 and (1 + level) / 2 quantiles of these means
    (linear interpolation), for BCa those at shares corrected for bias and acceleration. Values of one cluster stay
    together, so images of one patient are not taken for independent evidence.

    Source: the percentile interval is Efron & Tibshirani, An Introduction to the Bootstrap (1993), chapter
    13, BCa chapter 14; resampling whole clusters is Davison & Hinkley, Bootstrap Methods and their Application (1997),
    section 3.8.

    NaN values are dropped first; `n` counts what is left and `n_clusters` the clusters that still hold a
    value. The result depends on the values and the sorted cluster names only, never on the order of the
    rows. Models judged on the same clusters with the same seed meet the same resamples, unless clusters are many and
    of few kinds: of 100,000 questions that are right or wrong, how many of each a resample holds is drawn at once, from
    the multinomial distribution that drawing them one by one has. Above 20,000 clusters of many kinds none are drawn:
    the quantiles are expanded from moments of the clusters, unless few of these decide (see `expand`).

    Args:
        values: One number per case; NaN where it is undefined.
        clusters: The patient (or other independent unit) of each value.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval, between 0 and 1.
        seed: Seed of the random draws.
        method: "percentile" or "bca".
        strata: The stratum of each value: as many clusters of each stratum are drawn as it has. None where clusters
            are drawn from all.

    Returns:
        The mean, its bounds and counts. Below two clusters the bounds are NaN; without a value all are. The method is
        "percentile" also where BCa was asked for and has no value, as where all means are equal, and "expansion" where
        no resamples were drawn.

    Raises:
        ValueError: If the lengths differ, a value is infinite, a cluster has two strata, or a setting is out of range.

    Example:
        >>> mean_interval([1.0, 0.0], ["a", "b"])
        Interval(mean=0.5, low=0.0, high=1.0, n=2, n_clusters=2, method='percentile')
    """
    sample = Sample(values, clusters, strata=strata)
    return bootstrap_intervals([sample], Bootstrap(resamples, level, seed, method))[0]


def bootstrap_intervals(samples: Sequence[Sample], how: Bootstrap) -> list[Interval]:
    """Returns intervals of equally clustered samples, as by `mean_interval`.

    Raises:
        ValueError: As `mean_interval` does.
    """
    return _bootstrap_intervals([_pool_sample(sample, how) for sample in samples], how)


def table_intervals(samples: Sequence[Sample], how: Bootstrap) -> list[Interval]:
    """Intervals of a table's cells, by the first row that fits each sample.

    | sample | method |
    | --- | --- |
    | shares, all 0 or all 1 | Clopper-Pearson, each cluster one trial: resamples would not differ |
    | shares, one value per cluster, no strata, at most 10 clusters | Clopper-Pearson |
    | shares, one value per cluster, no strata | Wilson |
    | fewer than `FEWEST` clusters | none: bounds are NaN, the method is "too few" |
    | all values equal | none: resamples would not differ; bounds are NaN, the method is "all equal" |
    | any other | bootstrap over clusters; of more than 20,000 from their moments (`expand`) |

    A share is a value that its metric declares to be yes or no, and that is always 0 or 1.

    Raises:
        ValueError: As `mean_interval` does.
    """
    pooled = [_pool_sample(sample, how) for sample in samples]
    intervals = [_without_resampling(sample, how.level) for sample in pooled]
    bootstrapped = iter(
        _bootstrap_intervals(
            [sample for sample, interval in zip(pooled, intervals, strict=True) if interval is None], how
        )
    )
    return [next(bootstrapped) if interval is None else interval for interval in intervals]


class _Pooled(NamedTuple):
    """Sample as sums over clusters, ordered by name."""

    mean: float
    n: int
    sums: npt.NDArray[np.float64]
    """(cluster, label)."""
    counts: npt.NDArray[np.float64]
    """(cluster, label), of values."""
    strata: npt.NDArray[np.intp] | None
    """(cluster,); None where there is one stratum."""
    binary: bool
    """Whether it is a share, of values that are all 0 or 1."""
    equal: bool
    """Whether all values are the same."""
    labelled: bool

    @property
    def plain(self) -> bool:
        """Whether each cluster holds one value, of one label."""
        return self.counts.shape[1] == 1 and bool((self.counts == 1).all())

    def interval(self, low: float, high: float, method: str) -> Interval:
        """Returns the mean with these bounds."""
        return Interval(self.mean, low, high, self.n, len(self.sums), method)


def _pool_sample(sample: Sample, how: Bootstrap) -> _Pooled:
    data, names = np.asarray(sample.values, dtype=np.float64), np.asarray(sample.clusters)
    kinds = np.zeros(data.shape) if sample.labels is None else np.asarray(sample.labels)
    strata = np.zeros(data.shape) if sample.strata is None else np.asarray(sample.strata)
    _validate_sample(data, (names, kinds, strata), how)
    is_known = ~np.isnan(data)
    data, names, kinds, strata = data[is_known], names[is_known], kinds[is_known], strata[is_known]
    if not data.size:
        return _Pooled(np.nan, 0, np.empty((0, 1)), np.empty((0, 1)), None, False, False, False)
    cluster_names, owner = np.unique(names, return_inverse=True)
    _, kind = np.unique(kinds, return_inverse=True)
    shape = (len(cluster_names), int(kind.max()) + 1)
    # Floating-point sums depend on their order, so the order is fixed before anything is summed.
    order = np.lexsort((data, kind, owner))
    cell_number = (owner * shape[1] + kind)[order]
    sums = (
        np.bincount(cell_number, weights=data[order], minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    )
    counts = np.bincount(cell_number, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    labelled = sample.labels is not None
    mean = float((sums.sum(axis=0) / counts.sum(axis=0)).mean()) if labelled else math.fsum(data) / data.size
    binary = sample.share and bool(((data == 0) | (data == 1)).all())
    equal = bool((data == data[0]).all())
    return _Pooled(
        mean, int(data.size), sums, counts, _cluster_strata(strata, owner, cluster_names), binary, equal, labelled
    )


def _validate_sample(data: npt.NDArray[np.float64], beside: Iterable[npt.NDArray[np.generic]], how: Bootstrap) -> None:
    for other_values in beside:
        if data.ndim != 1 or other_values.shape != data.shape:
            raise ValueError(
                "Expected `values` and `clusters` (and labels and strata) to be two sequences of one length, "
                f"got shapes {data.shape} and {other_values.shape}"
            )
    if np.isinf(data).any():
        raise ValueError("Expected `values` to be finite or NaN, got an infinite value")
    if how.resamples < 1:
        raise ValueError(f"Expected `resamples` to be at least 1, got {how.resamples}")
    if not 0 < how.level < 1:
        raise ValueError(f"Expected `level` to be between 0 and 1, got {how.level}")
    if how.method not in METHODS:
        raise ValueError(f"Expected `method` to be one of {', '.join(METHODS)}, got {how.method!r}")


def _cluster_strata(
    strata: npt.NDArray[np.generic], owner: npt.NDArray[np.intp], names: npt.NDArray[np.generic]
) -> npt.NDArray[np.intp] | None:
    """Returns each cluster's stratum, (cluster,); None for one."""
    stratum_names, stratum = np.unique(strata, return_inverse=True)
    if len(stratum_names) < 2:
        return None
    of_cluster = np.zeros(len(names), dtype=np.intp)
    of_cluster[owner] = stratum
    if (torn := of_cluster[owner] != stratum).any():
        raise ValueError(f"Expected each cluster to be in one stratum, got {names[owner[torn][0]]} in two")
    return of_cluster


def _without_resampling(one: _Pooled, level: float) -> Interval | None:
    """Returns intervals without resampling, or none; None for bootstrap."""
    if not one.n:
        return one.interval(np.nan, np.nan, "")
    clusters = len(one.sums)
    if one.binary and clusters > 1:
        right = round(float(one.sums.sum()))
        if right in (0, one.n):
            return one.interval(*proportion_interval(clusters if right else 0, clusters, level))
        if one.plain and not one.labelled and one.strata is None:
            return one.interval(*proportion_interval(right, clusters, level))
    if clusters < FEWEST:
        return one.interval(np.nan, np.nan, TOO_FEW)
    return one.interval(np.nan, np.nan, EQUAL) if one.equal else None


def _bootstrap_intervals(pooled: Sequence[_Pooled], how: Bootstrap) -> list[Interval]:
    """Returns bootstrap intervals, sharing draws among equal cluster counts."""
    intervals: dict[int, Interval] = {}
    by_clusters: dict[tuple[int, bytes], list[int]] = {}
    for index, sample in enumerate(pooled):
        if len(sample.sums) < 2:
            intervals[index] = sample.interval(np.nan, np.nan, TOO_FEW if sample.n else "")
        else:
            strata = b"" if sample.strata is None else sample.strata.tobytes()
            by_clusters.setdefault((len(sample.sums), strata), []).append(index)
    for indices in by_clusters.values():
        for batch in _sum_batches(indices, pooled):
            for index, means in zip(batch, _resampled_means([pooled[at] for at in batch], how), strict=True):
                intervals[index] = _with_bounds(pooled[index], *means, how)
    return [intervals[index] for index in range(len(pooled))]


def _sum_batches(places: Sequence[int], pooled: Sequence[_Pooled]) -> Iterator[list[int]]:
    """Yields the places in batches of not too many sums."""
    batch: list[int] = []
    width = 0
    for index in places:
        size = 2 * pooled[index].sums.shape[1]
        if batch and width + size > _MOST_FEATURES:
            yield batch
            batch, width = [], 0
        batch.append(index)
        width += size
    yield batch


def _resampled_means(alike: Sequence[_Pooled], how: Bootstrap) -> list[tuple[npt.NDArray[np.float64], str]]:
    """Returns resampled means, (resample,), and their method.

    All have as many clusters in the same strata.
    """
    first = alike[0]
    size, strata = len(first.sums), first.strata
    resamples = Resamples(size, resamples=how.resamples, seed=how.seed, strata=strata, keep=False)
    # Where each cluster holds one value, every resample holds as many values.
    features = [sample.sums if sample.plain else np.hstack([sample.sums, sample.counts]) for sample in alike]
    means: dict[int, tuple[npt.NDArray[np.float64], str]] = {}
    for index, (sample, some) in enumerate(zip(alike, features, strict=True)):
        if (drawn := resamples.sums_by_kind(some)) is not None:
            means[index] = _label_means(drawn, sample), PERCENTILE
        elif (expanded := expand(partial(_label_means, one=sample), some, strata)) is not None:
            means[index] = expanded, EXPANSION
    if missing := [index for index in range(len(alike)) if index not in means]:
        together = resamples.sums(np.hstack([features[index] for index in missing]))
        ends = np.cumsum([features[index].shape[1] for index in missing])[:-1]
        for index, sums in zip(missing, np.split(together, ends, axis=1), strict=True):
            means[index] = _label_means(sums, alike[index]), PERCENTILE
    return [means[index] for index in range(len(alike))]


def _label_means(drawn: npt.NDArray[np.float64], one: _Pooled) -> npt.NDArray[np.float64]:
    """Returns mean label means by resample: (resample, feature) to (resample,)."""
    if one.plain:
        return np.asarray(drawn[:, 0] / one.n, dtype=np.float64)
    labels = one.sums.shape[1]
    return _mean_over_labels(drawn[:, :labels], drawn[:, labels:])


def _mean_over_labels(sums: npt.NDArray[np.float64], counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    by_label = np.divide(sums, counts, out=np.zeros_like(counts), where=counts > 0)
    return np.asarray(by_label.sum(axis=1) / (counts > 0).sum(axis=1), dtype=np.float64)


def _with_bounds(one: _Pooled, means: npt.NDArray[np.float64], made: str, how: Bootstrap) -> Interval:
    if how.method == BCA:
        left_out = _mean_over_labels(one.sums.sum(axis=0) - one.sums, one.counts.sum(axis=0) - one.counts)
        corrected = bca_bounds(one.mean, means, float(acceleration(left_out, one.strata)), how.level)
        if corrected is not None:
            return one.interval(*corrected, BCA if made == PERCENTILE else made)
    low, high = np.quantile(means, [(1 - how.level) / 2, (1 + how.level) / 2])
    return one.interval(float(low), float(high), made)
