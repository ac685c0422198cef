"""How masks fall into objects and lesions, and which of them are taken for the same: rules as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class InstanceRule:
    """How a mask falls into instances, and how those of two masks are matched.

    Attributes:
        connectivity: Voxels that share a "face" are one instance, or those that share a "corner" too.
        matching: What is compared with the threshold: the "iou" of two instances, any "overlap", or the distance
            of their "centroid"s in mm.
        threshold: Instances match at an IoU of at least, or a distance of at most, this.
        assignment: "greedy" takes the best pair first, "hungarian" the best sum over all pairs.
        min_volume: Instances of less than so many mm3 (2-D: mm2) are left out on both sides.
    """

    connectivity: Literal["face", "corner"] = "corner"
    matching: Literal["iou", "overlap", "centroid"] = "iou"
    threshold: float = 0.5
    assignment: Literal["greedy", "hungarian"] = "hungarian"
    min_volume: float = 0.0

    @classmethod
    def of(cls, wanted: InstanceRule | Mapping[str, Any] | None) -> InstanceRule:
        """Returns a rule given as itself or as in a config; None is the default."""
        return wanted if isinstance(wanted, InstanceRule) else cls(**(wanted or {}))

    def describe(self) -> str:
        """Says the rule in words, for the footnote of a table."""
        return f"instances: {self.connectivity} neighbours, {self.assignment} matching by {self.matching}"


@dataclass(frozen=True)
class LesionRule:
    """How lesion-wise scores tell lesions apart, as the BraTS challenges do.

    Attributes:
        name: What a table calls the rule.
        dilation: Steps by which reference lesions are dilated before they are merged and matched.
        min_volume: mm3: reference lesions of at most this volume leave the mean.
        labels: By label name, what differs for it: `{"ET": {"min_volume": 10}}`.
    """

    name: str = "brats2023"
    dilation: int = 3
    min_volume: float = 50.0
    labels: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, wanted: LesionRule | str | Mapping[str, Any] | None) -> LesionRule:
        """Returns a rule given as itself, as a preset's name or as in a config; None is the default."""
        return wanted if isinstance(wanted, LesionRule) else cls()

    def describe(self) -> str:
        """Says the rule in words, for the footnote of a table."""
        return f"lesions by {self.name}"
