"""Vertebrae beside the healthy ones they would be: how much height is lost, and which grade of fracture that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import evidence_metric, neutral_metric, share_summary
from medimg_eval.metrics.measurement.measurements import HeightLoss
from medimg_eval.metrics.registry import ScoreTable, parse
from medimg_eval.metrics.scores import LabelScore

GENANT = (0, 1, 2, 3)
"""Normal, mild, moderate and severe."""

LEAST = (0.2, 0.25, 0.4)
"""Loss of height from which a vertebra has the grades 1, 2 and 3 (Genant et al. 1993)."""

SOURCE = "Zhang et al. 2025 (HealthiVert-GAN)"


class Graded(NamedTuple):
    """One part of a vertebra: loss of height, (H_syn - H_ori) / H_syn, and grade; NaN without."""

    loss: float
    grade: float = math.nan


@neutral_metric(kind="vertebra", title="RHLV", source=SOURCE, value_kind="ratio")
def rhlv(part: Graded) -> float:
    """The relative height loss of a vertebra, (H_syn - H_ori) / H_syn, by the healthy one that was made of it.

    At most 1; below 0 where the vertebra is higher than the one that was made, which a good generator seldom makes. It
    is near 0 for healthy vertebrae, and grows with the grade: `table by=grade` shows whether it does.
    """
    return part.loss


@evidence_metric(kind="vertebra", scope="set", title="Genant grade", source="Genant et al. 1993")
def genant_grade(part: Graded) -> float:
    """The grade of fracture, 0 to 3, that a vertebra is given by its loss of height, as evidence for summaries.

    Its label is the true grade.
    """
    return part.grade


def vertebra_scores(
    loss: HeightLoss, grade: float, truth: int | None, metrics: Sequence[str], *, status: str = ""
) -> list[LabelScore]:
    """Returns a vertebra's `rhlv` and `genant_grade` scores.

    `rhlv` of each of its parts; `genant_grade` under its true grade.

    Args:
        loss: of the whole and its thirds; see `relative_height_loss`.
        grade: that it is given; NaN for none.
        truth: its true grade; None where that is not known: it is then not graded.
        metrics: names of metrics of kind "vertebra".
        status: of all rows; by default "present", or "missed" where there is no value.

    >>> vertebra_scores(HeightLoss(0.1, 0.3, 0.0, 0.0), 2, 2, ["genant_grade"])
    [LabelScore(label='2', metric='genant_grade', value=2.0, status='present')]
    """
    rows = []
    for name in metrics:
        function = parse(name)[0].function
        parts = {str(truth): Graded(loss.whole, grade)} if name == "genant_grade" else _loss_parts(loss)
        if name == "genant_grade" and truth is None:
            continue
        for label, part in parts.items():
            value = float(function(part))
            rows.append(LabelScore(label, name, value, status or ("missed" if math.isnan(value) else "present")))
    return rows


def genant_by_loss(loss: HeightLoss, least: Sequence[float] = LEAST) -> float:
    """Returns the grade by greatest loss of the three thirds.

    0, or the number of steps of `least` that it reaches. NaN where a third has no height.

    >>> genant_by_loss(HeightLoss(0.1, 0.3, 0.0, -0.1))
    2.0
    """
    worst = max(loss[1:]) if not any(map(math.isnan, loss[1:])) else math.nan
    return math.nan if math.isnan(worst) else float(sum(worst >= step for step in least))


def _loss_parts(loss: HeightLoss) -> dict[str, Graded]:
    return {name: Graded(value) for name, value in zip(loss._fields, loss, strict=True)}


def _confusion_rows(rows: ScoreTable) -> Floats:
    """Row's cell among true and given grades, (row, 4*5)."""
    wide = len(GENANT) + 1
    grades = np.where(np.isnan(rows.value), len(GENANT), rows.value).astype(np.intp)
    cells = rows.label.astype(np.intp) * wide + grades
    one_hot: Floats = (cells[:, None] == np.arange(len(GENANT) * wide)).astype(np.float64)
    return one_hot


def _macro_mean(sums: Floats, of: Any) -> Floats:
    """Mean of a value over occurring (true or given) grades."""
    counts = sums.reshape(*sums.shape[:-1], len(GENANT), len(GENANT) + 1)
    true, given_counts = counts.sum(axis=-1), counts[..., : len(GENANT)].sum(axis=-2)
    right = np.diagonal(counts[..., : len(GENANT)], axis1=-2, axis2=-1)
    occurs = true + given_counts > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.nan_to_num(of(right, true, given_counts), nan=0.0)
        mean: Floats = np.where(occurs, values, 0).sum(axis=-1) / occurs.sum(axis=-1)
    return mean


_grading = partial(
    share_summary,
    needs=("genant_grade",),
    source=SOURCE,
    pieces=_confusion_rows,
    settings="grades that occur, as true or given ones; a vertebra without a grade is missed",
)


@_grading(title="Grading, macro precision")
def genant_precision(sums: Floats) -> Floats:
    """The share of vertebrae that are given a grade of fracture which have it, as the mean over grades."""
    return _macro_mean(sums, lambda right, true, given: right / given)


@_grading(title="Grading, macro recall")
def genant_recall(sums: Floats) -> Floats:
    """The share of vertebrae with a grade of fracture which are given it, as the mean over grades."""
    return _macro_mean(sums, lambda right, true, given: right / true)


@_grading(title="Grading, macro F1")
def genant_f1(sums: Floats) -> Floats:
    """The harmonic mean of precision and recall of a grade of fracture, as the mean over grades."""
    return _macro_mean(sums, lambda right, true, given: 2 * right / (true + given))
