"""Counts of frames per video and class, and precision, recall, F1 and Jaccard of them under each published rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.arrays import Floats, Ints
from medimg_eval.metrics.proportions import quotient

Measure = Literal["accuracy", "precision", "recall", "f1", "jaccard"]
Pooling = Literal["video", "phase", "pooled"]
Absent = Literal["in_truth", "in_either", "zero", "one"]
Boundary = Literal["strict", "relaxed", "relaxed_published"]

PHASES_OF_CHOLEC80 = 7
"""The relaxed boundary follows the order of Cholec80's phases, and serves no other vocabulary."""

RELAXED_SECONDS = 10


class Counts(NamedTuple):
    """Frames by class; leading axes may be videos or resamples.

    Attributes:
        hits: (..., class): of `union`, frames counted as right.
        union: (..., class): frames whose truth or prediction is the class.
        predicted: (..., class).
        true: (..., class).
        right: (...,): frames counted as right, of all classes.
        total: (...,): frames that are judged.
    """

    hits: Floats
    union: Floats
    predicted: Floats
    true: Floats
    right: Floats
    total: Floats


def frame_confusion(truth: npt.ArrayLike, prediction: npt.ArrayLike, classes: int) -> Ints:
    """Confusion matrix of a video, int64, (class, class + 1).

    Args:
        truth: integers, (frame,), 0 to classes - 1; below 0 for frames that are not judged.
        prediction: integers, (frame,); outside 0 to classes - 1 where no known class was predicted.
        classes: how many there are.

    Raises:
        ValueError: the lengths differ, or a truth is no class.
    """
    wide: Any = np.int16 if classes < 180 else np.int64
    true, predicted = np.asarray(truth), np.asarray(prediction)
    if true.shape != predicted.shape or true.ndim != 1:
        raise ValueError(f"Expected truth and prediction of one length, got {true.shape} and {predicted.shape}")
    if true.size and true.max() >= classes:
        raise ValueError(f"Expected truths below {classes}, got {true.max()}")
    if true.size and true.min() < 0:
        true, predicted = true[true >= 0], predicted[true >= 0]
    if predicted.size and (predicted.min() < 0 or predicted.max() > classes):
        predicted = np.where((predicted < 0) | (predicted >= classes), classes, predicted)
    codes: Any = true.astype(wide, copy=False) * wide(classes + 1) + predicted.astype(wide, copy=False)
    return np.bincount(codes, minlength=classes * (classes + 1)).reshape(classes, classes + 1).astype(np.int64)


def confusion_counts(confusion: npt.ArrayLike) -> Counts:
    """Counts of confusion matrices, (..., class, class + 1) as of `frame_confusion`."""
    matrix = np.asarray(confusion, np.float64)
    classes = matrix.shape[-2]
    hits = np.diagonal(matrix, axis1=-2, axis2=-1)
    predicted, true = matrix.sum(-2)[..., :classes], matrix.sum(-1)
    return Counts(hits, predicted + true - hits, predicted, true, hits.sum(-1), true.sum(-1))


def relaxed_counts(
    truth: npt.ArrayLike, prediction: npt.ArrayLike, *, fps: float = 1.0, published: bool = False
) -> Counts:
    """Counts under Cholec80's relaxed boundary of 10 s.

    In the first 10 s of a run of one phase the phase before is forgiven (of the last two phases also the one before
    that), in the last 10 s the phase after (of the last four also the next but one).

    Args:
        truth: integers, (frame,), 0 to 6 in the order of the phases; below 0 for frames that are not judged.
        prediction: integers, (frame,); outside 0 to 6 for none, which is never forgiven.
        fps: frames per second of these arrays.
        published: as the authors' scripts have it, which look at the last frames of a run and forgive the first.

    Raises:
        ValueError: the lengths differ, or a truth is no phase.

    Source: Evaluate.m of SV-RCNet and TMRNet.
    """
    true, predicted = np.asarray(truth, np.int64), np.asarray(prediction, np.int64)
    if true.shape != predicted.shape:
        raise ValueError(f"Expected truth and prediction of one length, got {true.shape} and {predicted.shape}")
    if true.size and true.max() >= PHASES_OF_CHOLEC80:
        raise ValueError(f"Expected phases 0 to {PHASES_OF_CHOLEC80 - 1}, got {true.max()}")
    is_known = (predicted >= 0) & (predicted < PHASES_OF_CHOLEC80)
    off = np.where(is_known, predicted - true, 99)
    window = round(RELAXED_SECONDS * fps)
    starts = np.flatnonzero(np.r_[True, true[1:] != true[:-1]]) if true.size else np.zeros(0, np.int64)
    for start, end in zip(starts, np.r_[starts[1:], true.size], strict=True):
        phase, run = int(true[start]), off[start:end]
        if phase < 0:
            continue
        length = min(window, len(run))
        first, last = run[:length], run[len(run) - length :]
        first[(first == -1) | ((first == -2) & (phase >= 5))] = 0
        early = (last == 1) | ((last == 2) & (phase >= 3))
        (first if published else last)[early] = 0
    judged = true >= 0
    true, predicted, right = true[judged], np.where(is_known, predicted, -1)[judged], off[judged] == 0
    rows = np.arange(PHASES_OF_CHOLEC80)[:, None]
    is_true, is_said = true == rows, predicted == rows
    union = is_true | is_said
    hits, either, called, held = (each.sum(1).astype(np.float64) for each in (union & right, union, is_said, is_true))
    return Counts(hits, either, called, held, np.array(float(right.sum())), np.array(float(true.size)))


@dataclass(frozen=True)
class FrameRule:
    """The switches by which published numbers of one name differ.

    Attributes:
        pooling: `video`: per video, then the mean; `phase`: per phase the mean over videos, then over phases; `pooled`:
            all frames of all videos together.
        absent: `in_truth`: a class that a video's truth lacks is left out; `in_either`: one that its prediction lacks,
            too; `zero`, `one`: what 0 / 0 counts, with every class.
        harmonic: whether F1 is that of the mean precision and mean recall instead of the mean of classes.
        boundary: `strict`, `relaxed` by 10 s, or `relaxed_published` with the faults of the authors' scripts.
    """

    pooling: Pooling = "video"
    absent: Absent = "in_either"
    harmonic: bool = False
    boundary: Boundary = "strict"

    @classmethod
    def of(cls, text: str) -> FrameRule:
        """Reads switches joined by `+` in any order, such as `phase+in_truth+relaxed`.

        Raises:
            UsageError: a switch is unknown, or one is set twice.
        """
        settings: dict[str, str | bool] = {}
        for word in filter(None, text.split("+")):
            name = _SWITCHES.get(word)
            if name is None:
                raise UsageError(f"frames: unknown switch {word!r}{nearest(word, _SWITCHES)}; join them by +")
            if name in settings:
                raise UsageError(f"frames: {word!r} and {settings[name]!r} exclude each other, in {text!r}")
            settings[name] = True if name == "harmonic" else word
        return cls(**settings)  # type: ignore[arg-type]


_SWITCHES = {
    **dict.fromkeys(get_args(Pooling), "pooling"),
    **dict.fromkeys(get_args(Absent), "absent"),
    "harmonic": "harmonic",
    **dict.fromkeys(get_args(Boundary), "boundary"),
}


def class_values(counts: Counts, measure: Measure, rule: FrameRule) -> Floats:
    """Values by class, float64, (..., class), omitted NaN; relaxed ones are clipped to 1."""
    hits, union, predicted, true = counts[:4]
    published = rule.boundary == "relaxed_published"
    top, bottom = {
        "precision": (hits, predicted),
        "recall": (hits, true),
        "f1": (2 * hits, predicted + true),
        "jaccard": (hits, union),
    }[measure]
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.minimum(top / bottom, 1.0)
    empty = np.nan if published else 1.0 if rule.absent == "one" else 0.0
    values = np.where((bottom == 0) & ((top == 0) | (not published)), empty, values)
    if rule.absent in ("in_truth", "in_either"):
        values = np.where((true if rule.absent == "in_truth" else union) == 0, np.nan, values)
    return values


def mean_known(values: Floats, axis: int = -1) -> Floats:
    """The mean of what is not NaN; NaN where nothing is known."""
    is_known = ~np.isnan(values)
    return quotient(np.where(is_known, values, 0.0).sum(axis), is_known.sum(axis))


def frame_value(counts: Counts, measure: Measure, rule: FrameRule) -> Floats:
    """Value over all classes, (...,), of one or pooled videos."""
    if measure == "accuracy":
        return quotient(counts.right, counts.total)
    if measure == "f1" and rule.harmonic:
        precision, recall = class_values(counts, "precision", rule), class_values(counts, "recall", rule)
        return harmonic_mean(mean_known(precision), mean_known(recall))
    return mean_known(class_values(counts, measure, rule))


def harmonic_mean(precision: Floats, recall: Floats) -> Floats:
    """2PR / (P + R); 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value: Floats = np.where(precision + recall == 0, 0.0, 2 * precision * recall / (precision + recall))
    return value
