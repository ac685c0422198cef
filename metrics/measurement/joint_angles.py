"""Joint angles over time against those of marker-based motion capture, coordinate by coordinate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import error_metric
from medimg_eval.metrics.registry import asked_metrics, metric
from medimg_eval.metrics.scores import LabelScore

KNEES = ("knee_angle_r", "knee_angle_l")
"""Coordinates that OpenCapBench brings motions together by."""
SHIFTS = range(-40, 40)
"""Frames that it tries."""
_CAPBENCH = "OpenCapBench (Gozlan et al., WACV 2025), benchmarking/metrics.py b37d51d"

motion_metrics = partial(asked_metrics, kind="motion", what="motions")
_error = partial(error_metric, kind="motion", unit="°", worst=math.nan)


@dataclass(frozen=True, eq=False)
class MotionPair:
    """Motion differences of one coordinate of one trial, in degrees.

    Predicted less true, of the frames that both have.

    Attributes:
        plain: (frame,), as the files lie in time.
        shifted: (frame,), after the predicted motion was moved by `shift` frames.
        shift: the frames by which both knees fit best on average, towards 0.
    """

    plain: Floats
    shifted: Floats
    shift: int


def _root_mean_square(differences: Floats) -> float:
    return float(np.sqrt((differences**2).mean())) if differences.size else math.nan


@_error(title="RMSE", source=_CAPBENCH)
def angle_rmse(pair: MotionPair) -> float:
    """The root mean square difference of an angle over the frames of a trial, in degrees.

    Frames belong together that have the same time. At least 0; NaN without such frames.
    """
    return _root_mean_square(pair.plain)


@_error(title="RMSE (shifted)", source=_CAPBENCH)
def angle_rmse_shifted(pair: MotionPair) -> float:
    """The root mean square difference after the predicted motion was moved to fit the true knees best, in degrees.

    The shift is of -40 to 39 frames: for each knee that of the least mean absolute difference, then the mean of both,
    cut towards 0. The truth decides the shift, so it flatters; OpenCapBench prints it. At least 0.
    """
    return _root_mean_square(pair.shifted)


@_error(title="MAE", source="mean absolute error")
def angle_mae(pair: MotionPair) -> float:
    """The mean absolute difference of an angle over the frames of a trial, in degrees.

    At least 0.
    """
    return float(np.abs(pair.plain).mean()) if pair.plain.size else math.nan


@metric(
    kind="motion",
    title="Bias",
    unit="°",
    higher_is_better=None,
    best=0.0,
    worst=math.nan,
    source="mean signed error",
)
def angle_bias(pair: MotionPair) -> float:
    """The mean of predicted less true angle over the frames of a trial, in degrees."""
    return float(pair.plain.mean()) if pair.plain.size else math.nan


@metric(kind="motion", title="Shift", unit="frames", higher_is_better=None, best=0.0, worst=math.nan, source=_CAPBENCH)
def angle_shift(pair: MotionPair) -> float:
    """The frames by which the predicted motion was moved for `angle_rmse_shifted`; positive is later."""
    return float(pair.shift)


def differences_at(true: tuple[Floats, Floats], predicted: tuple[Floats, Floats], shift: int) -> Floats:
    """Returns predicted minus true values of simultaneous frames, NaN missing.

    Both are times, (frame,), and values, (frame, coordinate); `shift` moves predicted rows down against their times.
    """
    _, here, there = np.intersect1d(true[0], predicted[0], return_indices=True)
    source = there - shift
    inside = (source >= 0) & (source < len(predicted[0]))
    moved = np.full((len(there), predicted[1].shape[1]), math.nan)
    moved[inside] = predicted[1][source[inside]]
    return np.asarray(moved - true[1][here])


def best_shift(true: tuple[Floats, Floats], predicted: tuple[Floats, Floats], columns: Sequence[int]) -> int:
    """Returns the mean best shift over columns, truncated towards 0.

    The best has the least mean absolute difference. A frame counts where no coordinate of it is missing. 0
    where nothing overlaps.
    """
    least = [(math.inf, 0) for _ in columns]
    for shift in SHIFTS:
        complete = _complete_rows(differences_at(true, predicted, shift))
        if not len(complete):
            continue
        for knee, column in enumerate(columns):
            error = float(np.abs(complete[:, column]).mean())
            if error < least[knee][0]:
                least[knee] = (error, shift)
    return int(sum(shift for _, shift in least) / len(least)) if least else 0


def motion_scores(
    true: tuple[Floats, Mapping[str, Floats]],
    predicted: tuple[Floats, Mapping[str, Floats]],
    *,
    coordinates: Sequence[str],
    metrics: Sequence[str],
) -> list[LabelScore]:
    """Returns the score of every coordinate under every metric.

    Args:
        true: times and coordinate -> values, in degrees, of the reference.
        predicted: the same of the answer.
        coordinates: what is judged; both must have them.
        metrics: names of metrics of kind "motion".

    Raises:
        KeyError: a side lacks a coordinate.
    """
    wanted = motion_metrics(metrics)
    shared = [name for name in true[1] if name in predicted[1]]
    sides = [(time, np.stack([values[name] for name in shared], axis=1)) for time, values in (true, predicted)]
    knees = [shared.index(name) for name in KNEES if name in shared]
    shift = best_shift(sides[0], sides[1], knees)
    plain, moved = (_complete_rows(differences_at(sides[0], sides[1], by)) for by in (0, shift))
    scores = []
    for name in coordinates:
        column = shared.index(name)
        pair = MotionPair(plain[:, column], moved[:, column], shift)
        scores += [
            LabelScore(name, asked_for, float(definition.function(pair)), "present")
            for asked_for, (definition, _) in wanted.items()
        ]
    return scores


def _complete_rows(differences: Floats) -> Floats:
    return np.asarray(differences[~np.isnan(differences).any(axis=1)])


def worst_motion_scores(coordinates: Sequence[str], metrics: Sequence[str]) -> list[LabelScore]:
    """Returns NaN scores, status "failed", of an unanswered trial."""
    wanted = motion_metrics(metrics)
    return [LabelScore(name, asked_for, math.nan, "failed") for name in coordinates for asked_for in wanted]
