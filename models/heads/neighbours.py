"""Heads that compare features with those they know: nearest neighbours, and prototypes of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.heads.base import Features, Head, Targets, as_vectors, refuse_absent
from medimg_eval.models.heads.scaling import scaled, scaling_of

CENTRES = ("none", "mean", "standard")

QUERIES = 1024
"""Cases that are compared with all known ones at once."""


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

    Raises:
        UsageError: settings that cannot be meant.
    """

    uses_torch: ClassVar[bool] = True

    k: int = 20
    temperature: float | None = 0.07
    centre: str = "none"

    def __post_init__(self) -> None:
        """Refuses settings that cannot be meant."""
        UsageError.refuse_unknown("head.centre is", CENTRES, self.centre)
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
        known = unit(scaled(vectors, mean, deviation))
        self.arrays = {"known": known, "votes": targets.values, "mean": mean, "deviation": deviation}
        self.facts = {"kind": targets.kind, "names": list(targets.names)}
        return self

    def predict(self, features: Features) -> Array:
        """Returns each class's share of the votes, float64, (case, class)."""
        held = self.arrays
        vectors = as_vectors(features, expected=held["known"].shape[1])
        shown = unit(scaled(vectors, held["mean"], held["deviation"]).astype(held["known"].dtype, copy=False))
        places, cosines = nearest_rows(held["known"], shown, self.k)
        weights = np.ones_like(cosines)
        if self.temperature is not None:
            weights = np.exp((cosines - cosines.max(1, keepdims=True)) / self.temperature)
        votes = np.einsum("qk,qkc->qc", weights, held["votes"][places])
        shares: Array = votes / weights.sum(1, keepdims=True)
        return shares


@dataclass(kw_only=True)
class Prototypes(Head):
    """SimpleShot: the class whose mean is nearest; features are centred and of length 1 before (CL2N).

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
        shown = unit(scaled(vectors, mean, deviation))
        means = np.stack([shown[codes == code].mean(0, dtype=np.float64) for code in range(len(targets.names))])
        self.arrays = {"prototypes": means, "mean": mean, "deviation": deviation}
        self.facts = {"kind": targets.kind, "names": list(targets.names)}
        return self

    def predict(self, features: Features) -> Array:
        """Returns shares of the classes, float64, (case, class), the largest for the nearest prototype."""
        held = self.arrays
        vectors = as_vectors(features, expected=len(held["mean"]))
        shown = unit(scaled(vectors, held["mean"], held["deviation"])).astype(np.float64)
        away = -((shown[:, None] - held["prototypes"][None]) ** 2).sum(2)
        shares = np.exp(away - away.max(1, keepdims=True))
        found: Array = shares / shares.sum(1, keepdims=True)
        return found


def unit(vectors: Array) -> Array:
    """Vectors of length 1, in their dtype; zeros stay."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    found: Array = vectors / np.maximum(lengths, np.finfo(vectors.dtype).tiny)[:, None]
    return found


def nearest_rows(known: Array, shown: Array, k: int) -> tuple[Array, Array]:
    """Finds the k known vectors of largest cosine, exactly.

    Where the processor multiplies bfloat16 by itself, candidates are found in it, and compared in full precision.

    Args:
        known: of length 1, float32 or float64, (known, feature).
        shown: the same, (case, feature).
        k: how many.

    Returns:
        Their rows, int64, and cosines, float64, both (case, k), the nearest first; of equal ones the earlier row.
    """
    import torch

    base = torch.from_numpy(np.ascontiguousarray(known))
    # A candidate's cosine in bfloat16 is off by about 1e-3, so that more are looked at than are wanted.
    rough = base.bfloat16() if has_bfloat16() and base.dtype == torch.float32 and len(known) > 64 * k else None
    wanted = min(len(known), 4 * k + 16) if rough is not None else k
    places, cosines = [], []
    for at in range(0, len(shown), QUERIES):
        some = torch.from_numpy(np.ascontiguousarray(shown[at : at + QUERIES]))
        if rough is None:
            alike, found = _largest(some @ base.T, wanted)
        else:
            _, found = _largest((some.bfloat16() @ rough.T).float(), wanted)
            alike = torch.bmm(base[found], some[:, :, None])[:, :, 0]
        order = np.lexsort((found.numpy(), -alike.numpy()), axis=1)[:, :k]
        places.append(np.take_along_axis(found.numpy(), order, 1))
        cosines.append(np.take_along_axis(alike.double().numpy(), order, 1))
    return np.concatenate(places), np.concatenate(cosines)


def has_bfloat16() -> bool:
    """Whether the processor has instructions for products in bfloat16."""
    import torch

    capable: Any = getattr(torch.cpu, "get_capabilities", dict)()
    if capable:
        return bool(capable.get("avx512_bf16") or capable.get("amx_bf16"))
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", bool)())


def _largest(alike: Any, k: int) -> tuple[Any, Any]:
    """The k largest of each row and their places, not in order; of equal ones at the border the earlier."""
    import torch

    values, places = torch.topk(alike, k, dim=1, sorted=True)
    # topk takes any of equal values; where the last one has equals outside, the earliest of them are meant.
    border = values[:, -1:]
    crowded = (alike == border).sum(1) > (values == border).sum(1)
    for row in torch.nonzero(crowded)[:, 0].tolist():
        order = torch.sort(alike[row], descending=True, stable=True).indices[:k]
        values[row], places[row] = alike[row][order], order
    return values, places


def _centre_of(vectors: Array, centre: str) -> tuple[Array, Array]:
    mean, deviation = scaling_of(vectors, "none" if centre == "none" else "standard")
    return mean, (deviation if centre == "standard" else np.ones_like(deviation))
