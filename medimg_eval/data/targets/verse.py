"""Centres of vertebrae as VerSe's MICCAI release gives them; the restructured one is read by `VertebraCentroids`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Geometry, Image, Points, Reference
from medimg_eval.data.records import Entry
from medimg_eval.data.tables import read_json
from medimg_eval.errors import CaseError, UserError

AXES = ("I", "P", "L")
"""Where X, Y and Z point: X from superior to inferior, Y from anterior to posterior, Z from right to left."""


@dataclass
class MiccaiCentroids:
    """Centres of vertebral bodies in a JSON file per volume, in mm, as VerSe's MICCAI release stores them.

    The coordinates are those of the volume turned so that its axes run from superior to inferior, anterior to
    posterior and right to left, and sampled at 1 mm: they count mm from the centre of its first voxel. They are put
    onto the grid of the image as it is stored. The restructured release gives voxels and says along which axes, and
    is refused.

    Args:
        path: pattern below the root, such as `{case}_ctd.json`, or the column that holds the file.
    """

    path: str

    def reference(self, entry: Entry) -> Reference[Points]:
        """The file, read with the grid of the image."""
        if not entry.images:
            raise entry.row.error("centroids need the image they lie in")
        return MiccaiCentroidFile(entry.path(self.path), entry.images[0])


@dataclass(frozen=True)
class MiccaiCentroidFile:
    """The centroids of one volume of the MICCAI release."""

    path: Path
    image: Reference[Image]

    @property
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)

    def read(self) -> Points:
        """Returns voxel positions; raises CaseError when the file is not understood. Entries of NaN are left out."""
        from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform

        xyz, names = self._content()
        grid = self.geometry()
        turn = ornt_transform(axcodes2ornt(AXES), io_orientation(grid.affine)).astype(int)
        positions = np.empty_like(xyz)
        for source, (axis, sign) in enumerate(turn):
            along = xyz[:, source] / grid.spacing[axis]
            positions[:, axis] = along if sign > 0 else grid.shape[axis] - 1 - along
        return Points(positions, names)

    def geometry(self) -> Geometry:
        """The grid of the volume."""
        return self.image.geometry()

    def _content(self) -> tuple[np.ndarray[Any, np.dtype[np.float64]], tuple[str, ...]]:
        try:
            content = read_json(self.path)
        except UserError as error:
            raise CaseError(str(error)) from error
        if not isinstance(content, list) or any("direction" in one for one in content if isinstance(one, dict)):
            raise CaseError(
                f"{self.path}: expected a list of centroids without 'direction'; those of the restructured release are "
                "read by the target VertebraCentroids"
            )
        try:
            xyz = np.array([[float(one[axis]) for axis in "XYZ"] for one in content]).reshape(-1, 3)
            names = [str(int(one["label"])) for one in content]
        except (KeyError, TypeError, ValueError) as error:
            raise CaseError(f"{self.path}: a centroid is not understood ({type(error).__name__}: {error})") from error
        known = np.isfinite(xyz).all(axis=1)
        return xyz[known], tuple(name for name, there in zip(names, known.tolist(), strict=True) if there)
