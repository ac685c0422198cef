"""Sets of labels by conformal prediction: LAC, APS and RAPS."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats, Ints
from medimg_eval.metrics.conformal.quantiles import check_alpha, conformal_quantile

SetMethod = Literal["lac", "aps", "raps"]
METHODS: tuple[SetMethod, ...] = ("lac", "aps", "raps")
PENALTIES = (0.001, 0.01, 0.1, 0.2, 0.5)
"""Of RAPS, those that its authors try."""
_ROUNDING = 1e-12


class Regularisation(NamedTuple):
    """Regularisation of RAPS: `penalty` for each rank behind `rank`."""

    penalty: float = 0.0
    rank: int = 0


NONE = Regularisation()


def _check_probabilities(probabilities: npt.ArrayLike) -> Floats:
    values = np.asarray(probabilities, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or not ((values >= -1e-6) & (values <= 1 + 1e-6)).all():
        raise ValueError(
            f"probabilities is invalid: expected (case, class) in [0, 1] of two classes or more, got {values.shape}"
        )
    return values


def label_scores(
    probabilities: npt.ArrayLike, method: SetMethod = "lac", regularisation: Regularisation = NONE
) -> Floats:
    """Returns how little each label conforms, (case, class).

    LAC: 1 - p. APS: the probability of the label and of all that are more probable (equal ones in their order). RAPS:
    the same plus a penalty for each rank behind the regularisation's.

    Raises:
        ValueError: probabilities are not (case, class) in [0, 1], or there is no such method.

    >>> label_scores([[0.5, 0.2, 0.3]], "aps").round(2).tolist()
    [[0.5, 1.0, 0.8]]

    Source: Sadinle et al., JASA 2019 (LAC); Romano et al., NeurIPS 2020 (APS); Angelopoulos et al., ICLR 2021 (RAPS).
    """
    values = _check_probabilities(probabilities)
    if method not in METHODS:
        raise ValueError(f"method is invalid: expected one of {', '.join(METHODS)}, got {method!r}")
    if method == "lac":
        return 1 - values
    order = np.argsort(-values, axis=1, kind="stable")
    added = np.cumsum(np.take_along_axis(values, order, axis=1), axis=1)
    if method == "raps":
        ranks = np.arange(1, values.shape[1] + 1)
        added = added + regularisation.penalty * np.maximum(ranks - regularisation.rank, 0)
    scores = np.empty_like(added)
    np.put_along_axis(scores, order, added, axis=1)
    return scores


def true_label_scores(
    probabilities: npt.ArrayLike,
    truth: npt.ArrayLike,
    method: SetMethod = "lac",
    regularisation: Regularisation = NONE,
    uniform: npt.ArrayLike = 0.0,
) -> Floats:
    """Returns how little the true label of each case conforms, (case,).

    Args:
        probabilities: (case, class).
        truth: the place of the true label of each case.
        method: of `label_scores`.
        regularisation: of RAPS.
        uniform: numbers drawn from 0 to 1, (case,): of APS and RAPS so large a part of the label's own probability does
            not count. Sets that end with the label that crosses the quantile are valid with and without; with, they are
            smaller.
    """
    true = np.asarray(truth, dtype=np.int64)[:, None]
    scores = np.take_along_axis(label_scores(probabilities, method, regularisation), true, axis=1)[:, 0]
    if method == "lac":
        return np.asarray(scores)
    own = np.take_along_axis(np.asarray(probabilities, dtype=np.float64), true, axis=1)[:, 0]
    return np.asarray(scores - np.asarray(uniform) * own)


def label_sets(
    probabilities: npt.ArrayLike,
    quantile: float | Floats,
    method: SetMethod = "lac",
    regularisation: Regularisation = NONE,
) -> Bools:
    """Returns which labels are in the set of each case, (case, class).

    LAC takes labels whose score is at most the quantile, and may take none. APS and RAPS take labels from the most
    probable down to the first with which the score reaches the quantile, so at least one.

    Args:
        probabilities: (case, class).
        quantile: of calibration cases; or (case,), that of the group of each.
        method: of `label_scores`.
        regularisation: of RAPS.

    >>> label_sets([[0.5, 0.2, 0.3]], 0.7, "aps").tolist()
    [[True, False, True]]
    """
    scores = label_scores(probabilities, method, regularisation)
    limit = np.broadcast_to(np.asarray(quantile, dtype=np.float64), scores.shape[:1])[:, None]
    inside = scores <= limit + _ROUNDING
    if method == "lac":
        return np.asarray(inside)
    below = np.where(scores < limit - _ROUNDING, scores, -np.inf)
    # The first label that reaches the quantile is the least of those that do.
    reaching = np.where(scores >= limit - _ROUNDING, scores, np.inf)
    first = reaching.argmin(axis=1)[:, None]
    chosen = np.isfinite(below)
    crossing = np.isfinite(np.take_along_axis(reaching, first, axis=1))
    np.put_along_axis(chosen, first, np.take_along_axis(chosen, first, axis=1) | crossing, axis=1)
    return np.asarray(chosen)


def choose_regularisation(probabilities: npt.ArrayLike, truth: npt.ArrayLike, alpha: float) -> Regularisation:
    """Chooses RAPS's rank and penalty for the smallest sets.

    The rank is the conformal quantile of the ranks of true labels, at most the number of classes; the penalty is one of
    `PENALTIES`, the first whose mean set on these cases is smallest. Cases so used may not calibrate.

    Source: Angelopoulos et al., ICLR 2021, appendix E.
    """
    check_alpha(alpha)
    values, true = _check_probabilities(probabilities), np.asarray(truth, dtype=np.int64)
    order = np.argsort(-values, axis=1, kind="stable")
    ranks = (order == true[:, None]).argmax(axis=1) + 1
    rank = int(min(conformal_quantile(ranks, alpha), values.shape[1]))
    tried = [Regularisation(penalty, rank) for penalty in PENALTIES]
    return min(tried, key=lambda chosen: _mean_size(values, true, alpha, chosen))


def _mean_size(values: Floats, true: Ints, alpha: float, regularisation: Regularisation) -> float:
    quantile = conformal_quantile(true_label_scores(values, true, "raps", regularisation), alpha)
    return float(label_sets(values, quantile, "raps", regularisation).sum(axis=1).mean())
