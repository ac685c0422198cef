"""Metrics of how much two masks overlap, and of their sizes.

R and P are the reference's and the prediction's mask of one label, N the voxels of the image.
"""

import math
from functools import partial

from medimg_eval.metrics.declarations import error_metric, share_metric
from medimg_eval.metrics.segmentation.pairs import LabelPair

TAHA = "Taha and Hanbury, BMC Med Imaging 2015, doi 10.1186/s12880-015-0068-x"
METRICS_REVIEW = "Maier-Hein et al., Metrics reloaded, Nat Methods 2024, doi 10.1038/s41592-023-02151-z"

_share = partial(share_metric, kind="mask")
_error = partial(error_metric, kind="mask")


@_share(title="Dice", source="Dice, Ecology 1945, doi 10.2307/1932409")
def dice(pair: LabelPair) -> float:
    """Dice similarity coefficient (DSC, voxel F1): 2 |R and P| / (|R| + |P|).

    In [0, 1]; NaN if both masks are empty.

    >>> import numpy as np
    >>> pair = LabelPair(np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), (1, 1))
    >>> dice(pair)  # 2 * 4 / (4 + 16)
    0.4
    """
    return ratio(2 * pair.overlap_size, pair.reference_size + pair.prediction_size)


@_share(title="IoU", source="Jaccard, New Phytologist 1912, doi 10.1111/j.1469-8137.1912.tb05611.x")
def iou(pair: LabelPair) -> float:
    """Intersection over union (IoU, Jaccard index): |R and P| / |R or P|.

    In [0, 1]; NaN if both masks are empty.

    >>> import numpy as np
    >>> pair = LabelPair(np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), (1, 1))
    >>> iou(pair)  # 4 / 16
    0.25
    """
    return ratio(pair.overlap_size, pair.reference_size + pair.prediction_size - pair.overlap_size)


@_share(title="Precision", source=TAHA)
def precision(pair: LabelPair) -> float:
    """Precision (positive predictive value): |R and P| / |P|.

    In [0, 1]; NaN if the prediction is empty.

    >>> import numpy as np
    >>> pair = LabelPair(np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), (1, 1))
    >>> precision(pair)  # 4 / 16
    0.25
    """
    return ratio(pair.overlap_size, pair.prediction_size)


@_share(title="Recall", source=TAHA)
def recall(pair: LabelPair) -> float:
    """Sensitivity (recall, true positive rate): |R and P| / |R|.

    In [0, 1]; NaN if the reference is empty.

    >>> import numpy as np
    >>> pair = LabelPair(np.ones((4, 4), dtype=bool), np.eye(4, dtype=bool), (1, 1))
    >>> recall(pair)  # 4 / 16
    0.25
    """
    return ratio(pair.overlap_size, pair.reference_size)


@_share(title="Specificity", source=TAHA, defined_when_empty=True)
def specificity(pair: LabelPair) -> float:
    """Specificity (true negative rate): |neither R nor P| / (N - |R|), over the N voxels of the image.

    It depends on how much of the image is background: padding an image raises it. In [0, 1]; 1 if only the
    prediction is empty; NaN if both masks are, or if the reference fills the image.

    >>> import numpy as np
    >>> pair = LabelPair(np.eye(4, dtype=bool), np.tile([True, True, False, False], (4, 1)), (1, 1))
    >>> specificity(pair)  # 12 pixels outside the diagonal, 6 of them predicted
    0.5
    """
    if pair.status == "absent":
        return math.nan
    outside = math.prod(pair.shape) - pair.reference_size
    return ratio(outside - (pair.prediction_size - pair.overlap_size), outside)


@_error(
    title="Volume error",
    worst=math.nan,
    source=f"{METRICS_REVIEW}; panoptica's RVD",
    defined_when_empty=True,
    intermediate=True,
    value_kind="ratio",
)
def volume_error(pair: LabelPair) -> float:
    """Relative volume error, signed: (|P| - |R|) / |R|.

    Positive where too much is predicted. Errors of either sign are worse than 0 and cancel in a mean, so it is
    kept for summaries of bias; `volume_error_abs` is the one that ranks. At least -1, which is an empty
    prediction, and unbounded above; NaN if the reference is empty.

    >>> import numpy as np
    >>> pair = LabelPair(np.ones((4, 4), dtype=bool), np.eye(4, dtype=bool), (1, 1))
    >>> volume_error(pair)  # 4 instead of 16
    -0.75
    """
    return ratio(pair.prediction_size - pair.reference_size, pair.reference_size)


@_error(title="Abs. volume error", worst=1.0, source=f"{METRICS_REVIEW} (AVDR); panoptica's RVAE", value_kind="ratio")
def volume_error_abs(pair: LabelPair) -> float:
    """Absolute relative volume error: ||P| - |R|| / |R|.

    At least 0. An empty prediction gets 1, and so by convention does any answer that failed; a prediction of
    more than twice the reference gets more. NaN if the reference is empty.

    >>> import numpy as np
    >>> pair = LabelPair(np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), (1, 1))
    >>> volume_error_abs(pair)  # 16 instead of 4
    3.0
    """
    return abs(volume_error(pair))


@_share(title="Volume similarity", source=TAHA)
def volume_similarity(pair: LabelPair) -> float:
    """Volumetric similarity: 1 - ||P| - |R|| / (|P| + |R|), wherever the masks lie.

    In [0, 1]; 0 if one mask is empty, NaN if both are. At least the Dice of the same masks.

    >>> import numpy as np
    >>> pair = LabelPair(np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), (1, 1))
    >>> volume_similarity(pair)  # 1 - 12 / 20
    0.4
    """
    return 1 - ratio(abs(pair.prediction_size - pair.reference_size), pair.reference_size + pair.prediction_size)


def ratio(part: float, whole: float) -> float:
    """Returns part / whole; NaN where the whole is 0."""
    return part / whole if whole else math.nan
