"""Masks that number their objects, as nuclei data sets store them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from medimg_eval.case import Array, Image, Mask, OneFile, Reference
from medimg_eval.data.records import Entry, OnImage
from medimg_eval.data.targets.places import read_mat
from medimg_eval.errors import CaseError


@dataclass
class InstanceMat:
    """Numbered objects with classes in MATLAB files, as CoNSeP and HoVer-Net.

    Args:
        path: pattern below the root, such as `Test/Labels/{case}.mat`.
        instances: the variable of the objects' numbers, (row, column).
        types: the variable of their classes, (row, column); "" makes all of label 1.
        values: class -> label; the classes themselves when empty.
    """

    path: str
    instances: str = "inst_map"
    types: str = "type_map"
    values: Mapping[int, int] = field(default_factory=dict)

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The file."""
        values = {int(value): int(label) for value, label in self.values.items()}
        return NumberedMat(entry.path(self.path), self.instances, self.types, values, entry.image)


@dataclass(frozen=True, eq=False)
class NumberedMat(OneFile, OnImage):
    """Numbered objects of a picture in a MATLAB file."""

    path: Path
    instances: str
    types: str
    values: Mapping[int, int]
    image: Reference[Image] | None

    def read(self) -> Mask:
        """Returns labels and numbers; CaseError for invalid variables or classes."""
        numbers = self._variable(self.instances)
        types = self._variable(self.types) if self.types else (numbers > 0).astype(np.uint8)
        if types.shape != numbers.shape:
            raise CaseError(f"{self.path}: {self.types!r} has shape {types.shape}, {self.instances!r} {numbers.shape}")
        values = self.values or {int(value): int(value) for value in np.unique(types)}
        labels = np.zeros(types.shape, np.min_scalar_type(max(values.values(), default=0)))
        for value, label in values.items():
            labels[types == value] = label
        unknown = sorted(set(np.unique(types).tolist()) - {0, *values})
        if unknown:
            raise CaseError(f"{self.path}: holds the classes {unknown[:5]}, which `values` gives no label")
        labels = np.where(numbers > 0, labels, 0)
        return Mask(labels, np.eye(4), units="pixel", instances=np.where(labels > 0, numbers, 0))

    def _variable(self, name: str) -> Array:
        content = read_mat(self.path)
        array = np.asarray(content.get(name, ()))
        is_whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and np.array_equal(array, np.rint(array)))
        if array.ndim != 2 or not is_whole or (array.size and array.min() < 0):
            held = ", ".join(sorted(key for key in content if not key.startswith("__")))
            raise CaseError(f"{self.path}: expected whole numbers (row, column) in {name!r}, from 0; it holds {held}")
        return array.astype(np.int64)
