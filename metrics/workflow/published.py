"""Scores of single challenges: PitVis, SAR-RARP50, and the skill of JIGSAWS and HeiChole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.workflow.segments import edit_score, segments_of

PITVIS_LEFT_OUT = (-1, 11, 13)
"""Steps whose frames PitVis does not judge."""

PITVIS_INSTRUMENTS = 19


def pitvis_steps(truth: npt.ArrayLike, prediction: npt.ArrayLike, left_out: Sequence[int] = PITVIS_LEFT_OUT) -> float:
    """PitVis' step score of a video: mean of macro-F1 and edit score, 0 to 1.

    Frames whose truth is left out are dropped, which joins what lay beside them; classes are those of truth or
    prediction in what stays. NaN without a judged frame.
    """
    true, predicted = np.asarray(truth), np.asarray(prediction)
    is_judged = ~np.isin(true, left_out)
    true, predicted = true[is_judged], predicted[is_judged]
    if not true.size:
        return math.nan
    scores = []
    for label in np.union1d(true, predicted):
        both = ((true == label) & (predicted == label)).sum()
        scores.append(2 * both / ((true == label).sum() + (predicted == label).sum()))
    return float((np.mean(scores) + edit_score(segments_of(true), segments_of(predicted))) / 2)


def pitvis_instruments(
    truth: Sequence[Sequence[int]], prediction: Sequence[Sequence[int]], *, published: bool = False
) -> float:
    """PitVis' weighted instrument F1 of one video, 0 to 1.

    NaN where none is true.

    Args:
        truth: of each frame the classes that are present, 0 to 18; below 0 for none.
        prediction: as truth.
        published: as the script has it: classes of truth and of prediction are numbered each by themselves, so that
            columns only line up where both hold the same classes.
    """
    columns = range(PITVIS_INSTRUMENTS)
    true, predicted = (
        np.array([[label in frame for label in columns] for frame in frames], bool) for frames in (truth, prediction)
    )
    return weighted_presence_f1(true, predicted, published=published)


def weighted_presence_f1(truth: npt.ArrayLike, prediction: npt.ArrayLike, *, published: bool = False) -> float:
    """Presence F1 of a video, weighted by true frames, 0 to 1.

    NaN where none is true.

    Args:
        truth: bool, (frame, class).
        prediction: as truth.
        published: as PitVis' script has it: columns of classes that a side lacks come last on that side.
    """
    true, predicted = np.asarray(truth, bool), np.asarray(prediction, bool)
    if published:
        true, predicted = (side[:, np.argsort(~side.any(0), kind="stable")] for side in (true, predicted))
    both, support = (true & predicted).sum(0), true.sum(0)
    f1 = quotient(2 * both, support + predicted.sum(0), 1.0)
    return float((f1 * support).sum() / support.sum()) if support.any() else math.nan


def macro_presence_f1(
    truth: npt.ArrayLike, prediction: npt.ArrayLike, absent: Literal["one", "in_truth"] = "one"
) -> float:
    """Mean F1 of the classes of one video, 0 to 1; NaN of no class.

    Args:
        truth: bool, (frame, class).
        prediction: as truth.
        absent: `one`: every class counts, and one in neither has 1, as scikit-learn's zero_division=1; `in_truth`:
            those that the truth has.
    """
    true, predicted = np.asarray(truth, bool), np.asarray(prediction, bool)
    total = true.sum(0) + predicted.sum(0)
    f1 = np.where(total > 0, 2 * (true & predicted).sum(0) / np.maximum(total, 1), 1.0)
    counted = f1[true.any(0)] if absent == "in_truth" else f1
    return float(counted.mean()) if counted.size else math.nan


def sar_rarp_score(first: float, second: float) -> float:
    """SAR-RARP50's score: root of the product of means such as accuracy and F1@10."""
    return math.sqrt(first * second)


def skill_correlation(truth: npt.ArrayLike, prediction: npt.ArrayLike) -> float:
    """Spearman's rho of a fold, -1 to 1; 0 if constant, NaN below two."""
    from scipy.stats import rankdata

    true, predicted = np.asarray(truth, np.float64), np.asarray(prediction, np.float64)
    if len(true) < 2:
        return math.nan
    ranks = rankdata(true), rankdata(predicted)
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def fisher_mean(correlations: Sequence[float]) -> float:
    """Mean correlation by Fisher's z; an exact 1 or -1 dominates."""
    with np.errstate(divide="ignore"):
        return float(np.tanh(np.mean(np.arctanh(np.asarray(correlations, np.float64)))))
