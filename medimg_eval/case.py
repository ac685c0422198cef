"""The nouns every room speaks: Case, Image, Mask, Prompt and Score.

Nothing here reads files or imports torch, so that scoring processes start in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Geometry:
    """The grid that voxels lie on.

    Attributes:
        shape: voxels along each spatial axis.
        affine: float64, (4, 4), voxel index to RAS+ millimetres.
    """

    shape: tuple[int, ...]
    affine: Array

    @property
    def spacing(self) -> tuple[float, ...]:
        """Distance between voxel centres along each axis, in mm."""
        return tuple(float(step) for step in np.linalg.norm(self.affine[:3, :3], axis=0)[: len(self.shape)])

    def difference(self, other: Geometry) -> str | None:
        """Says in words how `other` lies elsewhere, or returns None when both are the same grid.

        Grids are the same when no corner of the volume moves by more than 1 % of the smallest voxel
        edge: affines stored as float32 pass, a flipped axis or a half-voxel shift does not.
        """
        if self.shape != other.shape:
            return f"shape {other.shape} instead of {self.shape}"
        ends = np.array(np.meshgrid(*[(0, n - 1) for n in self.shape])).reshape(len(self.shape), -1)
        corners = np.vstack([ends, np.ones_like(ends[:1])])
        moved = np.linalg.norm(((self.affine - other.affine) @ corners)[:3], axis=0)
        # A one-voxel axis has no second corner, so the steps are compared as well.
        steps = np.linalg.norm((self.affine - other.affine)[:3, :3], axis=0)
        apart = float(max(moved.max(), steps.max()))
        if apart <= 0.01 * min(self.spacing):
            return None
        return f"another affine: grids are up to {apart:.3g} mm apart"


@dataclass(frozen=True, eq=False)
class Image:
    """Pixels with geometry.

    Attributes:
        array: (channel, *spatial), in the dtype it was stored with.
        affine: float64, (4, 4), voxel index to RAS+ millimetres.
        modality: DICOM code such as `MR` or `CT`, empty when unknown.
    """

    array: Array
    affine: Array
    modality: str = ""

    @property
    def geometry(self) -> Geometry:
        """The grid the pixels lie on."""
        return Geometry(tuple(self.array.shape[1:]), self.affine)


@dataclass(frozen=True, eq=False)
class Mask:
    """A label map: one integer per voxel, 0 is background.

    Attributes:
        labels: integer array, (*spatial).
        affine: float64, (4, 4), voxel index to RAS+ millimetres.
    """

    labels: Array
    affine: Array

    @property
    def geometry(self) -> Geometry:
        """The grid the labels lie on."""
        return Geometry(tuple(self.labels.shape), self.affine)


T_co = TypeVar("T_co", covariant=True)


class Reference(Protocol[T_co]):
    """Something on disk that is read only when it is needed, possibly in another process."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it is read from: named in error messages, hashed into the data fingerprint."""

    def read(self) -> T_co:
        """Reads it; raises CaseError naming the file when that fails."""

    def geometry(self) -> Geometry:
        """Reads the grid alone, from the header."""


@dataclass(frozen=True)
class Case:
    """One thing to be judged.

    Attributes:
        id: unique within its task.
        images: what a model is shown, read lazily.
        target: what is right, read lazily.
        patient: who it belongs to; intervals resample patients. None where the data do not say.
        attributes: site, sex, age group, ... for subgroup tables.
    """

    id: str
    images: tuple[Reference[Image], ...]
    target: Reference[Mask]
    patient: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file the case is read from, images first."""
        return tuple(path for reference in (*self.images, self.target) for path in reference.files)


@dataclass(frozen=True)
class Prompt:
    """What a model is asked about one case.

    Attributes:
        case_id: the case it is about.
        images: the images, read; empty for a model that declares `reads_images = False`.
        labels: for a segmentation, the structures asked for: integer in the mask -> name.
    """

    case_id: str
    images: tuple[Image, ...]
    labels: Mapping[int, str]

    @property
    def image(self) -> Image:
        """The first image: all there is in a task of one image per case."""
        return self.images[0]


@dataclass(frozen=True)
class Failure:
    """A case that ended without an answer or without a score.

    Attributes:
        case_id: the case.
        stage: where it failed: `read`, `answer`, `check` or `score`.
        message: what happened and how to mend it, for people.
    """

    case_id: str
    stage: str
    message: str


@dataclass(frozen=True)
class Score:
    """One row of `scores.parquet`: everything printed comes from these.

    Attributes:
        value: after the metric's policy for empty masks; NaN where there is nothing to judge.
        status: `present`, `missed`, `hallucinated`, `absent`, or `failed`.
        attributes: the case's attributes as a JSON object.
    """

    run: str
    task: str
    model: str
    case: str
    patient: str
    label: str
    metric: str
    value: float
    status: str
    attributes: str

    def row(self) -> dict[str, Any]:
        """The fields by name, as they are stored."""
        return asdict(self)


Prompts = Sequence[Prompt]
