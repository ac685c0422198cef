"""Agreement on categories: Cohen's and Fleiss' kappa."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from medimg_eval.metrics.arrays import Floats


def cohen_kappa(one: Sequence[float], other: Sequence[float]) -> float:
    """Returns Cohen's unweighted kappa of two readings.

    (po - pe) / (1 - pe), of the same cases. At most 1; NaN without cases, or where both readings are one and
    the same category throughout.

    Raises:
        ValueError: If the readings differ in length.
    """
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        raise ValueError(f"Expected as many readings of one as of the other, got {first.shape} and {second.shape}")
    if not first.size:
        return math.nan
    names = np.union1d(first, second)
    shares = [(reading[:, None] == names).mean(axis=0) for reading in (first, second)]
    expected = float(shares[0] @ shares[1])
    if expected == 1:
        return math.nan
    return (float((first == second).mean()) - expected) / (1 - expected)


def fleiss_kappa(labels: Floats) -> float:
    """Returns Fleiss' kappa: several readers' agreement beyond chance.

    Labels are names; kappa = (P - E) / (1 - E). P is the mean over images of the share of pairs of readers that agree,
    E the sum of squared shares of the labels in all readings. Labels are (reader, item), NaN where there is none.
    Images that fewer than two readers labelled are left out; with unequal numbers of readers P is the mean over images
    all the same. At most 1; NaN where no image has two readings, or all readings are equal.

    Source: Fleiss, Psychological Bulletin 76, 1971.
    """
    held = labels[:, (~np.isnan(labels)).sum(axis=0) >= 2]
    if not held.size:
        return math.nan
    names = np.unique(held[~np.isnan(held)])
    counts = np.array([(held == name).sum(axis=0) for name in names], dtype=np.float64)  # (label, item)
    of = counts.sum(axis=0)
    agreed = float((((counts**2).sum(axis=0) - of) / (of * (of - 1))).mean())
    chance = float(((counts.sum(axis=1) / counts.sum()) ** 2).sum())
    return (agreed - chance) / (1 - chance) if chance < 1 else math.nan
