"""What had happened by a time: AUC, Brier score and its integral, under censoring; for many resamples at once.

Of who was censored before a time it is not known whether the event came by then; others stand in, weighted by 1 / G,
where G is the share that is not censored yet. An event at which G is 0, with nobody left, has no weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats
from medimg_eval.metrics.survival.product_limit import censoring_curve, kaplan_meier


def _default_weights(times: Array, weights: npt.ArrayLike | None) -> Floats:
    return np.ones(len(times)) if weights is None else np.asarray(weights, np.float64)


def _pair_share(risks: Array, positive: Floats, negative: Floats) -> Floats:
    """Share of pairs with the positive higher, weighted (..., case)."""
    order = np.argsort(-np.where(np.isnan(risks), np.inf, risks), kind="stable")
    ordered = risks[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    hits, false = (np.add.reduceat(each[..., order], starts, axis=-1) for each in (positive, negative))
    below = false.sum(-1, keepdims=True) - np.cumsum(false, axis=-1)
    pairs = hits.sum(-1) * false.sum(-1)
    won: Floats = (hits * (below + false / 2)).sum(-1)
    share: Floats = np.divide(won, pairs, out=np.full(won.shape, math.nan), where=pairs > 0)
    return share


def dynamic_auc(
    times: npt.ArrayLike,
    events: npt.ArrayLike,
    risks: npt.ArrayLike,
    horizon: float,
    weights: npt.ArrayLike | None = None,
) -> Floats:
    """Returns cumulative/dynamic AUC at a time.

    Positives count 1 / G at the time of their event, estimated in the same cases.

    Args:
        times: (case,) until the event, or until the case was last seen.
        events: (case,) bool, False where the time is censored.
        risks: (case,) higher is worse; NaN of a case that failed: it is below all others where it has the event, and
            above them where it has not.
        horizon: the time, in the unit of `times`.
        weights: (..., case) how often each case counts; once each by default.

    Returns:
        (...), in [0, 1]; NaN without positives or negatives.

    Source: Uno et al., JASA 102, 2007; Hung and Chiang, Canadian Journal of Statistics 38, 2010; scikit-survival's
    `cumulative_dynamic_auc`.
    """
    times_, happened = np.asarray(times, np.float64), np.asarray(events, bool)
    counted = _default_weights(times_, weights)
    reached = censoring_curve(times_, happened, counted).at(times_)
    positive = happened & (times_ <= horizon)
    share = np.divide(counted, reached, out=np.zeros_like(counted * reached), where=positive & (reached > 0))
    return _pair_share(_with_failed(risks, positive), share, counted * (times_ > horizon))


def yearly_auroc(
    times: npt.ArrayLike,
    events: npt.ArrayLike,
    risks: npt.ArrayLike,
    horizon: float,
    weights: npt.ArrayLike | None = None,
) -> Floats:
    """Returns the AUROC of events by a time, unweighted.

    Positives had it at the horizon or before, negatives were followed up to it. As NLST's risks are judged; it is
    biased where many are censored, for which `dynamic_auc` is made. Arguments and values are those of it.
    """
    times_, happened = np.asarray(times, np.float64), np.asarray(events, bool)
    counted = _default_weights(times_, weights)
    positive = happened & (times_ <= horizon)
    return _pair_share(_with_failed(risks, positive), counted * positive, counted * (~positive & (times_ >= horizon)))


def _with_failed(risks: npt.ArrayLike, positive: Array) -> Floats:
    risk = np.asarray(risks, np.float64)
    return np.where(np.isnan(risk), np.where(positive, -np.inf, np.inf), risk)


def brier_score(
    times: npt.ArrayLike,
    events: npt.ArrayLike,
    survival: npt.ArrayLike,
    horizon: float,
    weights: npt.ArrayLike | None = None,
) -> Floats:
    """Returns the Brier score at a time: squared error of survival.

    Who had the event counts 1 / G at the time of it, who lasted longer 1 / G at the horizon, and who was censored
    before it 0; divided by all cases.

    Args:
        times: (case,) until the event, or until the case was last seen.
        events: (case,) bool, False where the time is censored.
        survival: (case,) the predicted probability of surviving the horizon, in [0, 1].
        horizon: the time, in the unit of `times`.
        weights: (..., case) how often each case counts; once each by default.

    Returns:
        (...), at least 0; NaN where nobody is left at the horizon of whom it is known.

    Source: Graf et al., Statistics in Medicine 18, 1999; scikit-survival's `brier_score`.
    """
    times_, happened = np.asarray(times, np.float64), np.asarray(events, bool)
    predicted = np.asarray(survival, np.float64)
    counted = _default_weights(times_, weights)
    curve = censoring_curve(times_, happened, counted)
    died, alive = happened & (times_ <= horizon), times_ > horizon
    reached = np.where(died, curve.at(times_), curve.at([horizon]))
    is_known = (died | alive) & (reached > 0)
    share = np.divide(counted, reached, out=np.zeros(np.broadcast_shapes(counted.shape, reached.shape)), where=is_known)
    error: Floats = (share * np.where(died, predicted, 1 - predicted) ** 2).sum(-1)
    every = counted.sum(-1)
    some = (counted * is_known).sum(-1) > 0
    mean: Floats = np.divide(error, every, out=np.full(error.shape, math.nan), where=some & (every > 0))
    return mean


def integrated_brier_score(horizons: Sequence[float], scores: Sequence[Floats]) -> Floats:
    """Returns the integrated Brier score (...), trapezoidal over horizons.

    Raises:
        ValueError: there are fewer than two horizons, or they do not ascend.
    """
    when = np.asarray(horizons, np.float64)
    if len(when) < 2 or (np.diff(when) <= 0).any():
        raise ValueError(f"Expected at least two horizons in ascending order, got {list(horizons)}")
    held = np.stack(list(scores), axis=-1)
    total: Floats = ((held[..., 1:] + held[..., :-1]) / 2 * np.diff(when)).sum(-1) / (when[-1] - when[0])
    return total


def mean_over_time(
    horizons: Sequence[float], values: Sequence[Floats], times: Array, events: Array, weights: Floats
) -> Floats:
    """Returns means over horizons, weighted by the fall of survival.

    scikit-survival averages its AUC over time so; survival is Kaplan and Meier's of the same cases.
    """
    held = np.stack(list(values), axis=-1)
    survival = kaplan_meier(times, events, weights).at(horizons)
    first = np.ones((*survival.shape[:-1], 1))
    fall = -np.diff(np.concatenate([first, survival], axis=-1), axis=-1)
    died_share = 1 - survival[..., -1]
    mean: Floats = np.divide(
        (held * fall).sum(-1), died_share, out=np.full(died_share.shape, math.nan), where=died_share > 0
    )
    return held[..., 0] if held.shape[-1] == 1 else mean
