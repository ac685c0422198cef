"""Confidence of answers that were given several times: how far a model's votes for the options of a question agree."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Floats, Places
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, summary
from medimg_eval.metrics.repeats import by_repeat, case_pieces

PLAIN = "plain"
"""The parameter that leaves the correction of Miller and Madow out, as MedQ-Deg does."""

VOTES = ("predicted_class", "offered_options")


def _check_parameter(parameter: str) -> None:
    if parameter != PLAIN:
        raise UsageError(f"expected no parameter or {PLAIN!r} of confidence by votes, got {parameter!r}")


def agreement(votes: Floats, trials: Floats, options: Floats, *, plain: bool) -> Floats:
    """Returns cases' vote agreement, 1 - H / log K.

    (case,), clipped to [0, 1].

    Args:
        votes: (case, answer), how often each answer was given; 0 where a case has fewer answers.
        trials: (case,), how often it was asked, answers that could not be read among them.
        options: (case,), K.
        plain: whether the correction of Miller and Madow, (m - 1) / 2T for m answers that were given, is left out.
    """
    shares = quotient(votes, np.broadcast_to(trials[:, None], votes.shape), 0.0)
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
    if not plain:
        entropy += quotient((votes > 0).sum(axis=1) - 1.0, 2 * trials)
    agreement = np.clip(1 - quotient(entropy, np.log(options)), 0, 1)
    return np.where(votes.sum(axis=1) > 0, agreement, math.nan)


def _by_case(rows: ScoreTable, plain: bool) -> tuple[Floats, Places]:
    """Returns cases' vote confidence, (case,), and a row of each."""
    cases, first, owner = np.unique(rows.case, return_index=True, return_inverse=True)
    is_given = (rows.metric == VOTES[0]) & ~np.isnan(rows.value)
    trials = np.bincount(owner[is_given], minlength=len(cases)).astype(np.float64)
    options = np.full(len(cases), math.nan)
    offered = rows.metric == VOTES[1]
    options[owner[offered]] = rows.value[offered]
    is_given &= rows.value >= 0
    answers, answer = np.unique(rows.value[is_given], return_inverse=True)
    if not answers.size:
        return np.full(len(cases), math.nan), first
    # Few of all answers are given to one case: its own ones are numbered from 0.
    pairs, counts = np.unique(np.stack([owner[is_given], answer]), axis=1, return_counts=True)
    column = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], pairs[0])
    votes = np.zeros((len(cases), int(column.max()) + 1))
    votes[pairs[0], column] = counts
    return agreement(votes, trials, options, plain=plain), first


def _confidence_pieces(rows: ScoreTable, parameter: str = "") -> Floats:
    sure, first = _by_case(rows, parameter == PLAIN)
    return case_pieces(rows, first, sure)


def _shift_pieces(rows: ScoreTable, parameter: str = "") -> Floats:
    sure, first = _by_case(rows, parameter == PLAIN)
    right = np.full(len(first), math.nan)
    judged = rows.where(rows.metric == "accuracy")
    if judged.value.size:
        values, at = by_repeat(judged)
        is_known = ~np.isnan(values)
        means = quotient(np.where(is_known, values, 0).sum(axis=1), is_known.sum(axis=1))
        right[np.searchsorted(rows.case[first], judged.case[at])] = means
    return case_pieces(rows, first, sure - right)


def _trials_remark(rows: ScoreTable, parameter: str = "") -> str:
    votes = int(np.unique(rows.repeat).size) if rows.repeat.size else 1
    corrected = "" if parameter == PLAIN else " with the correction of Miller and Madow"
    return f"Confidence by votes is 1 - entropy / log of the number of options{corrected}, of {votes} answers a case."


_votes = partial(
    summary,
    over="repeats",
    parameter="plain, for entropy without correction",
    parameter_is_text=True,
    parameter_optional=True,
    check=_check_parameter,
    source="MedQ-Deg, arXiv 2603.07769, equations 3 and 4, with @plain",
    remark=_trials_remark,
)


@_votes(needs=VOTES, title="Confidence by votes", higher_is_better=None, best=math.nan, pieces=_confidence_pieces)
def vote_agreement(sums: Floats, parameter: str = "") -> Floats:
    """The mean over cases of 1 - H / log K, H the entropy of the shares of K options among repeated answers.

    The correction of Miller and Madow is made, without which few votes look surer than they are; `vote_agreement@plain`
    leaves it out. `sums` are the total over cases and their number, (..., 2). Answers that were not understood count
    among the votes, for no option; cases of such alone are left out. 1 where a case was asked once. In [0, 1].
    """
    return quotient(sums[..., 0], sums[..., 1])


@_votes(
    needs=(*VOTES, "accuracy"),
    title="Calibration shift by votes",
    higher_is_better=None,
    best=0.0,
    pieces=_shift_pieces,
)
def vote_shift(sums: Floats, parameter: str = "") -> Floats:
    """The mean over cases of the confidence by votes less the share of their repeats that are right.

    Above 0 a model agrees with itself more often than it is right. `sums` are as in `vote_agreement`.
    `vote_shift@plain` is MedQ-Deg's calibration shift; cases that were never answered are left out of it. In [-1, 1].
    """
    return quotient(sums[..., 0], sums[..., 1])
