"""A set of a model's samples against a set of readers' masks: distances of the two distributions."""

from __future__ import annotations

import math

import numpy as np

from medimg_eval.metrics.arrays import Bools, Floats
from medimg_eval.metrics.proportions import quotient


def pairwise_iou(first: Bools, second: Bools) -> Floats:
    """Returns pairwise IoU, (first, second); 1 of empty pairs."""
    rows, columns = (masks.reshape(len(masks), -1).astype(np.float64) for masks in (first, second))
    both = rows @ columns.T
    either = rows.sum(axis=1)[:, None] + columns.sum(axis=1)[None] - both
    return quotient(both, either, 1.0)


def generalised_energy_distance(samples: Bools, raters: Bools, *, unbiased: bool = False) -> float:
    """Generalised energy distance squared (GED^2) of samples and readers.

    2 E d(S, Y) - E d(S, S') - E d(Y, Y'), d being 1 - IoU.

    Args:
        samples: (sample, *spatial), masks of a model.
        raters: (reader, *spatial), masks of readers.
        unbiased: whether a mask is not held against itself within its set; as published it is, which draws small sets
            together. A set of one then adds 0.

    Returns:
        A number of at least 0 (unbiased, it may be below); NaN where either set is empty.

    >>> samples = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)
    >>> raters = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]], bool)
    >>> round(generalised_energy_distance(samples, raters), 6)
    0.398148

    Source: Kohl et al., NeurIPS 2018, arXiv 1806.05034; Szekely & Rizzo 2013.
    """
    if not len(samples) or not len(raters):
        return math.nan
    cross = float((1 - pairwise_iou(samples, raters)).mean())
    return 2 * cross - _distance_within(samples, unbiased=unbiased) - _distance_within(raters, unbiased=unbiased)


def _distance_within(masks: Bools, *, unbiased: bool) -> float:
    apart, number = 1 - pairwise_iou(masks, masks), len(masks)
    if not unbiased:
        return float(apart.mean())
    return float(apart.sum() / (number * (number - 1))) if number > 1 else 0.0


def matched_iou(samples: Bools, raters: Bools) -> float:
    """Hungarian-matched IoU of samples and readers; NaN of empty sets.

    Either set is repeated to their least common multiple.

    Source: Kassapis et al., ICCV 2021, arXiv 2006.13144.
    """
    from scipy.optimize import linear_sum_assignment

    if not len(samples) or not len(raters):
        return math.nan
    size = math.lcm(len(samples), len(raters))
    overlap = pairwise_iou(samples, raters)
    table = np.tile(overlap, (size // len(samples), size // len(raters)))
    return float(table[linear_sum_assignment(table, maximize=True)].mean())


def share_covered(samples: Bools, raters: Bools, threshold: float) -> float:
    """Returns readers covered by samples above an IoU; empty is NaN."""
    if not len(samples) or not len(raters):
        return math.nan
    return float((pairwise_iou(samples, raters).max(axis=0) > threshold).mean())
