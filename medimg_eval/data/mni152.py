"""The real brain of the quickstart: the MNI152 template that ships inside the nilearn package.

The template is symmetric: its right half is the mirror image of its left, voxel for voxel. A plain
left-to-fit, right-to-test split would therefore test on the training data. So the brain is cut into
coronal slabs as well, and a slab that is fitted on in the left hemisphere is never tested on in the
right one.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from medimg_eval.case import Array, Case, Geometry, Mask
from medimg_eval.errors import UserError
from medimg_eval.imaging import ImageFile, Region

EDGE = 24
"""Edge of a block in mm; the template has 1 mm voxels."""

SLABS = (30, 62, 94, 126, 158)
"""First voxel of each coronal slab, back to front: 24 mm of brain, then a gap of 8 mm."""

FITTED, TESTED = (1, 3), (0, 2, 4)
"""The slabs fitted on and validated on in the left hemisphere, and tested on in the right one."""

LEVELS = (2, 30, 58, 86, 114, 142)
"""First voxel of each axial level, bottom to top: 24 mm of brain, then a gap of 4 mm."""

VALIDATED = 2
"""The axial level of the fitted slabs that is kept for validation."""

COLUMNS = {"left": (70, 46, 22), "right": (103, 127, 151)}
"""First voxel of each sagittal column, midline outwards; 9 mm about the midline belong to neither side."""


@dataclass
class MniTissueBlocks:
    """Blocks of the MNI152 T1 template, with grey and white matter as truth.

    `minimum_tissue` is the fraction of a block that must be grey or white matter, 0 to 1; blocks with less are neither
    tested nor validated on, for a boundary metric says little about a corner of cortex.
    """

    minimum_tissue: float = 0.25

    def cases(self, split: str) -> list[Case]:
        """Cases of `fit` (whole slabs), `validate` or `test` (blocks)."""
        makers: dict[str, Callable[[], list[Case]]] = {
            "fit": _make_slabs,
            "validate": lambda: _make_blocks("left", FITTED, (VALIDATED,), self.minimum_tissue),
            "test": lambda: _make_blocks("right", TESTED, range(len(LEVELS)), self.minimum_tissue),
        }
        UserError.refuse_unknown("the MNI152 brain has no split", makers, split)
        return makers[split]()


def _make_blocks(side: str, slabs: Iterable[int], levels: Iterable[int], minimum_tissue: float) -> list[Case]:
    cases = []
    for slab, (column, x), level in itertools.product(slabs, enumerate(COLUMNS[side]), levels):
        x_ends, y_ends, z_ends = ((start, start + EDGE) for start in (x, SLABS[slab], LEVELS[level]))
        case = _make_case(f"{side}-slab{slab}-column{column}-level{level}", (x_ends, y_ends, z_ends))
        if float(np.mean(case.target.read().labels > 0)) >= minimum_tissue:
            cases.append(case)
    return cases


def _make_slabs() -> list[Case]:
    x_ends = (min(COLUMNS["left"]), max(COLUMNS["left"]) + EDGE)
    gap = LEVELS[1] - LEVELS[0] - EDGE
    below = (LEVELS[0], LEVELS[VALIDATED] - gap)
    above = (LEVELS[VALIDATED] + EDGE + gap, LEVELS[-1] + EDGE)
    return [
        _make_case(f"left-slab{slab}-{part}", (x_ends, (SLABS[slab], SLABS[slab] + EDGE), z_ends))
        for slab in FITTED
        for part, z_ends in (("below", below), ("above", above))
    ]


def _make_case(name: str, region: Region) -> Case:
    return Case(name, (ImageFile(template_file("t1"), region, modality="MR"),), TissueBlock(region))


@dataclass(frozen=True)
class TissueBlock:
    """Tissue labels of a block: 1 grey matter, 2 white matter.

    Whichever map is higher where they add up to half.
    """

    region: Region

    @property
    def files(self) -> tuple[Path, ...]:
        """The two probability maps."""
        return (template_file("gm"), template_file("wm"))

    def read(self) -> Mask:
        """Returns labels as uint8."""
        box = tuple(slice(*ends) for ends in self.region)
        return Mask(tissue_labels()[box], self.geometry().affine)

    def geometry(self) -> Geometry:
        """The block's grid."""
        return ImageFile(template_file("gm"), self.region).geometry()


def template_file(name: Literal["t1", "gm", "wm"]) -> Path:
    """Nilearn's T1-weighted template file, or a tissue map's."""
    # Importing nilearn costs a second; its files are found without.
    package = importlib.util.find_spec("nilearn")
    if package is None or package.origin is None:
        raise UserError("the MNI152 brain ships in the package nilearn: pip install nilearn")
    data = Path(package.origin).parent / "datasets" / "data"
    return data / f"mni_icbm152_{name}_tal_nlin_sym_09a_converted.nii.gz"


@lru_cache(maxsize=1)
def tissue_labels() -> Array:
    """Grey (1) and white matter (2), uint8, (x, y, z).

    The more probable of both where the two add up to at least half.
    """
    # The maps hold probabilities times 255.
    grey = ImageFile(template_file("gm")).read().array[0].astype(np.int16)
    white = ImageFile(template_file("wm")).read().array[0].astype(np.int16)
    labels = np.where(grey >= white, np.uint8(1), np.uint8(2))
    labels[grey + white < 128] = 0
    return labels
