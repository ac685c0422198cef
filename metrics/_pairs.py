"""What segmentation metrics are computed from: the two masks of one label."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics._surfaces import SURFACES, Bools, Floats, Spacing, SurfacePoints, directed_distances

Surface: TypeAlias = Literal["surfel", "voxel"]


class LabelPair:
    """One label of one case: the reference's mask, the prediction's, and what metrics need of them.

    Both masks are cropped to the box that holds both, so the cost is the object's, not the image's. What
    several metrics need (surfaces, distances) is computed once, when it is first asked for.

    Attributes:
        reference: Boolean array, 2-D or 3-D.
        prediction: Boolean array of the same shape.
        spacing: Voxel size in mm along each axis.
        surface: "surfel" or "voxel", as in `_surfaces`.

    Raises:
        ValueError: If the masks are not boolean, not 2-D or 3-D or of different shapes, if `spacing` is not
            a positive number for each axis, or if `surface` is unknown.
    """

    def __init__(
        self, reference: Bools, prediction: Bools, spacing: Sequence[float], surface: Surface = "surfel"
    ) -> None:
        check_arrays(reference, prediction, "b", "a boolean mask")
        if surface not in SURFACES:
            raise ValueError(f"Expected `surface` to be 'surfel' or 'voxel', got {surface!r}")
        self.spacing = checked_spacing(spacing, reference.ndim)
        self.surface: Surface = surface
        box = _bounding_box(reference | prediction)
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
    def status(self) -> str:
        """One of "present", "missed", "hallucinated" and "absent", as in `LabelScore`."""
        if self.reference_size:
            return "present" if self.prediction_size else "missed"
        return "hallucinated" if self.prediction_size else "absent"

    @cached_property
    def reference_surface(self) -> SurfacePoints:
        """Points (mm, from the first voxel of the joint box) and weights of the reference's surface."""
        return SURFACES[self.surface](self.reference, self.spacing)

    @cached_property
    def prediction_surface(self) -> SurfacePoints:
        """Points (mm, from the first voxel of the joint box) and weights of the prediction's surface."""
        return SURFACES[self.surface](self.prediction, self.spacing)

    @cached_property
    def reference_distances(self) -> Floats:
        """Distance in mm from each point of the reference's surface to the prediction's; inf if none."""
        return directed_distances(self.reference_surface, self.prediction_surface)

    @cached_property
    def prediction_distances(self) -> Floats:
        """Distance in mm from each point of the prediction's surface to the reference's; inf if none."""
        return directed_distances(self.prediction_surface, self.reference_surface)


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
