"""Intervals of metrics of sets: of means over rows, where rows of a group count as one draw."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from medimg_eval.metrics.arrays import Array, Floats
from medimg_eval.metrics.proportions import wilson_interval

NORMAL_95 = 1.959963984540054
"""The 97.5th percentile of the normal distribution."""


def group_sums(values: Array, groups: Array | None) -> Floats:
    """Returns groups' sums of `values`, (row,); ungrouped values unchanged."""
    if groups is None:
        return np.asarray(values, dtype=np.float64)
    sums = np.bincount(groups, weights=values).astype(np.float64)
    return sums[np.bincount(groups) > 0]


def variance_of_mean(values: Array, groups: Array | None = None) -> float:
    """Returns the mean's squared standard error, groups as draws.

    `values` are (row,); rows of a group count as one draw. NaN with fewer than two groups.
    """
    sums = group_sums(values - values.mean(), groups)
    many = len(sums)
    return float((sums**2).sum() * many / (many - 1) / len(values) ** 2) if many > 1 else math.nan


def normal_interval(value: float, variance: float, how: str) -> dict[str, Any]:
    """Returns `standard_error`, `low`, `high` and `interval` of a value whose variance is known."""
    error = math.sqrt(variance) if variance >= 0 else math.nan
    return {
        "standard_error": error,
        "low": value - NORMAL_95 * error,
        "high": value + NORMAL_95 * error,
        "interval": how if math.isfinite(error) else "",
    }


def share_interval(values: Array, groups: Array | None, how: str, *, further: float = 0.0) -> dict[str, Any]:
    """Returns Wilson's interval of a mean of shares.

    Values are in [0, 1], and n is the number of independent rows. With groups, or a `further` variance (of what the
    values were looked up in), that number is p (1 - p) over the whole variance, at most that of rows; where all values
    are equal, the number of groups.
    """
    share, variance = float(values.mean()), variance_of_mean(values, groups) + further
    many = float(len(group_sums(values, groups)))
    if (groups is not None or further) and variance > 0 and 0 < share < 1:
        many = min(float(len(values)), share * (1 - share) / variance)
    low, high = wilson_interval(share * many, many)
    error = math.sqrt(variance) if variance >= 0 else math.nan
    return {"standard_error": error, "low": low, "high": high, "interval": how}


def variance_of_sum(influences: Array, groups: Array | None = None) -> float:
    """Returns a value's variance from `influences`, (row,), grouped.

    Rows of a group count as one draw. It is the jackknife's where leaving a row out takes its influence away.
    NaN with fewer than two groups.
    """
    sums = group_sums(influences, groups)
    many = len(sums)
    return float(((sums - sums.mean()) ** 2).sum() * many / (many - 1)) if many > 1 else math.nan
