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
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Bools, Floats, Places
from medimg_eval.metrics.declarations import share_metric, share_summary
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, metric
from medimg_eval.metrics.scores import LabelScore
from medimg_eval.metrics.segmentation import ratio

LUNA16 = "Setio et al., Med Image Anal 2017, doi 10.1016/j.media.2017.06.015, and its noduleCADEvaluationLUNA16.py"
VOC = "Everingham et al., Int J Comput Vis 2015, doi 10.1007/s11263-014-0733-5"
CPM_RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""False positives per scan whose sensitivities make up CPM."""

CAMELYON16 = "Ehteshami Bejnordi et al., JAMA 2017, doi 10.1001/jama.2017.14585, and its Evaluation_FROC.py"
MIDOG = "Aubreville et al., Med Image Anal 2023, doi 10.1016/j.media.2022.102699, and its evaluation container"
CAMELYON_RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""False positives per slide whose sensitivities make up CAMELYON16's score."""

_UNKNOWN_DIAMETER = 10.0
"""mm: what LUNA16's code takes a finding of unknown size (a diameter below 0) for."""


Matching = Literal["radius", "iou", "nearest", "region", "coco"]


@dataclass(frozen=True)
class DetectionRule:
    """Which candidates hit which findings.

    Attributes:
        matching: "radius": a candidate hits every finding whose centre is less than the finding's radius away;
            the most confident one of a finding counts, the others are ignored (LUNA16). "iou": candidates in the
            order of their confidence each hit the finding of the largest IoU, of those that are still free; what
            is left is false (PASCAL VOC). "nearest": each finding in turn takes the nearest candidate
            within the radius, that distance included, which no finding before took; what is left is false (MIDOG).
            "region": a candidate hits the lesion of a mask on which it lies; the most confident one of a lesion
            counts, the others are ignored (CAMELYON16). "coco": as `medimg_eval.metrics.coco` has it.
        threshold: Of "iou": the least IoU of a hit.
        limit: At most so many candidates per case and label: if there are more, those that are more confident
            than the first one too many, as in LUNA16's code; None for all.
        radius_um: Of "radius" and "nearest": how many micrometres from a finding's centre a hit may be, whatever the
            finding's size; None for the finding's own radius.
        least_score: Candidates of less confidence are left out before anything is matched; None keeps all.
        margin_um: Of "region": by how many micrometres lesions are grown before they are told apart.
        smallest_um: Of "region": lesions whose major axis is shorter, grown as they are, need not be found, as
            isolated tumour cells.
        masks: Of "coco": whether the IoU is that of masks instead of boxes.
    """

    matching: Matching = "radius"
    threshold: float = 0.5
    limit: int | None = None
    radius_um: float | None = None
    least_score: float | None = None
    margin_um: float = 37.5
    smallest_um: float = 275.0
    masks: bool = False

    @classmethod
    def of(cls, wanted: DetectionRule | str | Mapping[str, Any]) -> DetectionRule:
        """Returns a rule from itself, a preset or a config.

        Examples are "luna16", "iou" and `{preset: iou, threshold: 0.1}`.

        Raises:
            UsageError: There is no such preset or key, or a value is invalid.
        """
        if isinstance(wanted, DetectionRule):
            return wanted
        if isinstance(wanted, str):
            UsageError.refuse_invalid("matching of detections", PRESETS, wanted)
            return PRESETS[wanted]
        if not isinstance(wanted, Mapping):
            raise UsageError(f"Expected matching to be a preset's name or a mapping, got {wanted!r}")
        stated = dict(wanted)
        start = cls.of(stated.pop("preset", "luna16"))
        names = [*(field.name for field in fields(cls)), "preset"]
        UsageError.refuse_invalid("matching: key", names, *stated)
        rule = replace(start, **stated)
        rule.check()
        return rule

    def check(self) -> None:
        """Raises UsageError for an invalid value."""
        UsageError.refuse_invalid("matching", get_args(Matching), self.matching)
        for key in ("radius_um", "margin_um", "smallest_um", "least_score"):
            value = getattr(self, key)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if value is not None and not (number and (value >= 0 or key == "least_score")):
                raise UsageError(f"Expected matching.{key} to be a number, of micrometres at least 0, got {value!r}")
        if self.matching == "nearest" and self.radius_um is None:
            raise UsageError("Expected matching.radius_um with matching 'nearest': 7.5 is that of MIDOG, got none")
        if not isinstance(self.threshold, int | float) or not 0 < self.threshold <= 1:
            raise UsageError(f"Expected matching.threshold to be an IoU above 0, at most 1, got {self.threshold!r}")
        if self.matching == "coco" and (self.threshold, self.limit, self.least_score) != (0.5, None, None):
            raise UsageError(
                "matching: COCO's protocol sets IoUs and limits; leave out threshold, limit and least_score"
            )
        if self.masks and self.matching != "coco":
            raise UsageError(f"matching.masks is of COCO's protocol, not of {self.matching!r}")
        if self.limit is not None and not (isinstance(self.limit, int) and self.limit >= 1):
            raise UsageError(f"Expected matching.limit to be at least 1, or null for all, got {self.limit!r}")

    @property
    def measures_um(self) -> bool:
        """Whether hits are measured in micrometres."""
        return self.matching == "region" or (not self.of_boxes and self.radius_um is not None)

    @property
    def of_boxes(self) -> bool:
        """Whether boxes are matched by their IoU."""
        return self.matching in ("iou", "coco")

    def describe(self) -> str:
        """Says the rule in words, for the footnote of a table."""
        words = {
            "radius": f"distance to the centre < {'radius' if self.radius_um is None else f'{self.radius_um:g} µm'}",
            "iou": f"IoU >= {self.threshold:g}",
            "nearest": f"nearest within {self.radius_um or 0:g} µm, one each",
            "coco": f"COCO's protocol for {'masks' if self.masks else 'boxes'} (at most 100, crowds ignored)",
            "region": f"on a lesion grown by {self.margin_um:g} µm; those < {self.smallest_um:g} µm ignored",
        }[self.matching]
        least = "" if self.least_score is None else f", confidence >= {self.least_score:g}"
        return f"hit: {words}{least}" + (f", at most {self.limit} candidates a case" if self.limit else "")


PRESETS: Mapping[str, DetectionRule] = {
    "luna16": DetectionRule(limit=100),
    "iou": DetectionRule(matching="iou"),
    "coco": DetectionRule(matching="coco"),
    "coco-masks": DetectionRule(matching="coco", masks=True),
    # github.com/DeepMicroscopy: score_detection(..., radius=7.5E-3) of evalutils.
    "midog": DetectionRule(matching="nearest", radius_um=7.5),
    # tupac.grand-challenge.org: several detections of one mitosis count once, as a hit.
    "tupac16": DetectionRule(radius_um=7.5),
    # github.com/computationalpathologygroup/Camelyon16: Evaluation_FROC.py; 75 µm is halved there.
    "camelyon16": DetectionRule(matching="region"),
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
    candidates: Floats, confidences: Floats, centres: Floats, diameters: Floats, counted: Bools, rule: DetectionRule
) -> Detections:
    """Judges points by their distance to the findings' centres, as LUNA16 does.

    Args:
        candidates: (candidate, axes) in mm.
        confidences: (candidate,).
        centres: (finding, axes) in mm.
        diameters: (finding,) in mm; below 0 or NaN where it is not known, which is taken for 10 mm.
        counted: (finding,): False for findings that need not be found; candidates on them are ignored.
        rule: Whose `matching` ("radius" or "nearest"), `radius_um`, `least_score` and `limit` are used.
    """
    candidates, confidences = _limit_candidates(candidates, confidences, rule)
    diameters_ = np.where(np.isnan(diameters) | (diameters < 0), _UNKNOWN_DIAMETER, diameters)
    radii = diameters_ / 2 if rule.radius_um is None else np.full(len(centres), rule.radius_um / 1000)
    apart = np.linalg.norm(candidates[:, None] - centres[None], axis=2)
    if rule.matching == "nearest":
        return _taken_in_turn(apart, radii, confidences, counted)
    return _assign_candidates(apart < radii, confidences, counted)


def _taken_in_turn(apart: Floats, radii: Floats, confidences: Floats, counted: Bools) -> Detections:
    """Assigns counted findings their nearest free candidate within reach."""
    statuses = np.full(len(confidences), "false", dtype="U7")
    for findings, status in ((np.flatnonzero(counted), "hit"), (np.flatnonzero(~counted), "ignored")):
        for finding in findings:
            near = np.flatnonzero((apart[:, finding] <= radii[finding]) & (statuses == "false"))
            if len(near):
                statuses[near[np.argmin(apart[near, finding])]] = status
    return Detections(confidences, tuple(statuses.tolist()), int(counted.sum()))


def judged_regions(
    candidates: Floats, confidences: Floats, lesions: Bools, spacing_um: Sequence[float], rule: DetectionRule
) -> Detections:
    """Scores points by the lesion they lie on, as CAMELYON16.

    Lesions are grown by the rule's margin, filled and separated where not even corners touch.

    Args:
        candidates: (candidate, 2): rows and columns, where a whole number is a pixel's centre; those outside are false.
        confidences: (candidate,).
        lesions: (row, column).
        spacing_um: micrometres per pixel along rows and columns.
        rule: Whose `margin_um`, `smallest_um`, `least_score` and `limit` are used.
    """
    from scipy.ndimage import binary_fill_holes, distance_transform_edt, label
    from skimage.measure import regionprops

    candidates, confidences = _limit_candidates(candidates, confidences, rule)
    if not lesions.any():
        return Detections(confidences, ("false",) * len(confidences), 0)
    grown = lesions | (distance_transform_edt(~lesions, sampling=spacing_um) < rule.margin_um)
    parts, count = label(binary_fill_holes(grown), np.ones((3, 3)))
    step = math.sqrt(math.prod(spacing_um))
    counted = np.array([part.axis_major_length * step >= rule.smallest_um for part in regionprops(parts)])
    voxels = np.floor(candidates + 0.5).astype(np.int64)
    within = ((voxels >= 0) & (voxels < lesions.shape)).all(axis=1)
    at = np.zeros(len(voxels), np.int64)
    at[within] = parts[tuple(voxels[within].T)]
    return _assign_candidates(at[:, None] == np.arange(1, count + 1), confidences, counted)


def _assign_candidates(hits: Bools, confidences: Floats, counted: Bools) -> Detections:
    """Assigns findings their most confident candidate, ignoring other hits."""
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
    candidates: Floats, confidences: Floats, boxes: Floats, counted: Bools, rule: DetectionRule
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
    candidates, confidences = _limit_candidates(candidates, confidences, rule)
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


def box_ious(ones: Floats, others: Floats, crowds: Bools | None = None) -> Floats:
    """Returns pairwise IoUs of 2-D or 3-D boxes, (one, other).

    Args:
        ones: (one, 2 * axes): the lower edges along each axis, then the upper ones, in any unit.
        others: (other, 2 * axes).
        crowds: (other,): those with which the union is the first box alone, as COCO takes it.

    >>> box_ious(np.array([[0, 0, 2, 2]]), np.array([[1, 0, 3, 2], [5, 5, 6, 6]])).round(4).tolist()
    [[0.3333, 0.0]]
    """
    axes = ones.shape[1] // 2
    low = np.maximum(ones[:, None, :axes], others[None, :, :axes])
    high = np.minimum(ones[:, None, axes:], others[None, :, axes:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    sizes, other_sizes = ((boxes[:, axes:] - boxes[:, :axes]).prod(axis=1) for boxes in (ones, others))
    union: Floats = sizes[:, None] + other_sizes[None] - shared
    if crowds is not None:
        union = np.where(crowds[None], sizes[:, None], union)
    return quotient(shared, union, 0.0)


def _limit_candidates(candidates: Floats, confidences: Floats, rule: DetectionRule) -> tuple[Floats, Floats]:
    if rule.least_score is not None:
        is_kept = confidences >= rule.least_score
        candidates, confidences = candidates[is_kept], confidences[is_kept]
    if rule.limit is None or len(confidences) <= rule.limit:
        return candidates, confidences
    is_kept = confidences > np.sort(confidences)[::-1][rule.limit]
    return candidates[is_kept], confidences[is_kept]


def detection_scores(
    label: str, found: Detections, metrics: tuple[str, ...], status: str | None = None
) -> list[LabelScore]:
    """Returns the rows of one label of one case.

    The status is as in `LabelScore`, and of a candidate its own, unless that of a failed case is given.
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


@share_metric(kind="detection", title="Detection recall", source=LUNA16)
def detection_recall(found: Detections) -> float:
    """The share of a case's findings that some candidate hit, at any confidence.

    In [0, 1]; NaN for a case without findings. How many false candidates that took is not asked.
    """
    return ratio(found.lesions - found.missed, found.lesions)


_curve = partial(share_summary, needs=("detection_score", "n_reference_lesions"))


def _weighed_points(area: Callable[..., Floats]) -> Callable[..., Callable[[Floats], Floats] | None]:
    """Returns `summary`'s `weighed` from an area of many resamples' points."""

    def weighed(rows: ScoreTable, *arguments: float) -> Callable[[Floats], Floats] | None:
        # A case that left no row counts as a scan too, and nothing says how often a resample holds it.
        silent = rows.cases - np.unique(rows.case).size
        return None if silent else _make_judge(rows, lambda points: area(points, *arguments))

    return weighed


def _mean_sensitivity(points: _Points) -> Floats:
    return np.asarray(_sensitivities_at(points, CPM_RATES).mean(axis=1), dtype=np.float64)


def _mean_of_camelyon(points: _Points) -> Floats:
    return np.asarray(_sensitivities_at(points, CAMELYON_RATES).mean(axis=1), dtype=np.float64)


def _sensitivity_at(points: _Points, rate: float) -> Floats:
    return _sensitivities_at(points, (rate,))[:, 0]


def _sensitivities_at(points: _Points, rates: Sequence[float]) -> Floats:
    """Returns the sensitivity at each rate of false positives per scan, (resample, rate)."""
    curves = zip(points.false / points.scans[:, None], points.hits / points.lesions[:, None], strict=True)
    return np.array([np.interp(rates, false, sensitivity) for false, sensitivity in curves]).reshape(-1, len(rates))


def _precision_recall_area(points: _Points) -> Floats:
    """Returns the area under the precision-recall curve, (resample,)."""
    recall = points.hits / points.lesions[:, None]
    hits, above = points.hits[:, 1:], (points.hits + points.false)[:, 1:]
    precision = quotient(hits, above, 0.0)
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((np.diff(recall, axis=1) * best).sum(axis=1), dtype=np.float64)


@_curve(title="CPM", source=LUNA16, weighed=_weighed_points(_mean_sensitivity))
def cpm(rows: ScoreTable) -> float:
    """The mean sensitivity at 1/8, 1/4, 1/2, 1, 2, 4 and 8 false positives per scan: the competition metric of LUNA16.

    In [0, 1]; NaN without a finding. Several labels have the mean.
    """
    return _curve_value(rows, _mean_sensitivity)


@_curve(title="FROC score", source=CAMELYON16, weighed=_weighed_points(_mean_of_camelyon))
def froc_score(rows: ScoreTable) -> float:
    """The mean sensitivity at 1/4, 1/2, 1, 2, 4 and 8 false positives per slide: what CAMELYON16 ranks detection by.

    The script leaves out the least confident candidates where every lesion was hit and none was too small to count;
    here they stay. In [0, 1]; NaN without a finding. Of several labels the mean.
    """
    return _curve_value(rows, _mean_of_camelyon)


@_curve(title="FROC", source=LUNA16, parameter="false positives per scan", weighed=_weighed_points(_sensitivity_at))
def froc(rows: ScoreTable, rate: float) -> float:
    """The sensitivity at so many false positives per scan, on the FROC curve.

    The curve joins (false positives per scan, sensitivity) at every confidence from the highest down, beginning
    at (0, 0); equal confidences are one point. Between points it is linear, and flat after the last. Ignored
    candidates do not count. In [0, 1]; NaN without a finding. Of several labels the mean.
    """
    return _curve_value(rows, lambda points: _sensitivity_at(points, rate))


@_curve(title="AP", source=VOC, weighed=_weighed_points(_precision_recall_area))
def average_precision(rows: ScoreTable) -> float:
    """The area under the precision-recall curve, where the precision at a recall is the best at that recall or above.

    All points of the curve count, at the task's threshold of IoU or distance; ignored candidates do not count. In [0,
    1]; NaN without a finding. Of several labels the mean (mAP).
    """
    return _curve_value(rows, _precision_recall_area)


def _hits_and_misses(rows: ScoreTable) -> Floats:
    """Returns what each row adds: hits, false candidates, findings to hit, (row, 3)."""
    candidate = rows.metric == "detection_score"
    hit, false = candidate & (rows.status == "hit"), candidate & (rows.status == "false")
    return np.stack([hit, false, np.where(rows.metric == "n_reference_lesions", rows.value, 0.0)], axis=1).astype(float)


@_curve(title="Detection F1", source=MIDOG, pieces=_hits_and_misses)
def detection_f1(sums: Floats) -> Floats:
    """Twice the hits over twice the hits, the false candidates and the missed findings, of all cases taken together.

    Every candidate counts that the task's `least_score` lets pass. In [0, 1]; NaN where there is neither, or where the
    findings of a case are not known.
    """
    hits, false, findings = np.moveaxis(sums, -1, 0)
    return quotient(2 * hits, hits + false + findings)


def _curve_value(rows: ScoreTable, area: Callable[[_Points], Floats]) -> float:
    """Returns the value of rows that each count once."""
    return float(_make_judge(rows, area)(np.ones((1, rows.value.size)))[0])


class _Points(NamedTuple):
    """Counts above each confidence, descending from infinity (nothing), by resample."""

    hits: Floats  # (resample, level)
    false: Floats  # (resample, level)
    lesions: Floats  # (resample,)
    scans: Floats  # (resample,)


def _make_judge(rows: ScoreTable, area: Callable[[_Points], Floats]) -> Callable[[Floats], Floats]:
    """Returns a judge: weights (resample, row) to means over labels with findings, (resample,)."""
    cases, first = np.unique(rows.case, return_index=True)
    silent = rows.cases - cases.size
    points = [_points_of(rows, np.flatnonzero(rows.label == label)) for label in np.unique(rows.label)]

    def judge(times: Floats) -> Floats:
        scans = times[:, first].sum(axis=1) + silent
        values, count = np.zeros(len(times)), np.zeros(len(times))
        for of_label in points:
            label_value = of_label(times, scans)
            held = label_value.lesions > 0
            values[held] += area(label_value if held.all() else _Points(*(part[held] for part in label_value)))
            count += held
        return quotient(values, count)

    return judge


def _points_of(rows: ScoreTable, places: Places) -> Callable[[Floats, Floats], _Points]:
    """Returns a function from weights to one label's points.

    Weights are those of hits and false candidates, (resample, row), and of scans. Cases whose findings are not known
    are left out.
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
