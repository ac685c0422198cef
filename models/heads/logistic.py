"""Logistic regression on features: what papers call a linear probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.case import Array
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.heads.base import Features, Grid, PathHead, Targets, as_vectors, refuse_absent
from medimg_eval.models.heads.scaling import scaled, scaling_of

SMALL = 16_000_000
"""Up to so many numbers, everything is computed in float64; beyond, in the features' dtype."""


@dataclass(kw_only=True)
class LogisticRegression(PathHead):
    """Logistic regression: summed cross entropy plus squared weights over 2 C.

    Two classes that exclude each other share one vector of weights, as in scikit-learn. Deterministic: there is no
    seed. `facts` keep C, n_iter, converged and the objective.

    Args:
        C: inverse strength of the penalty; `adaptive` is length of features x classes / 100.
        balanced: whether each class counts alike: cases weigh n / (classes x n of their class).
        scale: `standard`, by mean and deviation of the cases to fit on, or `none`.
        tolerance: how far, as a share, the objective may be above its minimum, as estimated; by default 1e-12 where
            float64 is computed in, and 1e-7 else.
        max_iter: iterations at most.

    Raises:
        UsageError: invalid settings.
    """

    C: float | Literal["adaptive"] = 1.0
    balanced: bool = False
    scale: str = "standard"
    tolerance: float | None = None
    max_iter: int = 500

    def __post_init__(self) -> None:
        """Refuses a C that is none."""
        wrong = self.C != "adaptive" if isinstance(self.C, str) else not 0 < self.C < float("inf")
        if wrong:
            raise UsageError(f"expected head.C to be a number above 0, or `adaptive`, got {self.C!r}")

    def fit_path(self, features: Features, targets: Targets, groups: Sequence[str] | None, grid: Grid) -> list[Self]:
        """Fits settings in turn, sharing eigenvectors and starting points."""
        heads = [self.changed(change) for change in grid]
        heads_: dict[int, Self] = {}
        for some in grouped((repr(replace(head, C=1.0)), index) for index, head in enumerate(heads)).values():
            heads_ |= dict(zip(some, _fit_heads(features, targets, [heads[index] for index in some]), strict=True))
        return [heads_[index] for index in range(len(heads))]

    def predict(self, features: Features) -> Array:
        """Returns probabilities, float64, (case, class)."""
        held = self.arrays
        vectors = scaled(as_vectors(features, expected=len(held["mean"])), held["mean"], held["deviation"])
        logits = np.float64(vectors @ held["weight"].T.astype(vectors.dtype)) + held["bias"]
        if self.facts["kind"] == "classes" or logits.shape[1] == 1:
            present = np.exp(-np.logaddexp(0, -logits))
            return present if self.facts["kind"] == "classes" else np.hstack([1 - present, present])
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        shares: Array = shifted / shifted.sum(1, keepdims=True)
        return shares

    def logits(self, features: Any) -> Any:
        """Returns what `predict` takes shares of, as a tensor that gradients go through.

        It is (case, class); of two classes that exclude each other minus and plus the same number.
        """
        import torch

        held = {name: torch.from_numpy(np.asarray(array)).to(features) for name, array in self.arrays.items()}
        logits = (features - held["mean"]) / held["deviation"] @ held["weight"].T + held["bias"]
        alone = self.facts["kind"] != "classes" and logits.shape[1] == 1
        return torch.cat([-logits, logits], dim=1) if alone else logits


def _fit_heads(features: Features, targets: Targets, heads: Sequence[Any]) -> list[Any]:
    """Heads that differ in C alone, fitted."""
    import torch

    from medimg_eval.models.heads.convex import LogisticLoss, minimise

    first = heads[0]
    vectors = as_vectors(features)
    refuse_absent(targets)
    if len(vectors) != len(targets):
        raise UserError(f"there are {len(vectors)} vectors for {len(targets)} cases")
    mean, deviation = scaling_of(vectors, first.scale)
    if vectors.size <= SMALL:
        vectors = vectors.astype(np.float64)
    tensor = torch.from_numpy(np.ascontiguousarray(scaled(vectors, mean, deviation)))
    exclusive = targets.kind == "exclusive" and len(targets.names) > 2
    truth, weights = _truth_matrix(targets, exclusive=exclusive, balanced=first.balanced)
    loss = LogisticLoss(
        tensor, torch.from_numpy(truth).to(tensor), torch.from_numpy(weights).to(tensor), exclusive=exclusive
    )
    amounts = [_regularisation_amount(head.C, vectors.shape[1], len(targets.names)) for head in heads]
    order = np.argsort(amounts, kind="stable")
    tolerance = first.tolerance or (1e-12 if tensor.dtype == torch.float64 else 1e-7)
    solved = minimise(loss, [1 / amounts[index] for index in order], tolerance=tolerance, iterations=first.max_iter)
    for index, solution in zip(order, solved, strict=True):
        weight, bias = solution.weight.double().numpy(), solution.bias.double().numpy()
        heads[index].arrays = {"weight": weight, "bias": bias, "mean": mean, "deviation": deviation}
        heads[index].facts = {
            "kind": targets.kind,
            "names": list(targets.names),
            "C": amounts[index],
            "n_iter": solution.iterations,
            "converged": solution.converged,
            "objective": solution.objective,
        }
    return list(heads)


def _regularisation_amount(given: float | str, width: int, classes: int) -> float:
    return width * classes / 100 if given == "adaptive" else float(given)


def _truth_matrix(targets: Targets, *, exclusive: bool, balanced: bool) -> tuple[Array, Array]:
    """Targets, float64, (case, output), with weights of cases or outputs."""
    values = np.nan_to_num(targets.values)
    if targets.kind == "exclusive":
        codes = targets.codes
        counts = np.bincount(codes, minlength=len(targets.names))
        weights = (len(codes) / (len(counts) * counts))[codes] if balanced else np.ones(len(codes))
        return (values, weights) if exclusive else (values[:, 1:], weights[:, None])
    weights_ = (~np.isnan(targets.values)).astype(np.float64)
    if balanced:
        present = np.where(values >= 0.5, weights_, 0)
        positives, of = present.sum(0), weights_.sum(0)
        weights_ = np.where(present > 0, of / (2 * positives), weights_ * of / (2 * (of - positives)))
    return values, weights_
