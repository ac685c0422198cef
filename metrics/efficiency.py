"""Summaries that set what a model achieves against what it costs."""

from __future__ import annotations

import math
from typing import Any

from medimg_eval.metrics.fairness import case_means
from medimg_eval.metrics.registry import ScoreTable, summary

_FLOOR = 0.05
_LOG_MILLION_PARAMETERS = (0.39, 4.32)
_LOG_GFLOPS = (0.88, 4.20)
_FRAMES_PER_SECOND = (24.28, 121.63)
_FACTS = ("parameters", "gflops", "frames_per_second", "iou_p10", "iou_p90")


@summary(
    needs=("iou",),
    title="U-Score",
    higher_is_better=True,
    best=100.0,
    source="U-Bench (Tang et al. 2025, arXiv 2510.07041), the calculator of its page",
)
def u_score(rows: ScoreTable) -> float:
    """100 times the harmonic mean of accuracy and efficiency, each in [0.05, 1] on the scale of U-Bench's 100 models.

    Accuracy is the mean IoU between its 10th and 90th percentile on the data set, the facts `iou_p10` and `iou_p90`
    of the task. Efficiency is the harmonic mean of three costs on the same footing: the logarithms of `parameters`
    (in millions) and `gflops`, and `frames_per_second`, which are facts of the run. See `u_score_of`.

    In [5, 100]; NaN if there is no IoU, or one of these five facts is missing.
    """
    means, _ = case_means(rows, "iou")
    parameters, gflops, fps, p10, p90 = (_as_number(rows.facts.get(name)) for name in _FACTS)
    if not means.size or math.isnan(fps) or not (parameters > 0 and gflops > 0 and p90 > p10):
        return math.nan
    return u_score_of(float(means.mean()), parameters, gflops, fps, p10, p90)


def u_score_of(iou: float, parameters: float, gflops: float, fps: float, p10: float, p90: float) -> float:
    """Returns the U-Score of a model on a data set, in [5, 100].

    U-Bench weights parameters, FLOPs and speed with 0.33 each and divides by the sum of the weights, 0.99, so the
    weights cancel. Every part is floored at 0.05 before it enters a harmonic mean.

    Args:
        iou: Mean IoU, in [0, 1].
        parameters: Number of parameters, such as 34.527e6.
        gflops: Cost of one image, in 10^9 floating-point operations.
        fps: Images per second.
        p10: 10th percentile of the IoU of U-Bench's models on the data set.
        p90: 90th percentile.

    Raises:
        ValueError: If `parameters` or `gflops` is not above 0, or `p90` not above `p10`.

    >>> round(u_score_of(0.65575, 34.527e6, 65.522, 137.05, 0.58376, 0.70626), 2)  # U-Net on BUSI
    19.26
    """
    if not (parameters > 0 and gflops > 0):
        raise ValueError(f"Expected parameters and GFLOPs above 0, got {parameters:g} and {gflops:g}")
    if not p90 > p10:
        raise ValueError(f"Expected the 90th percentile of the IoU above the 10th, got {p90:g} and {p10:g}")
    accuracy = _floored_position(iou, p10, p90)
    small, large = _LOG_MILLION_PARAMETERS
    lightness = _floored_position(-math.log(parameters / 1e6), -large, -small)
    small, large = _LOG_GFLOPS
    thrift = _floored_position(-math.log(gflops), -large, -small)
    speed = _floored_position(fps, *_FRAMES_PER_SECOND)
    efficiency = 3 / (1 / lightness + 1 / thrift + 1 / speed)
    return 100 * 2 / (1 / accuracy + 1 / efficiency)


def _floored_position(value: float, low: float, high: float) -> float:
    """Returns where `value` lies between `low` (0) and `high` (1), floored."""
    return min(max((value - low) / (high - low), _FLOOR), 1.0)


def _as_number(fact: Any) -> float:
    """Returns a fact as a number; NaN where it is none."""
    return float(fact) if isinstance(fact, int | float) and math.isfinite(fact) else math.nan
