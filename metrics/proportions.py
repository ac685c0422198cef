"""Intervals of shares: the exact one and Wilson's, also of a number of draws that is no whole one."""

from __future__ import annotations

import math

import numpy as np

from medimg_eval.metrics.arrays import Array, Floats


def quotient(part: Floats, of: Array, otherwise: float = math.nan) -> Floats:
    """Returns a ratio, (...), or `otherwise` for zero divisors."""
    ratio: Floats = np.divide(part, of, out=np.full(np.shape(of), otherwise), where=np.asarray(of) > 0)
    return ratio


def known_mean(values: Floats) -> float:
    """Mean of the values that are not NaN; NaN without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def exact_interval(count: float, of: float, level: float = 0.95) -> tuple[float, float]:
    """Returns Clopper and Pearson's exact interval of a share.

    It covers the true share at least as often as its level states. Where draws are not independent, count and
    `of` are those of as many that would tell as much, perhaps no whole numbers. In [0, 1]; NaN of nothing.

    Raises:
        ValueError: the count is no part, or the level no share.

    Source: Clopper & Pearson, Biometrika 26, 1934.
    """
    if not 0 <= count <= of:
        raise ValueError(f"Expected `count` to be between 0 and {of}, got {count}")
    if not 0 < level < 1:
        raise ValueError(f"Expected `level` to be between 0 and 1, got {level}")
    if not of:
        return math.nan, math.nan
    tail = (1 - level) / 2
    if count in (0, of):  # the beta distribution is a power then, and SciPy, which takes long to import, is not needed
        end = tail ** (1 / of)
        return (0.0, 1 - end) if not count else (end, 1.0)
    from scipy.special import betaincinv

    return float(betaincinv(count, of - count + 1, tail)), float(betaincinv(count + 1, of - count, 1 - tail))


FEW_TRIALS = 10
"""Of at most so many independent values the exact interval is printed instead of Wilson's."""


def wilson_interval(count: float, of: float, level: float = 0.95) -> tuple[float, float]:
    """Returns Wilson's score interval of a share.

    It holds the shares that a test at this level does not reject. Where draws are not independent, count and
    `of` are those of as many that would tell as much, perhaps no whole numbers. In [0, 1].

    Raises:
        ValueError: If the count is no part, or the level is out of range.

    Source: Wilson, JASA 22 (1927), without correction for continuity; Brown, Cai & DasGupta, Statistical Science 16
    (2001) on why it is preferred to p +- z * sqrt(p (1 - p) / n).

    >>> low, high = wilson_interval(8, 20)
    >>> print(f"{low:.4f} {high:.4f}")
    0.2188 0.6134
    """
    if not 0 <= count <= of or not of:
        raise ValueError(f"Expected `count` to be between 0 and {of}, of more than none, got {count}")
    if not 0 < level < 1:
        raise ValueError(f"Expected `level` to be between 0 and 1, got {level}")
    from scipy.special import ndtri

    share, squared = count / of, float(ndtri((1 + level) / 2)) ** 2
    centre = (share + squared / (2 * of)) / (1 + squared / of)
    half = math.sqrt(squared * (share * (1 - share) / of + squared / (4 * of**2))) / (1 + squared / of)
    # At no and at all successes one end is the share itself, which rounding must not move.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def proportion_interval(count: int, of: int, level: float = 0.95) -> tuple[float, float, str]:
    """Returns a share's interval for tables and its method's name.

    The method is "wilson" or "exact". Exact is the interval of Clopper and Pearson: of at most `FEW_TRIALS`,
    and where none or all of them count, because there Wilson's holds the true share less often than its
    level.
    """
    if of <= FEW_TRIALS or count in (0, of):
        return *exact_interval(count, of, level), "exact"
    return *wilson_interval(count, of, level), "wilson"
