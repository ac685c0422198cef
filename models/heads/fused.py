"""Heads on several unlike parts of a case, such as OCT, fundus and values of a table, of which some may be missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UserError
from medimg_eval.models.heads.base import Features, Head, Kind, Targets, make_head

EVERY: frozenset[Kind] = frozenset({"exclusive", "classes", "numbers", "survival"})


@dataclass(kw_only=True)
class _Fused(Head):
    """Head over concatenated parts; NaN marks missing values.

    Attributes:
        of: the head on vectors that learns: its name, or `name` and its settings.
        blocks: part -> how many features it has, in their order; a model that fuses parts sets it.
    """

    kinds: ClassVar[frozenset[Kind]] = EVERY
    of: str | Mapping[str, Any] = "logistic"
    blocks: dict[str, int] = field(default_factory=dict)

    def _checked(self, features: Features, targets: Targets | None = None) -> Array:
        """Checked features, float64; UserError for wrong widths or unlearnable targets."""
        array = np.asarray(features, np.float64)
        width = sum(self.blocks.values())
        if array.ndim != 2 or array.shape[1] != width:
            raise UserError(f"features have shape {array.shape}, expected {width} of parts {', '.join(self.blocks)}")
        inner = make_head(self.of)
        if inner.takes != "vectors" or (targets is not None and targets.kind not in inner.kinds):
            what = "bags" if inner.takes != "vectors" else f"no {targets.kind if targets else ''}"
            raise UserError(f"head {type(self).__name__} is over {type(inner).__name__}, which learns {what}")
        return array

    def _parts(self, features: Array) -> Iterator[tuple[str, Array]]:
        """The features of each part, (case, feature)."""
        begin = 0
        for part, width in self.blocks.items():
            yield part, features[:, begin : begin + width]
            begin += width

    def _keep(self, heads: Mapping[str, Head]) -> None:
        self.arrays |= {f"{part}/{name}": array for part, head in heads.items() for name, array in head.arrays.items()}
        self.facts["heads"] = {part: head.facts for part, head in heads.items()}

    def _kept(self, part: str) -> Head:
        head = make_head(self.of)
        head.arrays = {name.partition("/")[2]: a for name, a in self.arrays.items() if name.partition("/")[0] == part}
        head.facts = self.facts["heads"][part]
        return head

    def save(self, folder: Any) -> None:
        """Writes `head.safetensors` and `head.json` into a folder."""
        self.of = json.loads(json.dumps(self.of if isinstance(self.of, str) else dict(self.of)))
        super().save(folder)


@dataclass(kw_only=True)
class EarlyFusion(_Fused):
    """One head on the features of all parts side by side.

    What is missing has the mean of the cases to fit on, and of each part that any of them lacks one more feature says
    whether it is there.
    """

    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Fits the head; raises UserError for a part that no case has."""
        array = self._checked(features, targets)
        missing = [part for part, some in self._parts(array) if np.isnan(some).all()]
        if missing:
            raise UserError(f"no case to fit on has {', '.join(missing)}")
        held = ~np.isnan(array)
        mean = np.where(held, array, 0).sum(0) / np.maximum(held.sum(0), 1)
        gaps = np.array([bool(np.isnan(some).any()) for _, some in self._parts(array)])
        self.arrays = {"mean": mean, "gaps": gaps.astype(np.int64)}
        inner = make_head(self.of).fit(self._filled(array), targets, groups)
        self.facts = {**inner.facts}
        self._keep({"all": inner})
        return self

    def predict(self, features: Features) -> Array:
        """Returns float64, (case, output), as the inner head does."""
        return self._kept("all").predict(self._filled(self._checked(features)))

    def survival(self, risks: Array, horizons: Sequence[float]) -> Array:
        """Survival at times, where the inner head knows it."""
        survival: Array = self._kept("all").survival(risks, horizons)  # type: ignore[attr-defined]
        return survival

    def _filled(self, features: Array) -> Array:
        there = np.stack([~np.isnan(some).all(1) for _, some in self._parts(features)], axis=1).astype(np.float64)
        filled = np.where(np.isnan(features), self.arrays["mean"], features)
        return np.concatenate([filled, there[:, self.arrays["gaps"].astype(bool)]], axis=1)


@dataclass(kw_only=True)
class LateFusion(_Fused):
    """Head per part, averaged over the parts of a case.

    A head learns from the cases that have its part; single numbers of a part that are missing have their mean. Risks
    of survival are put on one scale by the mean and deviation of the cases to fit on.
    """

    def fit(self, features: Features, targets: Targets, groups: Sequence[str] | None = None) -> Self:
        """Fits the heads; UserError names a part that cannot be learned."""
        array = self._checked(features, targets)
        heads: dict[str, Head] = {}
        self.arrays = {"mean": np.nan_to_num(_bag_means(array))}
        scale = []
        for (part, some), (_, mean) in zip(self._parts(array), self._parts(self.arrays["mean"][None]), strict=True):
            rows = np.flatnonzero(~np.isnan(some).all(1))
            if not len(rows):
                raise UserError(f"no case to fit on has {part}")
            filled = np.where(np.isnan(some[rows]), mean, some[rows])
            own = None if groups is None else [groups[int(row)] for row in rows]
            try:
                heads[part] = make_head(self.of).fit(filled, targets.take(rows), own)
            except UserError as error:
                raise UserError(f"of the {len(rows)} cases with {part}: {error}") from error
            predicted = heads[part].predict(filled)
            scale.append(
                [predicted.mean(), max(float(predicted.std()), 1e-12)] if targets.kind == "survival" else [0.0, 1.0]
            )
        self.arrays["scale"] = np.array(scale)
        self.facts = {**next(iter(heads.values())).facts}
        self._keep(heads)
        return self

    def predict(self, features: Features) -> Array:
        """Returns means over a case's parts, float64, (case, output); UserError without any."""
        array = self._checked(features)
        total: Any = 0.0
        count = np.zeros((len(array), 1))
        means = self._parts(self.arrays["mean"][None])
        for (part, some), (_, mean), (middle, spread) in zip(
            self._parts(array), means, self.arrays["scale"], strict=True
        ):
            there = ~np.isnan(some).all(1, keepdims=True)
            predicted = (self._kept(part).predict(np.where(np.isnan(some), mean, some)) - middle) / spread
            total = total + np.where(there, predicted, 0)
            count += there
        if not count.all():
            raise UserError(
                f"{int((count == 0).sum())} cases have no part that the head knows: {', '.join(self.blocks)}"
            )
        return np.asarray(total / count, np.float64)


def _bag_means(features: Array) -> Array:
    held = ~np.isnan(features)
    means: Array = np.where(held, features, 0).sum(0) / np.where(held.any(0), held.sum(0), 1)
    return means
