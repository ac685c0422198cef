"""Signal of a benchmark over the checkpoints of a training: its growth, its noise, and the order of models."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError


@dataclass(frozen=True)
class CheckpointSignal:
    """Quality of a benchmark as a signal of training.

    Attributes:
        monotonicity: Kendall's tau-b of score and step, -1 to 1; 1 where each later checkpoint is better.
        range: highest less lowest score, on the scale of the scores.
        noise: standard deviation (n - 1) of the last checkpoints.
        signal_to_noise: range over noise; infinite where the last checkpoints are equal and the scores are not.
        checkpoints: how many there are.
    """

    monotonicity: float
    range: float
    noise: float
    signal_to_noise: float
    checkpoints: int


def checkpoint_signal(steps: npt.ArrayLike, scores: npt.ArrayLike, *, last: int = 3) -> CheckpointSignal:
    """The signal of a benchmark over the checkpoints of one training.

    Args:
        steps: (checkpoint,), when each was taken, such as tokens or updates; in any order.
        scores: (checkpoint,), one score each, higher is better; NaN ones are left out.
        last: how many of the latest checkpoints tell the noise.

    Raises:
        UsageError: shapes differ, a step occurs twice, or fewer checkpoints have a score than `last`, or than two.

    Source: the criteria of the E2LM competition (NeurIPS 2025) on early training of language models, in our own form.
    """
    from scipy.stats import kendalltau

    at, values = np.asarray(steps, float), np.asarray(scores, float)
    if at.shape != values.shape or at.ndim != 1:
        raise UsageError(f"steps and scores: expected one score for each step, got {at.shape} and {values.shape}")
    at, values = at[~np.isnan(values)], values[~np.isnan(values)]
    if len(set(at)) < len(at):
        raise UsageError("steps: one occurs twice; give the checkpoints of one training alone")
    if last < 2 or len(at) < last:
        raise UsageError(f"last={last}: expected at least 2, and as many checkpoints with a score; there are {len(at)}")
    order = np.argsort(at)
    values = values[order]
    spread, noise = float(np.ptp(values)), float(np.std(values[-last:], ddof=1))
    ratio = math.nan if not spread else spread / noise if noise else math.inf
    tau = float(kendalltau(at[order], values).statistic)
    return CheckpointSignal(tau, spread, noise, ratio, len(values))


def order_kept(early: Mapping[str, float], late: Mapping[str, float]) -> float:
    """Kendall's tau-b of model orders, -1 to 1.

    Only models that both name count; NaN for fewer than two, or where all are tied in one of them.
    """
    from scipy.stats import kendalltau

    shared = [name for name in early if name in late and not math.isnan(early[name]) and not math.isnan(late[name])]
    if len(shared) < 2:
        return math.nan
    return float(kendalltau([early[name] for name in shared], [late[name] for name in shared]).statistic)
