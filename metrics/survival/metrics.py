"""Numbers of a run that predicts risk over time; none is a mean over cases, so each is a summary.

`follow_up` leaves for each case how long it was seen and whether the event came, `predicted_risk` and
`predicted_survival` what a model said. A case that failed is in every pair on the wrong side, and wrong at every time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from medimg_eval.metrics.arrays import Array, Bools, Floats
from medimg_eval.metrics.declarations import evidence_metric, share_summary
from medimg_eval.metrics.registry import ScoreTable, Weighed, summary
from medimg_eval.metrics.survival.concordance import Pairs, uno_weights
from medimg_eval.metrics.survival.horizons import (
    brier_score,
    dynamic_auc,
    integrated_brier_score,
    mean_over_time,
    yearly_auroc,
)
from medimg_eval.metrics.survival.product_limit import kaplan_meier
from medimg_eval.metrics.survival.yearly_concordance import sybil_concordance

KIND = "survival"

EVENT, CENSORED, FAILED = "event", "censored", "failed"
"""Statuses of rows: what ended the observation, or that the model gave nothing."""

HORIZONS = "horizons"
"""The fact that names the times at which survival is asked for, ascending."""

RISK = "risk"
"""The label of what is said of a case as a whole."""


def at_horizon(horizon: float) -> str:
    """The label of what is said of a case at a time."""
    return f"S({horizon:g})"


@dataclass(frozen=True)
class Followed:
    """Follow-up of one case, and its prediction.

    Attributes:
        time: until the event, or until the case was last seen.
        event: False where the time is censored.
        risk: higher is worse, of any scale.
        survival: time -> the probability of surviving it, 0 to 1.
    """

    time: float
    event: bool
    risk: float
    survival: Mapping[float, float] = field(default_factory=dict)


_evidence = partial(evidence_metric, kind=KIND, value_kind="unbounded")


@_evidence(title="Follow-up")
def follow_up(followed: Followed) -> Mapping[str, float]:
    """How long a case was observed; the row's status says whether the event ended it. Evidence for the summaries."""
    return {RISK: followed.time}


@_evidence(title="Risk")
def predicted_risk(followed: Followed) -> Mapping[str, float]:
    """The risk that a model gives a case, higher for an earlier event. Evidence for the summaries."""
    return {RISK: followed.risk}


@_evidence(title="Survival")
def predicted_survival(followed: Followed) -> Mapping[str, float]:
    """The probability that a case survives each of the task's horizons. Evidence for the summaries."""
    return {at_horizon(time): value for time, value in followed.survival.items()}


@dataclass(frozen=True)
class _Observed:
    """Arrays of a run's cases, (case,); `columns` are weighed rows."""

    times: Floats
    events: Bools
    columns: Array

    def beside(self, rows: ScoreTable, which: str, label: str) -> Floats:
        """Prediction of each case, NaN where there is none."""
        mine = rows.case[self.columns]
        indices = np.flatnonzero((rows.metric == which) & (rows.label == label))
        order = indices[np.argsort(rows.case[indices], kind="stable")]
        position = np.minimum(np.searchsorted(rows.case[order], mine), max(len(order) - 1, 0))
        if not len(order):
            return np.full(len(mine), math.nan)
        return np.where(rows.case[order][position] == mine, rows.value[order][position], math.nan)


def _observed_outcomes(rows: ScoreTable) -> _Observed:
    columns = np.flatnonzero((rows.metric == "follow_up") & np.isin(rows.status, (EVENT, CENSORED)))
    return _Observed(rows.value[columns], rows.status[columns] == EVENT, columns)


_of_risk = partial(share_summary, needs=("follow_up", "predicted_risk"), at_once=True)
_of_survival = partial(summary, needs=("follow_up", "predicted_survival"), at_once=True)
_HORIZON = "the time in the unit of the data"
_SHARE = "1 / G from the cases judged"


def _censoring_remark(rows: ScoreTable, *_: object) -> str:
    outcomes = _observed_outcomes(rows)
    failed = int((rows.status[rows.metric == "predicted_risk"] == FAILED).sum())
    remark = f"Events: {int(outcomes.events.sum()):,} in {len(outcomes.times):,} cases"
    return remark + (f"; {failed:,} without a prediction, each of whose pairs counts as wrong" if failed else "")


@_of_risk(
    title="C-index",
    source="Harrell et al. 1982",
    aliases=("concordance index", "Harrell's C"),
    remark=_censoring_remark,
)
def c_index(rows: ScoreTable) -> Weighed:
    """Harrell's C: of pairs of which it is known who had the event first, how often that case has the higher risk.

    Ties of risk count half; two events at one time are no pair. Between 0 and 1; chance is 0.5.
    """
    outcomes = _observed_outcomes(rows)
    pairs = Pairs(outcomes.times, outcomes.events, outcomes.beside(rows, "predicted_risk", RISK))
    return lambda times: pairs.count(times[:, outcomes.columns]).value


@_of_risk(
    title="Uno's C",
    source="Uno et al. 2011",
    settings=_SHARE,
    parameter="tau, before which events count",
    parameter_optional=True,
)
def uno_c_index(rows: ScoreTable, tau: float = math.inf) -> Weighed:
    """Uno's C: pairs as of Harrell's, weighted by 1 / G(t)^2 so that it does not depend on who was censored when.

    Between 0 and 1; chance is 0.5.
    """
    outcomes = _observed_outcomes(rows)
    pairs = Pairs(outcomes.times, outcomes.events, outcomes.beside(rows, "predicted_risk", RISK))

    def judge(times: Floats) -> Floats:
        counted = times[:, outcomes.columns].astype(np.float64)
        return pairs.count(counted, uno_weights(pairs, counted, tau)).value

    return judge


@_of_risk(
    title="C as Sybil's",
    source="YalaLab/pillar-finetune 9a21234, pillar/metrics/survival.py",
    settings="1 / G at the later time, from the cases judged",
)
def sybil_c_index(rows: ScoreTable) -> Weighed:
    """The C-index that Sybil and Pillar-0 print as Uno's: pairs are weighted at the later time, by risks of that year.

    It is as published; Uno's weights are those of the earlier event (`uno_c_index`), and heavy censoring tells both
    apart. For a model that gives survival at the task's horizons, risks are its complement; for others the one risk.
    """
    outcomes = _observed_outcomes(rows)
    horizons = [float(time) for time in rows.facts.get(HORIZONS, ())]
    survival = [outcomes.beside(rows, "predicted_survival", at_horizon(horizon)) for horizon in horizons]
    risks = [1 - survival for survival in survival]
    if not risks or all(np.isnan(risk).all() for risk in risks):
        horizons, risks = [math.inf], [outcomes.beside(rows, "predicted_risk", RISK)]
    by_year = np.stack(risks, axis=1)
    return lambda times: sybil_concordance(
        outcomes.times, outcomes.events, by_year, horizons, times[:, outcomes.columns]
    )


@_of_risk(title="AUC(t)", source="Uno et al. 2007", settings=_SHARE, parameter=_HORIZON, name="dynamic_auc")
def _dynamic_auc(rows: ScoreTable, horizon: float) -> Weighed:
    """The cumulative/dynamic AUC of the risk at a time: who had the event by then, against who lasted longer.

    Between 0 and 1; chance is 0.5.
    """
    outcomes = _observed_outcomes(rows)
    risks = outcomes.beside(rows, "predicted_risk", RISK)
    return lambda times: dynamic_auc(outcomes.times, outcomes.events, risks, horizon, times[:, outcomes.columns])


@_of_risk(title="Mean AUC(t)", source="Lambert and Chevret 2016", settings=_SHARE)
def mean_dynamic_auc(rows: ScoreTable) -> Weighed:
    """The mean of `dynamic_auc` over the task's horizons, each weighted by how much survival falls up to it.

    Between 0 and 1; NaN of a task without horizons.
    """
    outcomes = _observed_outcomes(rows)
    risks = outcomes.beside(rows, "predicted_risk", RISK)
    horizons = [float(time) for time in rows.facts.get(HORIZONS, ())]

    def judge(times: Floats) -> Floats:
        counted = times[:, outcomes.columns].astype(np.float64)
        if not horizons:
            return np.full(len(counted), math.nan)
        values = [dynamic_auc(outcomes.times, outcomes.events, risks, horizon, counted) for horizon in horizons]
        return mean_over_time(horizons, values, outcomes.times, outcomes.events, counted)

    return judge


@_of_risk(title="AUROC by t", source="NLST's yearly risks", parameter=_HORIZON, name="yearly_auroc")
def _yearly_auroc(rows: ScoreTable, horizon: float) -> Weighed:
    """The AUROC of the risk for an event by a time, among cases of whom it is known; censoring is not weighed.

    Between 0 and 1. Of a model that gives survival at that time, its complement is the risk; of others the one risk.
    """
    outcomes = _observed_outcomes(rows)
    survival = outcomes.beside(rows, "predicted_survival", at_horizon(horizon))
    risks = outcomes.beside(rows, "predicted_risk", RISK) if np.isnan(survival).all() else 1 - survival
    return lambda times: yearly_auroc(outcomes.times, outcomes.events, risks, horizon, times[:, outcomes.columns])


@_of_risk(title="HR per SD", source="Cox 1972; ties after Breslow", value_kind="ratio", best=math.inf)
def hazard_ratio(rows: ScoreTable) -> Weighed:
    """The hazard ratio of one standard deviation of the risk, by Cox's model of the risk alone.

    Above 0; 1 where risk says nothing. Cases without a prediction are left out.
    """
    outcomes = _observed_outcomes(rows)
    risks = outcomes.beside(rows, "predicted_risk", RISK)
    indices = np.flatnonzero(np.isfinite(risks))
    order = indices[np.argsort(-outcomes.times[indices], kind="stable")]
    times, happened, risk = outcomes.times[order], outcomes.events[order], risks[order]
    ends = np.r_[np.flatnonzero(times[1:] != times[:-1]), len(times) - 1] if len(times) else np.zeros(0, np.int64)
    last = ends[np.searchsorted(ends, np.arange(len(times)))]

    def judge(times: Floats) -> Floats:
        counted = times[:, outcomes.columns[order]].astype(np.float64)
        every = counted.sum(-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            centre = (counted * risk).sum(-1, keepdims=True) / every
            spread = np.sqrt((counted * (risk - centre) ** 2).sum(-1, keepdims=True) / (every - 1))
            return np.exp(_cox_slope((risk - centre) / spread, counted, happened, last))

    return judge


_STEPS, _SETTLED = 50, 1e-10


def _cox_slope(risk: Floats, weights: Floats, events: Bools, last: Array) -> Floats:
    """The coefficient that maximises the partial likelihood, by Newton's method, (resample,).

    Cases lie from the latest time to the earliest, so that those at risk at a time are those up to `last`.
    """
    slope = np.zeros((len(risk), 1))
    leading = weights * events
    for _ in range(_STEPS):
        share = weights * np.exp(np.clip(slope * risk, -500, 500))
        sums = [np.cumsum(share * risk**power, axis=-1)[:, last] for power in range(3)]
        mean = sums[1] / sums[0]
        gradient = (leading * np.nan_to_num(risk - mean)).sum(-1, keepdims=True)
        curvature = (leading * np.nan_to_num(sums[2] / sums[0] - mean**2)).sum(-1, keepdims=True)
        step = np.clip(gradient / curvature, -1, 1)
        slope = slope + step
        if not (np.abs(step) > _SETTLED).any():
            break
    else:
        slope[np.abs(step) > _SETTLED] = math.nan  # no maximum: risk separates who had the event from who had not
    return slope[:, 0]


@_of_survival(
    title="Brier(t)",
    source="Graf et al. 1999",
    settings=_SHARE,
    parameter=_HORIZON,
    name="survival_brier",
    higher_is_better=False,
    best=0.0,
)
def _survival_brier(rows: ScoreTable, horizon: float) -> Weighed:
    """The Brier score at a time under censoring: the squared error of the predicted probability of surviving it.

    At least 0; 0.25 for a model that always says one half. Only the task's horizons have it.
    """
    return _of_squares(rows, horizon)


@_of_survival(title="IBS", source="Graf et al. 1999", settings=_SHARE, higher_is_better=False, best=0.0)
def integrated_brier(rows: ScoreTable) -> Weighed:
    """The integrated Brier score: the mean over time of `survival_brier` between the task's first and last horizon.

    The trapezium rule is used; at least 0. NaN for a task with fewer than two horizons.
    """
    horizons = [float(time) for time in rows.facts.get(HORIZONS, ())]
    judges = [_of_squares(rows, horizon) for horizon in horizons]
    if len(horizons) < 2:
        return lambda times: np.full(len(times), math.nan)
    return lambda times: integrated_brier_score(horizons, [judge(times) for judge in judges])


def _of_squares(rows: ScoreTable, horizon: float) -> Weighed:
    outcomes = _observed_outcomes(rows)
    survival = outcomes.beside(rows, "predicted_survival", at_horizon(horizon))
    lacking = np.isnan(survival)
    if lacking.all():
        return lambda times: np.full(len(times), math.nan)
    wrong = np.where(outcomes.events & (outcomes.times <= horizon), 1.0, 0.0)
    survival = np.where(lacking, wrong, survival)
    return lambda times: brier_score(outcomes.times, outcomes.events, survival, horizon, times[:, outcomes.columns])


@_of_survival(
    title="Expected/observed",
    source="Kaplan and Meier 1958",
    parameter=_HORIZON,
    higher_is_better=None,
    best=1.0,
    value_kind="ratio",
)
def expected_to_observed(rows: ScoreTable, horizon: float) -> Weighed:
    """The mean predicted risk of an event by a time, over the share that Kaplan and Meier's estimate gives.

    1 where the model is calibrated in the large; above 1 it says too much risk. Cases without a prediction are out.
    """
    outcomes = _observed_outcomes(rows)
    survival = outcomes.beside(rows, "predicted_survival", at_horizon(horizon))
    indices = np.flatnonzero(~np.isnan(survival))

    def judge(times: Floats) -> Floats:
        counted = times[:, outcomes.columns[indices]].astype(np.float64)
        observed = 1 - kaplan_meier(outcomes.times[indices], outcomes.events[indices], counted).at([horizon])[:, 0]
        every = counted.sum(-1)
        expected = (counted * (1 - survival[indices])).sum(-1)
        due = observed * every
        ratio: Floats = np.divide(expected, due, out=np.full(len(counted), math.nan), where=due > 0)
        return ratio

    return judge
