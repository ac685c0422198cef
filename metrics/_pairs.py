"""What segmentation metrics are computed from: the two masks of one label."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics._distances import Distances
from medimg_eval.metrics._rules import InstanceRule, LesionRule
from medimg_eval.metrics._surfaces import SURFACES, Bools, Spacing, SurfacePoints, directed_distances

Surface: TypeAlias = Literal["surfel", "voxel"]


@dataclass(frozen=True)
class Settings:
    """How a label is judged, beyond its masks.

    Attributes:
        surface: What distances are measured between: "surfel" or "voxel".
        tolerance: In mm, of metrics such as "nsd" that are asked for without one.
        instances: How a mask falls into objects, and which of them are the same.
        lesions: How lesions are told apart and matched.
    """

    surface: Surface = "surfel"
    tolerance: float | None = None
    instances: InstanceRule = field(default_factory=InstanceRule)
    lesions: LesionRule = field(default_factory=LesionRule)


class LabelPair:
    """One label of one case: the reference's mask, the prediction's, and what metrics need of them.

    Both masks are cropped to the box that holds both, so the cost is the object's, not the image's. What
    several metrics need (sizes, distances) is computed once, when it is first asked for.

    Attributes:
        reference: Boolean array, 2-D or 3-D, cropped.
        prediction: Boolean array of the same shape, cropped.
        spacing: Voxel size in mm along each axis.
        settings: How the label is judged.
        name: What the label is called.
        offset: Index in the image of the first voxel of the cropped masks.
        shape: Voxels of the image along each axis.

    Raises:
        ValueError: If the masks are not boolean, not 2-D or 3-D or of different shapes, if `spacing` is not
            a positive number for each axis, or if the surface is unknown.
    """

    def __init__(
        self,
        reference: Bools,
        prediction: Bools,
        spacing: Sequence[float],
        settings: Settings | Surface = Settings(),
        name: str = "",
    ) -> None:
        check_arrays(reference, prediction, "b", "a boolean mask")
        self.settings = Settings(surface=settings) if isinstance(settings, str) else settings
        if self.settings.surface not in SURFACES:
            raise ValueError(f"Expected `surface` to be 'surfel' or 'voxel', got {self.settings.surface!r}")
        self.spacing = checked_spacing(spacing, reference.ndim)
        self.name = name
        self.shape: tuple[int, ...] = reference.shape
        box = _bounding_box(reference | prediction)
        self.offset: tuple[int, ...] = tuple(int(part.start) for part in box)
        self.reference: Bools = reference[box]
        self.prediction: Bools = prediction[box]

    @cached_property
    def reference_size(self) -> int:
        """Voxels of the reference."""
        return int(np.count_nonzero(self.reference))

    @cached_property
    def prediction_size(self) -> int:
        """Voxels of the prediction."""
        return int(np.count_nonzero(self.prediction))

    @cached_property
    def overlap_size(self) -> int:
        """Voxels of both."""
        return int(np.count_nonzero(self.reference & self.prediction))

    @property
    def status(self) -> Literal["present", "missed", "hallucinated", "absent"]:
        """One of "present", "missed", "hallucinated" and "absent", as in `LabelScore`."""
        if self.reference_size:
            return "present" if self.prediction_size else "missed"
        return "hallucinated" if self.prediction_size else "absent"

    @property
    def voxel_size(self) -> float:
        """The volume of a voxel in mm3 (2-D: the area of a pixel in mm2)."""
        return math.prod(self.spacing)

    @property
    def diagonal(self) -> float:
        """The diagonal of the image in mm: the farthest apart two of its points can be."""
        return math.hypot(*np.multiply(self.shape, self.spacing))

    @cached_property
    def reference_surface(self) -> SurfacePoints:
        """Points (mm, from the first voxel of the joint box) and weights of the reference's surface."""
        return SURFACES[self.settings.surface](self.reference, self.spacing)

    @cached_property
    def prediction_surface(self) -> SurfacePoints:
        """Points (mm, from the first voxel of the joint box) and weights of the prediction's surface."""
        return SURFACES[self.settings.surface](self.prediction, self.spacing)

    @cached_property
    def reference_distances(self) -> Distances:
        """From the reference's surface to the prediction's."""
        return self._directed(self.reference_surface, self.prediction_surface)

    @cached_property
    def prediction_distances(self) -> Distances:
        """From the prediction's surface to the reference's."""
        return self._directed(self.prediction_surface, self.reference_surface)

    def _directed(self, start: SurfacePoints, target: SurfacePoints) -> Distances:
        values = directed_distances(start, target)
        order = np.argsort(values)
        return Distances(values[order], start.weights[order], interpolate=self.settings.surface == "voxel")


def check_arrays(
    reference: npt.NDArray[np.generic],
    prediction: npt.NDArray[np.generic],
    kinds: str,
    words: str,
) -> None:
    """Checks dtypes (NumPy's letters for their kinds, and in words), dimensions and shapes."""
    for name, array in (("reference", reference), ("prediction", prediction)):
        if array.dtype.kind not in kinds:
            raise ValueError(f"Expected `{name}` to be {words}, got dtype {array.dtype}")
    if reference.ndim not in (2, 3):
        raise ValueError(f"Expected `reference` to be 2-D or 3-D, got shape {reference.shape}")
    if prediction.shape != reference.shape:
        raise ValueError(
            f"Expected `prediction` to have the reference's shape {reference.shape}, got {prediction.shape}"
        )


def checked_spacing(spacing: Sequence[float], axes: int) -> Spacing:
    """Returns the spacing as floats, checked to be one positive number of mm per axis."""
    sizes = tuple(float(size) for size in spacing)
    if len(sizes) != axes or not all(0 < size < math.inf for size in sizes):
        raise ValueError(f"Expected `spacing` to be {axes} positive numbers of mm, got {sizes}")
    return sizes


def _bounding_box(mask: Bools) -> tuple[slice, ...]:
    """Returns the smallest box that holds the whole mask; an empty one for an empty mask."""
    box = []
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        filled = np.flatnonzero(mask.any(axis=others))
        box.append(slice(filled[0], filled[-1] + 1) if filled.size else slice(0, 0))
    return tuple(box)
