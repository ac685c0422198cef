"""Heads that compare features with those they know: nearest neighbours, and prototypes of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.heads.base import Features, Head, Targets, as_vectors, refuse_absent
from medimg_eval.models.heads.scaling import scaled, scaling_of

CENTRES = ("none", "mean", "standard")

QUERIES = 1024
"""Cases that are compared with all known ones at once."""

BLOCK = 64
"""Cosines in a row that are first known by their largest."""


@dataclass(kw_only=True)
class NearestNeighbours(Head):
    """Each of the k nearest cases, by cosine, votes for its classes.

    Vectors of length 1 are compared, so that the order by cosine is that by Euclidean distance. Of equally near cases
    the earlier one counts; of equal votes the class that comes first has the larger share.

    Args:
        k: neighbours.
        temperature: a vote weighs exp(cosine / temperature); None for votes of equal weight.
        centre: what is taken from features first: `none`, the `mean` of the cases to fit on, as UNI's protocol has it,
            or `standard`, which also divides by their deviation.

        precision: `float32` compares all cases exactly; `bfloat16` finds candidates in it, which processors with
            instructions for it do faster, and compares these exactly: about one neighbour in ten thousand is another.

    Raises:
        UsageError: invalid settings.
    """

    uses_torch: ClassVar[bool] = True

    k: int = 20
    temperature: float | None = 0.07
    centre: str = "none"
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        UsageError.refuse_invalid("head.centre", CENTRES, self.centre)
        UsageError.refuse_invalid("head.precision", ("float32", "bfloat16"), self.precision)
        if self.k < 1 or (self.temperature is not None and self.temperature <= 0):
            raise UsageError(f"expected head.k from 1 and head.temperature above 0, got {self.k}, {self.temperature}")

    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Keeps the cases."""
        vectors = as_vectors(features)
        refuse_absent(targets)
        if self.k > len(vectors):
            raise UserError(f"head.k is {self.k}, and there are {len(vectors)} cases to fit on")
        if np.isnan(targets.values).any():
            raise UserError("nearest neighbours need to know every class of each case to fit on; use head=logistic")
        mean, deviation = _centre_of(vectors, self.centre)
        references = unit(scaled(vectors, mean, deviation))
        self.arrays = {"known": references, "votes": targets.values, "mean": mean, "deviation": deviation}
        self.facts = {"kind": targets.kind, "names": list(targets.names)}
        return self

    def predict(self, features: Features) -> Array:
        """Returns each class's share of the votes, float64, (case, class)."""
        held = self.arrays
        vectors = as_vectors(features, expected=held["known"].shape[1])
        queries = unit(scaled(vectors, held["mean"], held["deviation"]).astype(held["known"].dtype, copy=False))
        indices, cosines = nearest_rows(held["known"], queries, self.k, precision=self.precision)
        weights = np.ones_like(cosines)
        if self.temperature is not None:
            weights = np.exp((cosines - cosines.max(1, keepdims=True)) / self.temperature)
        votes = np.einsum("qk,qkc->qc", weights, held["votes"][indices])
        shares: Array = votes / weights.sum(1, keepdims=True)
        return shares


@dataclass(kw_only=True)
class Prototypes(Head):
    """SimpleShot: nearest class mean of centred unit features (CL2N).

    Centred by the mean of the cases to fit on. A class's prototype is the mean of its cases, which is not brought to
    length 1 again. Shares of classes are a softmax of the negative squared distances; the order alone has a meaning.
    """

    kinds = frozenset({"exclusive"})

    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Takes the means."""
        vectors = as_vectors(features)
        refuse_absent(targets)
        codes = targets.codes
        mean, deviation = _centre_of(vectors, "mean")
        vectors_ = unit(scaled(vectors, mean, deviation))
        means = np.stack([vectors_[codes == code].mean(0, dtype=np.float64) for code in range(len(targets.names))])
        self.arrays = {"prototypes": means, "mean": mean, "deviation": deviation}
        self.facts = {"kind": targets.kind, "names": list(targets.names)}
        return self

    def predict(self, features: Features) -> Array:
        """Returns class shares, float64, (case, class), largest for the nearest prototype."""
        held = self.arrays
        vectors = as_vectors(features, expected=len(held["mean"]))
        vectors_ = unit(scaled(vectors, held["mean"], held["deviation"])).astype(np.float64)
        away = -((vectors_[:, None] - held["prototypes"][None]) ** 2).sum(2)
        shares = np.exp(away - away.max(1, keepdims=True))
        probabilities: Array = shares / shares.sum(1, keepdims=True)
        return probabilities


def unit(vectors: Array) -> Array:
    """Vectors of length 1, in their dtype; zeros stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    unit_vectors: Array = vectors / np.maximum(lengths, np.finfo(vectors.dtype).tiny)[:, None]
    return unit_vectors


def nearest_rows(known: Array, shown: Array, k: int, *, precision: str = "float32") -> tuple[Array, Array]:
    """Finds the k known vectors of largest cosine.

    Args:
        known: of length 1, float32 or float64, (known, feature).
        shown: the same, (case, feature).
        k: how many.
        precision: `bfloat16` finds candidates in it, four times as many and some, and compares these in full.

    Returns:
        Their rows, int64, and cosines, float64, both (case, k), the nearest first; of equal ones the earlier row.
    """
    import torch

    base = torch.from_numpy(np.ascontiguousarray(known))
    rough = base.bfloat16() if precision == "bfloat16" else None
    indices, cosines = [], []
    for at in range(0, len(shown), QUERIES):
        some = torch.from_numpy(np.ascontiguousarray(shown[at : at + QUERIES]))
        if rough is None:
            similarities, candidates = _largest_values(some @ base.T, k)
        else:
            wanted = min(len(known), 4 * k + 16)
            _, candidates = _largest_values((some.bfloat16() @ rough.T).float(), wanted, ties=False)
            similarities = torch.stack([base[few] @ query for few, query in zip(candidates, some, strict=True)])
        order = np.lexsort((candidates.numpy(), -similarities.numpy()), axis=1)[:, :k]
        indices.append(np.take_along_axis(candidates.numpy(), order, 1))
        cosines.append(np.take_along_axis(similarities.double().numpy(), order, 1))
    return np.concatenate(indices), np.concatenate(cosines)


def _largest_values(alike: Any, k: int, *, ties: bool = True) -> tuple[Any, Any]:
    """Positions and values of each row's k largest; earlier ones win ties.

    The k largest lie in the k blocks of largest maxima, so that one pass over a row finds them.
    """
    import torch

    count, full = alike.shape[1], alike.shape[1] // BLOCK * BLOCK
    if full // BLOCK <= 2 * k:
        values, indices = torch.topk(alike, k, dim=1)
        crowded = (alike >= values[:, -1:]).sum(1) > k
    else:
        tops = alike[:, :full].unflatten(1, (BLOCK, -1)).amax(1)  # over columns far apart, which is quickest
        blocks = torch.topk(tops, k, dim=1).indices
        few = (blocks[:, :, None] + torch.arange(0, full, full // BLOCK)).flatten(1)
        few = torch.cat([few, torch.arange(full, count).expand(len(few), -1)], 1)
        held = alike.gather(1, few)
        values, inner = torch.topk(held, k, dim=1)
        indices, border = few.gather(1, inner), values[:, -1:]
        crowded = ((held >= border).sum(1) > k) | ((tops >= border).sum(1) > k)
    for row in torch.nonzero(crowded)[:, 0].tolist() if ties else ():
        order = torch.sort(alike[row], descending=True, stable=True).indices[:k]
        values[row], indices[row] = alike[row][order], order
    return values, indices


def _centre_of(vectors: Array, centre: str) -> tuple[Array, Array]:
    mean, deviation = scaling_of(vectors, "none" if centre == "none" else "standard")
    return mean, (deviation if centre == "standard" else np.ones_like(deviation))
