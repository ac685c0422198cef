"""How large a difference between two models is, with intervals that resample patients, and what could be found."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.results.statistics.expansion import MANY_CLUSTERS, expand, expand_influence
from medimg_eval.results.statistics.intervals import FEWEST, Estimate
from medimg_eval.results.statistics.resampling import Resamples, quantiles

_AT_ONCE = 32
"""Comparisons whose resamples are held at a time: 40 MiB at 10,000 resamples."""
_MOST_RANKED = 1_000
"""Resamples of the rank-biserial correlation, which must rank all differences of each anew."""


class Effects(NamedTuple):
    """Sizes of the effect that a difference of paired values has.

    Attributes:
        mean: The mean difference.
        d_z: Cohen's d of paired values: the mean difference over the standard deviation of differences.
        rank_biserial: Of ranks of differences without zeros, those of positive ones less those of negative ones, over
            all of them: -1 to 1 (the size of the effect that Wilcoxon's signed-rank test looks for).
        superiority: The share of pairs in which the first is larger, equal ones counted one half: 0 to 1.
        least: The one-sided lower bound of the mean difference.
        most: The one-sided upper bound.
    """

    mean: Estimate
    d_z: Estimate
    rank_biserial: Estimate
    superiority: Estimate
    least: float
    most: float


_UNKNOWN = Estimate()
NO_EFFECTS = Effects(_UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN, np.nan, np.nan)
"""Of no pair, and of what is no mean over cases."""


def effects(
    differences: npt.ArrayLike,
    patients: npt.ArrayLike,
    *,
    resamples: int = 10_000,
    level: float = 0.95,
    one_sided: float = 0.95,
    seed: int = 0,
) -> Effects:
    """Returns paired effect sizes with patient bootstrap intervals.

    As in `mean_interval`, as many patients as there are get drawn with replacement, with all their pairs. The interval
    of the rank-biserial correlation rests on at most 1,000 resamples. Of more than 20,000 patients all intervals are
    expanded from moments instead, unless few patients decide (see `expand`).

    Source: Cohen, Statistical Power Analysis for the Behavioral Sciences (1988), section 2.3.5; Kerby, Comprehensive
    Psychology 2014 (matched-pairs rank-biserial correlation); Grissom and Kim, Effect Sizes for Research (2005),
    chapter 5 (probability of superiority, of paired values).

    Args:
        differences: (pair,), finite.
        patients: (pair,): the patient (or other independent unit) of each.
        resamples: Of the bootstrap.
        level: Coverage of the intervals.
        one_sided: Coverage of each of the two one-sided bounds.
        seed: Seed of the bootstrap.

    >>> found = effects([0.1, 0.3, -0.1, 0.1], ["a", "b", "c", "d"])
    >>> round(found.mean.value, 3), round(found.rank_biserial.value, 3), found.superiority.value
    (0.1, 0.6, 0.75)
    """
    values = np.asarray(differences, dtype=np.float64)
    return many_effects(values[None], patients, resamples=resamples, level=level, one_sided=one_sided, seed=seed)[0]


def many_effects(
    differences: npt.NDArray[np.float64],
    patients: npt.ArrayLike,
    *,
    resamples: int,
    level: float,
    one_sided: float,
    seed: int,
) -> list[Effects]:
    """Returns effect sizes of comparisons on shared pairs, (comparison, pair)."""
    if not differences.size:
        return [NO_EFFECTS] * len(differences)
    _, owner = np.unique(np.asarray(patients), return_inverse=True)
    order = np.argsort(owner, kind="stable")
    owner = owner[order]
    size = int(owner.max()) + 1
    effects: list[Effects] = []
    for start in range(0, len(differences), _AT_ONCE):
        values = differences[start : start + _AT_ONCE, order]
        sums, centres = _patient_sums(values, owner, size)
        whole_effects = _of_sums(sums.sum(axis=0)[None], centres, values)
        drawn = _resample_effects(sums, centres, values, resamples=resamples, seed=seed) if size >= FEWEST else None
        for index, comparison in enumerate(values):
            mean, d_z, superiority = (float(part[0]) for part in whole_effects[:, :, index])
            biserial = float(_rank_biserial(comparison, owner, np.ones((1, size)))[0])
            if drawn is None:
                size_of = [Estimate(value, np.nan, np.nan) for value in (mean, d_z, biserial, superiority)]
                effects.append(Effects(size_of[0], size_of[1], size_of[2], size_of[3], np.nan, np.nan))
                continue
            ranked = _resampled_ranks(comparison, owner, biserial, size, resamples=resamples, seed=seed)
            tails = ((1 - level) / 2, (1 + level) / 2)
            effects.append(
                Effects(
                    Estimate(mean, *quantiles(drawn[index][0], *tails)),
                    Estimate(d_z, *quantiles(drawn[index][1], *tails)),
                    Estimate(biserial, *quantiles(ranked, *tails)),
                    Estimate(superiority, *quantiles(drawn[index][2], *tails)),
                    *quantiles(drawn[index][0], 1 - one_sided, one_sided),
                )
            )
    return effects


def _resample_effects(
    sums: npt.NDArray[np.float64],
    centres: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
    *,
    resamples: int,
    seed: int,
) -> list[list[npt.NDArray[np.float64]]]:
    """Returns resampled mean, d_z and superiority, (resample,) each."""
    number = len(values)
    effects: list[list[npt.NDArray[np.float64] | None]] = []
    for index in range(number):
        own, centre, row = sums[:, [0, *range(1 + index, 1 + 3 * number, number)]], centres[[index]], values[[index]]
        effects.append([expand(partial(_size_of, kind=kind, centre=centre, row=row), own) for kind in range(3)])
    if all(size is not None for sizes in effects for size in sizes):
        return [[size for size in sizes if size is not None] for sizes in effects]
    drawn = _of_sums(Resamples(len(sums), resamples=resamples, seed=seed).sums(sums), centres, values)
    return [
        [drawn[kind, :, index] if size is None else size for kind, size in enumerate(sizes)]
        for index, sizes in enumerate(effects)
    ]


def _size_of(
    sums: npt.NDArray[np.float64], kind: int, centre: npt.NDArray[np.float64], row: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Returns one effect size of (resample, 4) sums, (resample,)."""
    return _of_sums(sums, centre, row)[kind, :, 0]


def _resampled_ranks(
    values: npt.NDArray[np.float64],
    owner: npt.NDArray[np.intp],
    biserial: float,
    size: int,
    *,
    resamples: int,
    seed: int,
) -> npt.NDArray[np.float64]:
    """Returns the rank-biserial correlation on resamples, (resample,), drawn or expanded."""
    if size > MANY_CLUSTERS:
        influence = _rank_influence(values, owner, size)
        error = float(np.sqrt((influence**2).sum()))
        steps = 1 + np.outer([-1.0, 0.0, 1.0], influence / error if error else influence)
        bend = float(np.diff(_rank_biserial(values, owner, steps), 2)[0])
        if (expanded := expand_influence(biserial, influence, bend)) is not None:
            return expanded
    few = Resamples(size, resamples=min(resamples, _MOST_RANKED), seed=seed)
    return np.concatenate([_rank_biserial(values, owner, times) for times in few.times()])


def _patient_sums(
    values: npt.NDArray[np.float64], owner: npt.NDArray[np.intp], size: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns patients' sums, (patient, 1 + 3 * comparison), and centres."""
    centres = values.mean(axis=1)  # squares about it lose no digits to a large mean
    residuals = values - centres[:, None]
    parts = np.concatenate([np.ones((1, values.shape[1])), residuals, residuals**2, (values > 0) + 0.5 * (values == 0)])
    starts = np.searchsorted(owner, np.arange(size))
    return np.add.reduceat(parts, starts, axis=1).T, centres


def _of_sums(
    sums: npt.NDArray[np.float64], centres: npt.NDArray[np.float64], values: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Returns mean, d_z and superiority of resamples: (3, resample, comparison)."""
    count = sums[:, :1]
    total, squares, above = np.split(sums[:, 1:], 3, axis=1)
    mean = centres + total / count
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.maximum(squares - total**2 / count, 0) / (count - 1)
        # Equal differences have no spread but for rounding.
        spread = np.where(variance > (1e-9 * np.abs(values).max(axis=1)) ** 2, np.sqrt(variance), np.nan)
        d_z = mean / spread
    return np.stack([mean, d_z, above / count])


def _rank_biserial(
    values: npt.NDArray[np.float64], owner: npt.NDArray[np.intp], times: npt.NDArray[np.generic]
) -> npt.NDArray[np.float64]:
    """Returns the matched-pairs rank-biserial correlation of resamples: (resample,); 0 without a difference."""
    indices = np.flatnonzero(values)
    indices = indices[np.argsort(np.abs(values[indices]), kind="stable")]
    sizes = np.abs(values[indices])
    if not sizes.size:
        return np.zeros(len(times))
    drawn = times[:, owner[indices]].astype(np.float64)
    signed = drawn * np.sign(values[indices])
    starts = np.flatnonzero(np.append(True, sizes[1:] != sizes[:-1]))
    if starts.size < sizes.size:
        drawn, signed = (np.add.reduceat(some, starts, axis=1) for some in (drawn, signed))
    # How often each size of a difference is drawn; its mid-rank is what lies below it and half of itself.
    ranks = np.cumsum(drawn, axis=1)
    ranks -= (drawn - 1) / 2
    total = np.einsum("rs,rs->r", drawn, ranks)
    signed_ranks = np.einsum("rs,rs->r", signed, ranks)
    correlations = np.divide(signed_ranks, total, out=np.zeros(len(times)), where=total > 0)
    return np.asarray(correlations, dtype=np.float64)


def _rank_influence(values: npt.NDArray[np.float64], owner: npt.NDArray[np.intp], size: int) -> npt.NDArray[np.float64]:
    """Returns influence of patients on the rank-biserial correlation, (patient,).

    A pair that counts once more adds its own signed rank and moves the ranks of all larger differences by one, those of
    its size by one half; the sum of all ranks, by which that is divided, grows by the number of differences.
    """
    indices = np.flatnonzero(values)
    if not indices.size:
        return np.zeros(size)
    sizes, kind, members = np.unique(np.abs(values[indices]), return_inverse=True, return_counts=True)
    signs = np.sign(values[indices])
    signed = np.bincount(kind, weights=signs, minlength=sizes.size)
    ranks = np.cumsum(members) - (members - 1) / 2
    total, signed_total = indices.size * (indices.size + 1) / 2, float((signed * ranks).sum())
    larger = signed.sum() - np.cumsum(signed)
    moved = signs * ranks[kind] + (larger + signed / 2)[kind]
    slopes = (moved - signed_total / total * (indices.size + 0.5)) / total
    added = np.bincount(owner[indices], weights=slopes, minlength=size)
    return np.asarray(added - added.mean(), dtype=np.float64)


POWER = 0.8
"""How often a detectable difference is found."""


def detectable_difference(
    differences: npt.ArrayLike, patients: npt.ArrayLike, *, alpha: float = 0.05, power: float = POWER
) -> float:
    """Returns the detectable mean difference of a paired t-test.

    The test is that of as many patients with as much spread between them as were seen. With one pair each, the spread
    is the standard deviation of the differences; with several, the standard error of the mean is that of clusters:
    what the differences of each patient add up to, less what their mean would make of as many. The non-central t
    distribution gives the effect, so that few patients are not promised too much.

    Source: Cohen, Statistical Power Analysis for the Behavioral Sciences (1988), chapter 2; the error of clusters:
    Rao and Scott, Biometrics 1992 (a ratio of sums over clusters).

    Args:
        differences: (pair,), finite.
        patients: (pair,): the patient (or other independent unit) of each.
        alpha: Of the test, without correction for the number of tests.
        power: The probability of finding such a difference.

    Returns:
        In the unit of the differences; NaN below two patients.

    >>> round(detectable_difference([0.1, 0.3, -0.1, 0.1, 0.2, 0.0], ["a", "b", "c", "d", "e", "f"]), 3)
    0.203
    """
    from scipy.special import nctdtrinc
    from scipy.stats import t

    values = np.asarray(differences, dtype=np.float64)
    owner = np.unique(np.asarray(patients), return_inverse=True)[1] if values.size else np.zeros(0, dtype=np.intp)
    size = int(owner.max()) + 1 if values.size else 0
    if size < 2:
        return float("nan")
    residuals = np.bincount(owner, weights=values - values.mean())
    error = float(np.sqrt(size / (size - 1) * (residuals**2).sum())) / values.size
    return float(nctdtrinc(size - 1, 1 - power, t.isf(alpha / 2, size - 1))) * error


def detectable_of_error(error: float, *, alpha: float = 0.05, power: float = POWER) -> float:
    """Returns the detectable difference of a normal test, as DeLong's.

    >>> round(detectable_of_error(0.01), 4)
    0.028
    """
    from scipy.stats import norm

    return float(norm.isf(alpha / 2) + norm.ppf(power)) * error
