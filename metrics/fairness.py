"""Summaries that count how differently a model serves groups of patients: equity-scaled scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.registry import Rows, summary

UNKNOWN_GROUPS = frozenset({"", "-1"})
"""What stands in an attribute where nothing is known of the case; FairSeg writes -1."""

_SOURCE = "FairSeg (Tian et al., ICLR 2024, arXiv 2311.02189) and its code"
_GROUPS = "attribute of the cases"


Floats = npt.NDArray[np.float64]


class _Groups(NamedTuple):
    """A metric's mean over all cases that have a value, (resample,), and over each known group, (resample, group).

    NaN of a group without a case.
    """

    overall: Floats
    means: Floats


@summary(
    needs=("dice",),
    title="ES-Dice",
    higher_is_better=True,
    best=1.0,
    source=_SOURCE,
    parameter=_GROUPS,
    parameter_is_text=True,
    weighed=lambda rows, attribute: _judge(rows, "dice", attribute, _by_gaps),
)
def es_dice(rows: Rows, attribute: str) -> float:
    """The mean Dice over 1 plus the sum of its distances to the mean of each group of cases.

    A case counts with the mean over its labels. Cases whose group is not known ("" or "-1") count in the overall
    mean and belong to no group. In [0, 1]; NaN with fewer than two groups.
    """
    return _value(rows, "dice", attribute, _by_gaps)


@summary(
    needs=("iou",),
    title="ES-IoU",
    higher_is_better=True,
    best=1.0,
    source=_SOURCE,
    parameter=_GROUPS,
    parameter_is_text=True,
    weighed=lambda rows, attribute: _judge(rows, "iou", attribute, _by_gaps),
)
def es_iou(rows: Rows, attribute: str) -> float:
    """The mean IoU over 1 plus the sum of its distances to the mean of each group of cases.

    As `es_dice`.
    """
    return _value(rows, "iou", attribute, _by_gaps)


@summary(
    needs=("dice",),
    title="ES-Dice (SD)",
    higher_is_better=True,
    best=1.0,
    source=_SOURCE,
    parameter=_GROUPS,
    parameter_is_text=True,
    weighed=lambda rows, attribute: _judge(rows, "dice", attribute, _by_deviation),
)
def es_dice_sd(rows: Rows, attribute: str) -> float:
    """The mean Dice over 1 plus the standard deviation (n - 1) of the means of the groups of cases.

    FairSeg's code has this version beside that of `es_dice`, and gives both one name. In [0, 1]; NaN with fewer
    than two groups.
    """
    return _value(rows, "dice", attribute, _by_deviation)


@summary(
    needs=("iou",),
    title="ES-IoU (SD)",
    higher_is_better=True,
    best=1.0,
    source=_SOURCE,
    parameter=_GROUPS,
    parameter_is_text=True,
    weighed=lambda rows, attribute: _judge(rows, "iou", attribute, _by_deviation),
)
def es_iou_sd(rows: Rows, attribute: str) -> float:
    """The mean IoU over 1 plus the standard deviation (n - 1) of the means of the groups of cases.

    As `es_dice_sd`.
    """
    return _value(rows, "iou", attribute, _by_deviation)


def _by_gaps(groups: _Groups) -> Floats:
    apart = np.nansum(np.abs(groups.means - groups.overall[:, None]), axis=1)
    return np.asarray(groups.overall / (1 + apart), dtype=np.float64)


def _by_deviation(groups: _Groups) -> Floats:
    return np.asarray(groups.overall / (1 + np.nanstd(groups.means, axis=1, ddof=1)), dtype=np.float64)


def _value(rows: Rows, metric: str, attribute: str, scaled: Callable[[_Groups], Floats]) -> float:
    """Returns the value of rows that each count once."""
    return float(_judge(rows, metric, attribute, scaled)(np.ones((1, rows.value.size)))[0])


def _judge(rows: Rows, metric: str, attribute: str, scaled: Callable[[_Groups], Floats]) -> Callable[[Floats], Floats]:
    """Returns a function of how often each row counts, (resample, row), that returns the scores, (resample,).

    Of a resample with fewer than two groups it is NaN.
    """
    means, at = case_means(rows, metric)
    names, member = np.unique(rows.attributes.get(attribute, np.zeros(rows.value.size, "U1"))[at], return_inverse=True)
    known = [place for place, name in enumerate(names) if str(name) not in UNKNOWN_GROUPS]
    inside = (member[:, None] == known).astype(np.float64)

    def judge(times: Floats) -> Floats:
        counted = times[:, at]
        numbers = counted @ inside
        by_group = np.divide(
            counted @ (inside * means[:, None]), numbers, out=np.full(numbers.shape, math.nan), where=numbers > 0
        )
        scores, enough = np.full(len(times), math.nan), (numbers > 0).sum(axis=1) >= 2
        if enough.any():
            overall = counted[enough] @ means / counted[enough].sum(axis=1)
            scores[enough] = scaled(_Groups(overall, by_group[enough]))
        return scores

    return judge


def case_means(rows: Rows, metric: str) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Returns the mean over labels of every case that has a value, (case,), and a row of each, (case,).

    Cases stand in the order of their numbers.
    """
    chosen = np.flatnonzero((rows.metric == metric) & ~np.isnan(rows.value))
    _, first, owner = np.unique(rows.case[chosen], return_index=True, return_inverse=True)
    means = np.bincount(owner, weights=rows.value[chosen]) / np.bincount(owner)
    return np.asarray(means, dtype=np.float64), chosen[first]
