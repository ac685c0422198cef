"""Tests of paired values that respect who they belong to: flipped signs per patient, and McNemar's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

MOST_EXACT = 16
"""Patients with a difference up to which all 2 ** 16 patterns of signs are gone through."""
_CHUNK = 1 << 22
"""Signs held at a time."""


class Sides(NamedTuple):
    """The p-values of one test for its three alternatives; NaN where there is nothing to test.

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
    """Returns the differences of paired values without what rounding adds: 0.9 - 0.8 and 0.7 - 0.6 are the same.

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
    """Returns the permutation test that the mean difference is 0, which flips the signs of a patient together.

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
    seen = float(sums.sum())
    sizes = np.sort(np.abs(sums[np.abs(sums) > noise]))  # the order of rows and names must not matter
    if not sizes.size:
        return Sides(1.0, 1.0, 1.0, True)
    exact = sizes.size <= MOST_EXACT
    if exact:
        greater, less, both = _as_extreme(_every(sizes), seen, noise).mean(axis=1).tolist()
        return Sides(greater, less, both, exact=True)
    return of_random(np.concatenate(list(_random(sizes, draws, seed))), seen, noise)


def mcnemar(first: npt.ArrayLike, second: npt.ArrayLike) -> Sides:
    """Returns McNemar's test of paired values that are right (1) or wrong (0), as its mid-p version.

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

    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if not np.isin(np.concatenate([one, two]), (0.0, 1.0)).all():
        raise ValueError("Expected values that are 1 (right) or 0 (wrong)")
    if not one.size:
        return Sides(np.nan, np.nan, np.nan, True)
    only_first, only_second = int((one > two).sum()), int((one < two).sum())
    number = only_first + only_second
    if not number:
        return Sides(1.0, 1.0, 1.0, True)

    def tail(count: int) -> float:
        return float(binom.sf(count, number, 0.5) + binom.pmf(count, number, 0.5) / 2)

    more = max(only_first, only_second)
    equal = only_first == only_second
    both = 1 - float(binom.pmf(more, number, 0.5)) / 2 if equal else 2 * tail(more)
    return Sides(tail(only_first), tail(only_second), both, True)


def of_random(found: npt.NDArray[np.float64], seen: float, noise: float = 1e-12) -> Sides:
    """Returns p-values from what a difference is in random patterns, NaN where it is undefined, and what was seen."""
    known = found[~np.isnan(found)]
    greater, less, both = ((1 + _as_extreme(known, seen, noise).sum(axis=1)) / (1 + known.size)).tolist()
    return Sides(greater, less, both, exact=False)


def _as_extreme(found: npt.NDArray[np.float64], seen: float, noise: float) -> npt.NDArray[np.bool_]:
    """Returns which differences are as extreme as what was seen, for the three alternatives: (3, pattern)."""
    return np.stack([found >= seen - noise, found <= seen + noise, np.abs(found) >= abs(seen) - noise])


def _every(sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the sums of all patterns of signs: (2 ** size,)."""
    totals = np.zeros(1)
    for size in sizes:
        totals = np.concatenate([totals + size, totals - size])
    return totals


def _random(sizes: npt.NDArray[np.float64], draws: int, seed: int) -> Iterator[npt.NDArray[np.float64]]:
    """Yields the sums of random patterns of signs, `draws` in all."""
    rng = np.random.default_rng(seed)
    kinds, members = np.unique(sizes, return_counts=True)
    if 4 * kinds.size <= sizes.size:
        # Of equal sizes only the number that is positive matters: right and wrong answers have few sizes.
        yield (2 * rng.binomial(members, 0.5, size=(draws, kinds.size)) - members) @ kinds
        return
    at_once = max(_CHUNK // sizes.size, 1)
    for start in range(0, draws, at_once):
        number = min(at_once, draws - start)
        bits = np.unpackbits(rng.integers(0, 256, -(-number * sizes.size // 8), dtype=np.uint8))
        signs = bits[: number * sizes.size].reshape(number, sizes.size)
        yield 2 * (signs.astype(np.float64) @ sizes) - sizes.sum()
