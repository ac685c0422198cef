"""Quantitative maps: how far a T2 map of a reconstruction is off, tissue by tissue, with the subject as the unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.agreement import bland_altman

Array: TypeAlias = npt.NDArray[Any]

T2_LIMITS = (0.0, 100.0)
"""What SKM-TEA believes of a T2 in ms; values on the lower limit or outside are fits that failed."""


class RegionT2(NamedTuple):
    """T2 of one tissue of one subject.

    Attributes:
        reference: Mean in ms; NaN without a voxel that can be believed.
        prediction: The same of the other map.
        error: prediction - reference, in ms.
        voxels: How many voxels the tissue has in the mask of the reference.
        believed: How many of these have a T2 within the limits in the reference's map.
        believed_prediction: The same of the other map, of the voxels of its own mask.
    """

    reference: float
    prediction: float
    error: float
    voxels: int
    believed: int
    believed_prediction: int


class T2Agreement(NamedTuple):
    """T2 of one tissue over subjects.

    Attributes:
        subjects: How many have both values.
        bias: The mean of prediction - reference, in ms.
        mean_absolute_error: In ms.
        rms_cv: The root mean square over subjects of the coefficient of variation of the two values; 0.02 is 2 %.
        low: The lower of the 95 % limits of agreement, in ms; NaN for one subject.
        high: The upper one.
    """

    subjects: int
    bias: float
    mean_absolute_error: float
    rms_cv: float
    low: float
    high: float


def t2_error_ms(
    reference: Array,
    prediction: Array,
    labels: Array,
    regions: Mapping[int, str],
    *,
    predicted_labels: Array | None = None,
    limits: tuple[float, float] = T2_LIMITS,
) -> dict[str, RegionT2]:
    """Returns the mean T2 of each tissue in both maps, and their difference.

    A voxel counts where its T2 lies above the lower limit and at most at the upper one, in each map by itself, as
    SKM-TEA has it: what failed in one map does not leave the other.

    Args:
        reference: T2 in ms, float, (*spatial); 0 or NaN where there is none.
        prediction: Of the same shape: of the reconstruction, or the same map for another mask.
        labels: Integers of the same shape: which tissue a voxel is.
        regions: Label -> name.
        predicted_labels: Where the prediction has the tissues, of a segmentation that is judged; by default where the
            reference has them, as for a reconstruction.
        limits: In ms.

    Returns:
        Name -> values; NaN for a tissue that a map or a mask has no voxel of.

    Raises:
        ValueError: If shapes differ, labels are no integers, or the limits are no interval.

    Source: Desai et al. 2021 (SKM-TEA), whose code takes the mean of the voxels that are not 0.

    >>> t2_error_ms(np.array([40.0, 44.0]), np.array([41.0, 300.0]), np.array([1, 1]), {1: "femoral"})["femoral"].error
    -1.0
    """
    own = labels if predicted_labels is None else predicted_labels
    for name, array in (("prediction", prediction), ("labels", labels), ("predicted_labels", own)):
        if array.shape != reference.shape:
            raise ValueError(f"Expected `{name}` to have the shape {reference.shape}, got {array.shape}")
    for name, array in (("labels", labels), ("predicted_labels", own)):
        if array.dtype.kind not in "iu":
            raise ValueError(f"Expected `{name}` to hold integers, got {array.dtype}")
    if not 0 <= limits[0] < limits[1]:
        raise ValueError(f"Expected limits from 0 ms on, the lower one first, got {limits}")
    found = {}
    for label, name in regions.items():
        first, second = _believed(reference[labels == label], limits), _believed(prediction[own == label], limits)
        means = [float(values.mean()) if values.size else math.nan for values in (first, second)]
        found[name] = RegionT2(
            means[0], means[1], means[1] - means[0], int((labels == label).sum()), first.size, second.size
        )
    return found


def t2_agreement(subjects: Sequence[Mapping[str, RegionT2]]) -> dict[str, T2Agreement]:
    """Returns bias, mean absolute error, RMS-CV and limits of agreement of every tissue over subjects.

    Args:
        subjects: What `t2_error_ms` returned of each; one who has several scans is given once, with their means.

    Returns:
        Name -> agreement, in the order of the first subject; NaN where no subject has both values.

    >>> found = t2_agreement([t2_error_ms(np.full(4, 40.0), np.full(4, 42.0), np.ones(4, int), {1: "tibial"})])
    >>> found["tibial"].bias, round(found["tibial"].rms_cv, 4)
    (2.0, 0.0345)
    """
    found = {}
    for name in dict.fromkeys(name for subject in subjects for name in subject):
        pairs = [(subject[name].reference, subject[name].prediction) for subject in subjects if name in subject]
        values = np.array(pairs)
        values = values[~np.isnan(values).any(axis=1)]
        if not len(values):
            found[name] = T2Agreement(0, *(math.nan,) * 5)
            continue
        limits = bland_altman(values[:, 0], values[:, 1])
        # Of two values the standard deviation is |a - b| / sqrt(2).
        variation = (values[:, 1] - values[:, 0]) / math.sqrt(2) / values.mean(axis=1)
        found[name] = T2Agreement(
            len(values),
            limits.bias,
            float(np.abs(values[:, 1] - values[:, 0]).mean()),
            float(np.sqrt(np.square(variation).mean())),
            limits.low,
            limits.high,
        )
    return found


def _believed(values: Array, limits: tuple[float, float]) -> Array:
    """Those within the limits, float64; NaN is not."""
    given = values.astype(np.float64)
    kept: Array = given[(given > limits[0]) & (given <= limits[1])]
    return kept
