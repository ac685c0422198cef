"""Means and standard deviations of features, taken from the cases that a head is fitted on and from no others."""

from __future__ import annotations

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UsageError

SCALES = ("standard", "none")

BLOCK = 8192
"""Rows that are turned to float64 at once."""


def scaling_of(features: Array, scale: str) -> tuple[Array, Array]:
    """Returns offset and divisor of each feature, float64, (feature,).

    Args:
        features: (case, feature), of the cases to fit on.
        scale: `standard` for the mean and the population's standard deviation, 1 where a feature is constant; `none`
            for 0 and 1.

    Raises:
        UsageError: there is no such scaling.
    """
    UsageError.refuse_invalid("scaling", SCALES, scale)
    width = features.shape[1]
    if scale == "none":
        return np.zeros(width), np.ones(width)
    blocks = range(0, len(features), BLOCK)
    mean = sum((features[at : at + BLOCK].sum(0, dtype=np.float64) for at in blocks), np.zeros(width)) / len(features)
    squares = np.zeros(width)
    for at in blocks:
        away = features[at : at + BLOCK] - mean
        squares += np.einsum("ij,ij->j", away, away)
    deviation = np.sqrt(squares / len(features))
    # A constant feature has a deviation of rounding errors alone.
    constant = deviation <= 10 * np.finfo(features.dtype).eps * np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
    return mean, np.where(constant, 1.0, deviation)


def scaled(features: Array, mean: Array, deviation: Array) -> Array:
    """Returns (features - mean) / deviation, in the dtype of the features."""
    if not mean.any() and (deviation == 1).all():
        return features
    if features.dtype == np.float64:
        return (features - mean) / deviation
    scaled_features = np.empty_like(features)
    for at in range(0, len(features), BLOCK):  # differences of large means lose digits in float32
        scaled_features[at : at + BLOCK] = (features[at : at + BLOCK] - mean) / deviation
    return scaled_features
