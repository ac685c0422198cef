"""Failure detection in segmentation: whether an estimate of a mask's Dice tells good masks from bad.

Summaries over the rows of `dice` and `expected_dice`, or of estimates from elsewhere under that name, label by label.
In curves of risk the risk of a mask is 1 - Dice.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.metrics.arrays import Floats, Ints
from medimg_eval.metrics.calibration.selective_prediction import area_under, generalised_area, risks
from medimg_eval.metrics.calibration.statements import Stated, levelled
from medimg_eval.metrics.declarations import error_summary, share_summary
from medimg_eval.metrics.proportions import quotient

if TYPE_CHECKING:
    from medimg_eval.metrics.registry import ScoreTable, Weighed

NEEDS = ("dice", "expected_dice")
_JAEGER = "Jaeger et al., ICLR 2023, arXiv 2211.15259; Zenk et al., Medical Image Analysis 2025, arXiv 2406.03323"

_curve = partial(error_summary, needs=NEEDS, at_once=True, source=_JAEGER)


def _paired_rows(rows: ScoreTable) -> Stated:
    """Returns masks with both values: row, estimate and Dice."""
    estimates = np.flatnonzero((rows.metric == "expected_dice") & ~np.isnan(rows.value))
    judged = np.flatnonzero((rows.metric == "dice") & ~np.isnan(rows.value))
    dice = {(rows.case[row], rows.label[row], rows.repeat[row]): rows.value[row] for row in judged}
    keys = [(rows.case[row], rows.label[row], rows.repeat[row]) for row in estimates]
    both = np.array([key in dice for key in keys], dtype=bool)
    paired: Ints = estimates[both].astype(np.int64)
    return Stated(paired, rows.value[paired], np.array([dice[key] for key in keys if key in dice], dtype=np.float64))


@_curve(title="Dice AURC")
def dice_aurc(rows: ScoreTable) -> Weighed:
    """The area under the mean of 1 - Dice among the masks of the highest estimates, over their share of all.

    The `aurc` of masks: equal estimates may stand in any order, and the mean over orders is taken. In [0, 1].
    """
    levels = levelled(_paired_rows(rows))
    return lambda times: area_under(risks(times, levels))


@_curve(title="Dice E-AURC")
def dice_eaurc(rows: ScoreTable) -> Weighed:
    """The Dice AURC less that of the best order, in which masks of higher Dice come first.

    In [0, 1].
    """
    stated = _paired_rows(rows)
    levels, best = levelled(stated), levelled(stated._replace(sure=stated.right))
    return lambda times: area_under(risks(times, levels)) - area_under(risks(times, best))


@_curve(title="Dice AUGRC")
def dice_augrc(rows: ScoreTable) -> Weighed:
    """The area under the sum of 1 - Dice of the masks of the highest estimates over all masks, over coverage.

    The `augrc` of masks. In [0, 0.5].
    """
    levels = levelled(_paired_rows(rows))
    return lambda times: generalised_area(risks(times, levels))


def _gap_pieces(rows: ScoreTable) -> Floats:
    stated = _paired_rows(rows)
    added = np.zeros((rows.value.size, 2))
    added[stated.place] = np.stack([np.abs(stated.sure - stated.right), np.ones_like(stated.sure)], axis=1)
    return added


@error_summary(title="Error of expected Dice", needs=NEEDS, source=_JAEGER, pieces=_gap_pieces)
def expected_dice_error(sums: Floats) -> Floats:
    """Error of an estimate: the mean of |estimated Dice - Dice| over masks.

    In [0, 1].
    """
    return quotient(sums[..., 0], sums[..., 1])


@share_summary(
    title="Correlation of expected Dice", needs=NEEDS, source=_JAEGER, at_once=True, value_kind="correlation"
)
def expected_dice_correlation(rows: ScoreTable) -> Weighed:
    """Pearson's correlation of the estimated Dice with the Dice of masks; NaN where either is constant.

    In [-1, 1].
    """
    stated = _paired_rows(rows)
    values = np.stack([stated.sure, stated.right])

    def correlate(times: Floats) -> Floats:
        weight = times[:, stated.place]
        total = weight.sum(axis=1, keepdims=True)
        means = quotient(weight @ values.T, np.repeat(total, 2, axis=1))
        estimate, dice = (values[row] - means[:, row, None] for row in (0, 1))
        spread = (weight * estimate**2).sum(axis=1) * (weight * dice**2).sum(axis=1)
        return quotient(
            (weight * estimate * dice).sum(axis=1), np.where(spread > 1e-24, np.sqrt(spread), 0.0), math.nan
        )

    return correlate
