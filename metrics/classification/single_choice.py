"""Metrics of classes that exclude each other: agreement of grades, balanced accuracy, the k most probable."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.classification.curves import (
    CLASSES,
    EXCLUSIVE,
    NAMES,
    PRESENT,
    Classified,
    counts,
    decided,
    mean_of_known,
)
from medimg_eval.metrics.declarations import share_metric, share_summary
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable


@share_metric(
    kind="classification",
    title="Top-k accuracy",
    parameter="k, how many classes count",
    source="as usual; ties in part",
)
def top_k_accuracy(pair: Classified, k: float) -> Mapping[str, float]:
    """Whether the class that is present is among the k most probable; of ties at the last place it counts in part.

    The label is the class that is present. Only where classes exclude each other, and where it is known which of them
    is present. scikit-learn's `top_k_accuracy_score` where no two are equally probable.
    """
    right = [name for name, present in pair.known.items() if present]
    if not pair.exclusive or len(right) != 1:
        return {}
    own = pair.predicted[right[0]]
    above = sum(value > own for value in pair.predicted.values())
    ties = sum(value == own for value in pair.predicted.values())
    return {right[0]: min(1.0, max(0.0, (k - above) / ties))}


def _grade_sums(rows: ScoreTable) -> Floats:
    """Row contributions to distance sums and class counts.

    Distances and their squares. (row, 2 + 2 * class). A case adds at the row of the class that is present;
    several equally probable ones count in parts.
    """
    names = [str(name) for name in rows.facts.get(NAMES, ())] or np.unique(rows.label).tolist()
    grade_of = {name: at for at, name in enumerate(names)}
    width, label = len(names), np.array([grade_of.get(name, -1) for name in rows.label.tolist()], dtype=np.int64)
    judged = rows.facts.get(CLASSES) == EXCLUSIVE and width > 1
    added = np.zeros((len(rows.case), 2 + 2 * width))
    if not judged:
        return added
    _, case = np.unique(rows.case, return_inverse=True)
    given_grades = np.zeros((int(case.max()) + 1 if case.size else 0, width))
    np.add.at(given_grades, (case[label >= 0], label[label >= 0]), decided(rows)[label >= 0])
    present = np.flatnonzero((rows.status == PRESENT) & (label >= 0))
    apart = np.abs(label[present][:, None] - np.arange(width))
    mine = given_grades[case[present]]
    added[present, 0] = (mine * apart).sum(axis=1)
    added[present, 1] = (mine * apart**2).sum(axis=1)
    added[present, 2 + label[present]] = 1
    added[present, 2 + width :] = mine
    return added


def _weighted_kappa(sums: Floats, power: int) -> Floats:
    """Weighted kappa: 1 - observed over chance disagreement of grades."""
    width = (sums.shape[-1] - 2) // 2
    true, given_counts = sums[..., 2 : 2 + width], sums[..., 2 + width :]
    distance = np.abs(np.subtract.outer(np.arange(width), np.arange(width))) ** power
    chance = quotient(np.einsum("...i,ij,...j->...", true, distance, given_counts), true.sum(axis=-1))
    return 1 - quotient(sums[..., power - 1], chance)


_of_grades = partial(share_summary, needs=("probability",), pieces=_grade_sums, value_kind="correlation")


@_of_grades(title="Quadratic kappa", source="Cohen 1968", aliases=("QWK", "quadratic weighted kappa"))
def quadratic_kappa(sums: Floats) -> Floats:
    """Cohen's kappa of grades, whose disagreement is the squared distance of classes in the task's order.

    At most 1; 0 is chance. Of classes that exclude each other; all of the task's count, also those that nobody has. NaN
    where truth and prediction are one class throughout. scikit-learn's `cohen_kappa_score(weights="quadratic")`.
    """
    return _weighted_kappa(sums, 2)


@_of_grades(title="Linear kappa", source="Cohen 1968", aliases=("linear weighted kappa",))
def linear_kappa(sums: Floats) -> Floats:
    """Cohen's kappa of grades, whose disagreement is the distance of classes in the task's order.

    It is `quadratic_kappa`, but a distance of two weighs twice that of one, and not four times.
    """
    return _weighted_kappa(sums, 1)


def count_cells(rows: ScoreTable) -> Floats:
    """Row contributions to class counts, with exclusiveness, (row, 4*class+1)."""
    table = counts(rows, "macro")
    alone = np.full((len(table), 1), float(rows.facts.get(CLASSES) == EXCLUSIVE))
    return np.concatenate([table, alone], axis=1)


@share_summary(
    title="Balanced accuracy",
    needs=("probability",),
    source="Brodersen et al. 2010; of several classes as in scikit-learn",
    pieces=count_cells,
    aliases=("BACC", "balanced accuracy"),
)
def balanced_accuracy(sums: Floats) -> Floats:
    """The mean recall of the classes, where they exclude each other; else of each class against its absence.

    Where classes exclude each other it is `class_sensitivity@macro`, else `class_balanced_accuracy@macro`. Classes that
    never occur are in no mean. Chance is one over the number of classes, or one half.
    """
    table = sums[..., :-1].reshape(*sums.shape[:-1], 4, -1)
    hits, invented, missed, absent = (table[..., at, :] for at in range(4))
    recall, specificity = quotient(hits, hits + missed), quotient(absent, absent + invented)
    each = np.where(sums[..., -1:] > 0, recall, (recall + specificity) / 2)
    return mean_of_known(each, np.ones_like(each), axis=-1)
