"""How clicks miss: MedSPOT's kinds of failure, and which of them ended a task."""

from __future__ import annotations

import math

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import error_metric, error_summary
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.vqa.grounding import in_box
from medimg_eval.metrics.vqa.question_sets import Answers, sets_of

SOURCE = "MedSPOT, its Evaluation_scripts"

FAILURES = ("no_prediction", "small_target", "near_miss", "edge_bias", "toolbar_confusion", "far_miss")
"""Kinds of failure in the order in which they are looked for, of which the first that fits is meant."""

SMALL = 4e-4
"""Share of the image below which a target is small."""

GROWN, EDGE, TOOLBAR = 1.5, 0.05, 0.12
"""How much a target grows for a near miss; share of the width that is an edge, and of the height that is a toolbar."""


@error_metric(kind="answer", title="Click failure", source=SOURCE, worst=1.0, intermediate=True)
def click_failure(pair: AnsweredQuestion) -> float:
    """The kind of failure of a click, as a number: 0 of a hit, else the place in MedSPOT's list, from 1.

    1 no point was given; 2 the target is smaller than 0.04 % of the image, whatever the miss; 3 the point lies in the
    target grown by half about its centre; 4 within 5 % of the width from the left or right edge; 5 in the upper 12 %;
    6 elsewhere. NaN for other kinds of questions, and without the image's `size`. Evidence for `first_failure`.
    """
    size = pair.more.get("size")
    if pair.kind != "point" or size is None:
        return math.nan
    if in_box(pair, float(pair.more.get("patch", 0))):
        return 0.0
    try:
        x, y = (float(number) for number in pair.extraction.value)
    except (TypeError, ValueError):
        return 1.0
    if not math.isfinite(x + y):
        return 1.0
    return float(1 + FAILURES.index(kind_of_miss((x, y), pair.value, size)))


def kind_of_miss(point: tuple[float, float], box: tuple[float, ...], size: tuple[float, float]) -> str:
    """The kind of failure of a point that missed a box x1, y1, x2, y2, in pixels."""
    (x, y), (left, top, right, bottom), (width, height) = point, map(float, box), map(float, size)
    if (right - left) / width * (bottom - top) / height < SMALL:
        return "small_target"
    middle, half = ((left + right) / 2, (top + bottom) / 2), ((right - left) / 2 * GROWN, (bottom - top) / 2 * GROWN)
    across = max(0.0, middle[0] - half[0]) <= x <= min(width, middle[0] + half[0])
    if across and max(0.0, middle[1] - half[1]) <= y <= min(height, middle[1] + half[1]):
        return "near_miss"
    if x < EDGE * width or x > (1 - EDGE) * width:
        return "edge_bias"
    return "toolbar_confusion" if y < TOOLBAR * height else "far_miss"


def _refuse_unknown(kind: str) -> None:
    UsageError.refuse_invalid("kind of failure of a click", FAILURES, kind)


@error_summary(
    needs=("click_failure",),
    title="First failure",
    source=SOURCE,
    parameter="kind of failure",
    parameter_is_text=True,
    check=_refuse_unknown,
)
def first_failure(rows: ScoreTable, kind: str) -> float:
    """The share of the tasks that failed whose first wrong step failed in one way, such as `near_miss`.

    Tasks are sets, and their steps its members in order. Over the six kinds the shares add up to 1; NaN where no task
    failed.
    """
    judged = Answers(rows, "click_failure")
    sets = sets_of(judged)
    if not len(sets.starts):
        return math.nan
    codes = judged.value[sets.order]
    positions = np.where(codes > 0, np.arange(len(codes)), len(codes))
    first = np.minimum.reduceat(positions, sets.starts)
    ended = first < np.append(sets.starts[1:], len(codes))
    return float(np.mean(codes[first[ended]] == 1 + FAILURES.index(kind))) if ended.any() else math.nan
