"""A mask in several files, one an object, such as the nuclei of an image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medimg_eval.case import Geometry, Mask, Reference
from medimg_eval.data.records import Entry
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import MaskFile, read_mask


@dataclass
class MaskParts:
    """One file per object of a case; together they are the foreground, label 1.

    Args:
        path: pattern below the root of the files, whose name is `*.png` or the like: `{case}/masks/*.png`.
    """

    path: str

    def __post_init__(self) -> None:
        """Refuses a pattern of one file."""
        if "*" not in self.path.rpartition("/")[2]:
            raise UsageError(f"expected * in the file's name of the pattern {self.path!r}; one file is a MaskTarget")

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The files that are there, sorted; raises UserError when there is none."""
        folder, _, name = self.path.rpartition("/")
        path = entry.path(folder) if folder else entry.root
        files = tuple(sorted(one for one in path.glob(name) if not one.name.startswith(".")))
        if not files:
            raise entry.row.error(f"case {entry.id!r}: there is no file {path}/{name}")
        return JoinedMask(files)


@dataclass(frozen=True)
class JoinedMask:
    """Binary masks of one grid; a pixel of any is foreground."""

    paths: tuple[Path, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The objects' files."""
        return self.paths

    def read(self) -> Mask:
        """Joins them; raises CaseError when one lies on another grid."""
        grid = self.geometry()
        joined = np.zeros(grid.shape, np.uint8)
        for path in self.paths:
            mask = read_mask(path)
            difference = grid.difference(mask.geometry)
            if difference:
                raise CaseError(f"{path}: {difference} of {self.paths[0]}; the objects of one case share a grid")
            joined[mask.labels != 0] = 1
        return Mask(joined, grid.affine, units=grid.units)

    def geometry(self) -> Geometry:
        """The grid of the first file."""
        return MaskFile(self.paths[0]).geometry()
