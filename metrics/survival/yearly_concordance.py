"""Concordance of risks by year, weighted at the later time of a pair, as Sybil's and Pillar-0's program prints it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats
from medimg_eval.metrics.survival.product_limit import censoring_curve


def sybil_concordance(
    times: npt.ArrayLike,
    events: npt.ArrayLike,
    risks: npt.ArrayLike,
    years: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    reached: npt.ArrayLike | None = None,
) -> Floats:
    """C-index weighted by 1 / G^2 at the pair's later time.

    Published as Uno's, whose weights are those of the earlier event. Ties of risk count half.

    Args:
        times: (case,) until the event, or until the case was last seen.
        events: (case,) bool, False where the time is censored.
        risks: (case, year), risk by each year, higher for an earlier event; NaN of a case that failed.
        years: (year,) ascending; the risk at a time is that of the first year that is not before it, or the last one.
        weights: (..., case) how often each case counts; once each by default.
        reached: (time,) G at each of the sorted unique times; from the cases themselves by default.

    Returns:
        (...) in [0, 1]; NaN where no pair can be compared.

    Source: YalaLab/pillar-finetune 9a21234, pillar/metrics/survival.py.
    """
    times_, happened = np.asarray(times, np.float64), np.asarray(events, bool)
    by_year = np.asarray(risks, np.float64)
    counted = np.ones((1, len(times_))) if weights is None else np.atleast_2d(np.asarray(weights, np.float64))
    shape = () if weights is None else np.shape(weights)[:-1]
    steps = np.unique(times_)
    uncensored = (
        censoring_curve(times_, happened, counted).at(steps) if reached is None else np.asarray(reached, np.float64)
    )
    column = np.minimum(np.searchsorted(np.asarray(years, np.float64), steps), by_year.shape[1] - 1)
    right, every = np.zeros(len(counted)), np.zeros(len(counted))
    for number, step in enumerate(steps):
        share = uncensored[..., number]
        weight = np.divide(1, share**2, out=np.zeros_like(share), where=share > 0)
        risk = by_year[:, column[number]]
        for later, earlier in _comparable_pairs(times_, happened, step):
            won, pairs = _compare_pairs(risk, earlier, later, counted)
            right, every = right + weight * won, every + weight * pairs
    concordance: Floats = np.divide(right, every, out=np.full(len(counted), np.nan), where=every > 0)
    return concordance.reshape(shape)


def _comparable_pairs(times: Floats, events: Bools, step: float) -> list[tuple[Bools, Bools]]:
    """Cases ending at a time, and their comparable earlier events."""
    at = times == step
    return [(at & events, events & (times < step)), (at & ~events, events & (times <= step))]


def _compare_pairs(risk: Floats, earlier: Bools, later: Bools, weights: Floats) -> tuple[Floats, Floats]:
    """Concordant pairs (ties half, failed cases wrong) and all pairs: (resample,)."""
    first = np.where(np.isnan(risk[earlier]), -np.inf, risk[earlier])
    second = np.where(np.isnan(risk[later]), np.inf, risk[later])
    order = np.argsort(first, kind="stable")
    sums = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights[:, earlier][:, order], axis=1)], axis=1)
    total = sums[:, -1:]
    above = total - sums[:, np.searchsorted(first[order], second, side="right")]
    atop = total - sums[:, np.searchsorted(first[order], second, side="left")]
    later_weights = weights[:, later]
    won = (later_weights * (above + atop) / 2).sum(axis=1)
    return won, (later_weights * total).sum(axis=1)
