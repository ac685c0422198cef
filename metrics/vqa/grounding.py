"""Metrics of answers that are right by degrees: boxes, points, numbers, named regions, grades.

Boxes are (x1, y1, x2, y2), in 3-D (x1, y1, z1, x2, y2, z2), in one unit on both sides, the far edges outside. An answer
that was not given or not understood is worth 0; questions of other kinds are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share, share_summary
from medimg_eval.metrics.detection import box_ious
from medimg_eval.metrics.nlp import normalised
from medimg_eval.metrics.registry import ScoreTable, metric
from medimg_eval.metrics.segmentation import ratio

MEDSG = "MedSG-Bench"
MEDSPOT = "MedSPOT"
DEEP_TUMOR = "DeepTumorVQA, its eval/metrics.py"
LMOD = "Qin et al. 2024 (LMOD)"

_TOLERANCE = 1e-9
"""How far a relative error may exceed its bound by rounding alone: |95 - 100| / 100 is within 5 %."""


@answer_share(title="Box IoU", source=MEDSG)
def box_iou(pair: AnsweredQuestion) -> float:
    """The intersection over union of the answered and the right box.

    In [0, 1]. Several right boxes: the best. A box whose edges are the wrong way round has no area.
    """
    if pair.kind != "box":
        return math.nan
    given_box = read_numbers(pair.extraction.value, 4)
    several = isinstance(pair.value, Sequence) and len(pair.value) > 0 and isinstance(pair.value[0], Sequence)
    right = pair.value if several else [pair.value]
    return 0.0 if given_box is None else float(box_ious(given_box[None], np.array(right, float)).max())


@answer_share(title="IoU", source=MEDSG, parameter="least IoU", parameter_most=1.0, value_kind="proportion")
def iou_at(pair: AnsweredQuestion, least: float) -> float:
    """Whether the answered box has at least so large an intersection over union with the right one.

    MedSG-Bench prints `iou_at@0.7`, `iou_at@0.5` and `iou_at@0.3` beside the mean, which is `box_iou`.
    """
    iou = box_iou(pair)
    return math.nan if math.isnan(iou) else float(iou >= least)


@answer_share(title="Box IoU (3-D)", source="3DReasonKnee")
def box3d_iou(pair: AnsweredQuestion) -> float:
    """The mean over the right boxes in 3-D of the intersection over union with the answered box of the same name.

    Boxes are name -> (x1, y1, z1, x2, y2, z2), or a single one without a name, which is compared with the only box of
    the answer. In [0, 1]; a name that the answer lacks has 0, and names that only the answer has count for nothing.
    """
    if pair.kind != "boxes3d":
        return math.nan
    if not isinstance(pair.value, Mapping):
        return iou_3d(_only_box(pair.extraction.value), pair.value)
    boxes = pair.extraction.value if isinstance(pair.extraction.value, Mapping) else {}
    named = {normalised(str(name)): box for name, box in boxes.items()}
    ious = [iou_3d(named.get(normalised(str(name))), box) for name, box in pair.value.items()]
    return float(np.mean(ious)) if ious else math.nan


def _only_box(answer: Any) -> Any:
    """Returns the only box of an answer; else None."""
    if not isinstance(answer, Mapping):
        return answer
    boxes = [box for box in answer.values() if read_numbers(box, 6) is not None]
    return boxes[0] if len(boxes) == 1 else None


def iou_3d(answer: Any, right: Any) -> float:
    """Returns IoU of (x1, y1, z1, x2, y2, z2) boxes; else 0."""
    numbers = read_numbers(answer, 6)
    return 0.0 if numbers is None else float(box_ious(numbers[None], np.array([right], float))[0, 0])


@answer_share(
    title="Point in box",
    source=MEDSPOT,
    parameter="side of a patch in pixels",
    parameter_optional=True,
    value_kind="proportion",
)
def point_in_box(pair: AnsweredQuestion, patch: float = 0.0) -> float:
    """Whether the answered point lies in the right box, or a square patch around it touches the box.

    The edges belong to the box. MedSPOT's authors take a patch of 14 x 14 pixels: `point_in_box@14`, which forgives 7
    pixels to each side.
    """
    return in_box(pair, patch) if pair.kind == "point" else math.nan


def in_box(pair: AnsweredQuestion, patch: float) -> float:
    """Returns whether a point lies in the patch-widened box."""
    point = read_numbers(pair.extraction.value, 2)
    if point is None:
        return 0.0
    box = np.array(pair.value, float)
    return float(bool(np.all(point >= box[:2] - patch / 2) and np.all(point <= box[2:] + patch / 2)))


@answer_share(title="Relative accuracy", source=DEEP_TUMOR)
def relative_accuracy(pair: AnsweredQuestion) -> float:
    """One less the relative error of the answered number, |answer - right| / |right|, and at least 0.

    DeepTumorVQA calls its mean MRA. In [0, 1]; where 0 is right, 1 for 0 and otherwise 0.
    """
    error = _relative_error(pair)
    return error if math.isnan(error) else max(0.0, 1 - error)


@answer_share(title="Within %", source=DEEP_TUMOR, parameter="tolerance in %", value_kind="proportion")
def accuracy_within_percent(pair: AnsweredQuestion, percent: float) -> float:
    """Whether the relative error of the answered number is at most so many per cent.

    DeepTumorVQA prints `accuracy_within_percent@5`, @10, @20 and @50. Where 0 is right, only 0 is within.
    """
    error = _relative_error(pair)
    return error if math.isnan(error) else float(error <= percent / 100 + _TOLERANCE)


@answer_share(title="In range", source="CXReasonBench", value_kind="proportion")
def accuracy_in_range(pair: AnsweredQuestion) -> float:
    """Whether the answered number lies between the limits `low` and `high` that the answer key gives, both included.

    NaN for questions without limits. A limit that is lacking does not bind.
    """
    limits = limits_of(pair)
    return math.nan if pair.kind != "number" or limits is None else in_limits(pair, *limits)


def limits_of(pair: AnsweredQuestion) -> tuple[float, float] | None:
    """Returns right limits of a number; None where neither exists."""
    if "low" not in pair.more and "high" not in pair.more:
        return None
    return float(pair.more.get("low", -math.inf)), float(pair.more.get("high", math.inf))


def in_limits(pair: AnsweredQuestion, low: float, high: float) -> float:
    """Returns whether a number lies within limits; 0 without one."""
    number = _first_number(pair.extraction.value)
    return float(number is not None and low <= number <= high)


def _relative_error(pair: AnsweredQuestion) -> float:
    """Returns a number's relative error: infinite missing, NaN unjudgeable."""
    right = _first_number(pair.value)
    if pair.kind != "number" or right is None:
        return math.nan
    number = _first_number(pair.extraction.value)
    if number is None or (right == 0 and number != 0):
        return math.inf
    return 0.0 if number == right else abs(number - right) / abs(right)


@answer_share(title="Grades", source="3DReasonKnee; rule of its scoring not published")
def grade_accuracy(pair: AnsweredQuestion) -> float:
    """The share of the named grades that were answered right.

    Grades are name -> grade, or nested: region -> criterion -> grade. Numbers are compared as numbers, texts without
    case and punctuation. In [0, 1]; a grade that the answer lacks is wrong, further ones count for nothing. One name
    around all of an answer, as in {"scores": {...}}, does not matter.
    """
    if pair.kind != "grades":
        return math.nan
    answer = pair.extraction.value
    while isinstance(answer, Mapping) and len(answer) == 1 and not answer.keys() & pair.value.keys():
        (answer,) = answer.values()
    given_grades, right = dict(_grade_leaves(answer)), dict(_grade_leaves(pair.value))
    return ratio(sum(name in given_grades and given_grades[name] == grade for name, grade in right.items()), len(right))


@answer_share(
    title="Grade",
    source="Med-RewardBench: one winner for each dimension",
    parameter="which",
    parameter_is_text=True,
    value_kind="proportion",
)
def grade(pair: AnsweredQuestion, name: str) -> float:
    """Whether one of the named grades was answered right.

    NaN where the key holds none of that name.
    """
    if pair.kind != "grades" or name not in pair.value:
        return math.nan
    grades = pair.extraction.value
    return float(isinstance(grades, Mapping) and grades.get(name) == pair.value[name])


@answer_share(title="Hallucination resistance", source=LMOD, worst=math.nan, value_kind="bounded")
def region_precision_ids(pair: AnsweredQuestion) -> float:
    """The share of the regions that an answer names which the picture has: 1 - invented ids / named ids.

    In [0, 1]; NaN for an answer that names none, as the authors leave those out: see `unanswered`.
    """
    if pair.kind != "regions":
        return math.nan
    given_regions, right = _region_types(pair.extraction.value), _region_types(pair.value)
    return ratio(len(given_regions.keys() & right.keys()), len(given_regions))


_evidence = partial(metric, kind="answer", source=LMOD, intermediate=True, best=math.nan, worst=math.nan)


@_evidence(title="Regions right", higher_is_better=True, value_kind="count")
def regions_right(pair: AnsweredQuestion) -> float:
    """How many regions an answer names rightly: id and type.

    Evidence for `region_precision`, `region_recall` and `region_f1`.
    """
    if pair.kind != "regions":
        return math.nan
    return float(len(_region_types(pair.extraction.value).items() & _region_types(pair.value).items()))


@_evidence(title="Regions named", higher_is_better=True, value_kind="count")
def regions_named(pair: AnsweredQuestion) -> float:
    """How many regions an answer names, each id once.

    Evidence for `region_precision` and `region_f1`.
    """
    return float(len(_region_types(pair.extraction.value))) if pair.kind == "regions" else math.nan


@_evidence(title="Regions due", higher_is_better=True, value_kind="count")
def regions_reference(pair: AnsweredQuestion) -> float:
    """How many regions there are to name.

    Evidence for `region_recall` and `region_f1`.
    """
    return float(len(_region_types(pair.value))) if pair.kind == "regions" else math.nan


_of_regions = partial(share_summary, source=LMOD)


@_of_regions(needs=("regions_right", "regions_named"), title="Precision")
def region_precision(rows: ScoreTable) -> float:
    """The share of all regions named in the test set whose id and type are right.

    In [0, 1]; NaN where no answer names any.
    """
    return ratio(_total_value(rows, "regions_right"), _total_value(rows, "regions_named"))


@_of_regions(needs=("regions_right", "regions_reference"), title="Recall")
def region_recall(rows: ScoreTable) -> float:
    """The share of all regions of the test set that were named rightly.

    In [0, 1]; answers that were not given or not understood name none.
    """
    return ratio(_total_value(rows, "regions_right"), _total_value(rows, "regions_reference"))


@_of_regions(needs=("regions_right", "regions_named", "regions_reference"), title="F1")
def region_f1(rows: ScoreTable) -> float:
    """The harmonic mean of `region_precision` and `region_recall`.

    In [0, 1]; 0 where no answer names any region.
    """
    return ratio(
        2 * _total_value(rows, "regions_right"),
        _total_value(rows, "regions_named") + _total_value(rows, "regions_reference"),
    )


def _total_value(rows: ScoreTable, name: str) -> float:
    return float(np.nansum(rows.of(name).value))


def _first_number(value: Any) -> float | None:
    numbers = read_numbers([value], 1)
    return None if numbers is None else float(numbers[0])


def read_numbers(value: Any, count: int) -> Any:
    """Returns a fixed count of finite numbers; None otherwise."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.shape == (count,) and np.isfinite(array).all() else None


def _region_types(value: Any) -> dict[str, str]:
    """Returns region id -> type, normalised."""
    if not isinstance(value, Mapping):
        return {}
    return {_normalise_id(name): normalised(str(kind)) for name, kind in value.items()}


def _normalise_id(name: Any) -> str:
    text = str(name).strip()
    return str(int(text)) if text.isdecimal() else normalised(text)


def _grade_leaves(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields grades of a nested mapping with their keys."""
    if not isinstance(value, Mapping):
        if above:
            number = _first_number(value)
            yield above, normalised(str(value)) if number is None else number
        return
    for name, below in value.items():
        yield from _grade_leaves(below, (*above, normalised(str(name))))
