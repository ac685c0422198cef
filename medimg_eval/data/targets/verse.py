"""Centres of vertebrae, as either release of VerSe gives them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from medimg_eval.case import Geometry, Image, OneFile, Points, Reference
from medimg_eval.data.records import Entry, OnImage
from medimg_eval.data.tables import read_json
from medimg_eval.errors import CaseError, UserError

AXES = ("I", "P", "L")
"""Where X, Y and Z point: X from superior to inferior, Y from anterior to posterior, Z from right to left."""


@dataclass
class VertebraCentroids:
    """Vertebral centres in JSON files, as VerSe's restructured release.

    The file's coordinates are voxels along axes that its first entry names, such as P, I, R; they are turned to the
    axes of the image. VerSe's MICCAI release gives mm without such an entry, and is refused. The path is a pattern
    below the root, or the column that holds the file.
    """

    path: str

    def reference(self, entry: Entry) -> Reference[Points]:
        """The file, read with the grid of the image."""
        return VertebraFile(entry.path(self.path), entry.image_below("centroids"))


@dataclass
class MiccaiCentroids:
    """Vertebral centres in mm in JSON files, as VerSe's MICCAI release.

    The coordinates are those of the volume turned so that its axes run from superior to inferior, anterior to
    posterior and right to left, and sampled at 1 mm: they count mm from the centre of its first voxel. They are put
    onto the grid of the image as it is stored. The restructured release gives voxels and says along which axes, and
    is refused. The path is a pattern below the root, such as `{case}_ctd.json`, or the column that holds the file.
    """

    path: str

    def reference(self, entry: Entry) -> Reference[Points]:
        """The file, read with the grid of the image."""
        return MiccaiFile(entry.path(self.path), entry.image_below("centroids"))


@dataclass(frozen=True)
class CentroidFile(OneFile, OnImage, ABC):
    """The centroids of one volume."""

    image: Reference[Image]

    def read(self) -> Points:
        """Returns voxel positions without NaN; CaseError for invalid files."""
        from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform

        try:
            content = read_json(self.path)
        except UserError as error:
            raise CaseError(str(error)) from error
        axes, entries = self._frame(content)
        try:
            held = axcodes2ornt(tuple(axes))
            xyz = np.array([[float(entry[axis]) for axis in "XYZ"] for entry in entries]).reshape(-1, 3)
            names = [str(int(entry["label"])) for entry in entries]
        except (KeyError, TypeError, ValueError) as error:
            raise CaseError(f"{self.path}: a centroid is not understood ({type(error).__name__}: {error})") from error
        grid = self.geometry()
        positions = np.empty_like(xyz)
        for source, (axis, sign) in enumerate(ornt_transform(held, io_orientation(grid.affine)).astype(int)):
            along = xyz[:, source] / self._step(grid, axis)
            positions[:, axis] = along if sign > 0 else grid.shape[axis] - 1 - along
        indices = np.flatnonzero(np.isfinite(positions).all(axis=1))
        return Points(positions[indices], tuple(names[index] for index in indices))

    @abstractmethod
    def _frame(self, content: Any) -> tuple[Sequence[str], Sequence[Any]]:
        """Returns axes of X, Y, Z and entries; refuses the other release."""

    @abstractmethod
    def _step(self, grid: Geometry, axis: int) -> float:
        """Returns what one voxel along an axis is in the file's unit."""


class VertebraFile(CentroidFile):
    """The centroids of one volume of the restructured release."""

    def _frame(self, content: Any) -> tuple[Sequence[str], Sequence[Any]]:
        if not isinstance(content, list) or not content or "direction" not in content[0]:
            raise CaseError(f"{self.path}: holds no 'direction' first, so its coordinates cannot be placed")
        return content[0]["direction"], content[1:]

    def _step(self, grid: Geometry, axis: int) -> float:
        return 1.0


class MiccaiFile(CentroidFile):
    """The centroids of one volume of the MICCAI release."""

    def _frame(self, content: Any) -> tuple[Sequence[str], Sequence[Any]]:
        if not isinstance(content, list) or any("direction" in item for item in content if isinstance(item, dict)):
            raise CaseError(
                f"{self.path}: expected a list of centroids without 'direction'; those of the restructured release are "
                "read by the target VertebraCentroids"
            )
        return AXES, content

    def _step(self, grid: Geometry, axis: int) -> float:
        return grid.spacing[axis]
