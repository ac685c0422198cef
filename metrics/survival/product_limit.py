"""Curves of survival after Kaplan and Meier, for many resamples at once, and the log-rank test of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Floats


@dataclass(frozen=True, eq=False)
class Curve:
    """Right-continuous step function, falling from 1.

    Attributes:
        times: (step,) ascending, all times at which anybody was seen.
        survival: (..., step) in [0, 1], for each resample.
        at_risk: (..., step) how many were still under observation just before.
        events: (..., step) how many had the event then.
    """

    times: Floats
    survival: Floats
    at_risk: Floats
    events: Floats

    def at(self, when: npt.ArrayLike) -> Floats:
        """The values at some times, (..., time); 1 before the first step."""
        position = np.searchsorted(self.times, np.asarray(when, np.float64), side="right")
        return np.concatenate([np.ones((*self.survival.shape[:-1], 1)), self.survival], axis=-1)[..., position]

    def median(self) -> Floats:
        """First time with survival at most one half, (...); else NaN."""
        below = self.survival <= 0.5
        first = self.times[np.argmax(below, axis=-1)] if self.times.size else np.nan
        return np.where(below.any(axis=-1), first, np.nan)


def kaplan_meier(times: npt.ArrayLike, events: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Curve:
    """Returns the product-limit estimate of survival.

    Args:
        times: (case,) until the event, or until the case was last seen.
        events: (case,) bool, False where the time is censored. Who is censored at the time of an event was at risk.
        weights: (..., case) how often each case counts; once each by default.

    Source: Kaplan and Meier, Journal of the American Statistical Association 53, 1958.
    """
    return _product_limit(times, events, weights, of_censoring=False)


def censoring_curve(times: npt.ArrayLike, events: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Curve:
    """Returns the censoring curve G: share uncensored yet.

    The estimate is that of survival with event and censoring exchanged.

    Events at a time come before what is censored then, so who has the event is no longer at risk of being censored.
    The arguments are those of `kaplan_meier`, of which `events` of the curve then counts the censored.
    """
    return _product_limit(times, events, weights, of_censoring=True)


def _product_limit(
    times: npt.ArrayLike, events: npt.ArrayLike, weights: npt.ArrayLike | None, *, of_censoring: bool
) -> Curve:
    times_, happened = np.asarray(times, np.float64), np.asarray(events, bool)
    counted = np.ones(times_.shape) if weights is None else np.asarray(weights, np.float64)
    order = np.argsort(times_, kind="stable")
    steps, starts = np.unique(times_[order], return_index=True)
    if not steps.size:
        nothing = np.zeros((*counted.shape[:-1], 0))
        return Curve(steps, nothing, nothing, nothing)
    ordered, event = counted[..., order], happened[order]
    event_sums = np.add.reduceat(ordered * event, starts, axis=-1)
    everybody = np.add.reduceat(ordered, starts, axis=-1)
    at_risk = np.flip(np.cumsum(np.flip(everybody, -1), axis=-1), -1)
    ending = event_sums
    if of_censoring:
        at_risk, ending = at_risk - event_sums, everybody - event_sums
    share = np.divide(ending, at_risk, out=np.zeros_like(at_risk), where=at_risk > 0)
    return Curve(steps, np.cumprod(1 - share, axis=-1), at_risk, ending)


class LogRank(NamedTuple):
    """Log-rank test: statistic, degrees of freedom, p value."""

    statistic: float
    degrees: int
    p: float


def log_rank(times: npt.ArrayLike, events: npt.ArrayLike, groups: npt.ArrayLike) -> LogRank:
    """Tests whether groups have the same survival.

    Args:
        times: (case,).
        events: (case,) bool, False where the time is censored.
        groups: (case,) of any type that sorts.

    Returns:
        A statistic of NaN where there is one group only, or no event at which groups can be told apart.

    Source: Mantel, Cancer Chemotherapy Reports 50, 1966; unweighted, the variance hypergeometric.
    """
    from scipy import stats

    times_, happened = np.asarray(times, np.float64), np.asarray(events, bool)
    names, group = np.unique(np.asarray(groups), return_inverse=True)
    curve = kaplan_meier(times_, happened, np.eye(len(names))[group].T)
    at_risk, event = curve.at_risk, curve.events  # (group, step)
    all_risk, all_events = at_risk.sum(0), event.sum(0)
    is_informative = (all_events > 0) & (all_risk > 0)
    share = at_risk[:, is_informative] / all_risk[is_informative]
    difference = (event[:, is_informative] - all_events[is_informative] * share).sum(1)
    ties = np.where(all_risk > 1, (all_risk - all_events) / np.maximum(all_risk - 1, 1), 0)[is_informative]
    spread = all_events[is_informative] * ties
    covariance = np.diag((share * spread).sum(1)) - (share * spread) @ share.T
    degrees = len(names) - 1
    if degrees < 1 or not covariance.any():
        return LogRank(np.nan, degrees, np.nan)
    statistic = float(difference[1:] @ np.linalg.pinv(covariance[1:, 1:]) @ difference[1:])
    return LogRank(statistic, degrees, float(stats.chi2.sf(statistic, degrees)))
