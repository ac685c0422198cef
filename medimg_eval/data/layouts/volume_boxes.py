"""Boxes in volumes by a JSON like COCO's, as SKM-TEA has them: without images, on the grid that the file states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medimg_eval.case import Boxes, Reference
from medimg_eval.data.layouts.detection import Coco
from medimg_eval.data.records import Entry, Row, StatedGrid, Target, given

UNSURE = "unsure"
"""What findings are called of which the reader was less confident than is asked for."""


@dataclass(kw_only=True)
class CocoVolumes(Coco):
    """COCO's JSON of volumes: boxes are x, y, z of the first voxel and sizes along the axes as the volume is stored.

    Args:
        id: the key of an image that names the case.
        shape: the key of its voxels along each axis.
        by: the key of a category that is the class: `name`, or `supercategory`.
        least_confidence: annotations of a lower `confidence` are called `unsure`; name that in `task.excluded`.
    """

    id: str = "scan_id"
    shape: str = "matrix_shape"
    by: str = "name"
    least_confidence: float = 0.0

    def class_of(self, category: Row) -> str:
        """The category's name, or that of its supercategory."""
        return category.text(self.by)

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The boxes."""
        return VolumeBoxes(self.least_confidence)

    def _entry(self, root: Path, row: Row, split: str | None, objects: Sequence[Row]) -> Entry:
        shape = row.value(self.shape)
        if not isinstance(shape, list) or len(shape) != 3 or not all(isinstance(n, int) and n > 0 for n in shape):
            raise row.error(f"{self.shape!r} is invalid: expected three whole numbers of voxels, got {shape!r:.60}")
        attributes = {name: row.text(name) for name in self.attributes}
        grid = StatedGrid(tuple(shape))
        entry = Entry(row.text(self.id), root, (row, *objects), (grid,), split, None, attributes)
        return self.with_patient(entry)


@dataclass
class VolumeBoxes:
    """The boxes of one volume's annotations; one drawn backwards, of a size below 0, ends where others begin.

    What lies outside of the volume is cut off.

    Args:
        least_confidence: of the reader; below it a finding is called `unsure`.
    """

    least_confidence: float = 0.0

    def reference(self, entry: Entry) -> Reference[Boxes]:
        """The boxes; raises UserError naming the annotation that has none."""
        corners, names, shape = [], [], entry.images[0].geometry().shape
        for row in entry.rows[1:]:
            box = row.value("bbox")
            if not isinstance(box, list) or len(box) != 6 or not all(isinstance(one, int | float) for one in box):
                raise row.error(f"'bbox' is invalid: expected x, y, z and three sizes, got {box!r:.60}")
            first, size = np.array(box[:3], dtype=np.float64), np.array(box[3:], dtype=np.float64)
            ends = np.clip(np.sort([first, first + size], axis=0), 0, shape)
            if not np.isfinite(box).all() or (ends[1] <= ends[0]).any():
                raise row.error(f"'bbox' is invalid: expected a size within {shape} voxels, got {box}")
            corners.append([*ends[0], *(ends[1] - 1)])
            unsure = self.least_confidence > 0 and row.number("confidence") < self.least_confidence
            names.append(UNSURE if unsure else row.text("category"))
        return given(Boxes(np.array(corners, dtype=np.float64).reshape(-1, 6), tuple(names)), entry)
