"""Quantitative maps: how far a T2 map of a reconstruction is off, tissue by tissue, with the subject as the unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from medimg_eval.metrics.agreement import bland_altman
from medimg_eval.metrics.arrays import Array
from medimg_eval.metrics.measurement.measurements import MeasurementPair
from medimg_eval.metrics.registry import metric

T2_LIMITS = (0.0, 100.0)
"""What SKM-TEA believes of a T2 in ms; values on the lower limit or outside are fits that failed."""


T1_KNEE = 1200.0
"""The T1 in ms that SKM-TEA takes for all tissues of the knee but the meniscus, for which it takes 1000."""

DIFFUSIVITY = 1.25e-9
"""Of cartilage, in m^2/s; T2 hangs little on it (Sveinsson et al. 2017)."""

GAMMA = 4258 * 2 * math.pi
"""The gyromagnetic ratio of the proton, in rad / (G s)."""


class DessScan(NamedTuple):
    """How a double-echo steady-state scan (DESS) was measured.

    Attributes:
        repetition_time: In ms.
        echo_time: Of the first echo, in ms.
        flip_angle: In degrees.
        spoiler_time: How long the spoiler lasts, in microseconds.
        spoiler_area: Of the spoiler, in the scanner's units: its gradient in G/cm is 100 area / time.
    """

    repetition_time: float
    echo_time: float
    flip_angle: float
    spoiler_time: float
    spoiler_area: float


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


_t2_error = partial(metric, kind="measurement", unit="ms", best=0.0, source="Desai et al. 2021 (SKM-TEA)")


@_t2_error(title="T2 error", higher_is_better=None, worst=math.nan, name="t2_error_ms")
def t2_difference(pair: MeasurementPair) -> float:
    """The mean T2 of a tissue in the reconstruction less that in the reference, in ms.

    The mean over subjects is the bias. NaN where either map has no voxel that can be believed.
    """
    return pair.prediction - pair.reference


@_t2_error(title="|T2 error|", higher_is_better=False, worst=T2_LIMITS[1], name="t2_absolute_error_ms")
def t2_absolute_difference(pair: MeasurementPair) -> float:
    """The absolute difference of a tissue's mean T2 between the reconstruction and the reference, in ms.

    The mean over subjects is the mean absolute error. Where only the reconstruction has no voxel that can be believed,
    100 ms, all that a T2 can be off; NaN where the reference has none.
    """
    return T2_LIMITS[1] if pair.status == "missed" else pair.error


def dess_t2(
    first: Array, second: Array, scan: DessScan, *, t1: Array | float = T1_KNEE, where: Array | None = None
) -> Array:
    """Returns T2 in ms, float64 (*spatial), from DESS echoes.

    It follows from the ratio of the magnitudes of the two echoes, as SKM-TEA computes it: rounded to 0.1 ms, and NaN
    where T2 is outside 0 to 100 ms, where the first echo is at most 15 % of its largest value (fat and noise), or where
    first - 1.2 second is at most 10 % of its largest (fluid). Both echoes are in one unit, any; `t1` is in ms, one
    number or (*spatial). Voxels that are not wanted, by `where`, are NaN.

    Raises:
        ValueError: If shapes differ, the images are no finite magnitudes, or a number of the scan is not above 0.

    Source: Sveinsson et al. 2017; constants of DOSMA's `QDess`.
    """
    for name, array in (("first", first), ("second", second)):
        if array.shape != first.shape or array.dtype.kind not in "iuf":
            raise ValueError(f"Expected `{name}` to hold magnitudes {first.shape}, got {array.dtype} {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"Expected `{name}` to be finite")
    wrong = next((name for name, value in scan._asdict().items() if not 0 < value < math.inf), None)
    if wrong is not None:
        raise ValueError(f"Expected `{wrong}` of the scan to be above 0, got {getattr(scan, wrong)}")
    chosen = np.ones(first.shape, bool) if where is None else where
    early, late = first[chosen].astype(np.float64), second[chosen].astype(np.float64)
    nulled = float((first.astype(np.float64) - 1.2 * second).max())
    is_known = (early > 0.15 * float(first.max())) & (early - 1.2 * late > 0.1 * nulled) & (late > 0)
    times = _t2_values(early, late, scan, np.broadcast_to(t1, first.shape)[chosen].astype(np.float64), is_known)
    values = np.full(first.shape, math.nan)
    values[chosen] = times
    return values


def _t2_values(early: Array, late: Array, scan: DessScan, t1: Array, known: Array) -> Array:
    """T2 of voxels, rounded to 0.1 ms; NaN outside limits."""
    repetition, echo = scan.repetition_time * 1e-3, scan.echo_time * 1e-3
    spoiler, angle = scan.spoiler_time * 1e-6, math.radians(scan.flip_angle)
    dephasing = (GAMMA * scan.spoiler_area * 1e-4) ** 2 * DIFFUSIVITY  # the area is of 100 G/cm for a microsecond
    decay_ = np.exp(-repetition / (t1 * 1e-3) - repetition * dephasing)
    tipped = math.sin(angle / 2) ** 2 * (1 + decay_) / (1 - math.cos(angle) * decay_)
    values = np.full(early.shape, math.nan)
    with np.errstate(divide="ignore"):
        decay = np.log(late[known] / early[known] / tipped[known]) + (repetition - spoiler / 3) * dephasing
        values[known] = -2000 * (repetition - echo) / decay
    values[~(values <= T2_LIMITS[1])] = math.nan
    rounded: Array = np.around(values, 1)
    rounded[~(rounded > T2_LIMITS[0])] = math.nan
    return rounded


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
    errors = {}
    for label, name in regions.items():
        first, second = (
            _within_limits(reference[labels == label], limits),
            _within_limits(prediction[own == label], limits),
        )
        means = [float(values.mean()) if values.size else math.nan for values in (first, second)]
        errors[name] = RegionT2(
            means[0], means[1], means[1] - means[0], int((labels == label).sum()), first.size, second.size
        )
    return errors


def t2_agreement(subjects: Sequence[Mapping[str, RegionT2]]) -> dict[str, T2Agreement]:
    """Returns bias, MAE, RMS-CV and limits of agreement by tissue.

    Statistics are over subjects; MAE is the mean absolute error. Subjects are what `t2_error_ms` returned of each; one
    who has several scans is given once, with their means. Tissues are in the order of the first subject; NaN where no
    subject has both values.

    >>> found = t2_agreement([t2_error_ms(np.full(4, 40.0), np.full(4, 42.0), np.ones(4, int), {1: "tibial"})])
    >>> found["tibial"].bias, round(found["tibial"].rms_cv, 4)
    (2.0, 0.0345)
    """
    agreement = {}
    for name in dict.fromkeys(name for subject in subjects for name in subject):
        pairs = [(subject[name].reference, subject[name].prediction) for subject in subjects if name in subject]
        values = np.array(pairs)
        values = values[~np.isnan(values).any(axis=1)]
        if not len(values):
            agreement[name] = T2Agreement(0, *(math.nan,) * 5)
            continue
        limits = bland_altman(values[:, 0], values[:, 1])
        # Of two values the standard deviation is |a - b| / sqrt(2).
        variation = (values[:, 1] - values[:, 0]) / math.sqrt(2) / values.mean(axis=1)
        agreement[name] = T2Agreement(
            len(values),
            limits.bias,
            float(np.abs(values[:, 1] - values[:, 0]).mean()),
            float(np.sqrt(np.square(variation).mean())),
            limits.low,
            limits.high,
        )
    return agreement


def mean_t2(values: Array) -> float:
    """Mean of T2 in ms that can be believed; NaN of none.

    A value counts above 0 and up to 100 ms.

    >>> mean_t2(np.array([40.0, 44.0, 0.0, 300.0, np.nan]))
    42.0
    """
    believed = _within_limits(values, T2_LIMITS)
    return float(believed.mean()) if believed.size else math.nan


def _within_limits(values: Array, limits: tuple[float, float]) -> Array:
    """Those within the limits, float64; NaN is not."""
    values_ = values.astype(np.float64)
    return values_[(values_ > limits[0]) & (values_ <= limits[1])]
