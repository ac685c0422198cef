"""Temperature and Platt scaling: confidences made to mean what they say, fitted on other cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.calibration.reliability import CLIP

if TYPE_CHECKING:
    from collections.abc import Callable


COLDEST, HOTTEST = 0.01, 100.0
"""Temperatures are looked for between these."""


def log_odds(probability: npt.ArrayLike) -> Floats:
    """Returns log(p/(1-p)), p kept `CLIP` from 0 and 1."""
    clipped = np.clip(np.asarray(probability, dtype=np.float64), CLIP, 1 - CLIP)
    return np.asarray(np.log(clipped / (1 - clipped)))


def temper_probabilities(probabilities: npt.ArrayLike, temperature: float) -> Floats:
    """Returns probabilities at a temperature: those of logits divided by it.

    (case, class) of classes that exclude each other, as a softmax; (statement,) of statements that may be true each by
    themselves, as a sigmoid. Above 1 they come nearer to each other.

    >>> temper_probabilities([0.9, 0.5], 2.0).round(2).tolist()
    [0.75, 0.5]
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim == 1:
        return np.asarray(1 / (1 + np.exp(-log_odds(values) / temperature)))
    logits = np.log(np.clip(values, CLIP, 1)) / temperature
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def fit_temperature(probabilities: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Fits the temperature of the least log loss, between 0.01 and 100.

    Args:
        probabilities: (case, class) of classes that exclude each other, or (statement,).
        truth: the place of the class of each case, or whether each statement is true.

    Raises:
        ValueError: there is no case.

    Source: Guo et al., ICML 2017, arXiv 1706.04599.
    """
    values, right = np.asarray(probabilities, dtype=np.float64), np.asarray(truth)
    if not len(values):
        raise ValueError("probabilities is invalid: expected cases to fit a temperature on, got none")

    def loss(log_temperature: float) -> float:
        scaled = temper_probabilities(values, float(np.exp(log_temperature)))
        true = scaled[np.arange(len(scaled)), right] if scaled.ndim == 2 else np.where(right, scaled, 1 - scaled)
        return float(-np.log(np.clip(true, CLIP, 1)).mean())

    return float(np.exp(_minimise_loss(loss, np.log(COLDEST), np.log(HOTTEST))))


def _minimise_loss(loss: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import minimize_scalar

    return float(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x)


@dataclass(frozen=True)
class Platt:
    """Platt scaling: sigmoid(slope log odds + intercept)."""

    slope: float
    intercept: float

    def apply(self, probability: npt.ArrayLike) -> Floats:
        """Returns scaled probabilities, (statement,)."""
        return np.asarray(1 / (1 + np.exp(-(self.slope * log_odds(probability) + self.intercept))))


def fit_platt(probability: npt.ArrayLike, truth: npt.ArrayLike) -> Platt:
    """Fits slope and intercept of the least log loss against Platt's smoothed truth.

    Of P true and N other statements the truth is (P + 1) / (P + 2) and 1 / (N + 2), so that there is an optimum even
    where all are true or both sides are separated.

    Args:
        probability: (statement,).
        truth: whether each is true.

    Raises:
        ValueError: there is no statement.

    Source: Platt, Advances in Large Margin Classifiers, 1999; Lin et al., Machine Learning 2007.
    """
    from scipy.optimize import minimize

    odds, right = log_odds(probability), np.asarray(truth, dtype=bool)
    if not odds.size:
        raise ValueError("probability is invalid: expected statements to fit on, got none")
    yes, no = right.sum(), (~right).sum()
    wanted = np.where(right, (yes + 1) / (yes + 2), 1 / (no + 2))

    def loss(fitted: Floats) -> tuple[float, Floats]:
        score = fitted[0] * odds + fitted[1]
        excess = 1 / (1 + np.exp(-score)) - wanted
        value = np.logaddexp(0, score) - wanted * score
        return float(value.mean()), np.array([(excess * odds).mean(), excess.mean()])

    start = np.array([1.0, 0.0])
    slope, intercept = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-8}).x
    return Platt(float(slope), float(intercept))
