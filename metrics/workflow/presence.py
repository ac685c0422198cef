"""What is present in frames: average precision per video and class, and the components of action triplets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats

COMPONENTS = ("ivt", "i", "v", "t", "iv", "it")
"""Triplets, and what they consist of: instrument, verb, target, and pairs of them."""


def frame_average_precision(truth: npt.ArrayLike, scores: npt.ArrayLike) -> Floats:
    """Average precision by class over a video's frames, float64, (class,); NaN if never there.

    Sum over distinct scores of the rise of recall times precision, without interpolation; tied scores are one step.

    Args:
        truth: 0 or 1, (frame, class).
        scores: (frame, class), higher for likelier.

    Raises:
        ValueError: the shapes differ, or a score is NaN.
    """
    present, frame_scores = np.asarray(truth).astype(bool), np.asarray(scores)
    if present.shape != frame_scores.shape or frame_scores.ndim != 2:
        raise ValueError(
            f"Expected truth and scores (frame, class) of one shape, got {present.shape} and {frame_scores.shape}"
        )
    if np.isnan(frame_scores).any():
        raise ValueError("Expected scores without NaN")
    values = np.full(frame_scores.shape[1], np.nan)
    columns = zip(np.ascontiguousarray(present.T), np.ascontiguousarray(frame_scores.T), strict=True)
    for column, (present_column, mine) in enumerate(columns):
        # A step of recall of k positives at one score counts k times its precision: the mean over positives.
        positive = np.sort(mine[np.flatnonzero(present_column)])
        if positive.size:
            at_least = np.arange(positive.size, 0, -1)
            if (positive[1:] == positive[:-1]).any():
                at_least = positive.size - np.searchsorted(positive, positive, "left")
            called = mine.size - np.searchsorted(np.sort(mine), positive, "left")
            values[column] = float((at_least / called).mean())
    return values


def mean_video_average_precision(videos: Sequence[npt.ArrayLike], *, last_counts: int = 1) -> float:
    """CholecT50's official mAP: mean over videos, then classes.

    Both without NaN.

    Args:
        videos: of each the average precisions, (class,).
        last_counts: how often the last video counts: the authors' package adds it once more at each question until
            `video_end` is called, so that six components asked in turn count it 1 to 6 times.
    """
    table = np.asarray([*videos, *([videos[-1]] * (last_counts - 1))], np.float64)
    with np.errstate(invalid="ignore"):
        is_known = ~np.isnan(table)
        by_class = np.where(is_known, table, 0).sum(0)[is_known.any(0)] / is_known.sum(0)[is_known.any(0)]
    return float(by_class.mean()) if by_class.size else float("nan")


def top_k_recall(truth: npt.ArrayLike, scores: npt.ArrayLike, k: int) -> float:
    """Share of present classes among a frame's k best scores."""
    present, frame_scores = np.asarray(truth).astype(bool), np.asarray(scores)
    best = np.argsort(-frame_scores, axis=1, kind="stable")[:, :k]
    total = present.sum()
    return float(np.take_along_axis(present, best, 1).sum() / total) if total else float("nan")


def component_groups(triplets: Sequence[str], component: str) -> dict[str, list[int]]:
    """Component class -> triplet indices, by first occurrence.

    Args:
        triplets: names such as `grasper,retract,gallbladder`.
        component: one of `COMPONENTS`.

    Raises:
        ValueError: the component is unknown, or a name has not three parts.
    """
    if component not in COMPONENTS:
        raise ValueError(f"Expected a component among {', '.join(COMPONENTS)}, got {component!r}")
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(triplets):
        parts = dict(zip("ivt", name.split(","), strict=False))
        if name.count(",") != 2:
            raise ValueError(f"Expected a triplet such as 'grasper,retract,gallbladder', got {name!r}")
        groups.setdefault(",".join(parts[letter] for letter in component), []).append(index)
    return groups


def component_columns(values: npt.ArrayLike, groups: Mapping[str, Sequence[int]]) -> Array:
    """The largest value of each group of columns, (frame, group), of (frame, triplet)."""
    array = np.asarray(values)
    order = [index for group in groups.values() for index in group]
    starts = np.cumsum([0, *map(len, groups.values())])[:-1]
    return np.maximum.reduceat(array[:, order], starts, axis=1)


def triplet_detection_precision(
    truth: Sequence[Sequence[tuple[int, Sequence[float]]]],
    prediction: Sequence[Sequence[tuple[int, float, Sequence[float]]]],
    classes: int = 100,
    *,
    threshold: float = 0.5,
    published: bool = False,
) -> Floats:
    """Eleven-point AP of triplet boxes, float64, (class,); undefined NaN.

    Args:
        truth: of each frame (class, box), a box as x, y, width, height.
        prediction: of each frame (class, score, box).
        classes: how many there are.
        threshold: least IoU of a hit.
        published: as the authors' package has it: hits in the order of frames instead of scores, a false positive and a
            missed box of the last class in each frame without boxes, and boxes that change when they are compared.

    Source: detection.py of ivtmetrics.
    """
    detections: list[list[tuple[float, bool]]] = [[] for _ in range(classes)]
    counts = np.zeros(classes)
    for true, predicted_frame in zip(truth, prediction, strict=True):
        boxes = [(int(name), list(map(float, box))) for name, box in true]
        answers = [(int(name), float(score), list(map(float, box))) for name, score, box in predicted_frame]
        if published:
            boxes = boxes or [(-1, [0.0] * 4)]
            answers = answers or [(-1, 0.0, [0.0] * 4)]
        for name, _ in boxes:
            counts[name] += 1
        free = list(reversed(boxes)) if published else boxes
        for name, score, box in sorted(answers, key=lambda answer: -answer[1]):
            hit_ = _hit_box(free, name, box, threshold, published=published)
            if hit_ is not None:
                free = [*free[:hit_], *free[hit_ + 1 :]]
            hit = hit_ is not None
            detections[name].append((score, hit))
    values = np.full(classes, np.nan)
    for name, answers_of in enumerate(detections):
        if counts[name] or answers_of:
            ordered = answers_of if published else sorted(answers_of, key=lambda answer: -answer[0])
            values[name] = _eleven_points([hit for _, hit in ordered], counts[name])
    return values


def _hit_box(
    free: Sequence[tuple[int, list[float]]], name: int, box: list[float], threshold: float, *, published: bool
) -> int | None:
    best, best_overlap = None, threshold
    for index, (label, free_box) in enumerate(free):
        if label == name and (overlap := _box_overlap(free_box, box, in_place=published)) >= best_overlap:
            if published:
                return index
            if best is None or overlap > best_overlap:
                best, best_overlap = index, overlap
    return best


def _box_overlap(first: list[float], second: list[float], *, in_place: bool) -> float:
    a, b = (first, second) if in_place else (list(first), list(second))
    for box in (a, b):  # corners of boxes; in place, a box that is compared twice grows
        box[2], box[3] = box[0] + box[2], box[1] + box[3]
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0.0) * max(height, 0.0)
    union = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)) - shared
    return shared / union if union > 0 else 0.0


def _eleven_points(hits: Sequence[bool], positives: float) -> float:
    if not len(hits) or not positives:
        return 0.0
    right = np.cumsum(hits)
    precision, recall = right / np.arange(1, len(hits) + 1), right / positives
    # Plain sums of tenths, as eleven-point precision is defined; a recall of exactly 0.3 must reach the point 0.3.
    return float(np.mean([precision[recall >= at - 1e-9].max(initial=0.0) for at in np.linspace(0, 1, 11)]))
