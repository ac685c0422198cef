"""Detection of unknown inputs: areas under curves and errors at 95 % sensitivity. The unknown is to be found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats
from medimg_eval.metrics.proportions import quotient

MEASURES = ("auroc", "aupr_unknown", "aupr_known", "fpr95", "detection_error")


class Detection(NamedTuple):
    """How well a score tells unknown inputs from known ones.

    Attributes:
        auroc: how often an unknown input scores higher than a known one, ties counting one half.
        aupr_unknown: trapezoid area under precision over recall of unknown inputs; not average precision.
        aupr_known: the same of known inputs, by the lowest scores.
        fpr95: share of known inputs that are flagged where 95 % of the unknown ones first are.
        detection_error: the least mean of missed unknown and flagged known shares over thresholds.
    """

    auroc: float
    aupr_unknown: float
    aupr_known: float
    fpr95: float
    detection_error: float


def detect_unknown(known: npt.ArrayLike, unknown: npt.ArrayLike) -> Detection:
    """Judges scores that are higher the less known an input looks.

    Args:
        known: scores of known inputs, (known,).
        unknown: of unknown ones, (unknown,).

    Raises:
        ValueError: either is empty, or a score is NaN.

    >>> detect_unknown([0.1, 0.2, 0.6, 0.3], [0.5, 0.9]).auroc
    0.875

    Source: Hendrycks & Gimpel, ICLR 2017; as pytorch-ood's OODMetrics.
    """
    inside, outside = (np.asarray(part, dtype=np.float64).ravel() for part in (known, unknown))
    if not inside.size or not outside.size or np.isnan(inside).any() or np.isnan(outside).any():
        raise ValueError(
            f"scores is invalid: expected numbers of known and unknown inputs, got {inside.size} and {outside.size}, "
            f"of which {int(np.isnan(inside).sum() + np.isnan(outside).sum())} are NaN"
        )
    scores = np.concatenate([inside, outside])
    flags = np.arange(scores.size) >= inside.size
    values = detection_values(scores, flags, np.ones((1, scores.size)))
    return Detection(*(float(value) for value in values[0]))


def detection_values(scores: Floats, unknown: Bools, times: Floats) -> Floats:
    """Returns weighted `MEASURES`: (resample, input) -> (resample, measure); NaN without both kinds."""
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    weights = times[:, order]
    hits = np.cumsum(weights * unknown[order], axis=1)[:, last]
    flagged = np.cumsum(weights * ~unknown[order], axis=1)[:, last]
    recall, false = (quotient(part, np.repeat(part[:, -1:], part.shape[1], axis=1)) for part in (hits, flagged))
    area = _trapezoid_area(_prepend_start(0.0, false), _prepend_start(0.0, recall))
    first = np.argmax(recall >= 0.95 - 1e-12, axis=1)
    fpr = np.where(np.isnan(recall[:, -1]), np.nan, false[np.arange(len(false)), first])
    error = ((1 - _prepend_start(0.0, recall)) + _prepend_start(0.0, false)).min(axis=1) / 2
    # Known inputs from the lowest score up: what is not yet passed, of either side.
    rest_known = flagged[:, -1:] - _prepend_start(0.0, flagged)[:, :-1]
    rest_unknown = hits[:, -1:] - _prepend_start(0.0, hits)[:, :-1]
    precise = _precision_area(hits, flagged)
    inverse = _precision_area(rest_known[:, ::-1], rest_unknown[:, ::-1])
    return np.stack([area, precise, inverse, fpr, error], axis=1)


def _prepend_start(start: float, values: Floats) -> Floats:
    return np.concatenate([np.full((len(values), 1), start), values], axis=1)


def _trapezoid_area(across: Floats, up: Floats) -> Floats:
    return np.asarray((np.diff(across, axis=1) * (up[:, 1:] + up[:, :-1])).sum(axis=1) / 2)


def _precision_area(right: Floats, wrong: Floats) -> Floats:
    """Returns the trapezoid precision-recall area from (0, 1), cumulative counts."""
    recall = quotient(right, np.repeat(right[:, -1:], right.shape[1], axis=1))
    precision = quotient(right, right + wrong, 1.0)
    defined = wrong[:, -1] > 0
    return np.where(defined, _trapezoid_area(_prepend_start(0.0, recall), _prepend_start(1.0, precision)), np.nan)
