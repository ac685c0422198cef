"""Strengths of models by pairs in which one was preferred: Bradley and Terry's, on Elo's scale, at equal length."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Floats

ELO = 400 / math.log(10)
"""Points of Elo's scale for each unit of a Bradley-Terry strength."""

_STEPS, _NEAR = 10_000, 1e-10


def bradley_terry(wins: npt.ArrayLike) -> Floats:
    """Bradley-Terry strengths b, of mean 0.

    P(i beats j) = 1 / (1 + exp(b_j - b_i)). By maximum likelihood, as Hunter's MM algorithm finds it (Hunter
    2004, Annals of Statistics 32:384).

    Args:
        wins: (model, model): how often each beat each other; a tie counts half for both.

    Returns:
        (model,): NaN where the likelihood has no maximum: some models never lost to, or never met, the others.

    >>> bradley_terry([[0, 7], [3, 0]]).round(4).tolist()
    [0.4236, -0.4236]
    """
    won = np.array(wins, np.float64)
    np.fill_diagonal(won, 0)
    if len(won) < 2 or not is_connected(won):
        return np.full(len(won), math.nan)
    met, total = won + won.T, won.sum(1)
    strength = np.ones(len(won))
    for _ in range(_STEPS):
        before = strength
        strength = total / (met / (strength[:, None] + strength)).sum(1)
        strength /= np.exp(np.log(strength).mean())
        if np.abs(np.log(strength / before)).max() < _NEAR:
            break
    logs: Floats = np.log(strength)
    logs -= logs.mean()
    return logs


def is_connected(wins: Floats) -> bool:
    """Returns whether each model beat each other, if only indirectly."""
    reached = (np.asarray(wins) > 0) | np.eye(len(wins), dtype=bool)
    for _ in range(len(reached)):
        reached = reached @ reached
    return bool(reached.all())


def elo_scale(strengths: npt.ArrayLike, anchor: int | None = None) -> Floats:
    """Strengths on Elo's scale: 1000 for anchor or mean.

    >>> elo_scale([math.log(7 / 3), 0], anchor=1).round(1).tolist()
    [1147.2, 1000.0]
    """
    elo = np.array(strengths, np.float64)
    moved: Floats = 1000 + ELO * (elo - (elo.mean() if anchor is None else elo[anchor]))
    return moved


def rate_at_equal_length(share: npt.ArrayLike, length_ratio: npt.ArrayLike) -> float:
    """Length-controlled win rate: logistic regression's rate at equal lengths.

    The regression is on the logarithm of the ratio of lengths. NaN where it does not converge, as where length decides
    every pair.

    Args:
        share: (pair,): 1 for a win, 0.5 for a tie, 0 for a loss.
        length_ratio: (pair,): length of the own text over that of the other; above 0.
    """
    won, x = np.array(share, np.float64), np.log(np.array(length_ratio, np.float64))
    design = np.column_stack([np.ones(len(x)), x])
    weights = np.zeros(2)
    if len(won) < 2 or np.ptp(x) == 0:
        return float(won.mean()) if len(won) and not np.any(x) else math.nan
    for _ in range(100):
        expected = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        information = design.T @ (design * (expected * (1 - expected))[:, None])
        try:
            step = np.linalg.solve(information, design.T @ (won - expected))
        except np.linalg.LinAlgError:
            return math.nan
        weights = weights + step
        if not np.isfinite(weights).all() or np.abs(weights).max() > 50:
            return math.nan
        if np.abs(step).max() < _NEAR:
            return float(1 / (1 + np.exp(-weights[0])))
    return math.nan
