"""Settings of maps: which kind, of which layer, of which classes. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from medimg_eval.errors import UsageError

KINDS = ("grad_cam", "attention_rollout", "last_attention")

Kind = Literal["grad_cam", "attention_rollout", "last_attention"]


@dataclass(frozen=True)
class Explanation:
    """Settings of the maps that are kept beside an answer.

    Attributes:
        kind: `grad_cam`, one map for each class, of the gradients of its score (Selvaraju et al. 2017); of a vision
            transformer also `attention_rollout` (Abnar and Zuidema 2020) and `last_attention`, the class token's
            attention in the last layer, mean over heads: one map, whatever the class.
        layer: of `grad_cam`, name of the module whose output is weighed; None for the last one that gives a grid, of
            timm's transformers the first norm of the last block.
        of: classes with a map of their own: `all`, `predicted` (the one with the largest score), or names.
    """

    kind: Kind = "grad_cam"
    layer: str | None = None
    of: str | Sequence[str] = "all"

    @classmethod
    def from_config(cls, settings: str | Mapping[str, Any] | None) -> Explanation | None:
        """Settings from a config or a kind's name; None for null, UsageError for invalid ones."""
        if settings is None:
            return None
        try:
            explanation = cls(settings) if isinstance(settings, str) else cls(**settings)  # type: ignore[arg-type]
        except TypeError as error:
            raise UsageError(f"model.explain: {error}; expected kind, layer and of, or null") from error
        UsageError.refuse_invalid("model.explain.kind", KINDS, explanation.kind)
        if explanation.layer is not None and explanation.kind != "grad_cam":
            raise UsageError(f"model.explain.layer is of grad_cam alone; leave it out with {explanation.kind}")
        return explanation

    def classes_of(self, asked: Sequence[str], scores: Sequence[float]) -> list[str]:
        """Classes of an answer that get maps; UsageError for unknown ones."""
        if self.of == "all":
            return list(asked)
        if self.of == "predicted":
            return [max(zip(asked, scores, strict=True), key=lambda pair: pair[1])[0]]
        names = [self.of] if isinstance(self.of, str) else [str(name) for name in self.of]
        UsageError.refuse_unknown("model.explain.of names", [*asked, "all", "predicted"], *names)
        return names
