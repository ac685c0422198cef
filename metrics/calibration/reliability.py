"""Whether confidences mean what they say: calibration errors, proper scores, and Cox's slope and intercept.

Summaries over the rows of `probability` (classes) or `confidence` (answers) of a run; `statements` says what is judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Bools, Floats, Ints
from medimg_eval.metrics.calibration.statements import (
    Levels,
    Stated,
    confidence_summary,
    decided,
    every,
    exclusive,
    levelled,
    remarked,
    said,
)
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, Weighed

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

BINS = 15
"""Of the parts of a Brier score."""

_GUO = "Guo et al., ICML 2017, arXiv 1706.04599"
_NAEINI = "Naeini et al., AAAI 2015, doi 10.1609/aaai.v29i1.9602"
_NGUYEN = "Nguyen and O'Connor, EMNLP 2015, doi 10.18653/v1/D15-1182"
_COX = "Cox, Biometrika 1958, doi 10.1093/biomet/45.3-4.562; Van Calster et al., BMC Medicine 2019"


def whole_number(bins: float) -> int:
    """Returns a whole number of bins, or raises UsageError."""
    if bins < 1 or bins != int(bins):
        raise UsageError(
            f"Expected the number of bins of a calibration error to be a whole number above 0, got {bins:g}"
        )
    return int(bins)


def equal_mass(times: Floats, levels: Levels, bins: int) -> tuple[Floats, Floats, Floats]:
    """Returns counts, right ones and confidence sums of equal-mass bins.

    (resample, bin) each; bins hold equal numbers of statements. A level is in the bin in which the middle of
    its ranks lies, so that equal confidences share a bin.
    """
    unit_weights = np.ones_like(levels.sure)
    numbers = levels.sums(times, unit_weights)
    right, sure = levels.sums(times, levels.right), levels.sums(times, levels.sure)
    cell = _bin_of_middle(numbers, bins) + bins * np.arange(len(times))[:, None]
    shape, size = (len(times), bins), len(times) * bins
    bin_weights, two, three = (
        np.bincount(cell.ravel(), sums.ravel(), size).reshape(shape).astype(np.float64)
        for sums in (numbers, right, sure)
    )
    return bin_weights, two, three


def mass_places(sure: Floats, bins: int) -> Ints:
    """Returns confidences' equal-mass bins, (statement,), as `equal_mass` does."""
    _, level, count = np.unique(sure, return_inverse=True, return_counts=True)
    return np.asarray(_bin_of_middle(count[None].astype(np.float64), bins)[0][level], dtype=np.int64)


def _bin_of_middle(numbers: Floats, bins: int) -> Ints:
    """Returns levels' bins, ascending in confidence: (resample, level)."""
    # Twice the middle of the ranks is a whole number, so that a level at a border falls to no side by rounding.
    twice, total = 2 * np.cumsum(numbers, axis=1) - numbers, np.maximum(numbers.sum(axis=1, keepdims=True), 1)
    return np.asarray(np.minimum(twice * bins // (2 * total), bins - 1), dtype=np.int64)


def equal_width(sure: Floats, bins: int) -> Ints:
    """Returns confidences' equal-width bins [l, r), (statement,); the last one holds 1."""
    # Looked up rather than multiplied: 0.29 * 100 is 28.999999999999996.
    edges = np.arange(1, bins) / bins
    return np.searchsorted(edges, sure, side="right").astype(np.int64)


def gap(numbers: Floats, right: Floats, sure: Floats) -> Floats:
    """Returns the mean |share right - mean confidence| of statements' bins: (..., bin) -> (...)."""
    return quotient(np.abs(right - sure).sum(axis=-1), numbers.sum(axis=-1))


def by_luck(sure: Floats, place: Ints) -> float:
    """Returns the calibration error that ideal confidences would score.

    Approximately, by chance alone. Of n independent statements in a bin the sum of right ones less the sum of
    confidences is about normal with the variance sum p(1 - p), and the mean of its distance from 0 is sqrt(2
    / pi) standard deviations.
    """
    spread = np.bincount(place, weights=sure * (1 - sure))
    return float(np.sqrt(2 * spread / math.pi).sum() / sure.size) if sure.size else math.nan


def murphy(sure: Floats, right: Floats, place: Ints) -> tuple[float, float, float, float]:
    """Returns Murphy's parts of Brier: reliability, resolution, uncertainty, rest.

    The rest is what the bins leave over. Brier = reliability - resolution + uncertainty + left over, the last
    being what statements of one bin that differ in their confidence add (Stephenson et al., Weather and
    Forecasting 2008); 0 where those of a bin are all alike. Confidence, 0 or 1 for right, and the place of
    the bin are (statement,).
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
    """Returns logistic regression's slope or intercept, (resample,).

    The regression is of right on the log odds of the confidence; the intercept is for a slope of 1. Maximum likelihood
    by Newton's method. NaN where all were right or all wrong, where no confidence differs from another (of a slope),
    and where right and wrong ones are separated.
    """
    if not stated.place.size:
        return np.full(len(times), math.nan)
    sure = np.clip(stated.sure, CLIP, 1 - CLIP)
    odds, weight = np.log(sure / (1 - sure)), times[:, stated.place]
    numbers, right = weight.sum(axis=1), weight @ stated.right
    able = (right > 0) & (right < numbers)
    calibrated = np.full(len(times), math.nan)
    if able.any():
        fitted = _newton_slopes if slope else _newton_intercepts
        calibrated[able] = fitted(weight[able], odds, stated.right)
    return calibrated


def _newton_intercepts(weight: Floats, odds: Floats, right: Floats) -> Floats:
    """Newton's method between closing bounds, safe on stair-shaped curves."""
    low, high = np.full(len(weight), -2 * _ENDS), np.full(len(weight), 2 * _ENDS)
    added = np.zeros(len(weight))
    for _ in range(_STEPS):
        expected = 1 / (1 + np.exp(-(odds + added[:, None])))
        push = (weight * (right - expected)).sum(axis=1)
        low, high = np.where(push > 0, added, low), np.where(push > 0, high, added)
        pull = (weight * expected * (1 - expected)).sum(axis=1)
        wanted = added + quotient(push, pull, math.inf)
        wanted = np.where((wanted > low) & (wanted < high), wanted, (low + high) / 2)
        done, added = np.abs(wanted - added).max() < _SURE, wanted
        if done:
            break
    return added


def _newton_slopes(weight: Floats, odds: Floats, right: Floats) -> Floats:
    """Newton's method from slope 0, with steps at most 4."""
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
        slope_sum, two, three = bend.sum(axis=1), bend @ scaled, bend @ scaled**2
        area = slope_sum * three - two**2
        fine = area > 1e-12 * slope_sum * three
        step = np.stack([three * push - two * tilt, slope_sum * tilt - two * push]) / np.where(fine, area, math.nan)
        step *= 4 / np.maximum(np.abs(step).max(axis=0), 4)
        constant, slope = constant + step[0], slope + step[1]
        sure = np.abs(step).max(axis=0) < _SURE
        if (sure | np.isnan(slope)).all():
            break
    return np.where(sure & ~_are_separated(weight, odds, right), slope / spread, math.nan)


def _are_separated(weight: Floats, odds: Floats, right: Floats) -> Bools:
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


_binned = partial(confidence_summary, best=0.0, higher_is_better=False, parameter="number of bins")


def _make_luck_remark(title: str, places: Callable[[Floats, int], Any]) -> Callable[..., str]:
    """Makes the remark of what a calibration error would be by luck alone."""

    def remark(rows: ScoreTable, bins: float) -> str:
        stated = said(rows)
        if not stated.sure.size:
            return ""
        expected = by_luck(stated.sure, places(stated.sure, whole_number(bins)))
        expected_text = (
            f"{title}@{bins:g}: confidences that mean exactly what they say would reach about {expected:.3f} here"
        )
        return ". ".join(filter(None, [expected_text, remarked(rows)]))

    return remark


@_binned(
    title="ECE (equal mass)",
    source=f"{_NGUYEN}; {_GUO}",
    at_once=True,
    remark=_make_luck_remark("ECE (equal mass)", mass_places),
)
def ece_mass(rows: ScoreTable, bins: float) -> Weighed:
    """The expected calibration error in bins of equal numbers: the mean of |share right - mean confidence| of the bin.

    Statements of equal confidence share the bin in which the middle of their ranks lies. Of few statements it is far
    above 0 even where all confidences are right; a note says how far. In [0, 1].

    Raises:
        UsageError: `bins` is not a whole number of 1 or more.
    """
    levels, number = levelled(said(rows)), whole_number(bins)
    return lambda times: gap(*equal_mass(times, levels, number))


def _width_pieces(rows: ScoreTable, bins: float) -> Floats:
    """Row contributions to bins' gaps and counts, (row, bin+1)."""
    stated, number = said(rows), whole_number(bins)
    added = np.zeros((rows.value.size, number + 1))
    added[stated.place, equal_width(stated.sure, number)] = stated.right - stated.sure
    added[stated.place, number] = 1
    return added


@_binned(
    title="ECE (equal width)",
    source=f"{_NAEINI}; {_GUO}",
    pieces=_width_pieces,
    remark=_make_luck_remark("ECE (equal width)", equal_width),
)
def ece_width(sums: Floats, bins: float) -> Floats:
    """The expected calibration error in bins of equal width: the mean of |share right - mean confidence| of the bin.

    [l, r) holds its lower edge, and the last bin 1 too. The name `ece` is that of voxels. In [0, 1].

    Raises:
        UsageError: `bins` is not a whole number of 1 or more.
    """
    return quotient(np.abs(sums[..., :-1]).sum(axis=-1), sums[..., -1])


def _row_sums(rows: ScoreTable, stated: Stated, values: Floats, counted: Floats) -> Floats:
    """Row contributions to the statements' sum and count, (row, 2)."""
    added = np.zeros((rows.value.size, 2))
    added[stated.place] = np.stack([values, counted], axis=1)
    return added


def _excess_pieces(rows: ScoreTable) -> Floats:
    stated = decided(rows)
    return _row_sums(rows, stated, stated.sure - stated.right, np.ones_like(stated.sure))


@confidence_summary(
    title="Calibration shift",
    source="MedQ-Deg, its calibration shift",
    best=0.0,
    higher_is_better=None,
    pieces=_excess_pieces,
)
def calibration_shift(sums: Floats) -> Floats:
    """How much surer a model is than it is right: its mean confidence less the share of its decisions that are right.

    Above 0 it is too sure. A class that does not exclude others is decided at 0.5. In [-1, 1].
    """
    return quotient(sums[..., 0], sums[..., 1])


def _brier_pieces(rows: ScoreTable) -> Floats:
    stated = every(rows)
    return _row_sums(rows, stated, (stated.sure - stated.right) ** 2, np.ones_like(stated.sure))


def _brier_remark(rows: ScoreTable) -> str:
    stated = every(rows)
    if not stated.sure.size:
        return ""
    bin_of = mass_places(stated.sure, BINS)
    reliability, resolution, uncertainty, remainder = murphy(stated.sure, stated.right, bin_of)
    parts_text = (
        f"Brier score = reliability {reliability:.3f} - resolution {resolution:.3f} + uncertainty {uncertainty:.3f} "
        f"+ {remainder:.3f} within {BINS} bins of equal mass (Murphy 1973)"
    )
    return ". ".join(filter(None, [parts_text, remarked(rows)]))


_loss = partial(confidence_summary, best=0.0, higher_is_better=False)


@_loss(title="Brier score", source="Brier 1950; Murphy 1973", pieces=_brier_pieces, remark=_brier_remark)
def brier_score(sums: Floats) -> Floats:
    """The mean over statements of (confidence - right)^2, right being 1 or 0.

    Where classes exclude each other it is over all of them: Brier's own score is their number times that. In [0, 1].
    """
    return quotient(sums[..., 0], sums[..., 1])


def _loss_pieces(rows: ScoreTable) -> Floats:
    stated = every(rows)
    true = np.where(stated.right > 0, stated.sure, 1 - stated.sure)
    counted = stated.right if exclusive(rows) else np.ones_like(stated.sure)
    return _row_sums(rows, stated, -np.log(np.clip(true, CLIP, 1)) * counted, counted)


@_loss(title="Log loss", source="Good 1952; scikit-learn's log_loss", unit="nats", pieces=_loss_pieces)
def log_loss(sums: Floats) -> Floats:
    """The mean negative log-likelihood, in nats: -log of the probability that was given to what is true.

    Where classes exclude each other it is that of the class that is present, once a case. Probabilities are kept above
    1e-7, so that one that was called impossible costs 16.1. The name `nll` is that of voxels.
    """
    return quotient(sums[..., 0], sums[..., 1])


@confidence_summary(title="Calibration slope", source=_COX, best=1.0, higher_is_better=None, at_once=True)
def calibration_slope(rows: ScoreTable) -> Weighed:
    """The slope of a logistic regression of right on the log odds of the confidence.

    Below 1 confidences are too extreme, above 1 too timid. Maximum likelihood, without a penalty; log odds are those of
    confidences between 1e-7 and 1 - 1e-7. NaN where there is no estimate: all right, all wrong, or told apart wholly.
    """
    return partial(logistic, stated=every(rows), slope=True)


@confidence_summary(title="Calibration intercept", source=_COX, best=0.0, higher_is_better=None, at_once=True)
def calibration_intercept(rows: ScoreTable) -> Weighed:
    """Shift of the log odds of all confidences that makes their mean the share that is right.

    The intercept of a logistic regression with a slope of 1: calibration in the large. Below 0 confidences are too
    high. NaN where all are right or all are wrong.
    """
    return partial(logistic, stated=every(rows), slope=False)
