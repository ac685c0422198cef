"""Centrelines of masks."""

from __future__ import annotations

import numpy as np

from medimg_eval.metrics._components import connected_parts
from medimg_eval.metrics._surfaces import Bools, Spacing


def centreline(mask: Bools, spacing: Spacing) -> Bools:
    """Returns the voxels of a mask's centreline: at least one in every part of the mask.

    The mask is thinned by scikit-image: in 2-D after Zhang and Suen 1984, in 3-D after Lee et al. 1994. Where
    thinning leaves nothing of a part (voxels that share a corner), as it does with a tube of 4 x 4 voxels
    (scikit-image issue 3757), the voxels deepest in it stand for its centreline.

    Args:
        mask: Boolean, 2-D or 3-D.
        spacing: Voxel size in mm along each axis; depths are measured with it, thinning is by voxels.
    """
    from scipy.ndimage import find_objects
    from skimage.morphology import skeletonize

    thinned: Bools = skeletonize(mask).astype(bool)
    parts, count = connected_parts(mask)
    lost = set(range(1, count + 1)) - set(np.unique(parts[thinned]).tolist())
    boxes = find_objects(parts)
    for part in lost:
        box = boxes[part - 1]
        thinned[box] |= _deepest(parts[box] == part, spacing)
    return thinned


def _deepest(mask: Bools, spacing: Spacing) -> Bools:
    """Returns the voxels that are farthest from what lies outside the mask."""
    from scipy.ndimage import distance_transform_edt

    depth = distance_transform_edt(np.pad(mask, 1), sampling=spacing)[(slice(1, -1),) * mask.ndim]
    deepest: Bools = depth >= depth.max() * (1 - 1e-9)
    return deepest
