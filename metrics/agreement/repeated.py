"""Agreement of raters who may leave out items, and shares corrected for the errors of who counted them."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from medimg_eval.metrics.arrays import Floats

LEAST_INFORMED = 1.1
"""Sensitivity and specificity together, up to which verdicts say too little to correct a share by."""


def krippendorff_alpha(ratings: Floats, level: Literal["nominal", "interval"] = "nominal") -> float:
    """Returns Krippendorff's alpha: 1 less observed over expected disagreement.

    Items with fewer than two ratings are left out. At most 1; 0 is chance. NaN where no item has two ratings, or all
    ratings are equal.

    Source: Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011.

    Args:
        ratings: (rater, item), NaN where there is none; names as any numbers.
        level: `nominal` for names, whose disagreement is 0 or 1; `interval` for numbers, by their squared distance.
    """
    matrix = np.asarray(ratings, dtype=np.float64)
    held = matrix[:, (~np.isnan(matrix)).sum(axis=0) >= 2]
    if not held.size:
        return math.nan
    values, indices = np.unique(held[~np.isnan(held)], return_inverse=True)
    items = np.broadcast_to(np.arange(held.shape[1]), held.shape)[~np.isnan(held)]
    counts = np.zeros((held.shape[1], len(values)))
    np.add.at(counts, (items, indices), 1)
    of = counts.sum(axis=1, keepdims=True)
    pairs = (counts / (of - 1)).T @ counts - np.diag((counts / (of - 1)).sum(axis=0))
    totals = pairs.sum(axis=0)
    apart = values[:, None] != values if level == "nominal" else (values[:, None] - values) ** 2
    expected = float((np.outer(totals, totals) * apart).sum()) / (totals.sum() - 1)
    return 1 - float((pairs * apart).sum()) / expected if expected else math.nan


def unanimous_share(ratings: Floats) -> float:
    """Unanimity: share of multiply rated items with equal ratings.

    Such an item has two ratings or more. Ratings are (rater, item), NaN where there is none. In [0, 1]; NaN
    where no item has two.
    """
    held = ratings[:, (~np.isnan(ratings)).sum(axis=0) >= 2]
    return float((np.nanmax(held, axis=0) == np.nanmin(held, axis=0)).mean()) if held.size else math.nan


def corrected_share(share: float, sensitivity: float, specificity: float) -> float:
    """Rogan-Gladen share: observed share corrected for sensitivity and specificity.

    The verdicts' error rates are known. (share + specificity - 1) / (sensitivity + specificity - 1), cut off
    at 0 and 1; NaN where the two rates together are at most 1.1, since such verdicts say next to nothing
    about the share.

    Source: Rogan and Gladen, American Journal of Epidemiology 107, 1978.

    >>> round(corrected_share(0.5, 0.9, 0.8), 4)
    0.4286
    """
    informed = sensitivity + specificity
    if math.isnan(informed) or informed <= LEAST_INFORMED:
        return math.nan
    return min(1.0, max(0.0, (share + specificity - 1) / (informed - 1)))
