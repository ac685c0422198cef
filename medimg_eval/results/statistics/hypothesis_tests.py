"""Tests of whether models, or groups of cases, differ by more than chance, and corrections for many tests."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from medimg_eval.results.statistics.paired_tests import settled

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

Alternative = Literal["two-sided", "greater", "less"]

LEAST_P = float(np.finfo(np.float64).tiny)
"""No p-value is 0: one below this stands for any that small."""


class SignedRank(NamedTuple):
    """A signed-rank test of one model against another.

    Attributes:
        p: Its p-value; NaN where there is no pair.
        n: Pairs of values.
        zeros: Pairs without a difference, which do not take part.
    """

    p: float
    n: int
    zeros: int


class GroupTest(NamedTuple):
    """Whether groups of cases differ, and which.

    Attributes:
        p: Of the Kruskal-Wallis test of all groups; NaN with fewer than two.
        pairs: For each pair of groups the p-value of the Mann-Whitney test after Benjamini and Hochberg's correction;
            empty where the first test is not significant.
    """

    p: float
    pairs: dict[tuple[str, str], float]


def holm(p: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Returns p-values corrected for their number by Holm's step-down method.

    The k-th smallest of m p-values is multiplied by m + 1 - k; none stays below a smaller one before it, or rises
    above 1. Tests with NaN were not made: they stay NaN and do not count.

    Source: Holm, Scandinavian Journal of Statistics 1979.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    order, count = _ascending(values)
    corrected = np.full(values.shape, np.nan)
    steps = values[order] * np.arange(count, 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return corrected


def benjamini_hochberg(p: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Returns p-values corrected for the rate of false discoveries among them.

    The k-th smallest of m p-values is multiplied by m / k; none stays above a larger one after it. NaN is treated as
    by `holm`.

    Source: Benjamini and Hochberg, Journal of the Royal Statistical Society B 1995.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """
    values = np.asarray(p, dtype=np.float64)
    order, count = _ascending(values)
    corrected = np.full(values.shape, np.nan)
    steps = values[order] * count / np.arange(1, count + 1)
    corrected[order] = np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1)
    return corrected


def signed_rank(first: npt.ArrayLike, second: npt.ArrayLike, alternative: Alternative = "two-sided") -> SignedRank:
    """Returns Wilcoxon's signed-rank test of paired values.

    Differences of 0 are left out (Wilcoxon's own way with them); where all are 0, p is 1. Differences that are equal
    but for rounding (`paired.settled`) share their mean rank. SciPy decides between the exact distribution and the
    normal one.

    Args:
        first: (pair,), finite.
        second: (pair,), finite.
        alternative: "greater" tests whether `first` tends to be the larger, "less" whether it is the smaller.
    """
    from scipy.stats import wilcoxon

    difference = settled(np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64))
    zeros = int((difference == 0).sum())
    if not difference.size:
        return SignedRank(np.nan, 0, 0)
    if zeros == difference.size:
        return SignedRank(1.0, difference.size, zeros)
    p = float(wilcoxon(difference, alternative=alternative, zero_method="wilcox").pvalue)
    return SignedRank(max(p, LEAST_P), difference.size, zeros)


def group_test(groups: Mapping[str, npt.ArrayLike], alpha: float = 0.05) -> GroupTest:
    """Returns whether groups differ: Kruskal-Wallis over all, and where that finds so, Mann-Whitney on each pair.

    Args:
        groups: The values of each group, finite, at least one each.
        alpha: The p-value below which the first test is followed by those of pairs.
    """
    from scipy.stats import kruskal, mannwhitneyu

    values = {name: np.asarray(members, dtype=np.float64) for name, members in groups.items()}
    if len(values) < 2:
        return GroupTest(np.nan, {})
    if np.ptp(np.concatenate(list(values.values()))) == 0:
        return GroupTest(1.0, {})
    p = max(float(kruskal(*values.values()).pvalue), LEAST_P)
    if not p < alpha:
        return GroupTest(p, {})
    pairs = list(combinations(values, 2))
    raw = [
        1.0
        if np.ptp(np.concatenate([values[first], values[second]])) == 0
        else max(float(mannwhitneyu(values[first], values[second], alternative="two-sided").pvalue), LEAST_P)
        for first, second in pairs
    ]
    return GroupTest(p, dict(zip(pairs, benjamini_hochberg(raw).tolist(), strict=True)))


def _ascending(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.intp], int]:
    """Returns the indices of the values that are numbers, smallest first, and how many they are."""
    count = int((~np.isnan(values)).sum())
    return np.argsort(values, kind="stable")[:count], count  # NaN is sorted last
