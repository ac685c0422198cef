"""Estimates of a mask's quality from the model's own probabilities, and volumes as evidence for intervals."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.declarations import error_metric, evidence_metric, neutral_metric
from medimg_eval.metrics.segmentation.overlap import ratio
from medimg_eval.metrics.segmentation.pairs import LabelPair
from medimg_eval.metrics.segmentation.probability_maps import CLIP, ProbabilityPair

_volume = partial(evidence_metric, kind="mask", defined_when_empty=True, unit="ml")


@_volume(title="Volume of the reference")
def volume_reference(pair: LabelPair) -> float:
    """The volume of the reference's mask, in ml.

    Evidence for intervals of volumes.
    """
    return pair.reference_size * math.prod(pair.spacing) / 1000


@_volume(title="Volume of the prediction")
def volume_predicted(pair: LabelPair) -> float:
    """The volume of the prediction's mask, in ml.

    Evidence for intervals of volumes.
    """
    return pair.prediction_size * math.prod(pair.spacing) / 1000


@neutral_metric(
    kind="probability",
    title="Expected Dice",
    source="Li et al., arXiv 2206.05257, as a ratio of expectations",
    value_kind="bounded",
)
def expected_dice(pair: ProbabilityPair) -> float:
    """The Dice that a mask should have by the model's own probabilities, 2 sum_M(p) / (|M| + sum(p)).

    M are the voxels of 0.5 or more. It reads nothing of the reference. In [0, 1]; NaN where M is empty.

    >>> import numpy as np
    >>> pair = ProbabilityPair(np.zeros(4, bool), np.array([1.0, 0.5, 0.5, 0.0]))
    >>> round(expected_dice(pair), 3)  # 2 * 2 / (3 + 2)
    0.8
    """
    inside = total = size = 0.0
    for _, p in pair.chunks():
        mask = p >= 0.5
        inside, total, size = inside + float(p[mask].sum()), total + float(p.sum()), size + int(mask.sum())
    return ratio(2 * inside, size + total) if size else math.nan


@neutral_metric(kind="probability", title="Voxel entropy", source="Shannon 1948", unit="bit")
def voxel_entropy(pair: ProbabilityPair) -> float:
    """The mean over all voxels of the entropy of p against 1 - p, in bits: how unsure a model is of a label.

    It reads nothing of the reference, and shrinks as the image grows. In [0, 1]; NaN without voxels.

    >>> import numpy as np
    >>> voxel_entropy(ProbabilityPair(np.zeros(2, bool), np.array([0.5, 1.0])))
    0.5
    """
    total, number = 0.0, pair.probability.size
    for _, p in pair.chunks():
        q = np.clip(p, CLIP, 1 - CLIP)
        entropy = -(q * np.log2(q) + (1 - q) * np.log2(1 - q))
        total += float(np.where((p <= CLIP) | (p >= 1 - CLIP), 0, entropy).sum())
    return ratio(total, number)


@error_metric(
    kind="probability",
    title="Missed share",
    worst=1.0,
    source="Angelopoulos et al., ICLR 2024, arXiv 2208.02814",
    parameter="threshold of probability",
    parameter_most=1,
)
def missed_share(pair: ProbabilityPair, threshold: float) -> float:
    """The share of the reference's voxels whose probability is below a threshold: 1 - sensitivity there.

    Of several thresholds the command `confidence` chooses the largest whose expected share is as small as asked for. In
    [0, 1]; NaN where there is no reference.

    Raises:
        UsageError: the threshold is 0, below which nothing lies.
    """
    if threshold <= 0:
        raise UsageError("missed_share@0 is invalid: expected a threshold above 0, such as missed_share@0.5, got 0")
    missed = sum(float(y @ (p < threshold)) for y, p in pair.chunks())
    return ratio(missed, pair.reference_size)
