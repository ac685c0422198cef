"""Metrics of classifications: how probable a model says each class is, beside whether it is present.

`probability` leaves a row for every class of a case whose truth is known; the numbers of a whole run are computed from
these rows. A class without positives or negatives has no AUROC: it is left out of averages and named, never counted 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import numpy as np

from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.classification.curves import (
    ABSENT,
    PRESENT,
    THRESHOLD,
    Classified,
    areas,
    averaged,
    counts,
    lacking,
    pr_area,
    roc_area,
)
from medimg_eval.metrics.declarations import error_metric, evidence_metric, share_metric, share_summary
from medimg_eval.metrics.registry import ScoreTable, Weighed

KIND = "classification"

Curves: TypeAlias = Callable[[ScoreTable, str], Weighed]
Score: TypeAlias = Callable[[Floats], Floats]
Summed: TypeAlias = Callable[[Floats, str], Floats]

WHOLE = "all"
"""The label of what judges a case as a whole."""

_CUT = "present where the probability is above 0.5; where classes exclude each other, the most probable class"


@evidence_metric(kind=KIND, title="Probability", value_kind="bounded")
def probability(pair: Classified) -> Mapping[str, float]:
    """The probability that the model gives a class, of each class whose truth is known; the row's status is the truth.

    Evidence: tables show the summaries that are computed from it. Of a case that failed it is 0 for a class that is
    present and 1 for one that is absent.
    """
    return {name: pair.predicted[name] for name in pair.known}


@error_metric(kind=KIND, title="Brier", worst=1.0, source="Brier 1950, class by class")
def probability_error(pair: Classified) -> Mapping[str, float]:
    """The squared difference between the probability of a class and its truth, 1 where it is present and 0 elsewhere.

    Between 0 and 1, of each class whose truth is known. Where classes exclude each other, Brier's own score of a case
    is the sum over its classes; this is their mean.
    """
    return {name: (pair.predicted[name] - present) ** 2 for name, present in pair.known.items()}


_share = partial(share_metric, kind=KIND, value_kind="proportion")


@_share(title="Top-1 accuracy", source="as usual")
def top1_accuracy(pair: Classified) -> Mapping[str, float]:
    """Whether the most probable class is the one that is present; of n equally probable ones it counts 1/n.

    The label is the class that is present. Only where classes exclude each other, and where it is known which of them
    is present.
    """
    right = [name for name, present in pair.known.items() if present]
    if not pair.exclusive or len(right) != 1:
        return {}
    largest = max(pair.predicted.values())
    first = [name for name, value in pair.predicted.items() if value == largest]
    return {right[0]: (right[0] in first) / len(first)}


@_share(title="All classes right", source="subset accuracy")
def exact_match_ratio(pair: Classified) -> Mapping[str, float]:
    """Whether every class whose truth is known is said rightly: above a probability of 0.5 just where it is present.

    It is a value of the case as a whole, labelled `all`.
    """
    is_known = pair.known
    if not is_known:
        return {}
    return {WHOLE: float(all((pair.predicted[name] > THRESHOLD) == present for name, present in is_known.items()))}


_of_classes = partial(
    share_summary,
    needs=("probability",),
    parameter="macro, micro or weighted, of all classes or with -SET of a set; or a class",
    parameter_is_text=True,
)


def _class_remark(title: str, rows: ScoreTable, parameter: str, needs: tuple[str, ...]) -> str:
    remark = lacking(rows.of("probability"), parameter, needs)
    return f"{title} ({parameter}): {remark}" if remark else ""


def _counted_as_0(rows: ScoreTable, parameter: str) -> str:
    remark = _class_remark("AUROC, one class as 0", rows, parameter, (PRESENT, ABSENT))
    return remark.replace("undefined, and in no average", "undefined, and counted as 0")


def _curve_summary(title: str, source: str) -> Callable[[Curves], Curves]:
    """Registers a summary of curves."""
    remark = partial(_class_remark, title, needs=(PRESENT, ABSENT))
    return _of_classes(title=title, source=source, remark=remark, at_once=True)


@_curve_summary("AUROC", "Hanley and McNeil 1982; DeLong et al. 1988")
def auroc(rows: ScoreTable, parameter: str) -> Weighed:
    """The area under the ROC curve of the classes' probabilities: how often a positive is above a negative, ties half.

    `macro` is the mean over classes, `weighted` that weighted by how often each is present, `micro` pools the rows of
    all classes. Between 0 and 1; NaN of a class without positives or negatives. scikit-learn's `roc_auc_score`.
    """
    return areas(rows, parameter, roc_area)


@_of_classes(
    title="AUROC, one class as 0",
    source="RATE-Evals (Pillar-0), rate_eval/evaluation.py",
    remark=_counted_as_0,
    at_once=True,
)
def auroc_rate(rows: ScoreTable, parameter: str) -> Weighed:
    """The AUROC as RATE-Evals averages it: a class without positives or without negatives counts as 0.

    It is as published, not a measure of a model: the mean falls with each finding that nobody, or everybody, has.
    `auroc` leaves such classes out, and says which.
    """
    return areas(rows, parameter, roc_area, undefined=0.0)


@_curve_summary("AUPRC", "average precision, as in scikit-learn")
def auprc(rows: ScoreTable, parameter: str) -> Weighed:
    """The average precision of the classes' probabilities: the sum of precisions, each times the recall it adds.

    It is not interpolated, and not the trapezoidal area. Averages as for `auroc`. What chance reaches is how often the
    class is present. scikit-learn's `average_precision_score`.
    """
    return areas(rows, parameter, pr_area)


def _count_summary(title: str, *needs: str, source: str = "as usual") -> Callable[[Score], Summed]:
    """Registers a summary of counts over classes, (..., 4, class) -> (..., class).

    Classes that lack one of the truths in `needs` have no value.
    """

    def register(score: Score) -> Summed:
        def total(sums: Floats, parameter: str) -> Floats:
            return averaged(sums, parameter, score)

        total.__name__ = total.__qualname__ = score.__name__
        total.__module__, total.__doc__ = score.__module__, score.__doc__
        remark = partial(_class_remark, title, needs=needs)
        return _of_classes(title=title, source=source, settings=_CUT, pieces=counts, remark=remark)(total)

    return register


@_count_summary("Class F1", PRESENT)
def f1_score(cells: Floats) -> Floats:
    """The F1 of saying that a class is present: 2 TP / (2 TP + FP + FN).

    `macro` is the mean over classes. A class that is never present has none, and is in no average.
    """
    hits, invented, missed, _ = _split_cells(cells)
    return _safe_ratio(2 * hits, 2 * hits + invented + missed, hits + missed)


@_count_summary("Class precision", PRESENT)
def ppv(cells: Floats) -> Floats:
    """The share of cases said to have a class that have it: TP / (TP + FP); 0 where it is never said to be present.

    A class that is never present has none.
    """
    hits, invented, missed, _ = _split_cells(cells)
    return _safe_ratio(hits, np.where(hits + invented > 0, hits + invented, 1), hits + missed)


@_count_summary("Class sensitivity", PRESENT)
def class_sensitivity(cells: Floats) -> Floats:
    """The share of cases with a class that are said to have it: TP / (TP + FN)."""
    return _cell_sensitivity(cells)


@_count_summary("Class specificity", ABSENT)
def class_specificity(cells: Floats) -> Floats:
    """The share of cases without a class that are said not to have it: TN / (TN + FP)."""
    return _cell_specificity(cells)


@_count_summary("Class balanced accuracy", PRESENT, ABSENT)
def class_balanced_accuracy(cells: Floats) -> Floats:
    """The mean of sensitivity and specificity of a class, NaN where either is.

    It is that of class against no class. Where classes exclude each other, what is elsewhere called balanced accuracy
    is `class_sensitivity@macro`: the mean recall of the classes.
    """
    return (_cell_sensitivity(cells) + _cell_specificity(cells)) / 2


@_count_summary("Class accuracy")
def class_accuracy(cells: Floats) -> Floats:
    """The share of cases in which a class is said rightly to be present or absent: (TP + TN) / all.

    Where classes exclude each other, the share of cases whose most probable class is right is `top1_accuracy`.
    """
    hits, invented, missed, absent = _split_cells(cells)
    every = hits + invented + missed + absent
    return _safe_ratio(hits + absent, every, every)


@_count_summary("CRG", PRESENT, source="VLM3D, forithmus/VLM3D-Dockers, crg_score.py")
def class_crg(cells: Floats) -> Floats:
    """The CRG score of saying that classes are present: U / (2 U - r TP + r FN + FP), U = N / 2, r = N / (2 P).

    P and N are how often classes are present and absent, so that a hit weighs as much as it is rare. In (0, 1]: 1 for
    all right, 1/3 for all or none said to be present. VLM3D's is `class_crg@micro`, over all labels of all volumes.
    """
    hits, invented, missed, absent = _split_cells(cells)
    present, half = hits + missed, (invented + absent) / 2
    weight = np.divide(half, present, out=np.zeros(np.shape(present)), where=present > 0)
    return _safe_ratio(half, 2 * half - weight * (hits - missed) + invented, present)


def _cell_sensitivity(cells: Floats) -> Floats:
    hits, _, missed, _ = _split_cells(cells)
    return _safe_ratio(hits, hits + missed, hits + missed)


def _cell_specificity(cells: Floats) -> Floats:
    _, invented, _, absent = _split_cells(cells)
    return _safe_ratio(absent, absent + invented, absent + invented)


def _split_cells(cells: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Hits, inventions, misses and right absences, (..., class) each."""
    return cells[..., 0, :], cells[..., 1, :], cells[..., 2, :], cells[..., 3, :]


def _safe_ratio(part: Floats, of: Floats, due: Floats) -> Floats:
    """A ratio; NaN where nothing is due."""
    ratio: Floats = np.divide(part, of, out=np.full(np.shape(of), math.nan), where=(due > 0) & (of > 0))
    return ratio
