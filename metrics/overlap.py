"""Metrics of how much two masks overlap, and of their sizes.

R and P are the reference's and the prediction's mask of one label.
"""

import math

from medimg_eval.metrics._pairs import LabelPair
from medimg_eval.metrics.registry import metric


@metric(
    kind="mask",
    title="Dice",
    higher_is_better=True,
    best=1.0,
    worst=0.0,
    source="Dice, Ecology 1945, doi 10.2307/1932409",
)
def dice(pair: LabelPair) -> float:
    """Twice the overlap over the sum of both sizes, 2 |R and P| / (|R| + |P|).

    In [0, 1]; NaN if both masks are empty.

    >>> import numpy as np
    >>> pair = LabelPair(np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), (1, 1))
    >>> dice(pair)  # 2 * 4 / (4 + 16)
    0.4
    """
    return ratio(2 * pair.overlap_size, pair.reference_size + pair.prediction_size)


@metric(
    kind="mask",
    title="IoU",
    higher_is_better=True,
    best=1.0,
    worst=0.0,
    source="Jaccard, New Phytologist 1912, doi 10.1111/j.1469-8137.1912.tb05611.x",
)
def iou(pair: LabelPair) -> float:
    """The overlap over the union, |R and P| / |R or P|.

    In [0, 1]; NaN if both masks are empty.

    >>> import numpy as np
    >>> pair = LabelPair(np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), (1, 1))
    >>> iou(pair)  # 4 / 16
    0.25
    """
    return ratio(pair.overlap_size, pair.reference_size + pair.prediction_size - pair.overlap_size)


def ratio(part: float, whole: float) -> float:
    """Returns part / whole; NaN where the whole is 0."""
    return part / whole if whole else math.nan
