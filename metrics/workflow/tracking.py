"""Points that are followed through a video: within r pixels, and TAP-Vid's measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

TAP_VID_THRESHOLDS = (1, 2, 4, 8, 16)
"""Pixels of a picture of 256 x 256."""


def within_radius(truth: npt.ArrayLike, prediction: npt.ArrayLike, radius: float, *, strict: bool = False) -> float:
    """Share of points within `radius`, 0 to 1; NaN without points.

    Args:
        truth: (point, axis); rows with NaN are not visible, and not counted.
        prediction: (point, axis); NaN where nothing was said, which is wrong.
        radius: in the unit of the points.
        strict: whether the distance must be below it.
    """
    true, predicted = np.asarray(truth, np.float64), np.asarray(prediction, np.float64)
    visible = ~np.isnan(true).any(-1)
    away = np.sqrt(((true - predicted) ** 2).sum(-1))[visible]
    return float(np.mean(away < radius if strict else away <= radius)) if away.size else float("nan")


def mean_track_error(truth: npt.ArrayLike, prediction: npt.ArrayLike, *, published: bool = False) -> float:
    """Mean distance over visible frames, in pixels; NaN of none.

    `published` is as VL-SurgPT's script has it: distances above 500 and of exactly 0 are left out, and a track
    without any gets 0, the best.
    """
    away = np.sqrt(((np.asarray(truth, np.float64) - np.asarray(prediction, np.float64)) ** 2).sum(-1))
    away = away[~np.isnan(away)]
    if published:
        away = away[(away <= 500) & (away != 0)]
        return float(away.mean()) if away.size else 0.0
    return float(away.mean()) if away.size else float("nan")


class TapVid(NamedTuple):
    """TAP-Vid: position, occlusion accuracy, average Jaccard, 0 to 1; NaN of no frame."""

    delta_avg: float
    occlusion_accuracy: float
    average_jaccard: float


def tap_vid(
    truth: npt.ArrayLike,
    occluded: npt.ArrayLike,
    prediction: npt.ArrayLike,
    predicted_occluded: npt.ArrayLike,
    query_frames: Sequence[int],
    *,
    query_mode: Literal["first", "strided"] = "first",
    thresholds: Sequence[float] = TAP_VID_THRESHOLDS,
) -> TapVid:
    """Scores tracked points of one video.

    Args:
        truth: (track, frame, 2), pixels of a picture of 256 x 256.
        occluded: bool, (track, frame).
        prediction: as truth.
        predicted_occluded: as occluded.
        query_frames: of each track the frame in which it was shown, which is not scored.
        query_mode: `first`: only later frames are scored; `strided`: all others.
        thresholds: in pixels; a distance must be below.

    Source: Doersch et al. 2022, TAP-Vid.
    """
    true, predicted = np.asarray(truth, np.float64), np.asarray(prediction, np.float64)
    visible, predicted_visible = ~np.asarray(occluded, bool), ~np.asarray(predicted_occluded, bool)
    frames = np.arange(true.shape[1])[None]
    query = np.asarray(query_frames)[:, None]
    scored = frames > query if query_mode == "first" else frames != query
    squared = ((true - predicted) ** 2).sum(-1)
    is_scored = visible & scored
    near, jaccard = [], []
    for threshold in thresholds:
        within = squared < threshold**2
        hits = (within & is_scored & predicted_visible).sum()
        wrong = (predicted_visible & scored & (~visible | ~within)).sum()
        near.append(_safe_ratio((within & is_scored).sum(), is_scored.sum()))
        jaccard.append(_safe_ratio(hits, is_scored.sum() + wrong))
    agreed = _safe_ratio(((visible == predicted_visible) & scored).sum(), scored.sum())
    return TapVid(float(np.mean(near)), agreed, float(np.mean(jaccard)))


def _safe_ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
