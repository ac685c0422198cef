"""Quantities that are read from a reconstruction: T2 of tissues, from the two echoes of a DESS scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from medimg_eval.case import Array, Case, Mask
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics.measurement import T1_KNEE, DessScan, dess_t2, t2_error_ms


@runtime_checkable
class WithTissues(Protocol):
    """A reference that knows which tissue lies where."""

    def tissues(self) -> Mask:
        """Reads the label map on the grid of the reference; raises CaseError."""


@dataclass(frozen=True, kw_only=True)
class DessT2:
    """Mean T2 of tissues, from the magnitudes of two echoes.

    How a scan was measured stands in the case's attributes, by the names of `DessScan`.

    Attributes:
        regions: name -> the labels that the tissue is made of.
        t1: name -> T1 in ms, of tissues that are not taken for 1200 ms.
    """

    regions: Mapping[str, Sequence[int]]
    t1: Mapping[str, float]

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> DessT2:
        """Makes it of settings; raises UsageError for those that cannot be meant."""
        unknown = [name for name in said if name not in ("regions", "t1")]
        regions, t1 = said.get("regions", {}), said.get("t1", {})
        if unknown or not isinstance(regions, Mapping) or not regions or not isinstance(t1, Mapping):
            raise UsageError(f"t2: expected `regions`, tissue: labels, and `t1`, tissue: ms, got {dict(said)}")
        labels = {name: [held] if isinstance(held, int) else list(held) for name, held in regions.items()}
        for name, held in labels.items():
            if not held or not all(isinstance(label, int) and label > 0 for label in held):
                raise UsageError(f"t2: expected `regions.{name}` to list labels above 0, got {held}")
        if lost := [name for name in t1 if name not in regions]:
            raise UsageError(f"t2: `t1` names {lost[0]!r}, which is none of the regions {', '.join(regions)}")
        if wrong := [name for name, value in t1.items() if not value > 0]:
            raise UsageError(f"t2: expected `t1.{wrong[0]}` to be above 0, got {t1[wrong[0]]}")
        return cls(regions=labels, t1={name: float(value) for name, value in t1.items()})

    def describe(self) -> str:
        """In words."""
        others = "".join(f", {name} {value:g}" for name, value in self.t1.items())
        return f"T2 from two echoes by magnitudes, T1 {T1_KNEE:g} ms{others}, mean of voxels from 0 to 100 ms"

    def measure(self, case: Case, reference: Array, image: Array) -> tuple[dict[str, float], dict[str, float]]:
        """Returns the mean T2 of each tissue in the reference and in the image, in ms.

        Args:
            case: whose target has tissues, and whose attributes say how it was measured.
            reference: (echo, *spatial), two echoes; of complex numbers the magnitude counts.
            image: the same.

        Raises:
            CaseError: there are not two echoes, or tissues or attributes are missing.
        """
        where = f"case {case.id!r}"
        if reference.ndim != 4 or len(reference) != 2:
            raise CaseError(f"{where}: T2 needs two echoes, got an image of shape {reference.shape}")
        if not isinstance(case.target, WithTissues):
            raise CaseError(f"{where}: T2 needs a map of tissues; name it in the layout, by `tissues`")
        labels = np.asarray(case.target.tissues().labels)
        if labels.shape != reference.shape[1:]:
            raise CaseError(f"{where}: the map of tissues has shape {labels.shape}, the image {reference.shape[1:]}")
        merged, t1 = self._merged(labels)
        scan = _scan(case)
        right, other = (dess_t2(*_magnitudes(one), scan, t1=t1, where=merged > 0) for one in (reference, image))
        found = t2_error_ms(right, other, merged, dict(enumerate(self.regions, start=1)))
        return (
            {name: one.reference for name, one in found.items()},
            {name: one.prediction for name, one in found.items()},
        )

    def _merged(self, labels: Array) -> tuple[Array, Array]:
        """Which region each voxel belongs to, from 1 on, and its T1."""
        merged, t1 = np.zeros(labels.shape, np.uint8), np.full(labels.shape, np.float32(T1_KNEE))
        for place, (name, held) in enumerate(self.regions.items(), start=1):
            inside = np.isin(labels, held)
            merged[inside] = place
            t1[inside] = self.t1.get(name, T1_KNEE)
        return merged, t1


def _scan(case: Case) -> DessScan:
    values = []
    for name in DessScan._fields:
        text = case.attributes.get(name, "")
        try:
            values.append(float(text))
        except ValueError:
            raise CaseError(
                f"case {case.id!r}: T2 needs its attribute {name!r}, a number, and has {text!r}; name the column that "
                "holds it in the layout, by `columns`"
            ) from None
    return DessScan(*values)


def _magnitudes(image: Array) -> tuple[Array, Array]:
    first, second = (np.abs(one) if one.dtype.kind == "c" else one for one in image)
    return first, second
