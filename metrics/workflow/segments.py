"""Segments of a video: edit score and segmental F1, in time that flicker does not stretch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Floats, Ints


class Segments(NamedTuple):
    """Maximal runs of one class, in order.

    Attributes:
        labels: int64, (segment,).
        starts: int64, (segment,): first frame.
        ends: int64, (segment,): frame after the last.
    """

    labels: Ints
    starts: Ints
    ends: Ints


def segments_of(labels: npt.ArrayLike, background: Collection[int] = ()) -> Segments:
    """Runs of integer labels, (frame,), without background."""
    array = np.asarray(labels)
    starts = np.flatnonzero(np.r_[True, array[1:] != array[:-1]]) if array.size else np.zeros(0, np.int64)
    ends = np.r_[starts[1:], array.size][: len(starts)]
    is_kept = ~np.isin(array[starts], list(background))
    return Segments(array[starts][is_kept].astype(np.int64), starts[is_kept], ends[is_kept])


def edit_distance(first: Sequence[int] | Ints, second: Sequence[int] | Ints) -> int:
    """Levenshtein distance of integer sequences, by Myers' bit vectors."""
    pattern, text = np.asarray(first), np.asarray(second)
    if len(pattern) < len(text):
        pattern, text = text, pattern  # a turn for each of the shorter, a bit for each of the longer
    size = len(pattern)
    if not len(text):
        return size
    masks = {
        int(label): int.from_bytes(np.packbits(pattern == label, bitorder="little").tobytes(), "little")
        for label in np.unique(pattern)
    }
    full, last = (1 << size) - 1, 1 << (size - 1)
    horizontal_, less, distance = full, 0, size
    for label in text.tolist():
        equal = masks.get(label, 0)
        vertical = equal | less
        horizontal = (((equal & horizontal_) + horizontal_) ^ horizontal_) | equal
        up = less | ((horizontal | horizontal_) & full) ^ full
        down = horizontal_ & horizontal
        distance += bool(up & last) - bool(down & last)
        up = (up << 1) | 1
        horizontal_ = (down << 1 | ((vertical | up) & full) ^ full) & full
        less = up & vertical & full
    return distance


def edit_score(truth: Segments, prediction: Segments) -> float:
    """Edit score of segments, 0 to 1; 1 where both are empty.

    1 - edit distance of the labels of segments / the longer count.

    Source: eval.py of MS-TCN, which gives 0 / 0 where both are empty, and percent.
    """
    longer = max(len(truth.labels), len(prediction.labels))
    return 1.0 - edit_distance(truth.labels, prediction.labels) / longer if longer else 1.0


class SegmentHits(NamedTuple):
    """Segment counts: hits (tp), false (fp) and missed (fn)."""

    tp: int
    fp: int
    fn: int

    @property
    def f1(self) -> float:
        """2 tp / (2 tp + fp + fn); NaN without segments."""
        total = 2 * self.tp + self.fp + self.fn
        return 2 * self.tp / total if total else float("nan")


def best_overlaps(truth: Segments, prediction: Segments) -> tuple[Ints, Floats]:
    """Best-overlapping true segment of each predicted one, with IoU.

    Returns:
        Places of true segments, int64, and IoUs, float64, (predicted segment that meets one of its class,), in order;
        of equal IoUs the first true segment.
    """
    low = np.searchsorted(truth.ends, prediction.starts, "right")
    many = np.searchsorted(truth.starts, prediction.ends, "left") - low
    predicted = np.repeat(np.arange(len(low)), many)
    true = np.arange(len(predicted)) - np.repeat(np.cumsum(many) - many - low, many)
    is_same_label = truth.labels[true] == prediction.labels[predicted]
    true, predicted = true[is_same_label], predicted[is_same_label]
    if not true.size:
        return true, np.zeros(0)
    start, end = truth.starts[true], truth.ends[true]
    begun, ended = prediction.starts[predicted], prediction.ends[predicted]
    shared = np.minimum(end, ended) - np.maximum(start, begun)
    overlap = shared / (np.maximum(end, ended) - np.minimum(start, begun))
    first = np.flatnonzero(np.r_[True, predicted[1:] != predicted[:-1]])
    best = np.maximum.reduceat(overlap, first)
    is_best = np.flatnonzero(overlap == np.repeat(best, np.diff(np.r_[first, len(predicted)])))
    of_each = is_best[np.searchsorted(is_best, first)]
    return true[of_each], best


def segment_hits(truth: Segments, prediction: Segments, threshold: float) -> SegmentHits:
    """Matches predicted segments in order with the best true ones.

    It hits where the IoU reaches the threshold and no earlier one hit the same.

    Raises:
        ValueError: the threshold is not above 0 and at most 1: at 0 segments that do not meet would hit.

    Source: eval.py of MS-TCN.
    """
    return hits_at(best_overlaps(truth, prediction), threshold, len(truth.labels), len(prediction.labels))


def hits_at(best: tuple[Ints, Floats], threshold: float, n_truth: int, n_prediction: int) -> SegmentHits:
    """The hits of `best_overlaps` at one threshold; raises ValueError as `segment_hits` does."""
    if not 0 < threshold <= 1:
        raise ValueError(f"Expected a threshold above 0 and at most 1, got {threshold}")
    hits = int(np.count_nonzero(np.bincount(best[0][best[1] >= threshold], minlength=1)))
    return SegmentHits(hits, n_prediction - hits, n_truth - hits)
