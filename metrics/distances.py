"""Metrics of the distance between the surfaces of two masks, exact, in mm and in float64.

What counts as surface is one setting for all of them: "surfel" weighs each surface point by its area, "voxel"
counts border voxels.
"""

import math

from medimg_eval.errors import UsageError
from medimg_eval.metrics._pairs import LabelPair
from medimg_eval.metrics.overlap import ratio
from medimg_eval.metrics.registry import metric

METRICS_REVIEW = "Maier-Hein et al., Metrics reloaded, Nat Methods 2024, doi 10.1038/s41592-023-02151-z"
DEEPMIND = "Nikolov et al., J Med Internet Res 2021, doi 10.2196/26151, and its code, surface-distance"

# The distance between surfaces of which one, or each, does not exist.
_NO_DISTANCE = {"absent": math.nan, "missed": math.inf, "hallucinated": math.inf}


@metric(
    kind="mask",
    title="HD",
    higher_is_better=False,
    unit="mm",
    best=0.0,
    worst="diagonal",
    source="Huttenlocher et al., IEEE TPAMI 1993, doi 10.1109/34.232073, on surfaces",
)
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


@metric(
    kind="mask",
    title="HD95",
    higher_is_better=False,
    unit="mm",
    best=0.0,
    worst="diagonal",
    source=f"{DEEPMIND}; with voxel surfaces MONAI's HausdorffDistanceMetric(percentile=95)",
)
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


@metric(
    kind="mask",
    title="ASSD",
    higher_is_better=False,
    unit="mm",
    best=0.0,
    worst="diagonal",
    source=f"{METRICS_REVIEW}; with voxel surfaces MedPy's assd",
)
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
    one, other = pair.reference_distances, pair.prediction_distances
    return (one.total + other.total) / (one.size + other.size)


@metric(
    kind="mask",
    title="NSD",
    higher_is_better=True,
    best=1.0,
    worst=0.0,
    parameter="tolerance in mm",
    parameter_optional=True,
    source=DEEPMIND,
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
    one, other = pair.reference_distances, pair.prediction_distances
    return ratio(one.within(limit) + other.within(limit), one.size + other.size)
