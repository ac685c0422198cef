"""Overlap of the bands along the borders of two masks."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from medimg_eval.metrics.arrays import Bools
from medimg_eval.metrics.declarations import share_metric
from medimg_eval.metrics.segmentation.distance_samples import TOLERANCE_SLACK
from medimg_eval.metrics.segmentation.overlap import ratio
from medimg_eval.metrics.segmentation.pairs import LabelPair
from medimg_eval.metrics.segmentation.surfaces import Spacing

# Shifts of a mask that together cost as much as its distance transform.
MANY_SHIFTS = 500


@share_metric(
    kind="mask",
    title="Boundary IoU",
    parameter="distance in mm",
    needs_spacing=True,
    source="Cheng et al., CVPR 2021, doi 10.1109/CVPR46437.2021.01508",
)
def boundary_iou(pair: LabelPair, distance: float) -> float:
    """The IoU of the two inner borders, each the part of its mask within a distance of what lies outside it.

    The inner border of a mask is its voxels that have a face neighbour outside the mask, and those whose centre
    is at most d (1 + 1e-6) mm from the centre of a voxel outside it. With pixels of 1 mm, `boundary_iou@1` is
    the IoU of two outlines one pixel thick, and with d as large as the masks it is their IoU. What lies beyond
    the image is outside, as in the authors' code; theirs erodes by squares, so that a band of d pixels also
    holds the pixels d steps away diagonally. In [0, 1]; 0 if one mask is empty, NaN if both are.

    >>> import numpy as np
    >>> full = np.ones((5, 5), dtype=bool)
    >>> hollow = np.pad(np.zeros((3, 3), dtype=bool), 1, constant_values=True)
    >>> boundary_iou(LabelPair(full, hollow, (1, 1)), 1)  # the same outline of 16 pixels
    1.0
    >>> boundary_iou(LabelPair(full, hollow, (1, 1)), 2)  # 8 pixels more of the full square
    0.6666666666666666
    """
    limit = distance * (1 + TOLERANCE_SLACK)
    reference_border, predicted_border = (
        _border_voxels(mask, pair.spacing, limit) for mask in (pair.reference, pair.prediction)
    )
    return ratio(
        int(np.count_nonzero(reference_border & predicted_border)),
        int(np.count_nonzero(reference_border | predicted_border)),
    )


def _border_voxels(mask: Bools, spacing: Spacing, limit: float) -> Bools:
    """Returns border voxels of a mask, or within `limit` mm."""
    from scipy.ndimage import binary_erosion, distance_transform_edt

    # A step as long as the mask leads out of it, and so would a longer one.
    reach = [max(1, int(min(limit / size, steps))) for size, steps in zip(spacing, mask.shape, strict=True)]
    if math.prod(2 * far + 1 for far in reach[:-1]) <= MANY_SHIFTS:
        outer = ~_erode_mask(mask, _ball_neighbourhood(spacing, limit, reach))
    else:
        depth = distance_transform_edt(np.pad(mask, 1), sampling=spacing)[(slice(1, -1),) * mask.ndim]
        outer = (depth <= limit) | ~binary_erosion(mask)
    return mask & outer


def _ball_neighbourhood(spacing: Spacing, limit: float, reach: Sequence[int]) -> dict[tuple[int, ...], int]:
    """Returns voxels within `limit` mm, and face neighbours, by rows.

    Voxels more than `reach` steps away along an axis are left out. A row is its place along the other axes,
    relative to the voxel -> how many voxels it reaches to either side.
    """
    along = (np.arange(reach[-1] + 1) * spacing[-1]) ** 2
    rows = {}
    for offset in itertools.product(*(range(-far, far + 1) for far in reach[:-1])):
        across = sum((step * size) ** 2 for step, size in zip(offset, spacing[:-1], strict=True))
        steps = sum(map(abs, offset))
        length = int(np.count_nonzero(across + along <= limit**2)) - 1
        if steps <= 1:
            length = max(length, 1 - steps)
        if length >= 0:
            rows[offset] = length
    return rows


def _erode_mask(mask: Bools, rows: Mapping[tuple[int, ...], int]) -> Bools:
    """Returns the voxels of a mask whose whole neighbourhood lies in the mask."""
    longest = max(rows.values())
    far = [max(offset[axis] for offset in rows) for axis in range(mask.ndim - 1)]
    padded = np.pad(mask, [(step, step) for step in (*far, longest)])
    size = mask.shape[-1]
    row = padded[..., longest : longest + size].copy()
    eroded = mask.copy()
    for length in range(longest + 1):
        # Each voxel's row of this length to either side is that of the length before, and one more voxel at its ends.
        row &= padded[..., longest - length : longest - length + size]
        row &= padded[..., longest + length : longest + length + size]
        for offset in (offset for offset, reached in rows.items() if reached == length):
            eroded &= row[tuple(slice(f + s, f + s + n) for f, s, n in zip(far, offset, mask.shape[:-1], strict=True))]
    return eroded
