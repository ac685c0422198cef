"""Summaries over repeats of a case, such as pass@k: how reliably it is right, and how far repeats lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Floats, Places
from medimg_eval.metrics.declarations import share_summary
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable

_HUMANEVAL = "Chen et al. 2021 (arXiv 2107.03374), equation 1"
_GPASS = "Liu et al. 2024, G-Pass@k (arXiv 2412.13147)"


class CaseRepeats(NamedTuple):
    """One metric's values by case and repeat, means over labels with a value.

    `values` is (case, repeat), NaN where a case has none; `first`, (case,), is the first row of each case.
    """

    values: Floats
    first: Places


def by_repeat(rows: ScoreTable) -> CaseRepeats:
    """Returns each case's value per repeat, both in ascending order."""
    cases, first, case = np.unique(rows.case, return_index=True, return_inverse=True)
    repeats, repeat = np.unique(rows.repeat, return_inverse=True)
    is_known = ~np.isnan(rows.value)
    cell = (case * len(repeats) + repeat)[is_known]
    size = len(cases) * len(repeats)
    sums = np.bincount(cell, weights=rows.value[is_known], minlength=size).astype(np.float64)
    values = quotient(sums, np.bincount(cell, minlength=size))
    return CaseRepeats(values.reshape(len(cases), len(repeats)), first)


def spread(rows: ScoreTable) -> tuple[float, float]:
    """Returns the SDs between repeats' means and within cases.

    The SD within cases is the root of the mean variance; both divide by n - 1.
    """
    values = by_repeat(rows).values
    means = _without_gaps(values.T)
    return float(_row_deviation(means)), math.sqrt(float(_without_gaps(_row_variances(values)[None])[0]))


def case_pieces(rows: ScoreTable, first: Places, values: Floats) -> Floats:
    """Row contributions to cases' sum and count, (row, 2)."""
    added = np.zeros((rows.value.size, 2))
    is_known = ~np.isnan(values)
    added[first[is_known]] = np.stack([values[is_known], np.ones(is_known.sum())], axis=1)
    return added


def _count_right(rows: ScoreTable) -> tuple[Floats, Floats, Places]:
    """Returns cases' repeats, right repeats and rows, (case,)."""
    values, first = by_repeat(rows)
    is_known = ~np.isnan(values)
    if not np.isin(values[is_known], (0.0, 1.0)).all():
        name = str(rows.metric[0])
        raise ValueError(f"Expected values of 0 or 1, and {name} has others; name another behind a colon")
    return is_known.sum(axis=1).astype(np.float64), np.where(is_known, values, 0).sum(axis=1), first


def at_least(n: Floats, right: Floats, k: int, least: int) -> Floats:
    """Probability that k draws without replacement hold `least` right ones; NaN if n < k."""
    from scipy.special import comb

    ways = [comb(right, hits) * comb(n - right, k - hits) for hits in range(least, k + 1)]
    return quotient(np.asarray(sum(ways, start=np.zeros_like(n)), dtype=np.float64), comb(n, k))


def _repeat_number(parameter: str) -> int:
    text = parameter.partition(":")[0]
    if not text.isdigit() or int(text) < 1:
        raise UsageError(f"{parameter!r} needs a whole number of 1 or more first, such as '2' or '2:accuracy'")
    return int(text)


def _number_and_share(parameter: str) -> tuple[int, Fraction]:
    number, dash, share = parameter.partition(":")[0].partition("-")
    try:
        threshold = Fraction(share)
    except (ValueError, ZeroDivisionError):
        threshold = Fraction(-1)
    if not dash or not 0 <= threshold <= 1:
        raise UsageError(f"{parameter!r} needs a number of draws and a share, such as '4-0.5'")
    return _repeat_number(number), threshold


def _check_majority(parameter: str) -> None:
    if parameter.partition(":")[0].isdigit() or ":" in parameter:
        _repeat_number(parameter)


_Value = Callable[[Floats, Floats, str], Floats]


def _value_pieces(value: _Value) -> Callable[..., Floats]:
    def pieces(rows: ScoreTable, parameter: str = "") -> Floats:
        n, right, first = _count_right(rows)
        return case_pieces(rows, first, value(n, right, parameter))

    return pieces


def _mean_of(sums: Floats) -> Floats:
    return quotient(sums[..., 0], sums[..., 1])


_reliability = partial(share_summary, needs=(), over="repeats", parameter_is_text=True)

_of_draws = partial(_reliability, parameter="number of draws", check=_repeat_number)
_inconsistency = partial(_reliability, higher_is_better=False, best=0.0, parameter="metric", parameter_optional=True)


@_of_draws(
    title="pass",
    source=_HUMANEVAL,
    pieces=_value_pieces(lambda n, right, k: 1 - at_least(n, n - right, _repeat_number(k), _repeat_number(k))),
)
def pass_at(sums: Floats, k: str) -> Floats:
    """The chance that at least one of k repeats drawn without replacement is right, 1 - C(n - c, k) / C(n, k).

    Cases of fewer than k repeats with a value are left out. In [0, 1].
    """
    return _mean_of(sums)


@_of_draws(
    title="pass-all",
    source="tau-bench (Yao et al. 2024, arXiv 2406.12045), pass^k",
    pieces=_value_pieces(lambda n, right, k: at_least(n, right, _repeat_number(k), _repeat_number(k))),
)
def pass_all(sums: Floats, k: str) -> Floats:
    """The chance that all of k repeats drawn without replacement are right, C(c, k) / C(n, k).

    Cases of fewer than k repeats with a value are left out. In [0, 1].
    """
    return _mean_of(sums)


def _g_pass(n: Floats, right: Floats, parameter: str) -> Floats:
    k, share = _number_and_share(parameter)
    return at_least(n, right, k, max(math.ceil(share * k), 1))


@_reliability(
    title="G-Pass",
    source=_GPASS,
    parameter="number of draws and share, as in 4-0.5",
    check=_number_and_share,
    pieces=_value_pieces(_g_pass),
)
def g_pass(sums: Floats, parameter: str) -> Floats:
    """The chance that at least that share of k repeats drawn without replacement is right.

    That is at least max(ceil(share k), 1) of them. Cases of fewer than k repeats are left out. In [0, 1].
    """
    return _mean_of(sums)


def _mean_g_pass(n: Floats, right: Floats, parameter: str) -> Floats:
    k = _repeat_number(parameter)
    above = range(math.ceil(k / 2) + 1, k + 1)
    lacking = np.where(n < k, math.nan, 0.0)
    return lacking + 2 / k * sum((at_least(n, right, k, least) for least in above), start=np.zeros_like(n))


@_of_draws(title="mG-Pass", source=_GPASS, pieces=_value_pieces(_mean_g_pass))
def mean_g_pass(sums: Floats, k: str) -> Floats:
    """G-Pass averaged over the shares above one half, (2 / k) E[max(X - ceil(k / 2), 0)] of X right among k.

    Cases of fewer than k repeats are left out. In [0, 1].
    """
    return _mean_of(sums)


def _majority_right(n: Floats, right: Floats, parameter: str) -> Floats:
    if not parameter.partition(":")[0].isdigit():
        return np.where(n > 0, np.sign(2 * right - n) / 2 + 0.5, math.nan)
    k = _repeat_number(parameter)
    majority_chance, half = at_least(n, right, k, k // 2 + 1), at_least(n, right, k, (k + 1) // 2)
    return (majority_chance + half) / 2


@_reliability(
    title="Majority",
    source="majority of right and wrong repeats; ties as in agreement studies, half each",
    parameter="number of draws",
    parameter_optional=True,
    check=_check_majority,
    pieces=_value_pieces(_majority_right),
)
def majority(sums: Floats, k: str = "") -> Floats:
    """The share of cases that more than half of the repeats get right; a tie counts one half.

    A number draws so many repeats without replacement. It votes on right and wrong, not on the wording of answers. In
    [0, 1].
    """
    return _mean_of(sums)


@_inconsistency(
    title="Flips",
    source="share of cases with 0 < c < n",
    pieces=_value_pieces(lambda n, right, _: np.where(n > 1, (right > 0) & (right < n), math.nan)),
)
def flips(sums: Floats, metric: str = "") -> Floats:
    """The share of cases that some repeats get right and others wrong.

    Cases of fewer than two repeats are left out. In [0, 1].
    """
    return _mean_of(sums)


def _per_repeat(rows: ScoreTable, metric: str = "") -> Floats:
    """Row contributions to repeats' sums and counts, (row, 2*repeat)."""
    values, first = by_repeat(rows)
    added = np.zeros((rows.value.size, 2 * values.shape[1]))
    added[first] = np.hstack([np.nan_to_num(values), ~np.isnan(values)])
    return added


@_inconsistency(title="SD between repeats", source="standard deviation, n - 1", pieces=_per_repeat)
def repeat_sd(sums: Floats, metric: str = "") -> Floats:
    """The standard deviation (n - 1) over repeats of the run's mean over cases.

    NaN of fewer than two repeats.
    """
    count = sums.shape[-1] // 2
    return _row_deviation(quotient(sums[..., :count], sums[..., count:]))


def _noise_pieces(rows: ScoreTable, metric: str = "") -> Floats:
    """Row contributions: case variance, mean, squared mean, 1; (row, 4)."""
    values, first = by_repeat(rows)
    repeat_counts = (~np.isnan(values)).sum(axis=1)
    means, noise = _without_gaps(values), quotient(_row_variances(values), repeat_counts)
    added, able = np.zeros((rows.value.size, 4)), repeat_counts > 1
    added[first[able]] = np.stack([noise, means, means**2, np.ones_like(means)], axis=1)[able]
    return added


@_inconsistency(
    title="Noise of repeats",
    source="variance of a mean in two parts, Miller 2024 (arXiv 2411.00640)",
    pieces=_noise_pieces,
)
def repeat_noise(sums: Floats, metric: str = "") -> Floats:
    """The share of the variance between case means that comes from repeats, E[var_i / K_i] / var(mean_i), at most 1.

    Of repeats that ask only the judge anew, the share that is the judge's. Variances are n - 1; NaN of fewer than two
    cases with two repeats, or where all case means agree.
    """
    count = sums[..., 3]
    between = quotient(sums[..., 2] - quotient(sums[..., 1] ** 2, count, 0.0), count - 1)
    between = np.where(between > 1e-12, between, 0.0)
    return np.minimum(quotient(quotient(sums[..., 0], count), between), 1.0)


def _without_gaps(values: Floats) -> Floats:
    """Returns the mean of each row of those that are known, (row,)."""
    is_known = ~np.isnan(values)
    return quotient(np.where(is_known, values, 0).sum(axis=1), is_known.sum(axis=1))


def _row_variances(values: Floats) -> Floats:
    """Returns rows' variances (n - 1); NaN below two values."""
    apart = np.nan_to_num(values - _without_gaps(values)[:, None])
    return quotient((apart**2).sum(axis=1), (~np.isnan(values)).sum(axis=1) - 1)


def _row_deviation(values: Floats) -> Floats:
    """Returns last-axis SDs (n - 1); NaN below two values."""
    flat = values.reshape(-1, values.shape[-1])
    return np.sqrt(_row_variances(flat)).reshape(values.shape[:-1])
