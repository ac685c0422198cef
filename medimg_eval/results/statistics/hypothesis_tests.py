"""Tests of differences between models or groups of cases, patients kept together, and corrections for many tests."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from medimg_eval.results.statistics.expansion import MANY_CLUSTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
    """Holm's step-down correction of p-values.

    The k-th smallest of m p-values is multiplied by m + 1 - k; none stays below a smaller one before it, or rises
    above 1. Tests with NaN were not made: they stay NaN and do not count.

    Source: Holm, Scandinavian Journal of Statistics 1979.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    return _correct_steps(p, lambda values: np.maximum.accumulate(values * np.arange(len(values), 0, -1)))


def benjamini_hochberg(p: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Benjamini and Hochberg's correction of p-values (false discovery rate).

    The k-th smallest of m p-values is multiplied by m / k; none stays above a larger one after it. NaN is treated as
    by `holm`.

    Source: Benjamini and Hochberg, Journal of the Royal Statistical Society B 1995.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.04, 0.04]
    """

    def steps(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.minimum.accumulate((values * len(values) / np.arange(1, len(values) + 1))[::-1])[::-1]

    return _correct_steps(p, steps)


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
    """Kruskal-Wallis test over groups, then Mann-Whitney tests of pairs.

    Pairs are tested only where the first test is significant, and their p-values are corrected by Benjamini and
    Hochberg.

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


def _correct_steps(
    p: npt.ArrayLike, steps: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    """Returns step-corrected p-values, smallest first, at most 1."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")[: np.count_nonzero(~np.isnan(values))]  # NaN is sorted last
    corrected = np.full(values.shape, np.nan)
    corrected[order] = np.minimum(steps(values[order]), 1)
    return corrected


MOST_EXACT = 16
"""Patients with a difference up to which all 2 ** 16 patterns of signs are gone through."""
_CHUNK = 1 << 22
"""Signs drawn at a time."""
_FEW_SIZES = 1_000
"""Sizes of differences up to which very many patients are counted by size: more are slower than one sign a patient."""
_HELD = 1 << 24
"""Bytes of eight signs each that are held at a time."""


class Sides(NamedTuple):
    """p-values of a test's three alternatives; NaN without data.

    Attributes:
        greater: That the first is larger than the second.
        less: That it is smaller.
        two_sided: That they differ.
        exact: Whether they come from all possible outcomes, and not from random ones or an approximation.
    """

    greater: float
    less: float
    two_sided: float
    exact: bool


def settled(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns paired differences free of rounding noise.

    0.9 - 0.8 and 0.7 - 0.6 are the same.

    Of values of like size 12 digits count, so that equal differences share a rank and equal values have none.

    >>> settled(np.array([0.9, 0.7]), np.array([0.8, 0.6])).tolist()
    [0.1, 0.1]
    """
    scale = max(float(np.abs(first).max(initial=0.0)), float(np.abs(second).max(initial=0.0)))
    if not scale:
        return first - second
    digits = 12 - int(np.ceil(np.log10(scale)))
    return np.asarray(np.round(first - second, digits), dtype=np.float64)


def sign_flip(differences: npt.ArrayLike, patients: npt.ArrayLike, *, draws: int = 10_000, seed: int = 0) -> Sides:
    """Returns the sign-flip test of mean difference 0, by patient.

    If it does not matter which of two models gave which value of a pair, all differences of a patient may change
    their sign at once, and every pattern of signs over patients is as likely as what was seen. Each p-value is the
    share of patterns whose mean difference is at least as extreme. With at most 16 patients that have a difference,
    all patterns are gone through; otherwise b of `draws` random ones are as extreme, and p is
    (1 + b) / (1 + draws). Patients whose differences add up to 0 do not matter.

    Source: Fisher, The Design of Experiments (1935), section 21; of random patterns Phipson and Smyth, Statistical
    Applications in Genetics and Molecular Biology 2010; clusters as a whole: Winkler et al., NeuroImage 2015.

    Args:
        differences: (pair,), finite.
        patients: (pair,): the patient (or other independent unit) of each.
        draws: Random patterns, where there are too many to go through.
        seed: Seed of the random patterns.

    >>> sign_flip([0.1, 0.2, 0.3], ["a", "b", "c"]).two_sided
    0.25
    """
    values, names = np.asarray(differences, dtype=np.float64), np.asarray(patients)
    if not values.size:
        return Sides(np.nan, np.nan, np.nan, True)
    _, owner = np.unique(names, return_inverse=True)
    sums = np.bincount(owner, weights=values)
    noise = 1e-12 * float(np.abs(values).sum())
    observed = float(sums.sum())
    sizes = np.sort(np.abs(sums[np.abs(sums) > noise]))  # the order of rows and names must not matter
    if not sizes.size:
        return Sides(1.0, 1.0, 1.0, True)
    exact = sizes.size <= MOST_EXACT
    if exact:
        greater, less, both = _as_extreme(_all_sums(sizes), observed, noise).mean(axis=1).tolist()
        return Sides(greater, less, both, exact=True)
    return of_random(np.concatenate(list(_random_sums(sizes, draws, seed))), observed, noise)


def mcnemar(first: npt.ArrayLike, second: npt.ArrayLike) -> Sides:
    """Returns McNemar's mid-p test of paired correctness.

    Right is 1, wrong is 0.

    Of n pairs in which only one of the two is right, the number in which it is the first has a binomial distribution
    with 1/2 if they do not differ. A one-sided p-value is the probability of more than was seen, and half of that of
    exactly as much; the two-sided one counts both tails so. Without such pairs it is 1. The pairs must be independent:
    of a patient with several, use `sign_flip`.

    Source: McNemar, Psychometrika 1947; the mid-p version: Fagerland, Lydersen and Laake, BMC Medical Research
    Methodology 2013.

    Raises:
        ValueError: If a value is neither 0 nor 1.

    >>> mcnemar([1, 1, 1, 0], [0, 0, 0, 0]).two_sided
    0.125
    """
    from scipy.stats import binom

    first_right, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if not np.isin(np.concatenate([first_right, two]), (0.0, 1.0)).all():
        raise ValueError("Expected values that are 1 (right) or 0 (wrong)")
    if not first_right.size:
        return Sides(np.nan, np.nan, np.nan, True)
    only_first, only_second = int((first_right > two).sum()), int((first_right < two).sum())
    number = only_first + only_second
    if not number:
        return Sides(1.0, 1.0, 1.0, True)

    def tail(count: int) -> float:
        return float(binom.sf(count, number, 0.5) + binom.pmf(count, number, 0.5) / 2)

    larger = max(only_first, only_second)
    equal = only_first == only_second
    both = 1 - float(binom.pmf(larger, number, 0.5)) / 2 if equal else 2 * tail(larger)
    return Sides(tail(only_first), tail(only_second), both, True)


def of_random(found: npt.NDArray[np.float64], seen: float, noise: float = 1e-12) -> Sides:
    """Returns p-values from random patterns, and the observed value.

    NaN where it is undefined.
    """
    drawn = found[~np.isnan(found)]
    greater, less, both = ((1 + _as_extreme(drawn, seen, noise).sum(axis=1)) / (1 + drawn.size)).tolist()
    return Sides(greater, less, both, exact=False)


def _as_extreme(found: npt.NDArray[np.float64], seen: float, noise: float) -> npt.NDArray[np.bool_]:
    """Returns which patterns are as extreme, (3, pattern)."""
    return np.stack([found >= seen - noise, found <= seen + noise, np.abs(found) >= abs(seen) - noise])


def _all_sums(sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the sums of all patterns of signs: (2 ** size,)."""
    totals = np.zeros(1)
    for size in sizes:
        totals = np.concatenate([totals + size, totals - size])
    return totals


def _random_sums(sizes: npt.NDArray[np.float64], draws: int, seed: int) -> Iterator[npt.NDArray[np.float64]]:
    """Yields the sums of random patterns of signs, `draws` in all."""
    rng = np.random.default_rng(seed)
    kinds, members = np.unique(sizes, return_counts=True)
    if 4 * kinds.size <= sizes.size and (sizes.size <= MANY_CLUSTERS or kinds.size <= _FEW_SIZES):
        # Of equal sizes only the number that is positive matters: right and wrong answers have few sizes.
        rows = max(_CHUNK // kinds.size, 1)
        for start in range(0, draws, rows):
            positive = rng.binomial(members, 0.5, size=(min(rows, draws - start), kinds.size))
            yield (2 * positive - members) @ kinds
        return
    at_once = max(_CHUNK // sizes.size, 1)
    padded = np.zeros(-(-sizes.size // 8) * 8)
    padded[: sizes.size] = sizes
    eights = padded.reshape(-1, 8)
    held: list[npt.NDArray[np.uint8]] = []
    for start in range(0, draws, at_once):
        number = min(at_once, draws - start)
        signs = rng.integers(0, 256, -(-number * sizes.size // 8), dtype=np.uint8)
        held.append(_rows_of_bits(signs, number, sizes.size))
        if sum(some.size for some in held) >= _HELD or start + number == draws:
            yield 2 * _sums_by_eights(np.concatenate(held), eights) - sizes.sum()
            held = []


def _rows_of_bits(signs: npt.NDArray[np.uint8], number: int, size: int) -> npt.NDArray[np.uint8]:
    """Returns consecutive `size`-bit patterns, first bit first: (row, byte)."""
    width = -(-size // 8)
    if number > width:
        return np.packbits(np.unpackbits(signs, count=number * size).reshape(number, size), axis=1)
    signs, rows = np.append(signs, np.uint8(0)), np.empty((number, width), dtype=np.uint8)
    for row in range(number):
        first, shift = divmod(row * size, 8)
        some = signs[first : first + width + 1]
        rows[row] = (some[:width] << shift) | (some[1:] >> (8 - shift)) if shift else some[:width]
    return rows


def _sums_by_eights(rows: npt.NDArray[np.uint8], eights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns sums over set bits: (row, byte), (byte, 8) to (row,).

    All 256 sums of eight sizes are made once, and looked up by a row's byte, which is several times faster than one
    product a bit. The sizes beyond the last are 0, so that its further bits do not matter.
    """
    patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float64)
    totals = np.zeros(len(rows))
    for sizes, column in zip(eights, np.ascontiguousarray(rows.T), strict=True):
        totals += (patterns @ sizes)[column]
    return totals


class Areas(NamedTuple):
    """Areas under the ROC curves of several models on the same cases.

    Attributes:
        areas: (model,), the mean over labels; NaN where no label has cases with and without it.
        covariance: (model, model), of the areas; NaN where fewer than two patients have a label, or have not.
        labels: How many have cases of both kinds; the others are left out.
    """

    areas: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]
    labels: int

    def difference(self, first: int, second: int) -> Difference:
        """Returns the area difference of two models and its test."""
        from scipy.stats import norm

        gap = float(self.areas[first] - self.areas[second])
        chosen = self.covariance[np.ix_([first, second], [first, second])]
        error = float(np.sqrt(max(chosen[0, 0] + chosen[1, 1] - 2 * chosen[0, 1], 0.0)))
        if np.isnan(gap) or np.isnan(error):
            return Difference(gap, np.nan, Sides(np.nan, np.nan, np.nan, False))
        if error < 1e-12:
            # Two models that order all cases alike; or two without any spread, of which nothing can be said.
            p = 1.0 if abs(gap) < 1e-12 else np.nan
            return Difference(gap, 0.0, Sides(p, p, p, False))
        z = gap / error
        return Difference(gap, error, Sides(float(norm.sf(z)), float(norm.cdf(z)), float(2 * norm.sf(abs(z))), False))


class Difference(NamedTuple):
    """AUROC difference, standard error and normal p-values."""

    value: float
    error: float
    p: Sides


def correlated_areas(
    scores: npt.ArrayLike, truth: npt.ArrayLike, patients: npt.ArrayLike, labels: npt.ArrayLike | None = None
) -> Areas:
    """Returns AUROCs on shared cases, with DeLong's covariance.

    An area is the probability that a case with the label is scored above one without it, ties counted one half. What
    each case adds to it is found from mid-ranks. Where patients have several cases, what these add is summed first,
    as Obuchowski does for clustered data; with one case each this is DeLong's estimate.

    Of several labels the mean of their areas is taken. Its covariance follows from the same sums, what a patient adds
    to any of the labels taken together.

    Source: DeLong, DeLong and Clarke-Pearson, Biometrics 1988; mid-ranks: Sun and Xu, IEEE Signal Processing Letters
    2014; clusters: Obuchowski, Biometrics 1997.

    Args:
        scores: (model, row), finite; higher means more likely present.
        truth: (row,), True where the label is present.
        patients: (row,): the patient (or other independent unit) of each row.
        labels: (row,): the label that it is about; None where there is one.

    >>> found = correlated_areas([[0.1, 0.4, 0.35, 0.8]], [False, False, True, True], ["a", "b", "c", "d"])
    >>> found.areas.tolist()
    [0.75]
    """
    values, present = np.atleast_2d(np.asarray(scores, dtype=np.float64)), np.asarray(truth, dtype=bool)
    owners = np.unique(np.asarray(patients), return_inverse=True)[1] if present.size else np.zeros(0, dtype=np.intp)
    kinds = np.zeros(present.size) if labels is None else np.unique(np.asarray(labels), return_inverse=True)[1]
    size = int(owners.max()) + 1 if owners.size else 0
    areas, parts = [], []
    for kind in np.unique(kinds):
        chosen = kinds == kind
        if 0 < present[chosen].sum() < chosen.sum():
            area, added = _of_label(values[:, chosen], present[chosen], owners[chosen], size)
            areas.append(area)
            parts.append(added)
    count = len(values)
    if not areas:
        return Areas(np.full(count, np.nan), np.full((count, count), np.nan), 0)
    with_, without, scaled_with, scaled_without = (np.asarray(part) for part in np.sum(parts, axis=0))
    across = with_ @ without.T
    factor = size / (size - 1) if size > 1 else np.nan
    covariance = scaled_with @ scaled_with.T + scaled_without @ scaled_without.T + factor * (across + across.T)
    return Areas(np.mean(areas, axis=0), covariance / len(areas) ** 2, len(areas))


def _of_label(
    scores: npt.NDArray[np.float64], present: npt.NDArray[np.bool_], owners: npt.NDArray[np.intp], size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns a label's areas, (model,), and patient parts, (4, model, patient).

    The four are by cases with the label and by those without it, as they are and scaled for the number of patients.
    """
    from scipy.stats import rankdata

    yes, no = scores[:, present], scores[:, ~present]
    many, few = yes.shape[1], no.shape[1]
    ranks = rankdata(scores, axis=1)
    above = (ranks[:, present] - rankdata(yes, axis=1)) / few
    below = 1 - (ranks[:, ~present] - rankdata(no, axis=1)) / many
    area = above.mean(axis=1)
    added = []
    for placements, who in ((above, owners[present]), (below, owners[~present])):
        centred = (placements - area[:, None]) / placements.shape[1]
        added.append(np.array([np.bincount(who, weights=row, minlength=size) for row in centred]))
    patients = [np.unique(owners[present]).size, np.unique(owners[~present]).size]
    scales = [np.sqrt(number / (number - 1)) if number > 1 else np.nan for number in patients]
    return area, np.stack([*added, *(scale * scale_added for scale, scale_added in zip(scales, added, strict=True))])
