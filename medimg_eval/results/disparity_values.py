"""What tells how far groups lie apart, of values and of their resamples: worst, gap, ratio, equity-scaled value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.results.intervals import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


NONE = Estimate()


def spread(values: Floats) -> Floats:
    """Returns largest minus smallest: (..., group) to (...); NaN where a group has no value, or there is none."""
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.max(axis=-1) - values.min(axis=-1), dtype=np.float64)


def worst(values: Floats, better: bool) -> Floats:
    """Returns the worst value, (..., group) to (...): the smallest where higher is better, else the largest."""
    return np.asarray(values.min(axis=-1) if better else values.max(axis=-1), dtype=np.float64)


def ratio(values: Floats, better: bool) -> Floats:
    """Returns the worst value by the best, (..., group) to (...); NaN unless both are above 0."""
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
    """Returns a value with the percentile interval of its resamples, (resample,), of which most must have a value."""
    known = drawn[~np.isnan(drawn)]
    if np.isnan(value) or known.size * 2 < drawn.size:
        return Estimate(float(value))
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(value), float(low), float(high))


def largest(drawn: Iterable[Floats], number: int, level: float) -> tuple[float, float]:
    """Returns an interval for the largest of several true values, whichever it is, from resamples of all of them.

    From the largest of their lower bounds to the largest of their upper bounds. The upper bound fails only if that of
    the truly largest does, so that it needs no correction; the lower one may fail by any of them, so that each of these
    has the level that Bonferroni asks for. It covers at least as often as it says, as far as percentile bounds do.

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
    """Returns an interval for the largest difference of two groups' true values, from resamples (resample, group).

    Of several sets of groups, for the largest difference within any of them. It holds 0 unless two groups differ.
    """
    number = sum(one.shape[1] * (one.shape[1] - 1) for one in drawn)
    pairs = (_others(one, place, np.subtract) for one in drawn for place in range(one.shape[1]))
    low, high = largest(pairs, number, level)
    return max(low, 0.0), high


def ratio_bounds(drawn: Floats, level: float, *, better: bool) -> tuple[float, float]:
    """Returns an interval for the true ratio of the worst to the best, from (resample, group); NaN of values <= 0."""
    if (drawn <= 0).any():
        return np.nan, np.nan
    groups = drawn.shape[1]
    pairs = (_others(drawn, place, np.divide) for place in range(groups))
    low, high = largest(pairs, groups * (groups - 1), level)
    low = max(low, 1.0)
    return (1 / high, 1 / low) if better else (low, high)


def _others(drawn: Floats, place: int, compared: np.ufunc) -> Floats:
    """Returns one group less, or by, each of the others: (resample, group) to (resample, group - 1)."""
    return np.asarray(compared(drawn[:, [place]], np.delete(drawn, place, axis=1)), dtype=np.float64)
