"""Metrics of detectors: which candidates hit a finding, FROC and CPM by LUNA16's protocol, average precision.

A candidate is a point or a box with a confidence. Each case leaves rows: one per candidate, with the status "hit",
"false" or "ignored", and the numbers of its lesions and of those that no candidate hit. Summaries are computed from
the rows of all cases of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, metric, summary
from medimg_eval.metrics.scores import LabelScore
from medimg_eval.metrics.segmentation import ratio

Floats = npt.NDArray[np.float64]

LUNA16 = "Setio et al., Med Image Anal 2017, doi 10.1016/j.media.2017.06.015, and its noduleCADEvaluationLUNA16.py"
VOC = "Everingham et al., Int J Comput Vis 2015, doi 10.1007/s11263-014-0733-5"
CPM_RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""False positives per scan whose sensitivities make up CPM."""

_UNKNOWN_DIAMETER = 10.0
"""mm: what LUNA16's code takes a finding of unknown size (a diameter below 0) for."""


@dataclass(frozen=True)
class DetectionRule:
    """Which candidates hit which findings.

    Attributes:
        matching: "radius": a candidate hits every finding whose centre is less than the finding's radius away;
            the most confident one of a finding counts, the others are ignored (LUNA16). "iou": candidates in the
            order of their confidence each hit the finding of the largest IoU, of those that are still free; what
            is left is false (PASCAL VOC, COCO).
        threshold: Of "iou": the least IoU of a hit.
        limit: At most so many candidates per case and label: if there are more, those that are more confident
            than the first one too many, as in LUNA16's code; None for all.
    """

    matching: Literal["radius", "iou"] = "radius"
    threshold: float = 0.5
    limit: int | None = None

    @classmethod
    def of(cls, wanted: DetectionRule | str | Mapping[str, Any]) -> DetectionRule:
        """Returns a rule given as itself, as "luna16" or "iou", or as in a config (`{preset: iou, threshold: 0.1}`).

        Raises:
            UsageError: There is no such preset or key, or a value cannot be meant.
        """
        if isinstance(wanted, DetectionRule):
            return wanted
        if isinstance(wanted, str):
            if wanted not in PRESETS:
                raise UsageError(f"There is no matching of detections called {wanted!r}{nearest(wanted, PRESETS)}")
            return PRESETS[wanted]
        if not isinstance(wanted, Mapping):
            raise UsageError(f"Expected matching to be a preset's name or a mapping, got {wanted!r}")
        stated = dict(wanted)
        start = cls.of(stated.pop("preset", "luna16"))
        known = [one.name for one in fields(cls)]
        for key in stated:
            if key not in known:
                raise UsageError(f"matching: there is no {key!r}{nearest(key, (*known, 'preset'))}")
        rule = replace(start, **stated)
        if rule.matching not in ("radius", "iou"):
            raise UsageError(f"matching: there is no {rule.matching!r}{nearest(rule.matching, ('radius', 'iou'))}")
        if not isinstance(rule.threshold, int | float) or not 0 < rule.threshold <= 1:
            raise UsageError(f"Expected matching.threshold to be an IoU above 0, at most 1, got {rule.threshold!r}")
        if rule.limit is not None and not (isinstance(rule.limit, int) and rule.limit >= 1):
            raise UsageError(f"Expected matching.limit to be at least 1, or null for all, got {rule.limit!r}")
        return rule

    def describe(self) -> str:
        """Says the rule in words, for the footnote of a table."""
        words = "distance to the centre < radius" if self.matching == "radius" else f"IoU >= {self.threshold:g}"
        return f"hit: {words}" + (f", at most {self.limit} candidates a case" if self.limit else "")


PRESETS: Mapping[str, DetectionRule] = {
    "luna16": DetectionRule(limit=100),
    "iou": DetectionRule(matching="iou"),
}


class Detections(NamedTuple):
    """The candidates of one label of one case, judged.

    Attributes:
        confidences: float64 (row,).
        statuses: Of each "hit", "false" or "ignored". A candidate that hits two findings has two rows.
        lesions: How many findings there were to hit.
    """

    confidences: Floats
    statuses: tuple[str, ...]
    lesions: int

    @property
    def missed(self) -> int:
        """How many findings no candidate hit."""
        return self.lesions - self.statuses.count("hit")


def judged_points(
    candidates: Floats,
    confidences: Floats,
    centres: Floats,
    diameters: Floats,
    counted: npt.NDArray[np.bool_],
    rule: DetectionRule,
) -> Detections:
    """Judges points by their distance to the findings' centres, as LUNA16 does.

    Args:
        candidates: (candidate, axes) in mm.
        confidences: (candidate,).
        centres: (finding, axes) in mm.
        diameters: (finding,) in mm; below 0 or NaN where it is not known, which is taken for 10 mm.
        counted: (finding,): False for findings that need not be found; candidates on them are ignored.
        rule: Of which the `limit` is used.
    """
    candidates, confidences = _limited(candidates, confidences, rule)
    known = np.where(np.isnan(diameters) | (diameters < 0), _UNKNOWN_DIAMETER, diameters)
    apart = np.linalg.norm(candidates[:, None] - centres[None], axis=2)
    hits = apart < known / 2
    return _dealt(hits, confidences, counted)


def _dealt(hits: npt.NDArray[np.bool_], confidences: Floats, counted: npt.NDArray[np.bool_]) -> Detections:
    """Each finding takes its most confident candidate; other candidates on a finding are ignored, the rest false."""
    values: list[float] = []
    statuses: list[str] = []
    best = set()
    for finding in np.flatnonzero(counted & hits.any(axis=0)):
        on = np.flatnonzero(hits[:, finding])
        chosen = int(on[np.argmax(confidences[on])])
        best.add(chosen)
        values.append(float(confidences[chosen]))
        statuses.append("hit")
    for at, findings in enumerate(hits):
        if at not in best:
            values.append(float(confidences[at]))
            statuses.append("ignored" if findings.any() else "false")
    return Detections(np.array(values, float), tuple(statuses), int(counted.sum()))


def judged_boxes(
    candidates: Floats,
    confidences: Floats,
    boxes: Floats,
    counted: npt.NDArray[np.bool_],
    rule: DetectionRule,
) -> Detections:
    """Judges boxes by their IoU with the findings' boxes.

    Candidates choose in the order of their confidence (of equal ones, in their own order). One that reaches the
    threshold with no free finding is ignored if it does with one that need not be found, else false.

    Args:
        candidates: (candidate, 2 * axes): the lower edges, then the upper ones.
        confidences: (candidate,).
        boxes: (finding, 2 * axes).
        counted: (finding,): False for findings that need not be found.
        rule: Whose `threshold` and `limit` are used.
    """
    candidates, confidences = _limited(candidates, confidences, rule)
    ious = box_ious(candidates, boxes)
    free = counted.copy()
    statuses = ["false"] * len(candidates)
    for at in np.argsort(-confidences, kind="stable"):
        reached = ious[at] >= rule.threshold
        if (reached & free).any():
            free[np.argmax(np.where(free, ious[at], -1.0))] = False
            statuses[at] = "hit"
        elif (reached & ~counted).any():
            statuses[at] = "ignored"
    return Detections(confidences, tuple(statuses), int(counted.sum()))


def box_ious(ones: Floats, others: Floats) -> Floats:
    """Returns the IoU of each box with each other, (one, other), in 2-D or 3-D.

    Args:
        ones: (one, 2 * axes): the lower edges along each axis, then the upper ones, in any unit.
        others: (other, 2 * axes).

    >>> box_ious(np.array([[0, 0, 2, 2]]), np.array([[1, 0, 3, 2], [5, 5, 6, 6]])).round(4).tolist()
    [[0.3333, 0.0]]
    """
    axes = ones.shape[1] // 2
    low = np.maximum(ones[:, None, :axes], others[None, :, :axes])
    high = np.minimum(ones[:, None, axes:], others[None, :, axes:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    sizes, other_sizes = ((boxes[:, axes:] - boxes[:, :axes]).prod(axis=1) for boxes in (ones, others))
    union: Floats = sizes[:, None] + other_sizes[None] - shared
    return quotient(shared, union, 0.0)


def _limited(candidates: Floats, confidences: Floats, rule: DetectionRule) -> tuple[Floats, Floats]:
    if rule.limit is None or len(confidences) <= rule.limit:
        return candidates, confidences
    kept = confidences > np.sort(confidences)[::-1][rule.limit]
    return candidates[kept], confidences[kept]


def detection_scores(
    label: str, found: Detections, metrics: tuple[str, ...], status: str | None = None
) -> list[LabelScore]:
    """Returns the rows of one label of one case.

    Args:
        label: Its name.
        found: Its candidates, judged.
        metrics: Which of "detection_score", "n_reference_lesions", "false_negatives" and "detection_recall".
        status: Of a case that failed; otherwise as in `LabelScore`, and of a candidate its own.
    """
    scores = []
    if "detection_score" in metrics:
        rows = zip(found.confidences.tolist(), found.statuses, strict=True)
        scores = [LabelScore(label, "detection_score", detection_score(value), how) for value, how in rows]
    if status is None:
        held = {(True, True): "present", (True, False): "missed", (False, True): "hallucinated"}
        status = held.get((found.lesions > 0, len(found.confidences) > 0), "absent")
    functions = {
        "n_reference_lesions": n_reference_lesions,
        "false_negatives": false_negatives,
        "detection_recall": detection_recall,
    }
    return scores + [LabelScore(label, name, functions[name](found), status) for name in metrics if name in functions]


_evidence = partial(metric, kind="detection", source=LUNA16, intermediate=True, worst=math.nan, best=math.nan)


@_evidence(title="Confidence", higher_is_better=True)
def detection_score(confidence: float) -> float:
    """The confidence of one candidate; its status says whether it is a "hit", "false" or "ignored"."""
    return confidence


@_evidence(title="Lesions", higher_is_better=True, value_kind="count")
def n_reference_lesions(found: Detections) -> float:
    """How many findings of a case a detector is to find."""
    return float(found.lesions)


@_evidence(title="Missed lesions", higher_is_better=False, value_kind="count")
def false_negatives(found: Detections) -> float:
    """How many findings of a case no candidate hit."""
    return float(found.missed)


@metric(kind="detection", title="Detection recall", higher_is_better=True, best=1.0, worst=0.0, source=LUNA16)
def detection_recall(found: Detections) -> float:
    """The share of a case's findings that some candidate hit, at any confidence.

    In [0, 1]; NaN for a case without findings. How many false candidates that took is not asked.
    """
    return ratio(found.lesions - found.missed, found.lesions)


_curve = partial(summary, needs=("detection_score", "n_reference_lesions"), higher_is_better=True, best=1.0)


def _weighed(area: Callable[..., Floats]) -> Callable[..., Callable[[Floats], Floats] | None]:
    """Returns what `summary` takes as `weighed`, from what takes points of many resamples and the parameter."""

    def weighed(rows: ScoreTable, *arguments: float) -> Callable[[Floats], Floats] | None:
        # A case that left no row counts as a scan too, and nothing says how often a resample holds it.
        silent = rows.cases - np.unique(rows.case).size
        return None if silent else _judge(rows, lambda points: area(points, *arguments))

    return weighed


def _mean_sensitivity(points: _Points) -> Floats:
    return np.asarray(_sensitivities(points, CPM_RATES).mean(axis=1), dtype=np.float64)


def _sensitivity(points: _Points, rate: float) -> Floats:
    return _sensitivities(points, (rate,))[:, 0]


def _sensitivities(points: _Points, rates: Sequence[float]) -> Floats:
    """Returns the sensitivity at each rate of false positives per scan, (resample, rate)."""
    curves = zip(points.false / points.scans[:, None], points.hits / points.lesions[:, None], strict=True)
    return np.array([np.interp(rates, false, found) for false, found in curves]).reshape(-1, len(rates))


def _area(points: _Points) -> Floats:
    """Returns the area under the precision-recall curve, (resample,)."""
    recall = points.hits / points.lesions[:, None]
    hits, above = points.hits[:, 1:], (points.hits + points.false)[:, 1:]
    precision = quotient(hits, above, 0.0)
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((np.diff(recall, axis=1) * best).sum(axis=1), dtype=np.float64)


@_curve(title="CPM", source=LUNA16, weighed=_weighed(_mean_sensitivity))
def cpm(rows: ScoreTable) -> float:
    """The mean sensitivity at 1/8, 1/4, 1/2, 1, 2, 4 and 8 false positives per scan: the competition metric of LUNA16.

    In [0, 1]; NaN without a finding. Of several labels the mean.
    """
    return _value(rows, _mean_sensitivity)


@_curve(title="FROC", source=LUNA16, parameter="false positives per scan", weighed=_weighed(_sensitivity))
def froc(rows: ScoreTable, rate: float) -> float:
    """The sensitivity at so many false positives per scan, on the FROC curve.

    The curve joins (false positives per scan, sensitivity) at every confidence from the highest down, beginning
    at (0, 0); equal confidences are one point. Between points it is linear, and flat after the last. Ignored
    candidates do not count. In [0, 1]; NaN without a finding. Of several labels the mean.
    """
    return _value(rows, lambda points: _sensitivity(points, rate))


@_curve(title="AP", source=VOC, weighed=_weighed(_area))
def average_precision(rows: ScoreTable) -> float:
    """The area under the precision-recall curve, where the precision at a recall is the best at that recall or above.

    Over all points of the curve, at the task's threshold of IoU or distance; ignored candidates do not count. In
    [0, 1]; NaN without a finding. Of several labels the mean (mAP).
    """
    return _value(rows, _area)


def _value(rows: ScoreTable, area: Callable[[_Points], Floats]) -> float:
    """Returns the value of rows that each count once."""
    return float(_judge(rows, area)(np.ones((1, rows.value.size)))[0])


class _Points(NamedTuple):
    """What lies above each confidence, from the highest down, in each resample; first nothing, at infinity."""

    hits: Floats  # (resample, level)
    false: Floats  # (resample, level)
    lesions: Floats  # (resample,)
    scans: Floats  # (resample,)


def _judge(rows: ScoreTable, area: Callable[[_Points], Floats]) -> Callable[[Floats], Floats]:
    """Returns a function of how often each row counts, (resample, row), that returns the mean over labels, (resample,).

    Labels without findings are left out; NaN where none has any.
    """
    found, first = np.unique(rows.case, return_index=True)
    silent = rows.cases - found.size
    points = [_points_of(rows, np.flatnonzero(rows.label == label)) for label in np.unique(rows.label)]

    def judge(times: Floats) -> Floats:
        scans = times[:, first].sum(axis=1) + silent
        values, known = np.zeros(len(times)), np.zeros(len(times))
        for of_label in points:
            one = of_label(times, scans)
            held = one.lesions > 0
            values[held] += area(one if held.all() else _Points(*(part[held] for part in one)))
            known += held
        return quotient(values, known)

    return judge


def _points_of(rows: ScoreTable, places: npt.NDArray[np.intp]) -> Callable[[Floats, Floats], _Points]:
    """Returns what counts hits and false candidates of one label, (resample, row) and scans to points.

    Cases whose findings are not known are left out.
    """
    held = places[rows.metric[places] == "n_reference_lesions"]
    unknown, held = held[np.isnan(rows.value[held])], held[~np.isnan(rows.value[held])]
    candidates = places[(rows.metric[places] == "detection_score") & (rows.status[places] != "ignored")]
    candidates = candidates[~np.isin(rows.case[candidates], rows.case[unknown])]
    order = candidates[np.argsort(-rows.value[candidates], kind="stable")]
    hit = rows.status[order] == "hit"
    last = np.flatnonzero(np.append(np.diff(rows.value[order]) != 0, True)) if order.size else np.zeros(0, np.intp)

    def points(times: Floats, scans: Floats) -> _Points:
        counted = times[:, order]
        hits, false = (np.pad(np.cumsum(counted * which, axis=1)[:, last], ((0, 0), (1, 0))) for which in (hit, ~hit))
        return _Points(hits, false, times[:, held] @ rows.value[held], scans - times[:, unknown].sum(axis=1))

    return points
