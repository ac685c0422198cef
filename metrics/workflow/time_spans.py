"""Spans of time and onsets: temporal IoU, R@n, F1 of events, and whether something was noticed in time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Floats

Span = tuple[float, float]

_TIME = re.compile(r"(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)\s*(?:s|sec|seconds?)?", re.IGNORECASE)


def read_seconds(text: str) -> float:
    """Seconds of `12.5`, `12.5s`, `mm:ss` or `hh:mm:ss`; NaN of anything else, percentages included."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return math.nan
    hours, minutes, seconds, plain = match.groups()
    return float(plain) if plain is not None else 3600 * int(hours or 0) + 60 * int(minutes) + float(seconds)


def temporal_iou(first: npt.ArrayLike, second: npt.ArrayLike) -> Floats:
    """IoU of time spans (..., 2) in seconds, float64, 0 to 1, broadcast.

    A reversed span is turned round; one without a length meets nothing; NaN is 0, as where an answer has no span.
    """
    a, b = np.sort(np.asarray(first, np.float64), -1), np.sort(np.asarray(second, np.float64), -1)
    shared = np.maximum(np.minimum(a[..., 1], b[..., 1]) - np.maximum(a[..., 0], b[..., 0]), 0.0)
    union = (a[..., 1] - a[..., 0]) + (b[..., 1] - b[..., 0]) - shared
    with np.errstate(divide="ignore", invalid="ignore"):
        value: Floats = np.nan_to_num(np.where(union > 0, shared / union, 0.0))
    return value


def union_iou(first: Sequence[Span], second: Sequence[Span]) -> float:
    """IoU of two span sets' covered time; empty sets 0."""
    a, b = _merge_spans(first), _merge_spans(second)
    shared = sum(max(0.0, min(x[1], y[1]) - max(x[0], y[0])) for x in a for y in b)
    union = sum(end - start for start, end in (*a, *b)) - shared
    return shared / union if union > 0 else 0.0


def _merge_spans(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted((min(span), max(span)) for span in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def recall_at(truth: Sequence[Span], ranked: Sequence[Sequence[Span]], n: int, threshold: float) -> float:
    """R@n at an IoU threshold, over items; NaN without items."""
    best = [
        max((float(temporal_iou(true, span)) for span in predicted_spans[:n]), default=0.0)
        for true, predicted_spans in zip(truth, ranked, strict=True)
    ]
    return float(np.mean(np.asarray(best) >= threshold)) if best else math.nan


def event_hits(truth: Sequence[Any], prediction: Sequence[Any], tolerance: float) -> tuple[int, int, int]:
    """Event hits, false alarms and misses, by maximum matching.

    Args:
        truth: times of events.
        prediction: times that were said.
        tolerance: largest difference of a match, itself included, in the same unit.
    """
    predicted = sorted(map(float, prediction))
    hits, position = 0, 0
    # Along a line, taking the earliest that still reaches is an optimal matching.
    for true in sorted(map(float, truth)):
        while position < len(predicted) and predicted[position] < true - tolerance:
            position += 1
        if position < len(predicted) and predicted[position] <= true + tolerance:
            hits, position = hits + 1, position + 1
    return hits, len(predicted) - hits, len(truth) - hits


def onset_of(shown: npt.ArrayLike) -> int:
    """The first frame that is True, (frame,); -1 where none is."""
    array = np.asarray(shown, bool)
    return int(array.argmax()) if array.any() else -1
