"""Affines: which are usable, how far two lie apart, and how they move with a box."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from medimg_eval.case import Array, Geometry
from medimg_eval.errors import CaseError

LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""What turns DICOM's and ITK's patient axes into NIfTI's, and back."""


def check_affine(path: Path, affine: Array) -> None:
    """Refuses an affine that is no map from voxels to space.

    Raises:
        CaseError: it holds NaN or infinity, has an axis without length, or axes that lie in one plane.
    """
    steps = affine[:3, :3]
    lengths = np.linalg.norm(steps, axis=0)
    if not np.isfinite(affine).all() or not lengths.all() or abs(np.linalg.det(steps / lengths)) < 1e-6:
        shown = ", ".join(f"{length:g}" for length in lengths)
        raise CaseError(
            f"{path}: has no usable affine: spacing {shown}, expected numbers above 0 along three different "
            "directions; mend its header"
        )


def farthest(one: Geometry, other: Geometry) -> float:
    """Returns by how many mm the corners of one grid move to become those of another of the same shape."""
    ends = np.array(np.meshgrid(*[(0, max(n - 1, 1)) for n in (*one.shape, 1)[:3]])).reshape(3, -1)
    corners = np.vstack([ends, np.ones_like(ends[:1])])
    return float(np.linalg.norm(((one.affine - other.affine) @ corners)[:3], axis=0).max())


def shifted(affine: Array, box: Box | None) -> Array:
    """Moves the origin of an affine to the first voxel of a box."""
    affine = np.array(affine, dtype=np.float64)
    if box is not None:
        affine[:3, 3] += affine[:3, : len(box)] @ [start for start, _ in box]
    return affine


def clip_box(path: Path, shape: tuple[int, ...], box: Box | None) -> Box | None:
    """Returns the box as whole numbers, after looking whether it lies in the volume.

    Raises:
        CaseError: it has other axes than the volume, is empty, or sticks out.
    """
    if box is None:
        return None
    found = tuple((int(start), int(stop)) for start, stop in box)
    if len(found) != len(shape) or not all(0 <= a < b <= size for (a, b), size in zip(found, shape, strict=True)):
        raise CaseError(f"{path}: has no region {found}; it holds {shape} voxels (start and stop along each axis)")
    return found


Box = tuple[tuple[int, int], ...]
"""(start, stop) along each axis."""
