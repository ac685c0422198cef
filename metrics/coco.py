"""COCO's protocol for boxes and masks: average precision and recall over ten IoUs, by area and at most so many.

Each case leaves a row for every candidate, whose status tells what it is worth at each IoU and range of areas, and one
for every object that is to be found, with its area. Summaries are computed from the rows of all cases of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Bools, Floats, Places
from medimg_eval.metrics.declarations import evidence_metric, share_summary
from medimg_eval.metrics.detection import Detections
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.scores import LabelScore

COCO = "Lin et al., ECCV 2014, doi 10.1007/978-3-319-10602-1_48, and its cocoeval.py"
IOUS = np.linspace(0.5, 0.95, 10)
_REACHED = np.minimum(IOUS, 1 - 1e-10)
RECALLS = np.linspace(0.0, 1.0, 101)
"""Recalls at which a precision is read off the curve."""

AREAS: Mapping[str, tuple[float, float]] = {
    "all": (0.0, 1e10),
    "small": (0.0, 32.0**2),
    "medium": (32.0**2, 96.0**2),
    "large": (96.0**2, 1e10),
}
"""The ranges of areas in pixels; both ends belong to a range."""

_LOW, _HIGH = np.array(list(AREAS.values())).T
_RULES = np.indices((len(AREAS), len(IOUS)))

MOST = 100
"""Candidates of a case and label that count."""

_STATES = np.frombuffer(b"fhi", np.uint8)
_FALSE, _HIT, _IGNORED = range(3)


class CocoDetections(NamedTuple):
    """The candidates of one label of one case, judged by COCO's protocol.

    Attributes:
        confidences: float64 (candidate,), from the highest down.
        states: uint8 (candidate, range, IoU): 0 false, 1 hit, 2 ignored.
        areas: float64 (object,): of those that are to be found.
    """

    confidences: Floats
    states: npt.NDArray[np.uint8]
    areas: Floats

    @property
    def at_half(self) -> Detections:
        """The candidates as judged at an IoU of 0.5, whatever their area."""
        words = np.array(["false", "hit", "ignored"])[self.states[:, 0, 0]]
        return Detections(self.confidences, tuple(words.tolist()), len(self.areas))


def judged_coco(
    confidences: Floats, areas: Floats, overlaps: Floats, object_areas: Floats, crowds: Bools, ignored: Bools
) -> CocoDetections:
    """Judges the candidates of one label of one case, boxes or masks.

    In the order of their confidence (of equal ones, in their own), at most 100 each take the free object of the largest
    IoU that reaches the threshold; of equal ones the last. Only where there is none, they take an object that is
    ignored: a crowd, which any number may take, one that need not be found, or one whose area is out of the range.
    A candidate on such an object is ignored, and so is one without an object whose own area is out of the range.

    Args:
        confidences: (candidate,).
        areas: (candidate,) in pixels.
        overlaps: (candidate, object): as `box_ious` or `mask_overlaps` has them, told of the crowds.
        object_areas: (object,) in pixels, as the reference states them.
        crowds: (object,).
        ignored: (object,): those that need not be found beside the crowds.
    """
    order = np.argsort(-confidences, kind="stable")[:MOST]
    states = np.zeros((len(order), len(AREAS), len(IOUS)), np.uint8)
    states[_outside_ranges(areas[order])] = _IGNORED
    if order.size and object_areas.size:
        # From the last object on, since of equal IoUs the last counts.
        left_out = _outside_ranges(object_areas).T | crowds | ignored
        _match_candidates(states, overlaps[order][:, ::-1], left_out[:, ::-1], crowds[::-1])
    return CocoDetections(confidences[order], states, object_areas[~(crowds | ignored)])


def _outside_ranges(areas: Floats) -> Bools:
    """Returns which areas lie out of which range, (area, range)."""
    outside: Bools = (areas[:, None] < _LOW) | (areas[:, None] > _HIGH)
    return outside


def _match_candidates(states: npt.NDArray[np.uint8], overlaps: Floats, left_out: Bools, crowds: Bools) -> None:
    """Lets candidates take objects; `left_out`: (range, object), those that are ignored there."""
    reached = overlaps[:, None, :] >= _REACHED[:, None]
    free = np.ones((len(AREAS), len(IOUS), len(crowds)), bool)
    wanted = ~left_out[:, None, :]
    for index in np.flatnonzero(reached[:, 0].any(axis=1)):
        may = reached[index] & free
        ranked = np.where(may, overlaps[index] + 2.0 * (may & wanted), -1.0)
        best = ranked.argmax(axis=2)
        value = ranked[*_RULES, best]
        taken = value >= 0
        states[index][taken] = np.where(value[taken] >= 2, _HIT, _IGNORED)
        free[_RULES[0][taken], _RULES[1][taken], best[taken]] = crowds[best[taken]]


def coco_scores(
    label: str, detections: CocoDetections, metrics: Collection[str], status: str = "present"
) -> list[LabelScore]:
    """Returns one label's rows of one case.

    None where there is neither a candidate nor an object.

    Args:
        label: Its name.
        detections: Its candidates, judged.
        metrics: Which of "coco_candidate" and "coco_object".
        status: Of the objects' rows: "failed" of a case that failed. A candidate's status is of letters: "h" for a hit,
            "f" for false and "i" for ignored, at the ten IoUs for all areas, then for small, medium and large ones.
    """
    rows = []
    if "coco_candidate" in metrics:
        length = len(AREAS) * len(IOUS)
        letters = _STATES[detections.states].tobytes().decode()
        rows = [
            LabelScore(label, "coco_candidate", coco_candidate(value), letters[length * index : length * (index + 1)])
            for index, value in enumerate(detections.confidences.tolist())
        ]
    if "coco_object" in metrics:
        rows += [LabelScore(label, "coco_object", coco_object(area), status) for area in detections.areas.tolist()]
    return rows


_evidence = partial(evidence_metric, kind="detection", source=COCO)


@_evidence(title="Confidence")
def coco_candidate(confidence: float) -> float:
    """The confidence of one candidate; its status tells hit, false or ignored at each IoU and range of areas."""
    return confidence


@_evidence(title="Area", value_kind="count")
def coco_object(area: float) -> float:
    """The area in pixels of one object that is to be found; NaN for a case without any, and without candidates."""
    return area


def _check_parameter(parameter: str, names: tuple[str, ...]) -> str:
    UsageError.refuse_unknown("COCO's protocol has no", names, parameter)
    return parameter


_PRECISIONS = (*(f"{round(100 * iou)}" for iou in IOUS), *list(AREAS)[1:])
_RECALLS = ("1", "10", "100", *list(AREAS)[1:])
_settings = "101 recalls, IoU 0.5:0.05:0.95, at most 100 candidates a case and label"

_declared = partial(
    share_summary,
    at_once=True,
    needs=("coco_candidate", "coco_object"),
    source=COCO,
    parameter_optional=True,
    parameter_is_text=True,
    settings=_settings,
)


_Judge = Callable[[Floats, Floats], Floats]
"""Takes how often each row counts, (resample, row), and how many objects that makes; returns values, (resample,)."""


class _Label(NamedTuple):
    """The rows of one label: candidates from the most confident down."""

    candidates: Places
    ranks: Places
    """Of each candidate, how many of its case are before it."""
    objects: Places


@_declared(
    title="COCO AP", parameter="IoU in hundredths, or an area", check=partial(_check_parameter, names=_PRECISIONS)
)
def coco_ap(rows: ScoreTable, of: str = "") -> Callable[[Floats], Floats]:
    """COCO's average precision: the mean over ten IoUs and 101 recalls of the best precision at that recall or above.

    `coco_ap@50` and `coco_ap@75` are of one IoU; `coco_ap@small`, `@medium` and `@large` of objects up to 32 x 32
    pixels, up to 96 x 96, and above. Equal confidences count one after the other, in the order of the cases. In [0, 1];
    NaN without an object. Of several labels the mean (mAP).
    """
    ious = [_PRECISIONS.index(of)] if of.isdigit() else range(len(IOUS))

    def of_label(label: _Label, states: npt.NDArray[np.uint8]) -> _Judge:
        counted = ~(states == ord("i")).all(axis=1)
        held, states = label.candidates[counted], states[counted]
        hits = [np.flatnonzero(states[:, iou] == ord("h")) for iou in ious]
        ignored = [np.flatnonzero(states[:, iou] == ord("i")) for iou in ious]

        def judge(times: Floats, objects: Floats) -> Floats:
            weights = np.take(times, held, axis=1)
            passed, sums = np.cumsum(weights, axis=1), np.zeros(len(times))
            recalls, first = _recalls_reached(objects)
            for at, out in zip(hits, ignored, strict=True):
                # `take` leaves what one resample weighs side by side in memory, as an index would not.
                true, judged = np.cumsum(np.take(weights, at, axis=1), axis=1), np.take(passed, at, axis=1)
                if out.size:
                    judged -= np.pad(np.cumsum(weights[:, out], axis=1), ((0, 0), (1, 0)))[:, np.searchsorted(out, at)]
                precision = true / np.maximum(judged, 1.0)
                best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
                # A hit raises the recall past some of the 101, which read the precision there.
                read = np.take(recalls, true.astype(np.intp) + first)
                read[:, 1:] -= read[:, :-1].copy()
                sums += (best * read).sum(axis=1)
            return np.minimum(sums / (len(RECALLS) * len(hits)), 1.0)  # sums of shares pass 1 by a last digit

        return judge

    return _over_labels(rows, of, of_label)


def _recalls_reached(objects: Floats) -> tuple[Places, Places]:
    """Returns recalls reached by 0, 1, ... hits, by objects.

    There are 101 recalls; the second array says where the row of each number of objects begins. Hits and objects are
    whole numbers, so that this can be looked up, which is quicker than a search for each hit.
    """
    of = objects[:, None]
    needed = np.ceil(RECALLS * of - 1e-6)
    needed += needed / of < RECALLS  # 7 of 100 do not reach the recall 0.07: as numbers of a computer it is the larger
    width = int(objects.max(initial=0.0)) + 2
    first = width * np.arange(len(objects))[:, None]
    news = np.bincount((needed.astype(np.intp) + first).ravel(), minlength=width * len(objects))
    return np.cumsum(news.reshape(-1, width), axis=1).ravel(), first


@_declared(
    title="COCO AR", parameter="candidates of a case, or an area", check=partial(_check_parameter, names=_RECALLS)
)
def coco_ar(rows: ScoreTable, of: str = "") -> Callable[[Floats], Floats]:
    """COCO's average recall: the share of objects that a case's 100 most confident candidates hit, mean of ten IoUs.

    `coco_ar@1` and `coco_ar@10` let each case and label have fewer; `coco_ar@small`, `@medium` and `@large` are of
    objects of these areas. In [0, 1]; NaN without an object. Of several labels the mean.
    """
    most = int(of) if of.isdigit() else MOST

    def of_label(label: _Label, states: npt.NDArray[np.uint8]) -> _Judge:
        share = (states == ord("h")).mean(axis=1) * (label.ranks < most)
        held = np.flatnonzero(share)
        candidates, share = label.candidates[held], share[held]
        return lambda times, objects: np.minimum(quotient(np.take(times, candidates, axis=1) @ share, objects), 1.0)

    return _over_labels(rows, of, of_label)


def _over_labels(
    rows: ScoreTable, of: str, of_label: Callable[[_Label, npt.NDArray[np.uint8]], _Judge]
) -> Callable[[Floats], Floats]:
    """Returns a judge of weights: mean over labels with objects."""
    range_ = of if of in AREAS else "all"
    first = len(IOUS) * list(AREAS).index(range_)
    # A status of 40 letters is as many code points; one of a case that failed is shorter.
    letters = np.ascontiguousarray(rows.status.astype("U40")).view(np.uint32).reshape(-1, 40)
    states = letters[:, first : first + len(IOUS)].astype(np.uint8)
    labels = _label_rows(rows, AREAS[range_])
    judges = [(label.objects, of_label(label, states[label.candidates])) for label in labels]

    def judge(times: Floats) -> Floats:
        values, defined = np.zeros(len(times)), np.zeros(len(times))
        for objects, value in judges:
            object_counts = np.take(times, objects, axis=1).sum(axis=1)
            held = object_counts > 0
            values[held] += value(times, object_counts) if held.all() else value(times[held], object_counts[held])
            defined += held
        return quotient(values, defined)

    return judge


def _label_rows(rows: ScoreTable, area: tuple[float, float]) -> list[_Label]:
    """Returns the rows of each label that has objects of an area."""
    if not rows.value.size:
        return []
    # Rows of a label stand together, so that few texts are compared.
    heads = np.concatenate([[0], np.flatnonzero(rows.label[1:] != rows.label[:-1]) + 1])
    codes = np.repeat(np.unique(rows.label[heads], return_inverse=True)[1], np.diff(heads, append=rows.value.size))
    of_candidate = rows.metric == "coco_candidate"
    # Where a metric raised there is a row without a value.
    candidates, objects = np.flatnonzero(of_candidate & ~np.isnan(rows.value)), np.flatnonzero(~of_candidate)
    with np.errstate(invalid="ignore"):
        objects = objects[(rows.value[objects] >= area[0]) & (rows.value[objects] <= area[1])]
    candidates = candidates[np.lexsort((-rows.value[candidates], rows.case[candidates], codes[candidates]))]
    group = np.stack([codes[candidates], rows.case[candidates]])
    starts = np.flatnonzero(np.append(True, (np.diff(group, axis=1) != 0).any(axis=0)))[: candidates.size or None]
    ranks = np.arange(candidates.size) - np.repeat(starts, np.diff(starts, append=candidates.size))
    labels = []
    for code in np.unique(codes[objects]):
        own = slice(*np.searchsorted(codes[candidates], [code, code + 1]))
        order = np.argsort(-rows.value[candidates[own]], kind="stable")
        labels.append(_Label(candidates[own][order], ranks[own][order], objects[codes[objects] == code]))
    return labels
