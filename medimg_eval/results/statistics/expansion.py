"""What a bootstrap of very many clusters would give, from moments of what the clusters add, without drawing any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

MANY_CLUSTERS = 20_000
"""Above so many, resamples are not drawn where the expansion holds."""
_MOST_SKEWED = 0.1
"""Skewness and excess kurtosis of a resampled value above which few clusters decide, and resamples are drawn."""
_POINTS = 10_000
"""Values that stand for the resamples."""
_STEP = 0.5
"""Of finite differences, in standard errors: wide enough to lose no digits, and as far as resamples go."""


def expand(
    total: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    sums: npt.NDArray[np.float64],
    strata: npt.NDArray[np.generic] | None = None,
) -> npt.NDArray[np.float64] | None:
    """Returns resampled values of a smooth function of sums, in order: (10,000,).

    They are evenly spaced quantiles of the bootstrap's distribution, expanded to the second order: of a value with the
    standard error s, bias b and skewness k (all three from the first and second derivatives of the function and the
    moments of the clusters) the quantile of a normal deviate z is value + b + s (z + k (z^2 - 1) / 6). What is left out
    falls with the number of clusters: above 20,000 bounds lie within 1 % of half an interval's width of those of
    resamples without end, where those of 10,000 resamples are off by 1.4 % (standard deviation).

    Source: Hall, The Bootstrap and Edgeworth Expansion (1992), sections 2.4 and 3.3; Cornish and Fisher, Revue de
    l'Institut International de Statistique 1938.

    Args:
        total: Of (row, feature) sums the values, (row,).
        sums: (cluster, feature): what each cluster adds.
        strata: (cluster,): clusters are drawn within strata; None where there is one.

    Returns:
        None where that does not hold, and resamples have to be drawn: up to 20,000 clusters, without a finite
        derivative, or where few clusters decide (skewness or excess kurtosis of the resampled value above 0.1).
    """
    if len(sums) <= MANY_CLUSTERS:
        return None
    residuals = _center_sums(sums, strata)
    variances, axes = np.linalg.eigh(residuals.T @ residuals)
    is_varying = variances > 1e-14 * variances.max(initial=0.0)
    if not is_varying.any():
        return None
    errors, axes = np.sqrt(variances[is_varying]), axes[:, is_varying]
    steps = _STEP * (axes * errors).T
    middle = sums.sum(axis=0)
    value, ups, downs = total(middle[None])[0], total(middle + steps), total(middle - steps)
    slopes, bends = (ups - downs) / (2 * _STEP), (ups - 2 * value + downs) / _STEP**2
    error = float(np.sqrt((slopes**2).sum()))
    if not np.isfinite(error) or error <= 1e-12 * abs(value):
        return None
    steepest = slopes @ steps / error
    bend = float(np.diff(total(middle + np.stack([-steepest, 0 * steepest, steepest])), 2)[0]) / _STEP**2
    return _expanded_quantile(value, float(bends.sum()) / 2, error, bend, residuals @ (axes @ (slopes / errors)))


def expand_influence(value: float, influence: npt.NDArray[np.float64], bend: float) -> npt.NDArray[np.float64] | None:
    """Returns expanded resamples of a value with known influences.

    Args:
        value: Of the data.
        influence: (cluster,): the derivative of the value by how often the cluster counts, above its mean.
        bend: The second derivative along these, in standard errors.
    """
    if len(influence) <= MANY_CLUSTERS:
        return None
    return _expanded_quantile(value, 0.0, float(np.sqrt((influence**2).sum())), bend, influence)


def _expanded_quantile(
    value: float, bias: float, error: float, bend: float, influence: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64] | None:
    if not np.isfinite(error) or error <= 1e-12 * abs(value):
        return None
    linear = influence / error
    own, peaked = float((linear**3).sum()), float((linear**4).sum()) - 3 / len(influence)
    skewness = own + 3 * bend / error
    if not (max(abs(own), abs(skewness), abs(peaked)) <= _MOST_SKEWED and abs(bias) <= _MOST_SKEWED * error):
        return None
    from scipy.special import ndtri  # takes longer to import than to score a short table

    deviates = ndtri((np.arange(_POINTS) + 0.5) / _POINTS)
    return np.asarray(value + bias + error * (deviates + skewness / 6 * (deviates**2 - 1)), dtype=np.float64)


def _center_sums(sums: npt.NDArray[np.float64], strata: npt.NDArray[np.generic] | None) -> npt.NDArray[np.float64]:
    """Returns what clusters add above the mean of their stratum."""
    if strata is None:
        return np.asarray(sums - sums.mean(axis=0), dtype=np.float64)
    _, stratum = np.unique(strata, return_inverse=True)
    members = np.bincount(stratum)
    means = np.stack([np.bincount(stratum, weights=part) / members for part in sums.T], axis=1)
    residuals: npt.NDArray[np.float64] = sums - means[stratum]
    return residuals
