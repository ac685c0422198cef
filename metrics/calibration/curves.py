"""Arithmetic of calibration and abstention: how sure answers were beside whether they were right, for many resamples.

Rows of equal confidence always stand together, so that no value depends on the order in which ties happen to lie.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.classification import CLASSES, EXCLUSIVE, PRESENT, THRESHOLD
from medimg_eval.metrics.registry import Rows

Floats: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]

RIGHT, WRONG = "right", "wrong"
"""Statuses of rows of `confidence`."""

CLIP = 1e-7
"""Probabilities are kept so far from 0 and 1 where their logarithm is taken, as those of voxels are."""

_STEPS = 50
"""Of Newton's method, which needs about ten where it converges at all."""
_SURE = 1e-8
"""A step that is smaller ends it."""
_ENDS = -math.log(CLIP)
"""The log odds at which confidences end."""
_FAR = 500.0
"""Log odds beyond it are all the same."""


class Stated(NamedTuple):
    """What was said with which confidence, and whether it was so.

    Attributes:
        place: (statement,), the row that it stands for.
        sure: (statement,), confidence, 0 to 1.
        right: (statement,), 1 where it was so, 0 elsewhere; of n classes equally probable, 1/n where one is present.
    """

    place: Places
    sure: Floats
    right: Floats


class Levels(NamedTuple):
    """Statements in the order of their confidence, least sure first.

    Attributes:
        order: (statement,), the row of each.
        sure: (statement,).
        right: (statement,).
        starts: (level,), the first of each group of equal confidence.
    """

    order: Places
    sure: Floats
    right: Floats
    starts: Places

    def sums(self, times: Floats, values: Floats) -> Floats:
        """Returns the sum of values over the statements of each level: (resample, row) -> (resample, level)."""
        weighed = times[:, self.order] * values
        if len(self.starts) == len(self.order):
            return weighed
        return np.asarray(np.add.reduceat(weighed, self.starts, axis=1), dtype=np.float64)


def exclusive(rows: Rows) -> bool:
    """Returns whether exactly one class is present in every case."""
    return rows.facts.get(CLASSES) == EXCLUSIVE


def every(rows: Rows) -> Stated:
    """Returns a statement for each row: that a class is present, or that an answer is right."""
    known = np.flatnonzero(np.isin(rows.status, (PRESENT, "absent", RIGHT, WRONG)) & ~np.isnan(rows.value))
    so = np.isin(rows.status[known], (PRESENT, RIGHT)).astype(np.float64)
    return Stated(known.astype(np.int64), rows.value[known], so)


def top(rows: Rows) -> Stated:
    """Returns a statement for each case of classes that exclude each other: that its most probable class is present."""
    stated = every(rows)
    if not stated.place.size:
        return stated
    case = rows.case[stated.place]
    order = np.lexsort((-stated.sure, case))
    first = order[np.flatnonzero(np.append(True, np.diff(case[order]) != 0))]
    owner = np.searchsorted(case[first], case)
    equal = stated.sure == stated.sure[first][owner]
    share = np.bincount(owner, weights=stated.right * equal) / np.bincount(owner, weights=equal)
    return Stated(stated.place[first], stated.sure[first], np.asarray(share, dtype=np.float64))


def said(rows: Rows) -> Stated:
    """Returns what calibration errors are of: top classes where classes exclude each other, elsewhere every row."""
    return top(rows) if exclusive(rows) else every(rows)


def decided(rows: Rows) -> Stated:
    """Returns what abstention is about: each decision, how sure it was, and whether it was right.

    A class that does not exclude others is said to be present above 0.5, and the confidence is then its probability,
    otherwise 1 minus that.
    """
    if exclusive(rows):
        return top(rows)
    stated = every(rows)
    classes = np.isin(rows.status[stated.place], (PRESENT, "absent"))
    present = stated.sure > THRESHOLD
    sure = np.where(classes & ~present, 1 - stated.sure, stated.sure)
    right = np.where(classes, present == (stated.right > 0), stated.right > 0)
    return Stated(stated.place, sure, right.astype(np.float64))


def levelled(stated: Stated) -> Levels:
    """Returns statements in the order of their confidence."""
    order = np.argsort(stated.sure, kind="stable")
    sure = stated.sure[order]
    starts = np.flatnonzero(np.append(True, np.diff(sure) != 0))[: sure.size] if sure.size else np.zeros(0, np.intp)
    return Levels(stated.place[order], sure, stated.right[order], starts.astype(np.int64))


def whole_number(bins: float) -> int:
    """Returns a number of bins; raises UsageError for one that is not whole or below 1."""
    if bins < 1 or bins != int(bins):
        raise UsageError(
            f"Expected the number of bins of a calibration error to be a whole number above 0, got {bins:g}"
        )
    return int(bins)


def equal_mass(times: Floats, levels: Levels, bins: int) -> tuple[Floats, Floats, Floats]:
    """Returns statements, right ones and sums of confidence in bins of equal numbers: (resample, bin) each.

    A level is in the bin in which the middle of its ranks lies, so that equal confidences share a bin.
    """
    ones = np.ones_like(levels.sure)
    numbers = levels.sums(times, ones)
    right, sure = levels.sums(times, levels.right), levels.sums(times, levels.sure)
    place = _bin_of_middle(numbers, bins) + bins * np.arange(len(times))[:, None]
    shape, size = (len(times), bins), len(times) * bins
    one, two, three = (
        np.bincount(place.ravel(), sums.ravel(), size).reshape(shape).astype(np.float64)
        for sums in (numbers, right, sure)
    )
    return one, two, three


def mass_places(sure: Floats, bins: int) -> Places:
    """Returns the bin of equal numbers of each confidence, (statement,), as `equal_mass` has it."""
    _, level, count = np.unique(sure, return_inverse=True, return_counts=True)
    return np.asarray(_bin_of_middle(count[None].astype(np.float64), bins)[0][level], dtype=np.int64)


def _bin_of_middle(numbers: Floats, bins: int) -> Places:
    """Returns the bin of each level of so many statements, least sure first: (resample, level), both."""
    # Twice the middle of the ranks is a whole number, so that a level at a border falls to no side by rounding.
    twice, total = 2 * np.cumsum(numbers, axis=1) - numbers, np.maximum(numbers.sum(axis=1, keepdims=True), 1)
    return np.asarray(np.minimum(twice * bins // (2 * total), bins - 1), dtype=np.int64)


def equal_width(sure: Floats, bins: int) -> Places:
    """Returns the bin of each confidence, (statement,): [l, r), the last one with 1."""
    # Looked up rather than multiplied: 0.29 * 100 is 28.999999999999996.
    edges = np.arange(1, bins) / bins
    return np.searchsorted(edges, sure, side="right").astype(np.int64)


def gap(numbers: Floats, right: Floats, sure: Floats) -> Floats:
    """Returns the mean over statements of |share right - mean confidence| of their bin: (..., bin) -> (...)."""
    return share(np.abs(right - sure).sum(axis=-1), numbers.sum(axis=-1))


def by_luck(sure: Floats, place: Places) -> float:
    """Returns about what a calibration error is worth of confidences that mean exactly what they say.

    Of n independent statements in a bin the sum of right ones less the sum of confidences is about normal with the
    variance sum p(1 - p), and the mean of its distance from 0 is sqrt(2 / pi) standard deviations.
    """
    spread = np.bincount(place, weights=sure * (1 - sure))
    return float(np.sqrt(2 * spread / math.pi).sum() / sure.size) if sure.size else math.nan


def murphy(sure: Floats, right: Floats, place: Places) -> tuple[float, float, float, float]:
    """Returns reliability, resolution, uncertainty and what the bins leave over, which make up the Brier score.

    Brier = reliability - resolution + uncertainty + left over, the last being what statements of one bin that differ in
    their confidence add (Stephenson et al., Weather and Forecasting 2008); 0 where those of a bin are all alike.

    Args:
        sure: (statement,), confidence.
        right: (statement,), 0 or 1.
        place: (statement,), the bin of each.
    """
    numbers = np.bincount(place).astype(np.float64)
    filled = numbers > 0
    rate = np.bincount(place, weights=right)[filled] / numbers[filled]
    mean = np.bincount(place, weights=sure)[filled] / numbers[filled]
    weight, base = numbers[filled] / sure.size, float(right.mean())
    reliability = float(weight @ (mean - rate) ** 2)
    resolution = float(weight @ (rate - base) ** 2)
    brier = float(((sure - right) ** 2).mean())
    uncertainty = base * (1 - base)
    return reliability, resolution, uncertainty, brier - reliability + resolution - uncertainty


def logistic(times: Floats, stated: Stated, *, slope: bool) -> Floats:
    """Returns the slope of right on the log odds of the confidence, or with a slope of 1 the intercept: (resample,).

    Maximum likelihood by Newton's method. NaN where all were right or all wrong, where no confidence differs from
    another (of a slope), and where right and wrong ones are separated.
    """
    if not stated.place.size:
        return np.full(len(times), math.nan)
    sure = np.clip(stated.sure, CLIP, 1 - CLIP)
    odds, weight = np.log(sure / (1 - sure)), times[:, stated.place]
    numbers, right = weight.sum(axis=1), weight @ stated.right
    able = (right > 0) & (right < numbers)
    found = np.full(len(times), math.nan)
    if able.any():
        fitted = _slopes if slope else _intercepts
        found[able] = fitted(weight[able], odds, stated.right)
    return found


def _intercepts(weight: Floats, odds: Floats, right: Floats) -> Floats:
    """Newton's method between bounds that close in: where all are sure, the curve is a stair that it could leap off."""
    low, high = np.full(len(weight), -2 * _ENDS), np.full(len(weight), 2 * _ENDS)
    added = np.zeros(len(weight))
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(-(odds + added[:, None])))
        push = (weight * (right - expected)).sum(axis=1)
        low, high = np.where(push > 0, added, low), np.where(push > 0, high, added)
        pull = (weight * expected * (1 - expected)).sum(axis=1)
        wanted = added + share(push, pull, math.inf)
        wanted = np.where((wanted > low) & (wanted < high), wanted, (low + high) / 2)
        done, added = np.abs(wanted - added).max() < _SURE, wanted
        if done:
            break
    return added


def _slopes(weight: Floats, odds: Floats, right: Floats) -> Floats:
    """Newton's method from a slope of 0; steps are at most 4 long, in standard deviations of the log odds."""
    spread = odds.std()
    if not spread > 0:
        return np.full(len(weight), math.nan)
    # Of confidences that hardly differ the slope may be in the hundreds.
    scaled = (odds - odds.mean()) / spread
    hits, number = weight @ right, weight.sum(axis=1)
    constant, slope = np.log(hits / (number - hits)), np.zeros(len(weight))
    sure = np.zeros(len(weight), dtype=bool)
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(-np.clip(constant[:, None] + slope[:, None] * scaled, -_FAR, _FAR)))
        off, bend = weight * (right - expected), weight * expected * (1 - expected)
        push, tilt = off.sum(axis=1), off @ scaled
        one, two, three = bend.sum(axis=1), bend @ scaled, bend @ scaled**2
        area = one * three - two**2
        fine = area > 1e-12 * one * three
        step = np.stack([three * push - two * tilt, one * tilt - two * push]) / np.where(fine, area, math.nan)
        step *= 4 / np.maximum(np.abs(step).max(axis=0), 4)
        constant, slope = constant + step[0], slope + step[1]
        sure = np.abs(step).max(axis=0) < _SURE
        if (sure | np.isnan(slope)).all():
            break
    return np.where(sure & ~_separated(weight, odds, right), slope / spread, math.nan)


def _separated(weight: Floats, odds: Floats, right: Floats) -> npt.NDArray[np.bool_]:
    """Returns whether right and wrong ones overlap nowhere but at one value, (resample,).

    The likelihood then has no maximum, though where confidences are near 0 and 1 Newton's method hardly moves.

    Source: Albert and Anderson, Biometrika 1984, doi 10.1093/biomet/71.1.1.
    """
    ends = []
    for truth in (0, 1):
        there = (weight > 0) & (right == truth)
        ends.append((np.where(there, odds, math.inf).min(axis=1), np.where(there, odds, -math.inf).max(axis=1)))
    (low_wrong, high_wrong), (low_right, high_right) = ends
    return np.asarray((high_wrong <= low_right) | (high_right <= low_wrong))


class Risks(NamedTuple):
    """Statements and wrong ones by level, the surest first, (resample, level); and those before each level."""

    numbers: Floats
    wrong: Floats
    before: Floats
    wrong_before: Floats


def risks(times: Floats, levels: Levels) -> Risks:
    """Returns how many statements there are, and wrong ones, as one goes down from the surest."""
    numbers = levels.sums(times, np.ones_like(levels.sure))[:, ::-1]
    wrong = levels.sums(times, 1 - levels.right)[:, ::-1]
    return Risks(numbers, wrong, np.cumsum(numbers, axis=1) - numbers, np.cumsum(wrong, axis=1) - wrong)


def area_under(found: Risks) -> Floats:
    """Returns the mean over k of the share of wrong ones among the k surest, (resample,).

    Of a level of equal confidence any order is as likely, and the mean over orders is taken: its wrong ones are spread
    evenly.
    """
    rate = share(found.wrong, found.numbers, 0.0)
    added = harmonic(found.before + found.numbers) - harmonic(found.before)
    total = ((found.wrong_before - rate * found.before) * added + found.wrong).sum(axis=1)
    return share(total, found.numbers.sum(axis=1))


def least_area(found: Risks) -> Floats:
    """Returns the area if every wrong answer were less sure than every right one, (resample,)."""
    numbers, wrong = found.numbers.sum(axis=1), found.wrong.sum(axis=1)
    right = numbers - wrong
    return share(wrong - right * (harmonic(numbers) - harmonic(right)), numbers)


def risk_of_surest(found: Risks, coverage: float) -> Floats:
    """Returns the share of wrong ones among the surest, so many that they are this share of all: (resample,)."""
    wanted = np.ceil(coverage * found.numbers.sum(axis=1, keepdims=True) - 1e-9)
    inside = np.clip(wanted - found.before, 0, found.numbers)
    wrong = (share(found.wrong, found.numbers, 0.0) * inside).sum(axis=1)
    return share(wrong, wanted[:, 0])


def most_covered(found: Risks, risk: float) -> Floats:
    """Returns the largest share of answers above a threshold of which at most this share is wrong: (resample,)."""
    numbers, total = found.before + found.numbers, found.numbers.sum(axis=1)
    fine = (found.wrong_before + found.wrong <= risk * numbers + 1e-9) & (found.numbers > 0)
    return share(np.where(fine, numbers, 0).max(axis=1, initial=0), total)


def harmonic(number: Floats) -> Floats:
    """Returns 1 + 1/2 + ... + 1/n, carried on smoothly between whole numbers."""
    from scipy.special import digamma

    return np.asarray(digamma(number + 1) + np.euler_gamma, dtype=np.float64)


def share(part: Floats, of: Floats, otherwise: float = math.nan) -> Floats:
    """Returns a ratio, and something else where there is nothing to divide by."""
    found: Floats = np.divide(part, of, out=np.full(np.shape(of), otherwise), where=np.asarray(of) > 0)
    return found
