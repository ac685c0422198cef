"""Metrics of the distance between the surfaces of two masks, exact, in mm and in float64.

What counts as surface is one setting for all of them: "surfel" weighs each surface point by its area, "voxel"
counts border voxels.
"""

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.declarations import error_metric, share_metric
from medimg_eval.metrics.segmentation.overlap import METRICS_REVIEW, ratio
from medimg_eval.metrics.segmentation.pairs import LabelPair

DEEPMIND = "Nikolov et al., J Med Internet Res 2021, doi 10.2196/26151, and its code, surface-distance"
LIVER = "Heimann et al., IEEE TMI 2009, doi 10.1109/TMI.2009.2013851"

# The distance between surfaces of which one, or each, does not exist.
_NO_DISTANCE = {"absent": math.nan, "missed": math.inf, "hallucinated": math.inf}

_distance = partial(error_metric, kind="mask", unit="mm", worst="diagonal")


@_distance(title="HD", source="Huttenlocher et al., IEEE TPAMI 1993, doi 10.1109/34.232073, on surfaces")
def hd(pair: LabelPair) -> float:
    """The Hausdorff distance: the largest distance from a point of one surface to the other surface.

    In mm, at least 0; inf if one mask is empty, NaN if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> hd(LabelPair(line, line & [True, True, False, False], (1, 1.5)))  # two pixels of 1.5 mm short
    3.0
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    return max(pair.reference_distances.largest, pair.prediction_distances.largest)


@_distance(title="HD95", source=f"{DEEPMIND}; with voxel surfaces MONAI's HausdorffDistanceMetric(percentile=95)")
def hd95(pair: LabelPair) -> float:
    """The larger of the two directed 95th percentiles of the distances between the surfaces.

    The percentile of a direction is, with surfels, the smallest distance within which 95 % of the surface's
    area lies, and with voxels NumPy's, which interpolates between two distances. In mm, at least 0; inf if
    one mask is empty, NaN if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 40), dtype=bool)
    >>> short = line & (np.arange(40) < 36)
    >>> pair = LabelPair(line, short, (1, 1), "voxel")
    >>> round(hd95(pair), 2)  # reference distances: 36 times 0, then 1, 2, 3, 4; rank 0.95 * 39 = 37.05
    2.05
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    return max(pair.reference_distances.percentile(95), pair.prediction_distances.percentile(95))


@_distance(title="HD95 pooled", source="MedPy's hd95; with voxel surfaces SimpleITK's recipe")
def hd95_pooled(pair: LabelPair) -> float:
    """The 95th percentile of the distances of both surfaces in one list.

    Others call it HD95 too. A stray part counts only once it is 5 % of both surfaces together, so it can be
    hundreds of mm below `hd95`. The percentile is that of `hd95`. In mm, at least 0; inf if one mask is empty,
    NaN if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 40), dtype=bool)
    >>> pair = LabelPair(line, line & (np.arange(40) < 36), (1, 1), "voxel")
    >>> round(hd95_pooled(pair), 2)  # 72 times 0, then 1, 2, 3, 4; rank 0.95 * 75 = 71.25
    0.25
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    return pair.reference_distances.pooled(pair.prediction_distances).percentile(95)


@_distance(
    title="HD95 spread",
    worst=math.nan,
    intermediate=True,
    source="Podobnik and Vrtovec 2024, arXiv 2410.02630, on how far apart tools are",
)
def hd95_definition_gap(pair: LabelPair) -> float:
    """How far apart the two definitions of HD95 are, |`hd95` - `hd95_pooled`|.

    It judges the number, not the answer: where it is large, the HD95 of this label depends on the tool that
    computed it. In mm, at least 0; NaN if a mask is empty.

    >>> import numpy as np
    >>> line = np.ones((1, 40), dtype=bool)
    >>> pair = LabelPair(line, line & (np.arange(40) < 36), (1, 1), "voxel")
    >>> round(hd95_definition_gap(pair), 2)  # 2.05 and 0.25
    1.8
    """
    return abs(hd95(pair) - hd95_pooled(pair)) if pair.status == "present" else math.nan


@_distance(title="HD percentile", parameter="percentile, 0 to 100", parameter_most=100.0, source=DEEPMIND)
def hd_percentile(pair: LabelPair, percent: float) -> float:
    """The larger of the two directed percentiles, of any rank, of the distances between the surfaces.

    `hd_percentile@95` is `hd95` and `hd_percentile@100` is `hd`. In mm, at least 0; inf if one mask is empty,
    NaN if both are.

    Raises:
        UsageError: The percentile is above 100.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> hd_percentile(LabelPair(line, line & [True, True, True, False], (1, 1), "voxel"), 50)
    0.0
    """
    if not 0 <= percent <= 100:
        raise UsageError(f"Metric 'hd_percentile' needs a percentile from 0 to 100, got {percent:g}")
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    return max(pair.reference_distances.percentile(percent), pair.prediction_distances.percentile(percent))


@_distance(title="ASSD", source=f"{METRICS_REVIEW}; with voxel surfaces MedPy's assd")
def assd(pair: LabelPair) -> float:
    """The average symmetric surface distance: the mean distance over the points of both surfaces.

    The points of both surfaces are one pool, each with its surface's weight: the larger surface counts for
    more. In mm, at least 0; inf if one mask is empty, NaN if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> pair = LabelPair(line, line & [True, True, False, False], (1, 1), "voxel")
    >>> assd(pair)  # (0 + 0 + 1 + 2) of the reference, (0 + 0) of the prediction, 6 points
    0.5
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    from_reference, from_prediction = pair.reference_distances, pair.prediction_distances
    return (from_reference.total + from_prediction.total) / (from_reference.size + from_prediction.size)


@_distance(title="MASD", source=METRICS_REVIEW)
def masd(pair: LabelPair) -> float:
    """The mean average surface distance: the mean of the two directed mean distances.

    Either surface counts for half, however large it is; panoptica calls this ASSD. In mm, at least 0; inf if one
    mask is empty, NaN if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> pair = LabelPair(line, line & [True, True, False, False], (1, 1), "voxel")
    >>> masd(pair)  # (0 + 0 + 1 + 2) / 4 and (0 + 0) / 2
    0.375
    """
    return (asd_ref_to_pred(pair) + asd_pred_to_ref(pair)) / 2


@_distance(title="RMSD", source=LIVER)
def rms(pair: LabelPair) -> float:
    """The root mean square symmetric surface distance, over the points of both surfaces.

    The points of both surfaces are one pool, as for `assd`; far ones count for more. In mm, at least `assd`;
    inf if one mask is empty, NaN if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> pair = LabelPair(line, line & [True, True, False, False], (1, 1), "voxel")
    >>> round(rms(pair), 4)  # the root of (0 + 0 + 1 + 4 + 0 + 0) / 6
    0.9129
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    from_reference, from_prediction = pair.reference_distances, pair.prediction_distances
    return math.sqrt(
        (from_reference.total_of_squares + from_prediction.total_of_squares)
        / (from_reference.size + from_prediction.size)
    )


@_distance(title="ASD pred to ref", source="MONAI's SurfaceDistanceMetric, by default, with voxel surfaces")
def asd_pred_to_ref(pair: LabelPair) -> float:
    """The mean distance from the prediction's surface to the reference's.

    It sees what was predicted beside the reference, not what was missed. In mm, at least 0; inf if one mask is
    empty, NaN if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> asd_pred_to_ref(LabelPair(line & [True, True, False, False], line, (1, 1), "voxel"))  # (0 + 0 + 1 + 2) / 4
    0.75
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    return pair.prediction_distances.total / pair.prediction_distances.size


@_distance(title="ASD ref to pred", source=f"surface-distance's first average; {METRICS_REVIEW}")
def asd_ref_to_pred(pair: LabelPair) -> float:
    """The mean distance from the reference's surface to the prediction's.

    It sees what was missed, not what was predicted elsewhere. In mm, at least 0; inf if one mask is empty, NaN
    if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> asd_ref_to_pred(LabelPair(line, line & [True, True, False, False], (1, 1), "voxel"))  # (0 + 0 + 1 + 2) / 4
    0.75
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    return pair.reference_distances.total / pair.reference_distances.size


@_distance(title="Centroid distance", source=f"{METRICS_REVIEW}, as its centre distance")
def centroid_distance(pair: LabelPair) -> float:
    """The distance between the centres of mass of the two masks.

    Every voxel counts, not the surface alone. In mm, at least 0; inf if one mask is empty, NaN if both are.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> centroid_distance(LabelPair(line, line & [True, True, False, False], (1, 3)))  # voxel 1.5 and voxel 0.5
    3.0
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    centres = [_mass_centre(mask) for mask in (pair.reference, pair.prediction)]
    return math.hypot(*((a - b) * size for a, b, size in zip(*centres, pair.spacing, strict=True)))


@share_metric(
    kind="mask", title="NSD", parameter="tolerance in mm", needs_spacing=True, parameter_optional=True, source=DEEPMIND
)
def nsd(pair: LabelPair, tolerance: float | None = None) -> float:
    """The normalised surface Dice: the share of both surfaces that lies within a tolerance of the other.

    A distance d is within the tolerance t if d <= t (1 + 1e-6). Without a tolerance, the label's own, as the
    task states it. In [0, 1]; 0 if one mask is empty, NaN if both are.

    Raises:
        UsageError: There is neither a tolerance nor one of the label.

    >>> import numpy as np
    >>> line = np.ones((1, 4), dtype=bool)
    >>> pair = LabelPair(line, line & [True, True, False, False], (1, 1), "voxel")
    >>> round(nsd(pair, 1), 4)  # distances 0, 0, 1, 2 and 0, 0: five of six points
    0.8333
    """
    limit = pair.settings.tolerance if tolerance is None else tolerance
    if limit is None:
        raise UsageError(f"Metric 'nsd' has no tolerance for {pair.name!r}: ask for nsd@2, or give `tolerances`")
    from_reference, from_prediction = pair.reference_distances, pair.prediction_distances
    return ratio(
        from_reference.within(limit) + from_prediction.within(limit), from_reference.size + from_prediction.size
    )


def _mass_centre(mask: npt.NDArray[np.bool_]) -> list[float]:
    """Returns the centre of mass of a mask in voxels."""
    axes = range(mask.ndim)
    sums = [
        np.count_nonzero(mask, axis=tuple(other_axis for other_axis in axes if other_axis != axis)) for axis in axes
    ]
    return [float(np.arange(len(counts)) @ counts) / float(counts.sum()) for counts in sums]
