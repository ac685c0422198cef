"""Boxes that are right because a label map says where structures lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medimg_eval.errors import CaseError
from medimg_eval.imaging import read_mask


@dataclass(frozen=True)
class LabelBoxes:
    """The boxes about the labels of a volume.

    Attributes:
        path: the label map.
        names: label -> name of the box.
    """

    path: Path
    names: Mapping[int, str]

    def read(self) -> dict[str, tuple[int, ...]]:
        """Name -> (x1, y1, z1, x2, y2, z2): voxel indices along the stored axes, the far ends outside.

        Labels that the map does not hold have no box.

        Raises:
            CaseError: the label map cannot be read, or holds none of the labels.
        """
        labels = read_mask(self.path).labels
        found = {}
        for label, name in self.names.items():
            there = np.argwhere(labels == label)
            if len(there):
                found[name] = (*map(int, there.min(0)), *map(int, there.max(0) + 1))
        if not found:
            wanted = ", ".join(f"{label} ({name})" for label, name in self.names.items())
            raise CaseError(f"{self.path}: holds none of the labels {wanted}")
        return found
