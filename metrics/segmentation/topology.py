"""Metrics of how masks hang together: their centrelines, parts, tunnels and cavities.

A mask is the union of its voxels as closed cubes (2-D: squares), so voxels that share a corner hang together,
and the outside hangs together by faces.
"""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np

from medimg_eval.metrics.arrays import Bools
from medimg_eval.metrics.declarations import error_metric, share_metric
from medimg_eval.metrics.segmentation.connected_components import connected_parts, once_per_pair
from medimg_eval.metrics.segmentation.overlap import ratio
from medimg_eval.metrics.segmentation.pairs import LabelPair
from medimg_eval.metrics.segmentation.surfaces import Spacing


def centreline(mask: Bools, spacing: Spacing) -> Bools:
    """Returns a mask's centreline, at least a voxel per part.

    The mask is thinned by scikit-image: in 2-D after Zhang and Suen 1984, in 3-D after Lee et al. 1994. Where thinning
    leaves nothing of a part (voxels that share a corner), as it does with a tube of 4 x 4 voxels (scikit-image issue
    3757), the voxels deepest in it stand for its centreline; depths are measured with the spacing in mm, thinning is by
    voxels.
    """
    from scipy.ndimage import find_objects
    from skimage.morphology import skeletonize

    thinned: Bools = skeletonize(mask).astype(bool)
    parts, count = connected_parts(mask)
    lost_parts = set(range(1, count + 1)) - set(np.unique(parts[thinned]).tolist())
    boxes = find_objects(parts)
    for part in lost_parts:
        box = boxes[part - 1]
        thinned[box] |= _deepest_voxels(parts[box] == part, spacing)
    return thinned


def _deepest_voxels(mask: Bools, spacing: Spacing) -> Bools:
    """Returns the voxels that are farthest from what lies outside the mask."""
    from scipy.ndimage import distance_transform_edt

    depth = distance_transform_edt(np.pad(mask, 1), sampling=spacing)[(slice(1, -1),) * mask.ndim]
    deepest: Bools = depth >= depth.max() * (1 - 1e-9)
    return deepest


CLDICE = "Shit et al., clDice, CVPR 2021, doi 10.1109/CVPR46437.2021.01629"
BETTI = "Hu et al., NeurIPS 2019, arXiv 1906.05404, on whole masks instead of patches"

_centreline = partial(share_metric, kind="mask", source=CLDICE)
_count_error = partial(error_metric, kind="mask", worst=math.nan, source=BETTI, defined_when_empty=True)


@_centreline(title="clDice")
def cldice(pair: LabelPair) -> float:
    """The centreline Dice: the harmonic mean of `centreline_precision` and `centreline_sensitivity`.

    Centrelines are scikit-image's, with the deepest voxels of parts of which thinning leaves nothing; they
    count voxels, not mm. In [0, 1]; 0 if one mask is empty, NaN if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> cldice(LabelPair(line, line & [True, True, False, False], (1, 1)))  # precision 1, sensitivity 2 / 4
    0.6666666666666666
    """
    if pair.status != "present":
        return math.nan if pair.status == "absent" else 0.0
    precise, sensitive = _centreline_precision(pair), _centreline_sensitivity(pair)
    return 2 * precise * sensitive / (precise + sensitive) if precise + sensitive else 0.0


@_centreline(title="Centreline precision")
def centreline_precision(pair: LabelPair) -> float:
    """The share of the prediction's centreline that lies in the reference.

    In [0, 1]; NaN if the prediction is empty.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> centreline_precision(LabelPair(line & [True, True, True, False], line, (1, 1)))
    0.75
    """
    return _centreline_precision(pair)


@_centreline(title="Centreline sensitivity")
def centreline_sensitivity(pair: LabelPair) -> float:
    """The share of the reference's centreline that lies in the prediction.

    In [0, 1]; NaN if the reference is empty.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> centreline_sensitivity(LabelPair(line, line & [True, True, True, False], (1, 1)))
    0.75
    """
    return _centreline_sensitivity(pair)


@_count_error(title="Betti error", value_kind="count")
def betti_error(pair: LabelPair) -> float:
    """The Betti number error: how many parts, tunnels and cavities there are too many or too few, in sum.

    The sum of the absolute differences of the three Betti numbers. Where the parts, tunnels and cavities lie
    is not compared. A whole number of at least 0, unbounded; an empty mask has none of any, NaN if both are.

    >>> import numpy as np
    >>> ring = np.pad(np.zeros((1, 1), dtype=bool), 1, constant_values=True)
    >>> betti_error(LabelPair(ring, ring & [True, False, True], (1, 1)))  # one part too many, one hole too few
    2.0
    """
    return sum(_betti_errors(pair))


@_count_error(title="Betti-0 error", value_kind="count")
def betti0_error(pair: LabelPair) -> float:
    """The absolute difference of the numbers of parts; voxels that share a corner are one part.

    A whole number of at least 0, unbounded; an empty mask has no parts, NaN if both are empty.

    >>> import numpy as np
    >>> line = np.ones((1, 3), dtype=bool)
    >>> betti0_error(LabelPair(line, line & [True, False, True], (1, 1)))
    1.0
    """
    return _betti_errors(pair)[0]


@_count_error(title="Betti-1 error", value_kind="count")
def betti1_error(pair: LabelPair) -> float:
    """The absolute difference of the numbers of tunnels, which in 2-D are holes.

    A whole number of at least 0, unbounded; an empty mask has no tunnels, NaN if both are empty.

    >>> import numpy as np
    >>> ring = np.pad(np.zeros((1, 1), dtype=bool), 1, constant_values=True)
    >>> betti1_error(LabelPair(ring, np.ones((3, 3), dtype=bool), (1, 1)))
    1.0
    """
    return _betti_errors(pair)[1]


@_count_error(title="Betti-2 error", value_kind="count")
def betti2_error(pair: LabelPair) -> float:
    """The absolute difference of the numbers of cavities, which 2-D masks do not have.

    A whole number of at least 0, unbounded; an empty mask has no cavities, NaN if both are empty.

    >>> import numpy as np
    >>> shell = np.pad(np.zeros((1, 1, 1), dtype=bool), 1, constant_values=True)
    >>> betti2_error(LabelPair(shell, np.ones((3, 3, 3), dtype=bool), (1, 1, 1)))
    1.0
    """
    return _betti_errors(pair)[2]


@_count_error(
    title="Euler error",
    source="Kong and Rosenfeld, Digital topology 1989, doi 10.1016/0734-189X(89)90147-3",
    value_kind="count",
)
def euler_error(pair: LabelPair) -> float:
    """The absolute difference of the Euler characteristics: parts less tunnels plus cavities.

    Fast, but a part and a tunnel too many cancel. A whole number of at least 0, unbounded; that of an empty
    mask is 0, NaN if both are empty.

    >>> import numpy as np
    >>> ring = np.pad(np.zeros((1, 1), dtype=bool), 1, constant_values=True)
    >>> euler_error(LabelPair(ring, np.ones((3, 3), dtype=bool), (1, 1)))  # 0 and 1
    1.0
    """
    return (
        math.nan
        if pair.status == "absent"
        else float(abs(_euler_characteristic(pair.reference) - _euler_characteristic(pair.prediction)))
    )


@once_per_pair
def _centreline_precision(pair: LabelPair) -> float:
    return _centreline_share(pair.prediction, pair.reference, pair.spacing)


@once_per_pair
def _centreline_sensitivity(pair: LabelPair) -> float:
    return _centreline_share(pair.reference, pair.prediction, pair.spacing)


def _centreline_share(mask: Bools, target: Bools, spacing: Spacing) -> float:
    """Returns the centreline share inside another mask; empty is NaN."""
    if not mask.any():
        return math.nan
    line = centreline(mask, spacing)
    return ratio(int(np.count_nonzero(line & target)), int(np.count_nonzero(line)))


@once_per_pair
def _betti_errors(pair: LabelPair) -> tuple[float, ...]:
    """Returns Betti number differences; NaN if both are empty."""
    if pair.status == "absent":
        return (math.nan,) * 3
    both = zip(_betti_numbers(pair.reference), _betti_numbers(pair.prediction), strict=True)
    return tuple(float(abs(reference_number - predicted_number)) for reference_number, predicted_number in both)


def _betti_numbers(mask: Bools) -> tuple[int, int, int]:
    """Returns the numbers of parts, tunnels and cavities."""
    parts = connected_parts(mask)[1]
    # The outside without its one part that goes on for ever.
    enclosed = connected_parts(~np.pad(mask, 1), "face")[1] - 1
    cavities = enclosed if mask.ndim == 3 else 0
    return parts, parts + cavities - _euler_characteristic(mask), cavities


def _euler_characteristic(mask: Bools) -> int:
    """Returns the Euler characteristic of closed voxels."""
    padded = np.pad(mask, 1)
    total = 0
    for flat in itertools.product((False, True), repeat=mask.ndim):
        # A cell spans a voxel along some axes and is flat along the others, where it lies between two voxels.
        cells = padded
        for axis in np.flatnonzero(flat):
            ahead, behind = [slice(None)] * mask.ndim, [slice(None)] * mask.ndim
            ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
            cells = cells[tuple(ahead)] | cells[tuple(behind)]
        total += (-1) ** (mask.ndim - sum(flat)) * int(np.count_nonzero(cells))
    return total
