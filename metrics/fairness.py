"""Summaries that count how differently a model serves groups of patients: equity-scaled scores."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.registry import Rows, summary

UNKNOWN_GROUPS = frozenset({"", "-1"})
"""What stands in an attribute where nothing is known of the case; FairSeg writes -1."""

_SOURCE = "FairSeg (Tian et al., ICLR 2024, arXiv 2311.02189) and its code"
_GROUPS = "attribute of the cases"


class _Groups(NamedTuple):
    """A metric's mean over all cases that have a value, and over those of each known group, by name."""

    overall: float
    means: npt.NDArray[np.float64]


@summary(
    needs=("dice",),
    title="ES-Dice",
    higher_is_better=True,
    best=1.0,
    source=_SOURCE,
    parameter=_GROUPS,
    parameter_is_text=True,
)
def es_dice(rows: Rows, attribute: str) -> float:
    """The mean Dice over 1 plus the sum of its distances to the mean of each group of cases.

    A case counts with the mean over its labels. Cases whose group is not known ("" or "-1") count in the overall
    mean and belong to no group. In [0, 1]; NaN with fewer than two groups.
    """
    return _by_gaps(rows, "dice", attribute)


@summary(
    needs=("iou",),
    title="ES-IoU",
    higher_is_better=True,
    best=1.0,
    source=_SOURCE,
    parameter=_GROUPS,
    parameter_is_text=True,
)
def es_iou(rows: Rows, attribute: str) -> float:
    """The mean IoU over 1 plus the sum of its distances to the mean of each group of cases.

    As `es_dice`.
    """
    return _by_gaps(rows, "iou", attribute)


@summary(
    needs=("dice",),
    title="ES-Dice (SD)",
    higher_is_better=True,
    best=1.0,
    source=_SOURCE,
    parameter=_GROUPS,
    parameter_is_text=True,
)
def es_dice_sd(rows: Rows, attribute: str) -> float:
    """The mean Dice over 1 plus the standard deviation (n - 1) of the means of the groups of cases.

    FairSeg's code has this version beside that of `es_dice`, and gives both one name. In [0, 1]; NaN with fewer
    than two groups.
    """
    return _by_deviation(rows, "dice", attribute)


@summary(
    needs=("iou",),
    title="ES-IoU (SD)",
    higher_is_better=True,
    best=1.0,
    source=_SOURCE,
    parameter=_GROUPS,
    parameter_is_text=True,
)
def es_iou_sd(rows: Rows, attribute: str) -> float:
    """The mean IoU over 1 plus the standard deviation (n - 1) of the means of the groups of cases.

    As `es_dice_sd`.
    """
    return _by_deviation(rows, "iou", attribute)


def _by_gaps(rows: Rows, metric: str, attribute: str) -> float:
    groups = _group_means(rows, metric, attribute)
    if groups.means.size < 2:
        return math.nan
    return groups.overall / (1 + float(np.abs(groups.means - groups.overall).sum()))


def _by_deviation(rows: Rows, metric: str, attribute: str) -> float:
    groups = _group_means(rows, metric, attribute)
    if groups.means.size < 2:
        return math.nan
    return groups.overall / (1 + float(groups.means.std(ddof=1)))


def case_means(rows: Rows, metric: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """Returns the mean over labels of every case that has a value, (case,), and a row of each, (case,).

    Cases stand in the order of their numbers.
    """
    chosen = np.flatnonzero((rows.metric == metric) & ~np.isnan(rows.value))
    _, first, owner = np.unique(rows.case[chosen], return_index=True, return_inverse=True)
    means = np.bincount(owner, weights=rows.value[chosen]) / np.bincount(owner)
    return np.asarray(means, dtype=np.float64), chosen[first]


def _group_means(rows: Rows, metric: str, attribute: str) -> _Groups:
    means, at = case_means(rows, metric)
    if not means.size or attribute not in rows.attributes:
        return _Groups(math.nan, np.empty(0))
    names, member = np.unique(rows.attributes[attribute][at], return_inverse=True)
    by_group = np.bincount(member, weights=means) / np.bincount(member)
    known = np.array([str(name) not in UNKNOWN_GROUPS for name in names])
    return _Groups(float(means.mean()), by_group[known])
