"""How unlike what is known an input is: by what a model says of it, or by its features. Higher is less known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Floats

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


_RIDGE = 1e-6
"""Of the mean variance: added to a covariance, so that it has an inverse."""
NEIGHBOURS = 50
"""Of the reference, as Sun et al. choose for 50,000 images; of fewer cases a fiftieth is taken."""


def max_probability(probabilities: npt.ArrayLike) -> Floats:
    """Returns 1 - the largest probability (MSP), (case, class) -> (case,).

    Source: Hendrycks & Gimpel, ICLR 2017, arXiv 1610.02136.
    """
    return np.asarray(1 - np.asarray(probabilities, dtype=np.float64).max(axis=1))


def entropy(probabilities: npt.ArrayLike) -> Floats:
    """Returns the entropy of a softmax in nats, (case, class) -> (case,)."""
    values = np.asarray(probabilities, dtype=np.float64)
    logs = np.log(values, out=np.zeros_like(values), where=values > 0)
    return np.asarray(-(values * logs).sum(axis=1))


def energy(logits: npt.ArrayLike, temperature: float = 1.0) -> Floats:
    """Returns energy, -T log sum exp(logit / T), (case, class) -> (case,).

    >>> energy([[0.0, 0.0]]).round(4).tolist()
    [-0.6931]

    Source: Liu et al., NeurIPS 2020, arXiv 2010.03759.
    """
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    most = scaled.max(axis=1, keepdims=True)
    return np.asarray(-temperature * (most[:, 0] + np.log(np.exp(scaled - most).sum(axis=1))))


def joint_energy(probabilities: npt.ArrayLike) -> Floats:
    """Returns joint energy, -sum log(1 + exp(logit)): (case, class) -> (case,).

    A sigmoid's logit is known, and log(1 + exp(logit)) is -log(1 - p).

    Source: Wang et al., NeurIPS 2021, arXiv 2109.14162.
    """
    clipped = np.clip(np.asarray(probabilities, dtype=np.float64), 0, 1 - 1e-7)
    return np.asarray(np.log1p(-clipped).sum(axis=1))


def mahalanobis(features: npt.ArrayLike, reference: npt.ArrayLike, classes: Sequence[Hashable] | None = None) -> Floats:
    """Returns squared Mahalanobis distance to the nearest known class: (case, feature) -> (case,).

    One covariance is shared by all classes, with a millionth of its mean variance added to the diagonal.

    Args:
        features: of what is judged, (case, feature).
        reference: of cases that are known, (reference, feature), such as those that a model was fitted on.
        classes: of the reference cases; None takes all for one class.

    Raises:
        ValueError: shapes do not match, or there are fewer than two reference cases.

    Source: Lee et al., NeurIPS 2018, arXiv 1807.03888.
    """
    judged, reference_rows = _check_features(features, reference)
    names = np.zeros(len(reference_rows)) if classes is None else np.asarray(list(classes), dtype=object)
    if len(names) != len(reference_rows):
        raise ValueError(f"classes is invalid: expected one for each of {len(reference_rows)} cases, got {len(names)}")
    groups = [names == name for name in dict.fromkeys(names.tolist())]
    means = np.stack([reference_rows[group].mean(axis=0) for group in groups])
    centred = np.concatenate([reference_rows[group] - mean for group, mean in zip(groups, means, strict=True)])
    covariance = centred.T @ centred / len(reference_rows)
    covariance += np.eye(len(covariance)) * max(_RIDGE * float(np.trace(covariance)) / len(covariance), 1e-12)
    inverse = np.linalg.inv(covariance)
    apart = judged[:, None] - means[None]
    return np.asarray(np.einsum("ncf,fg,ncg->nc", apart, inverse, apart, optimize=True).min(axis=1))


def nearest_neighbour(features: npt.ArrayLike, reference: npt.ArrayLike, neighbours: int | None = None) -> Floats:
    """Returns k-th neighbour distance to known cases, unit vectors.

    (case, feature) -> (case,).

    Args:
        features: of what is judged.
        reference: of cases that are known.
        neighbours: k; None takes a fiftieth of the reference, between 1 and 50.

    Raises:
        ValueError: shapes do not match, or there are fewer reference cases than k.

    Source: Sun et al., ICML 2022, arXiv 2204.06507.
    """
    judged, reference_rows = _check_features(features, reference)
    count = min(max(len(reference_rows) // NEIGHBOURS, 1), NEIGHBOURS) if neighbours is None else neighbours
    if not 1 <= count <= len(reference_rows):
        raise ValueError(f"neighbours is invalid: expected 1 to {len(reference_rows)}, got {count}")
    judged, reference_rows = (
        part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12) for part in (judged, reference_rows)
    )
    squares = np.maximum(2 - 2 * judged @ reference_rows.T, 0)
    return np.asarray(np.sqrt(np.partition(squares, count - 1, axis=1)[:, count - 1]))


def _check_features(features: npt.ArrayLike, reference: npt.ArrayLike) -> tuple[Floats, Floats]:
    judged, reference_rows = (np.asarray(part, dtype=np.float64) for part in (features, reference))
    if (
        judged.ndim != 2
        or reference_rows.ndim != 2
        or judged.shape[1] != reference_rows.shape[1]
        or len(reference_rows) < 2
    ):
        raise ValueError(
            "features is invalid: expected (case, feature) and two reference cases or more of as many features, "
            f"got {judged.shape} and {reference_rows.shape}"
        )
    return judged, reference_rows
