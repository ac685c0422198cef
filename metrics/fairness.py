"""Summaries that count how differently a model serves groups of patients: equity-scaled scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from medimg_eval.metrics.arrays import Floats, Places
from medimg_eval.metrics.declarations import share_summary
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, Weighed

UNKNOWN_GROUPS = frozenset({"", "-1"})
"""What stands in an attribute where nothing is known of the case; FairSeg writes -1."""

_equity = partial(
    share_summary,
    source="FairSeg (Tian et al., ICLR 2024, arXiv 2311.02189) and its code",
    parameter="attribute of the cases",
    parameter_is_text=True,
    at_once=True,
)


class _Groups(NamedTuple):
    """A metric's means over all cases and each known group.

    Means over all cases that have a value are (resample,), those over groups (resample, group). A group without a case
    has NaN.
    """

    overall: Floats
    means: Floats


@_equity(needs=("dice",), title="ES-Dice")
def es_dice(rows: ScoreTable, attribute: str) -> Weighed:
    """The mean Dice over 1 plus the sum of its distances to the mean of each group of cases.

    A case counts with the mean over its labels. Cases whose group is not known ("" or "-1") count in the overall
    mean and belong to no group. In [0, 1]; NaN with fewer than two groups.
    """
    return _make_judge(rows, "dice", attribute, _by_gaps)


@_equity(needs=("iou",), title="ES-IoU")
def es_iou(rows: ScoreTable, attribute: str) -> Weighed:
    """The mean IoU over 1 plus the sum of its distances to the mean of each group of cases.

    It is computed as `es_dice`.
    """
    return _make_judge(rows, "iou", attribute, _by_gaps)


@_equity(needs=("dice",), title="ES-Dice (SD)")
def es_dice_sd(rows: ScoreTable, attribute: str) -> Weighed:
    """The mean Dice over 1 plus the standard deviation (n - 1) of the means of the groups of cases.

    FairSeg's code has this version beside that of `es_dice`, and gives both one name. In [0, 1]; NaN with fewer
    than two groups.
    """
    return _make_judge(rows, "dice", attribute, _by_deviation)


@_equity(needs=("iou",), title="ES-IoU (SD)")
def es_iou_sd(rows: ScoreTable, attribute: str) -> Weighed:
    """The mean IoU over 1 plus the standard deviation (n - 1) of the means of the groups of cases.

    It is computed as `es_dice_sd`.
    """
    return _make_judge(rows, "iou", attribute, _by_deviation)


def _by_gaps(groups: _Groups) -> Floats:
    apart = np.nansum(np.abs(groups.means - groups.overall[:, None]), axis=1)
    return np.asarray(groups.overall / (1 + apart), dtype=np.float64)


def _by_deviation(groups: _Groups) -> Floats:
    return np.asarray(groups.overall / (1 + np.nanstd(groups.means, axis=1, ddof=1)), dtype=np.float64)


def _make_judge(rows: ScoreTable, metric: str, attribute: str, scaled: Callable[[_Groups], Floats]) -> Weighed:
    """Returns a judge: weights (resample, row) to scores; NaN of fewer than two groups."""
    means, at = case_means(rows, metric)
    names, member = np.unique(rows.attributes.get(attribute, np.zeros(rows.value.size, "U1"))[at], return_inverse=True)
    groups = [index for index, name in enumerate(names) if str(name) not in UNKNOWN_GROUPS]
    inside = (member[:, None] == groups).astype(np.float64)

    def judge(times: Floats) -> Floats:
        counted = times[:, at]
        numbers = counted @ inside
        by_group = quotient(counted @ (inside * means[:, None]), numbers)
        scores, enough = np.full(len(times), math.nan), (numbers > 0).sum(axis=1) >= 2
        if enough.any():
            overall = counted[enough] @ means / counted[enough].sum(axis=1)
            scores[enough] = scaled(_Groups(overall, by_group[enough]))
        return scores

    return judge


def case_means(rows: ScoreTable, metric: str) -> tuple[Floats, Places]:
    """Returns means over labels of cases with a value, (case,), and their rows."""
    chosen = np.flatnonzero((rows.metric == metric) & ~np.isnan(rows.value))
    _, first, owner = np.unique(rows.case[chosen], return_index=True, return_inverse=True)
    means = np.bincount(owner, weights=rows.value[chosen]) / np.bincount(owner)
    return np.asarray(means, dtype=np.float64), chosen[first]
