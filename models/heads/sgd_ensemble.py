"""Logistic regressions by stochastic gradient descent from many seeds, averaged, as Owkin's tile protocol has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from medimg_eval.case import Array
from medimg_eval.models.heads.base import Features, Head, Targets, as_vectors, refuse_absent
from medimg_eval.models.heads.scaling import scaled, scaling_of


@dataclass(kw_only=True)
class SgdEnsemble(Head):
    """scikit-learn's `SGDClassifier` (log loss, l2, adaptive rate) on scaled features; probabilities are averaged.

    Of more than two classes, each has a classifier against the rest, whose probabilities are brought to a sum of 1.

    Args:
        members: classifiers, of seeds 0, 1, ...
        rate: the learning rate that they start with.
        alpha: strength of the penalty.
    """

    kinds = frozenset({"exclusive"})

    members: int = 30
    rate: float = 1e-4
    alpha: float = 1e-4

    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Fits all members."""
        from sklearn.linear_model import SGDClassifier

        vectors = as_vectors(features)
        refuse_absent(targets)
        codes = targets.codes
        mean, deviation = scaling_of(vectors, "standard")
        vectors_ = scaled(vectors, mean, deviation)
        weights, biases = [], []
        for seed in range(self.members):
            member = SGDClassifier(
                loss="log_loss",
                penalty="l2",
                alpha=self.alpha,
                learning_rate="adaptive",
                eta0=self.rate,
                random_state=seed,
            ).fit(vectors_, codes)
            weights.append(member.coef_)
            biases.append(member.intercept_)
        self.arrays = {
            "weight": np.stack(weights).astype(np.float64),
            "bias": np.stack(biases).astype(np.float64),
            "mean": mean,
            "deviation": deviation,
        }
        self.facts = {"kind": targets.kind, "names": list(targets.names)}
        return self

    def predict(self, features: Features) -> Array:
        """Returns the mean probabilities, float64, (case, class)."""
        held = self.arrays
        vectors = as_vectors(features, expected=len(held["mean"]))
        vectors_ = scaled(vectors, held["mean"], held["deviation"]).astype(np.float64)
        total = np.zeros((len(vectors_), len(self.facts["names"])))
        for weight, bias in zip(held["weight"], held["bias"], strict=True):
            present = np.exp(-np.logaddexp(0, -(vectors_ @ weight.T + bias)))
            if present.shape[1] == 1:
                present = np.hstack([1 - present, present])
            total += present / present.sum(1, keepdims=True)
        return total / len(held["weight"])
