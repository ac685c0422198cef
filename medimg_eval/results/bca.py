"""The BCa bootstrap: bounds of an interval corrected for bias and for a spread that changes with the value."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

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
    for members in (left_out[stratum == place] for place in range(int(stratum.max()) + 1)):
        influence = (len(members) - 1) * (members.mean(axis=0) - members) / len(members)
        squares += (influence**2).sum(axis=0)
        cubes += (influence**3).sum(axis=0)
    level = np.abs(left_out).max(axis=0)
    known = squares > (_SAME * level) ** 2
    found = np.divide(cubes, 6 * squares**1.5, out=np.full(np.shape(squares), np.nan), where=known)
    return np.asarray(found, dtype=np.float64)


def bca_bounds(value: float, drawn: npt.NDArray[np.float64], speed: float, level: float) -> tuple[float, float] | None:
    """Returns the bounds of the BCa interval; None where there is none, so that the percentile interval must do.

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
    bias = ndtri(below)
    tails = bias + ndtri(np.array([(1 - level) / 2, (1 + level) / 2]))
    if (1 - speed * tails <= 0).any():
        return None
    low, high = np.quantile(drawn, ndtr(bias + tails / (1 - speed * tails)))
    return float(low), float(high)
