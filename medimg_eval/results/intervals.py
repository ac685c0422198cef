"""Intervals around a mean, by resampling what is independent of each other (patients, not images)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK_DRAWS = 1 << 20
"""Draws held in memory at a time: 8 MiB of indices, however many clusters or resamples are asked for."""
_MANY_DRAWS = 1 << 25
"""More draws than this (3,355 clusters at 10,000 resamples) are made by kind of cluster, where there are few kinds."""
_FEW_KINDS = 256


class Interval(NamedTuple):
    """A mean with its interval and the counts it rests on."""

    mean: float
    low: float
    high: float
    n: int
    n_clusters: int


def mean_interval(
    values: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Returns the mean of `values` with a percentile interval from a cluster bootstrap.

    Definition: of K clusters draw K with replacement, pool the values of the drawn clusters, take their mean;
    repeat `resamples` times. The bounds are the (1 - level) / 2 and (1 + level) / 2 quantiles of these means
    (linear interpolation). Values of one cluster stay together, so images of one patient are not taken for
    independent evidence.

    Source: the percentile interval is Efron & Tibshirani, An Introduction to the Bootstrap (1993), chapter
    13; resampling whole clusters is Davison & Hinkley, Bootstrap Methods and their Application (1997),
    section 3.8.

    NaN values are dropped first; `n` counts what is left and `n_clusters` the clusters that still hold a
    value. The result depends on the values and the sorted cluster names only, never on the order of the
    rows. Models judged on the same clusters with the same seed meet the same resamples, unless clusters are many and
    of few kinds: of 100,000 questions that are right or wrong, how many of each a resample holds is drawn at once, from
    the multinomial distribution that drawing them one by one has.

    Args:
        values: One number per case; NaN where it is undefined.
        clusters: The patient (or other independent unit) of each value.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval, between 0 and 1.
        seed: Seed of the random draws.

    Returns:
        The mean, its bounds and counts. Below two clusters the bounds are NaN; without a value all are.

    Raises:
        ValueError: If the lengths differ, a value is infinite, or a setting is out of range.

    Example:
        >>> mean_interval([1.0, 0.0], ["a", "b"])
        Interval(mean=0.5, low=0.0, high=1.0, n=2, n_clusters=2)
    """
    data, names = np.asarray(values, dtype=np.float64), np.asarray(clusters)
    _validate(data, names, resamples=resamples, level=level)
    kept = ~np.isnan(data)
    data, names = data[kept], names[kept]
    if data.size == 0:
        return Interval(np.nan, np.nan, np.nan, 0, 0)
    _, owner = np.unique(names, return_inverse=True)
    # Floating-point sums depend on their order, so the order is fixed before anything is summed.
    order = np.lexsort((data, owner))
    data, owner = data[order], owner[order]
    counts = np.bincount(owner)
    sums = np.asarray(np.bincount(owner, weights=data), dtype=np.float64)
    mean = math.fsum(data) / data.size
    if counts.size < 2:
        return Interval(mean, np.nan, np.nan, int(data.size), int(counts.size))
    means = _resampled_means(sums, counts, resamples=resamples, seed=seed)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, float(low), float(high), int(data.size), int(counts.size))


def _validate(data: npt.NDArray[np.float64], names: npt.NDArray[np.generic], *, resamples: int, level: float) -> None:
    if data.ndim != 1 or names.shape != data.shape:
        raise ValueError(
            "Expected `values` and `clusters` to be two sequences of one length, "
            f"got shapes {data.shape} and {names.shape}"
        )
    if np.isinf(data).any():
        raise ValueError("Expected `values` to be finite or NaN, got an infinite value")
    if resamples < 1:
        raise ValueError(f"Expected `resamples` to be at least 1, got {resamples}")
    if not 0 < level < 1:
        raise ValueError(f"Expected `level` to be between 0 and 1, got {level}")


def class_mean_interval(
    values: npt.ArrayLike,
    labels: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Returns the mean over labels of each label's mean of `values`, with an interval as of `mean_interval`.

    Each resample of clusters gives a mean of every label that it holds a value of, and the mean of those. Labels
    without any value are left out.

    Args:
        values: One number per case and label; NaN where it is undefined.
        labels: The label of each value.
        clusters: The patient (or other independent unit) of each value.
        resamples: Number of bootstrap resamples.
        level: Coverage of the interval, between 0 and 1.
        seed: Seed of the random draws.

    Returns:
        The mean, its bounds and counts, `n` being the number of values.

    Raises:
        ValueError: As `mean_interval` does.

    >>> class_mean_interval([1.0, 1.0, 1.0, 0.0], ["liver", "liver", "liver", "cyst"], ["a", "b", "c", "c"]).mean
    0.5
    """
    data, names, kinds = np.asarray(values, dtype=np.float64), np.asarray(clusters), np.asarray(labels)
    _validate(data, names, resamples=resamples, level=level)
    kept = ~np.isnan(data)
    data, names, kinds = data[kept], names[kept], kinds[kept]
    if data.size == 0:
        return Interval(np.nan, np.nan, np.nan, 0, 0)
    _, owner = np.unique(names, return_inverse=True)
    _, kind = np.unique(kinds, return_inverse=True)
    shape = (int(owner.max()) + 1, int(kind.max()) + 1)
    order = np.lexsort((data, kind, owner))
    place = (owner * shape[1] + kind)[order]
    sums = np.bincount(place, weights=data[order], minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    counts = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    mean = float((sums.sum(axis=0) / counts.sum(axis=0)).mean())
    if shape[0] < 2:
        return Interval(mean, np.nan, np.nan, int(data.size), shape[0])
    means = _resampled_label_means(sums, counts, resamples=resamples, seed=seed)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean, float(low), float(high), int(data.size), shape[0])


def draws(size: int, *, resamples: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yields all resamples of `size` clusters, some at a time: (resample, size), the indices of those drawn."""
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK_DRAWS // size)
    for start in range(0, resamples, rows):
        yield rng.integers(size, size=(min(rows, resamples - start), size))


def _resampled_means(
    sums: npt.NDArray[np.float64], counts: npt.NDArray[np.intp], *, resamples: int, seed: int
) -> npt.NDArray[np.float64]:
    """Returns the mean of each resample, from the sum and the count of each cluster."""
    by_kind = _by_kind(np.column_stack([sums, counts]), resamples=resamples, seed=seed)
    if by_kind is not None:
        return np.asarray(by_kind[:, 0] / by_kind[:, 1], dtype=np.float64)
    drawn = draws(counts.size, resamples=resamples, seed=seed)
    if (counts == 1).all():
        return np.concatenate([sums[some].sum(axis=1) / counts.size for some in drawn])
    return np.concatenate([sums[some].sum(axis=1) / counts[some].sum(axis=1) for some in drawn])


def _resampled_label_means(
    sums: npt.NDArray[np.float64], counts: npt.NDArray[np.float64], *, resamples: int, seed: int
) -> npt.NDArray[np.float64]:
    """Returns the mean over labels of each resample, from the sums and counts of each cluster, (cluster, label)."""
    size, labels = sums.shape
    by_kind = _by_kind(np.hstack([sums, counts]), resamples=resamples, seed=seed)
    if by_kind is not None:
        return _label_means(by_kind[:, :labels], by_kind[:, labels:])
    means = []
    for drawn in draws(size, resamples=resamples, seed=seed):
        first = np.arange(len(drawn))[:, None] * size
        times = np.bincount((drawn + first).ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)
        means.append(_label_means(times @ sums, times @ counts))
    return np.concatenate(means)


def _label_means(sums: npt.NDArray[np.float64], counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the mean over the labels that a resample holds of their means: (resample, label) each to (resample,)."""
    by_label = np.divide(sums, counts, out=np.zeros_like(counts), where=counts > 0)
    return np.asarray(by_label.sum(axis=1) / (counts > 0).sum(axis=1), dtype=np.float64)


def _by_kind(features: npt.NDArray[np.float64], *, resamples: int, seed: int) -> npt.NDArray[np.float64] | None:
    """Returns the sums of the features of the clusters in each resample; None where drawing cluster by cluster will do.

    Clusters of the same features cannot be told apart, so that only how many of each kind are drawn matters.

    Args:
        features: (cluster, feature).
        resamples: Number of bootstrap resamples.
        seed: Seed of the random draws.

    Returns:
        (resample, feature).
    """
    size = len(features)
    if size * resamples < _MANY_DRAWS:
        return None
    ordered = features[np.lexsort(features.T)]
    starts = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1)))
    if len(starts) > _FEW_KINDS:
        return None
    members = np.diff(np.append(starts, size))
    times = np.random.default_rng(seed).multinomial(size, members / size, size=resamples)
    return np.asarray(times @ ordered[starts], dtype=np.float64)
