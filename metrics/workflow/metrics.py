"""Numbers of videos whose frames are labelled: of one video, and of a run under the rules that papers use.

Each case leaves its confusion matrix as rows; every summary of frames is a function of these, so that an interval draws
videos without reading a frame again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast, get_args

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Bools, Floats, Ints
from medimg_eval.metrics.declarations import evidence_metric, share_metric, share_summary
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, Weighed, summary
from medimg_eval.metrics.workflow.frame_counts import (
    PHASES_OF_CHOLEC80,
    Counts,
    FrameRule,
    Measure,
    class_values,
    confusion_counts,
    frame_confusion,
    frame_value,
    harmonic_mean,
    mean_known,
    relaxed_counts,
)
from medimg_eval.metrics.workflow.presence import (
    COMPONENTS,
    component_columns,
    component_groups,
    frame_average_precision,
)
from medimg_eval.metrics.workflow.segments import SegmentHits, Segments, best_overlaps, edit_score, hits_at, segments_of
from medimg_eval.metrics.workflow.time_spans import onset_of

KIND, PRESENCE = "frames", "frame_presence"
"""Kinds: one class per frame, and any number of classes per frame."""

CLASSES, BACKGROUND = "frame_classes", "frame_background"
"""Facts: all classes of a task in their order, and those that segments leave out."""

NONE, TO = "(none)", " -> "
"""The prediction of a frame without a known class, and what stands between truth and prediction in a label."""

ALL = "all"

PRESENT, ABSENT = "present", "absent"

SEGMENT_THRESHOLDS = (10, 25, 50)
"""Percent of IoU at which papers give segmental F1."""

THRESHOLD = 0.5
"""The score from which on a class is taken for present."""

MS_TCN = "Farha and Gall 2019, MS-TCN, and its eval.py"
IVT = "Nwoye and Padoy 2022, doi 10.48550/arXiv.2204.05235, and ivtmetrics"


@dataclass(frozen=True, eq=False)
class FramePair:
    """One class per frame of one video, true and predicted.

    Attributes:
        classes: names, in order.
        truth: int64, (frame,), place among `classes`.
        prediction: int64, (frame,); -1 where no known class was predicted.
        background: classes that are no segments.
        fps: of these frames, per second of the video.
    """

    classes: Sequence[str]
    truth: Ints
    prediction: Ints
    background: frozenset[str] = frozenset()
    fps: float = 1.0

    @cached_property
    def counts(self) -> Counts:
        """Counts of the strict confusion matrix."""
        return confusion_counts(frame_confusion(self.truth, self.prediction, len(self.classes)))

    @cached_property
    def segments(self) -> tuple[Segments, Segments]:
        """Segments of truth and prediction, without background."""
        left_out = [index for index, name in enumerate(self.classes) if name in self.background]
        return segments_of(self.truth, left_out), segments_of(self.prediction, left_out)

    @cached_property
    def _best(self) -> tuple[Ints, Floats]:
        return best_overlaps(*self.segments)

    def hits(self, percent: float) -> SegmentHits:
        """Segment hits at a percentage of IoU; ValueError as `segment_hits`."""
        truth, prediction = self.segments
        return hits_at(self._best, percent / 100, len(truth.labels), len(prediction.labels))


@dataclass(frozen=True, eq=False)
class PresencePair:
    """Classes present by frame of a video, with confidences.

    Attributes:
        classes: names, in order; triplets are named such as `grasper,retract,gallbladder`.
        truth: bool, (frame, class).
        scores: float64, (frame, class), higher for likelier; present from 0.5 on.
    """

    classes: Sequence[str]
    truth: Bools
    scores: Floats

    @cached_property
    def precisions(self) -> Floats:
        """Average precision of each class; NaN where it is never present."""
        return frame_average_precision(self.truth, self.scores)


_evidence = partial(evidence_metric, value_kind="unbounded")
_case = partial(share_metric, kind=KIND)


@_evidence(kind=KIND, title="Frames", name="frame_confusion")
def _frame_confusion(pair: FramePair) -> Mapping[str, float]:
    """Frames of a video by truth and prediction, such as `cut -> sew`. Evidence for the summaries."""
    matrix = frame_confusion(pair.truth, pair.prediction, len(pair.classes))
    columns = [*pair.classes, NONE]
    return {f"{pair.classes[i]}{TO}{columns[j]}": float(matrix[i, j]) for i, j in np.argwhere(matrix)}


def _relaxed_counts(pair: FramePair, published: bool) -> Mapping[str, float]:
    if len(pair.classes) != PHASES_OF_CHOLEC80:
        return {}
    counts = relaxed_counts(pair.truth, pair.prediction, fps=pair.fps, published=published)
    of_class = {
        f"{name}{TO}{field}": float(values[index])
        for field, values in zip(Counts._fields[:4], counts[:4], strict=True)
        for index, name in enumerate(pair.classes)
    }
    return {**of_class, f"{ALL}{TO}right": float(counts.right), f"{ALL}{TO}total": float(counts.total)}


@_evidence(kind=KIND, title="Frames, relaxed")
def frame_relaxed(pair: FramePair) -> Mapping[str, float]:
    """Counts of frames of Cholec80's phases where changes may come 10 s early or late. Evidence for the summaries."""
    return _relaxed_counts(pair, published=False)


@_evidence(kind=KIND, title="Frames, relaxed as published")
def frame_relaxed_published(pair: FramePair) -> Mapping[str, float]:
    """Counts of the same as the authors' scripts have them. Evidence for the summaries."""
    return _relaxed_counts(pair, published=True)


@_case(title="Accuracy of frames", source="definition")
def video_accuracy(pair: FramePair) -> Mapping[str, float]:
    """Share of the frames of a video whose class is right. Between 0 and 1."""
    return {ALL: float(frame_value(pair.counts, "accuracy", FrameRule()))}


def _by_class(measure: Measure) -> Callable[[FramePair], Mapping[str, float]]:
    def called(pair: FramePair) -> Mapping[str, float]:
        values = class_values(pair.counts, measure, FrameRule())
        return dict(zip(pair.classes, map(float, values), strict=True))

    return called


_OF_CLASS = {
    "precision": "Share of the frames called a phase that are of it; 0 where it was never called.",
    "recall": "Share of the frames of a phase that were called so; 0 where it never was.",
    "f1": "2PR / (P + R) of the frames of a phase.",
    "jaccard": "Frames of a phase called so / frames that are of it or called so.",
}
for _measure, _text in _OF_CLASS.items():
    _function = _by_class(_measure)  # type: ignore[arg-type]
    _function.__doc__ = f"{_text} NaN where neither truth nor prediction of the video has it. Between 0 and 1."
    _function.__qualname__ = f"phase_{_measure}"
    _case(title=f"{_measure.capitalize()} of a phase", source="definition", name=f"phase_{_measure}")(_function)


@_case(title="Edit score", source=MS_TCN, name="edit_score")
def _edit_score(pair: FramePair) -> Mapping[str, float]:
    """1 - edit distance of the sequence of segments / the longer count; 1 where neither has any. Between 0 and 1."""
    return {ALL: edit_score(*pair.segments)}


@_case(
    title="Segmental F1",
    source="SAR-RARP50's evaluation; of MS-TCN per video",
    parameter="percent of IoU",
    parameter_most=100,
)
def segment_f1(pair: FramePair, percent: float) -> Mapping[str, float]:
    """F1 of the segments of a video that reach an IoU with one of their class, each matched once. Between 0 and 1."""
    return {ALL: pair.hits(percent).f1}


@_evidence(kind=KIND, title="Segments")
def segment_counts(pair: FramePair) -> Mapping[str, float]:
    """Segments that hit, are false and are missed at 10, 25 and 50 % of IoU. Evidence for the summaries."""
    hits = {percent: pair.hits(percent) for percent in SEGMENT_THRESHOLDS}
    return {
        f"{field}@{percent}": float(value)
        for percent, hits in hits.items()
        for field, value in zip(hits._fields, hits, strict=True)
    }


def _count_table(rows: ScoreTable, rule: FrameRule) -> tuple[Counts, Ints]:
    """Counts (case, class), and the first row of each case."""
    wanted = {"strict": "frame_confusion", "relaxed": "frame_relaxed"}.get(rule.boundary, "frame_relaxed_published")
    chosen = np.flatnonzero(rows.metric == wanted)
    cases, first, case = np.unique(rows.case[chosen], return_index=True, return_inverse=True)
    texts, label = np.unique(rows.label[chosen], return_inverse=True)
    parts = [text.rpartition(TO)[::2] for text in texts.tolist()]
    names = [*rows.facts.get(CLASSES, ())] or sorted({name for name, _ in parts} - {ALL})
    index_of = {name: index for index, name in enumerate(names)}
    size = len(names)
    if rule.boundary == "strict":
        width = size * (size + 1)
        codes = [index_of[true] * (size + 1) + index_of.get(predicted, size) for true, predicted in parts]
    else:
        width, fields = 4 * size + 2, list(Counts._fields)
        codes = [4 * size + fields.index(f) - 4 if n == ALL else fields.index(f) * size + index_of[n] for n, f in parts]
    at = case * width + np.array(codes, np.int64)[label]
    sums: Floats = np.bincount(at, rows.value[chosen], minlength=len(cases) * width).astype(np.float64)
    table = sums.reshape(len(cases), width)
    if rule.boundary == "strict":
        return confusion_counts(table.reshape(len(cases), size, size + 1)), chosen[first]
    return _as_counts(table), chosen[first]


def _as_counts(table: Floats) -> Counts:
    size = (table.shape[-1] - 2) // 4
    hits, union, predicted, true = (table[..., k * size : (k + 1) * size] for k in range(4))
    return Counts(hits, union, predicted, true, table[..., -2], table[..., -1])


def _frame_pieces(measure: Measure, rows: ScoreTable, text: str = "") -> Floats:
    rule = FrameRule.of(text)
    counts, first = _count_table(rows, rule)
    if rule.pooling == "pooled":
        held = np.concatenate([*counts[:4], counts.right[:, None], counts.total[:, None]], axis=1)
    elif rule.pooling == "phase":
        measures = ("precision", "recall") if measure == "f1" and rule.harmonic else (measure,)
        values = np.concatenate([class_values(counts, cast("Measure", each), rule) for each in measures], axis=1)
        held = np.concatenate([np.nan_to_num(values), ~np.isnan(values)], axis=1)
    else:
        values = frame_value(counts, measure, rule)[:, None]
        held = np.concatenate([np.nan_to_num(values), ~np.isnan(values), np.nan_to_num(values) ** 2], axis=1)
    pieces = np.zeros((rows.value.size, held.shape[1]))
    pieces[first] = held
    return pieces


def _phase_means(sums: Floats) -> Floats:
    half = sums.shape[-1] // 2
    return quotient(sums[..., :half], sums[..., half:])


def _frame_total(measure: Measure, sums: Floats, text: str = "") -> Floats:
    rule = FrameRule.of(text)
    if rule.pooling == "pooled":
        return frame_value(_as_counts(sums), measure, rule)
    if rule.pooling == "phase":
        means = _phase_means(sums)
        if measure == "f1" and rule.harmonic:
            half = means.shape[-1] // 2
            return harmonic_mean(mean_known(means[..., :half]), mean_known(means[..., half:]))
        return mean_known(means)
    return quotient(sums[..., 0], sums[..., 1])


_NEEDS = ("frame_confusion", "frame_relaxed", "frame_relaxed_published")
_SWITCHES = "switches joined by +: video, phase or pooled; in_truth, in_either, zero or one; harmonic; relaxed"
_rule_of = FrameRule.of


def _check_accuracy(text: str) -> None:
    if FrameRule.of(text).pooling == "phase":
        raise UsageError("frame_accuracy@phase: accuracy is of all phases; use frame_recall@phase")


_OF_RUN = {
    "accuracy": "Share of frames whose phase is right: the mean over videos, or of all frames (`pooled`)",
    "precision": "Precision of phases: per video the mean over phases, then over videos; or by its switches",
    "recall": "Recall of phases: per video the mean over phases, then over videos; or by its switches",
    "f1": "F1 of phases: per video the mean over phases, then over videos; or by its switches",
    "jaccard": "Jaccard index of phases: per video the mean over phases, then over videos; or by its switches",
}
for _measure, _text in _OF_RUN.items():

    def _value(sums: Floats, text: str = "", *, measure: Any = _measure) -> Floats:
        return _frame_total(measure, sums, text)

    _value.__doc__ = f"{_text}. Between 0 and 1."
    _value.__qualname__ = f"frame_{_measure}"
    share_summary(
        name=f"frame_{_measure}",
        title=f"Frame {_measure.upper() if _measure == 'f1' else _measure}",
        source="Funke et al. 2023, doi 10.48550/arXiv.2305.13961; relaxed: Evaluate.m of SV-RCNet and TMRNet",
        needs=_NEEDS,
        parameter=_SWITCHES,
        parameter_is_text=True,
        parameter_optional=True,
        check=_check_accuracy if _measure == "accuracy" else _rule_of,
        pieces=partial(_frame_pieces, cast("Measure", _measure)),
    )(_value)


def _spread_of(text: str) -> tuple[Measure, str, FrameRule]:
    measure, _, switches = text.partition("+")
    rule = FrameRule.of(switches)
    if (
        measure not in get_args(Measure)
        or rule.pooling == "pooled"
        or (measure == "accuracy" and rule.pooling == "phase")
    ):
        raise UsageError(
            f"frame_spread@{text}: expected accuracy, precision, recall, f1 or jaccard, then switches of `video` or "
            "`phase`, such as frame_spread@jaccard+phase"
        )
    return cast("Measure", measure), switches, rule


def _spread_pieces(rows: ScoreTable, text: str) -> Floats:
    measure, switches, _ = _spread_of(text)
    return _frame_pieces(measure, rows, switches)


@summary(
    title="SD of frames",
    higher_is_better=None,
    best=math.nan,
    source="Main.m of SV-RCNet and TMRNet, which give SD over videos of accuracy and over phase means of the rest",
    needs=_NEEDS,
    parameter="a measure and its switches, such as jaccard+phase",
    parameter_is_text=True,
    check=_spread_of,
    pieces=_spread_pieces,
)
def frame_spread(sums: Floats, text: str) -> Floats:
    """SD (n - 1) of a measure over videos, or with `phase` over the means of phases."""
    measure, _, rule = _spread_of(text)
    with np.errstate(divide="ignore", invalid="ignore"):
        if rule.pooling == "video":
            mean = sums[..., 0] / sums[..., 1]
            return np.sqrt(np.maximum(sums[..., 2] - sums[..., 1] * mean**2, 0) / (sums[..., 1] - 1))
        means = _phase_means(sums)
        if measure == "f1" and rule.harmonic:
            half = means.shape[-1] // 2
            means = harmonic_mean(means[..., :half], means[..., half:])
        is_known = ~np.isnan(means)
        away = np.where(is_known, means - mean_known(means)[..., None], 0)
        over_phases: Floats = np.sqrt((away**2).sum(-1) / (is_known.sum(-1) - 1))
        return over_phases


def _segment_pieces(rows: ScoreTable, percent: float) -> Floats:
    return np.stack([np.where(rows.label == f"{field}@{percent:g}", rows.value, 0) for field in ("tp", "fp", "fn")], 1)


@share_summary(
    title="Segmental F1, pooled",
    source=MS_TCN,
    needs=("segment_counts",),
    parameter="percent of IoU: 10, 25 or 50",
    pieces=_segment_pieces,
)
def segment_f1_pooled(sums: Floats, percent: float) -> Floats:
    """F1 of the segments of all videos together. Between 0 and 1."""
    return quotient(2 * sums[..., 0], 2 * sums[..., 0] + sums[..., 1] + sums[..., 2])


@share_metric(kind=PRESENCE, title="AP", source=IVT)
def presence_ap(pair: PresencePair) -> Mapping[str, float]:
    """Average precision of a class over the frames of a video; NaN where it never is. Between 0 and 1."""
    return dict(zip(pair.classes, map(float, pair.precisions), strict=True))


@share_metric(kind=PRESENCE, title="F1 of presence", source="definition")
def presence_f1(pair: PresencePair) -> Mapping[str, float]:
    """F1 of a class over the frames of a video, present from a score of 0.5 on; NaN where it is in neither."""
    is_predicted = pair.scores >= THRESHOLD
    total = pair.truth.sum(0) + is_predicted.sum(0)
    values = quotient(2 * (pair.truth & is_predicted).sum(0), total)
    return dict(zip(pair.classes, map(float, values), strict=True))


@share_metric(
    kind=PRESENCE,
    title="Onset accuracy",
    source="BleedOrigin-Bench 2025: the first frame that is called is what counts",
    parameter="frames of the task's grid",
    value_kind="proportion",
)
def onset_accuracy(pair: PresencePair, frames: float) -> Mapping[str, float]:
    """Whether a class is first called at most so many frames from where it begins; NaN of one that never does."""
    accuracy = {}
    for column, name in enumerate(pair.classes):
        true, predicted_onset = onset_of(pair.truth[:, column]), onset_of(pair.scores[:, column] >= THRESHOLD)
        accuracy[name] = math.nan if true < 0 else float(predicted_onset >= 0 and abs(predicted_onset - true) <= frames)
    return accuracy


@_evidence(kind=PRESENCE, title="Score of a frame")
def presence_score(pair: PresencePair) -> Mapping[str, list[tuple[float, str]]]:
    """Score of each class in each frame; the row's status says whether it is there. Evidence for the summaries."""
    return {
        name: [
            (float(score), PRESENT if true else ABSENT)
            for score, true in zip(pair.scores[:, column], pair.truth[:, column], strict=True)
        ]
        for column, name in enumerate(pair.classes)
    }


@_evidence(kind=PRESENCE, title="AP of a component")
def component_ap(pair: PresencePair) -> Mapping[str, float]:
    """Average precision of triplets and of their components in a video, such as `iv: hook,cut`. Evidence."""
    if any(name.count(",") != 2 for name in pair.classes):
        return {}
    precisions: dict[str, float] = {}
    for component in COMPONENTS:
        groups = component_groups(pair.classes, component)
        columns = component_columns(pair.truth, groups), component_columns(pair.scores, groups)
        values = frame_average_precision(*columns)
        precisions |= {f"{component}: {name}": float(value) for name, value in zip(groups, values, strict=True)}
    return precisions


def _label_sums(rows: ScoreTable) -> Floats:
    names, label = np.unique(rows.label, return_inverse=True)
    held = np.zeros((rows.value.size, 2 * len(names)))
    is_known = ~np.isnan(rows.value)
    at = np.arange(rows.value.size)
    held[at, label] = np.nan_to_num(rows.value)
    held[at, len(names) + label] = is_known
    return held


@share_summary(title="mAP of videos", source=IVT, needs=("presence_ap",), pieces=_label_sums)
def presence_map(sums: Floats) -> Floats:
    """Average precision per video and class: the mean over videos that have it, then over classes. Between 0 and 1."""
    return mean_known(_phase_means(sums))


def _component_name(text: str) -> str:
    if text.removesuffix("+no_null") not in COMPONENTS:
        raise UsageError(f"triplet_ap@{text}: expected one of {', '.join(COMPONENTS)}, or ivt+no_null")
    return text.removesuffix("+no_null")


def _component_sums(rows: ScoreTable, text: str) -> Floats:
    of_it = np.char.startswith(rows.label, f"{_component_name(text)}: ")
    if text.endswith("+no_null"):
        of_it &= np.char.find(rows.label, "null_verb") < 0
    held = np.zeros((rows.value.size, 0))
    if of_it.any():
        some = _label_sums(rows.where(of_it))
        held = np.zeros((rows.value.size, some.shape[1]))
        held[of_it] = some
    return held


@share_summary(
    title="AP of triplets",
    source=IVT,
    needs=("component_ap",),
    parameter="component: ivt, i, v, t, iv or it",
    parameter_is_text=True,
    check=_component_name,
    pieces=_component_sums,
)
def triplet_ap(sums: Floats, component: str) -> Floats:
    """Average precision of triplets or of a component: per video, then the mean over videos and over classes.

    The score of a component is the largest of the triplets that hold it. Between 0 and 1.
    """
    return mean_known(_phase_means(sums))


@share_summary(
    title="mAP, pooled",
    source="Murali et al. 2023, Endoscapes, doi 10.48550/arXiv.2312.12429: frames of all videos together",
    needs=("presence_score",),
    at_once=True,
)
def presence_map_pooled(rows: ScoreTable) -> Weighed:
    """Average precision of each class over the frames of all videos together, then the mean over classes.

    Between 0 and 1; a frame without a prediction has the lowest score of all.
    """
    values = np.where(np.isnan(rows.value), -np.inf, rows.value)
    plans = []
    for name in np.unique(rows.label):
        mine = np.flatnonzero(rows.label == name)
        order = mine[np.argsort(-values[mine], kind="stable")]
        ends = np.flatnonzero(np.r_[values[order][1:] != values[order][:-1], True])
        plans.append((order, rows.status[order] == PRESENT, ends))

    def judge(times: Floats) -> Floats:
        precisions = []
        for order, present, ends in plans:
            counted = times[:, order]
            called = np.cumsum(counted, 1)[:, ends]
            right = np.cumsum(counted * present, 1)[:, ends]
            with np.errstate(divide="ignore", invalid="ignore"):
                precision = np.where(called > 0, right / called, 0)
                precisions.append((np.diff(right, axis=1, prepend=0) * precision).sum(1) / right[:, -1])
        return mean_known(np.stack(precisions, 1))

    return judge
