"""RATE-Evals' linear probe: one layer for all findings, whose positives weigh as much as their negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UsageError
from medimg_eval.models.heads.base import Features, Head, Targets, as_vectors


@dataclass(kw_only=True)
class BalancedLinear(Head):
    """Linear head of independent findings, by binary cross entropy and Adam.

    A positive of a finding weighs negatives over positives of the cases to fit on, 1 where it has none. A finding of
    which nothing is known in a case is left out there.

    Args:
        learning_rate: of Adam.
        batch: cases of a step.
        epochs: how often all cases are seen.
        weight_decay: of Adam.
        seed: of the first weights, and of the order of cases.

    Raises:
        UsageError: invalid settings.
    """

    kinds = frozenset({"classes"})

    learning_rate: float = 1e-3
    batch: int = 8192
    epochs: int = 1000
    weight_decay: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses steps that are none."""
        if self.learning_rate <= 0 or self.batch < 1 or self.epochs < 1:
            raise UsageError("expected head.learning_rate above 0, and head.batch and head.epochs from 1")

    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Fits."""
        import torch

        vectors = torch.from_numpy(np.ascontiguousarray(as_vectors(features), dtype=np.float32))
        is_known = torch.from_numpy(~np.isnan(targets.values))
        truth = torch.from_numpy(np.nan_to_num(targets.values).astype(np.float32))
        positives, negatives = ((truth == value) & is_known for value in (1, 0))
        weights = torch.where(positives.any(0), negatives.sum(0) / positives.sum(0).clamp(min=1), 1.0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            layer = torch.nn.Linear(vectors.shape[1], len(targets.names))
            optimiser = torch.optim.Adam(layer.parameters(), self.learning_rate, weight_decay=self.weight_decay)
            for _ in range(self.epochs):
                for rows in torch.randperm(len(vectors)).split(self.batch):
                    optimiser.zero_grad()
                    losses = torch.nn.functional.binary_cross_entropy_with_logits(
                        layer(vectors[rows]), truth[rows], pos_weight=weights, reduction="none"
                    )
                    loss = losses[is_known[rows]].mean()
                    loss.backward()
                    optimiser.step()
        self.arrays = {
            "weight": layer.weight.detach().numpy().astype(np.float64),
            "bias": layer.bias.detach().numpy().astype(np.float64),
        }
        self.facts = {
            "kind": targets.kind,
            "names": list(targets.names),
            "objective": float(loss.detach()),
            "without_positives": [name for name, has in zip(targets.names, positives.any(0), strict=True) if not has],
        }
        return self

    def predict(self, features: Features) -> Array:
        """Returns probabilities, float64, (case, class)."""
        held = self.arrays
        logits = as_vectors(features, expected=held["weight"].shape[1]).astype(np.float64) @ held["weight"].T
        return np.exp(-np.logaddexp(0, -(logits + held["bias"])))
