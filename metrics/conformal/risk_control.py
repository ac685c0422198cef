"""Conformal risk control: a threshold below which too much would be missed."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.conformal.quantiles import check_alpha


def risk_bound(losses: npt.ArrayLike, worst: float = 1.0) -> npt.NDArray[np.float64]:
    """Returns (n*mean loss + worst)/(n + 1) over cases, (...)."""
    values = np.asarray(losses, dtype=np.float64)
    return np.asarray((values.sum(axis=0) + worst) / (len(values) + 1), dtype=np.float64)


def choose_threshold(thresholds: npt.ArrayLike, losses: npt.ArrayLike, alpha: float) -> float:
    """Chooses the largest threshold with expected loss within alpha.

    The loss is that of a further case; NaN where no threshold qualifies. Losses in [0, 1] must not fall as the
    threshold rises, as the share of a mask that lies below it does not; those that do are made monotone first, by the
    largest of the thresholds up to it. A loss of NaN counts as 1.

    Args:
        thresholds: (threshold,), ascending.
        losses: (case, threshold), of calibration cases.
        alpha: the expected loss that is allowed.

    Raises:
        ValueError: thresholds do not ascend, losses are not one for each, or alpha is not between 0 and 1.

    >>> losses = [[0.0, 0.0, 0.5], [0.0, 0.1, 0.6], [0.0, 0.2, 0.7]]
    >>> choose_threshold([0.1, 0.3, 0.5], losses, 0.35)  # (0 + 1) / 4, (0.3 + 1) / 4, (1.8 + 1) / 4
    0.3

    Source: Angelopoulos et al., ICLR 2024, arXiv 2208.02814.
    """
    check_alpha(alpha)
    steps, values = np.asarray(thresholds, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if values.ndim != 2 or steps.shape != values.shape[1:] or (np.diff(steps) <= 0).any():
        raise ValueError(
            f"losses is invalid: expected (case, threshold) for ascending thresholds, got {values.shape} for {steps}"
        )
    monotone = np.maximum.accumulate(np.nan_to_num(values, nan=1.0), axis=1)
    allowed = risk_bound(monotone) <= alpha + 1e-12
    return float(steps[allowed].max()) if allowed.any() else math.nan
