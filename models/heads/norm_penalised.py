"""UNI's linear probe, whose penalty is the norm of the weights and not its square."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from medimg_eval.case import Array
from medimg_eval.models.heads.base import Features, Head, Targets, as_vectors, refuse_absent


@dataclass(kw_only=True)
class NormPenalised(Head):
    """Logistic regression penalised by the unsquared norm over 2 C.

    It is fitted by L-BFGS with a strong Wolfe line search, from zero. Its C is not that of `logistic`: the loss is a
    mean, and the penalty is not squared.

    Args:
        C: inverse strength; `adaptive` is length of features x classes / 100, as published.
        max_iter: iterations at most.
    """

    kinds = frozenset({"exclusive"})

    C: float | Literal["adaptive"] = "adaptive"
    max_iter: int = 1000

    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Fits."""
        import torch

        vectors = as_vectors(features)
        refuse_absent(targets)
        amount = vectors.shape[1] * len(targets.names) / 100 if self.C == "adaptive" else float(self.C)
        tensor = torch.from_numpy(np.ascontiguousarray(vectors))
        codes = torch.from_numpy(targets.codes)
        weight = torch.zeros(len(targets.names), tensor.shape[1], dtype=tensor.dtype, requires_grad=True)
        bias = torch.zeros(len(targets.names), dtype=tensor.dtype, requires_grad=True)
        search = torch.optim.LBFGS([weight, bias], max_iter=self.max_iter, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            search.zero_grad()
            loss = torch.nn.functional.cross_entropy(tensor @ weight.T + bias, codes)
            # At zero the norm has no gradient; 0 is one of its subgradients.
            loss = loss + weight.norm() / (2 * amount) if weight.any() else loss
            loss.backward()
            return loss

        search.step(closure)
        self.arrays = {
            "weight": weight.detach().numpy().astype(np.float64),
            "bias": bias.detach().numpy().astype(np.float64),
        }
        taken = int(next(iter(search.state.values()))["n_iter"])
        self.facts = {
            "kind": targets.kind,
            "names": list(targets.names),
            "C": amount,
            "n_iter": taken,
            "converged": taken < self.max_iter,
            "objective": float(closure().detach()),
        }
        return self

    def predict(self, features: Features) -> Array:
        """Returns probabilities, float64, (case, class)."""
        held = self.arrays
        logits = as_vectors(features, expected=held["weight"].shape[1]).astype(np.float64) @ held["weight"].T
        logits = logits + held["bias"]
        shares = np.exp(logits - logits.max(1, keepdims=True))
        probabilities: Array = shares / shares.sum(1, keepdims=True)
        return probabilities
