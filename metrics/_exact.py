"""Exact intervals of shares."""

from __future__ import annotations

import math


def exact_interval(count: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """Returns the interval of Clopper and Pearson of a share: it holds the true one at least as often as it says.

    Args:
        count: how many.
        of: of how many, which are independent.
        level: in (0, 1).

    Returns:
        Its ends, in [0, 1]; NaN of nothing.

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
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = float(betaincinv(count, of - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - tail)) if count < of else 1.0
    return low, high
