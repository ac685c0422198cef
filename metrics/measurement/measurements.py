"""Measurements: angles, lengths and ratios that a model takes of an image, against those of one or several readers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.metrics.arrays import Array
from medimg_eval.metrics.declarations import error_metric, share_metric
from medimg_eval.metrics.measurement.angles import unwrapped
from medimg_eval.metrics.registry import asked_metrics, metric
from medimg_eval.metrics.scores import BETWEEN, LabelScore

measurement_metrics = partial(asked_metrics, kind="measurement", what="measurements")


@dataclass(frozen=True)
class MeasurementPair:
    """One measurement of one case.

    Attributes:
        name: Which measurement.
        reference: The true value; NaN where it was not measured.
        prediction: The model's value, of a circular measurement the equivalent nearest to the reference; NaN without.
    """

    name: str
    reference: float
    prediction: float

    @property
    def status(self) -> str:
        """On which sides it is: "present", "missed", "hallucinated" (prediction only) or "absent"."""
        if math.isnan(self.reference):
            return "absent" if math.isnan(self.prediction) else "hallucinated"
        return "missed" if math.isnan(self.prediction) else "present"

    @property
    def error(self) -> float:
        """The absolute difference; NaN where a side lacks it."""
        return abs(self.prediction - self.reference)


_error = partial(error_metric, kind="measurement", title="MAE", worst=math.nan, source="mean absolute error")
_evidence = partial(metric, kind="measurement", higher_is_better=True, best=math.nan, worst=math.nan, intermediate=True)


@_error()
def absolute_error(pair: MeasurementPair) -> float:
    """The absolute difference between the predicted and the reference value, in the unit of the measurement.

    At least 0. The mean over cases is the mean absolute error. A missing value has no error: see the counts.
    """
    return pair.error


@_error(unit="°")
def angle_error(pair: MeasurementPair) -> float:
    """The absolute difference between the predicted and the reference angle, the shorter way round if it is circular.

    In degrees, at least 0, and at most half of the period of a circular angle.
    """
    return pair.error


@share_metric(
    kind="measurement",
    title="Within",
    parameter="tolerance in the unit of the measurement",
    source="tolerance accuracy",
    value_kind="proportion",
)
def accuracy_within(pair: MeasurementPair, tolerance: float) -> float:
    """The share of measurements whose prediction lies within a tolerance of the reference.

    One measurement has 1 or 0: 0 where the prediction lacks it; NaN where the reference does. A difference d counts as
    within t when d <= t (1 + 1e-6).
    """
    return math.nan if math.isnan(pair.reference) else float(pair.error <= tolerance * (1 + 1e-6))


@_evidence(title="Measured", source="the prediction")
def measured(pair: MeasurementPair) -> float:
    """The predicted value itself, as evidence for agreement over a test set.

    Of a circular measurement the equivalent that is nearest to the reference, so that differences of 359 and 1 degrees
    are 2.
    """
    return pair.prediction


@_evidence(title="Reference value", source="the reference")
def measured_reference(pair: MeasurementPair) -> float:
    """The reference value itself, as evidence for agreement over a test set."""
    return pair.reference


@_evidence(title="Reader's value", source="the readers")
def measured_by_reader(pair: MeasurementPair) -> float:
    """One reading by one reader, under the label `measurement/reader/reading`, as evidence for the readers' spread."""
    return pair.reference


def measurement_scores(
    reference: Mapping[str, float],
    prediction: Mapping[str, float],
    *,
    metrics: Sequence[str] = ("absolute_error",),
    periods: Mapping[str, float] | None = None,
) -> list[LabelScore]:
    """Returns the score of every measurement that either side names, measurement by measurement.

    Several readers' values stand in the reference as `name/reader`, or `name/reader/1`, `name/reader/2`, ... where one
    read more than once. Where the reference has no value under the plain name, the mean of the readers' means is it.

    Args:
        reference: Name -> value; NaN where it was not measured.
        prediction: Name -> value.
        metrics: Names of metrics of kind "measurement".
        periods: Of circular measurements: after how much they begin anew, such as 360.

    Raises:
        ValueError: If a value is infinite, a name has more than three parts, or a period is not above 0.
        UsageError: If there is no such metric of measurements.

    >>> measurement_scores({"tilt": 2.0}, {"tilt": 359.0}, metrics=["angle_error"], periods={"tilt": 360})
    [LabelScore(label='tilt', metric='angle_error', value=3.0, status='present')]
    """
    wanted = measurement_metrics(metrics)
    around = dict(periods or {})
    if wrong := [name for name, period in around.items() if not 0 < period < math.inf]:
        raise ValueError(f"Expected the period of {wrong[0]!r} to be above 0, got {around[wrong[0]]!r}")
    for name, value in (*reference.items(), *prediction.items()):
        if math.isinf(value):
            raise ValueError(f"Expected the value of {name!r} to be finite, got {value}")
    readings, truth = _by_reader(reference), {}
    for name in dict.fromkeys((*(name.split(BETWEEN)[0] for name in reference), *prediction)):
        own = float(reference.get(name, math.nan))
        truth[name] = own if name in reference else _reader_consensus(readings.get(name, {}), around.get(name))
    rows = []
    for name, value in truth.items():
        answer = float(prediction.get(name, math.nan))
        pair = MeasurementPair(name, value, unwrapped(answer, value, None if math.isnan(value) else around.get(name)))
        for asked_for, (definition, parameter) in wanted.items():
            if definition.name == "measured_by_reader":
                rows += _reading_rows(name, readings.get(name, {}), value, around.get(name))
            else:
                scored = definition.function(pair) if parameter is None else definition.function(pair, parameter)
                rows.append(LabelScore(name, asked_for, float(scored), pair.status))
    return rows


def worst_measurement_scores(reference: Mapping[str, float], metrics: Sequence[str]) -> list[LabelScore]:
    """Returns "failed" scores of a case without an answer.

    The model gave none. What the reference says stays: `measured_reference` and `measured_by_reader` keep
    their values, and what it lacks has no other one than NaN.

    Raises:
        UsageError: If there is no such metric of measurements.
    """
    wanted = measurement_metrics(metrics)
    rows = []
    for score in measurement_scores(reference, {}, metrics=metrics):
        definition = wanted[score.metric][0]
        stays = score.status == "absent" or definition.name in ("measured_reference", "measured_by_reader")
        rows.append(score._replace(status="failed", value=score.value if stays else float(definition.worst)))
    return rows


class HeightLoss(NamedTuple):
    """Relative height loss (0.25: a quarter), whole and by thirds."""

    whole: float
    anterior: float
    middle: float
    posterior: float

    def as_record(self) -> dict[str, list[float | None]]:
        """The losses as JSON holds them, null where there is none."""
        return {"loss": [None if math.isnan(loss) else loss for loss in self]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> HeightLoss:
        """Reads what `as_record` gave."""
        return cls(*(math.nan if loss is None else float(loss) for loss in record["loss"]))


def relative_height_loss(synthetic: Array, original: Array, *, lowest: float = 0.7, breadth: float = 0.2) -> HeightLoss:
    """Returns relative height loss, (H_syn - H_ori) / H_syn.

    How much lower a vertebra is than it would be if it were healthy. A height is the number of voxels of a
    column from top to bottom; H is the mean height of the columns of a part, over the sagittal slices about
    the middle of the original that both masks are in. Columns of less than `lowest` times the height in the
    middle of their slice and mask are left out: they cut corners and processes. The thirds are those of the
    synthetic vertebra's extent in each slice.

    Args:
        synthetic: bool, (top to bottom, front to back, side to side), the vertebra as it would be, on the straightened
            grid; voxels of any size, for heights are compared with heights.
        original: bool, of the same shape.
        lowest: Between 0 and 1.
        breadth: How far from the middle slice to go to each side, as a share of the original's extent.

    Returns:
        The loss, at most 1, below 0 where the original is higher; NaN for a part without columns in either mask.

    Raises:
        ValueError: If the masks are not boolean volumes of one shape.

    Source: Zhang et al., HealthiVert-GAN (evaluation/RHLV_quantification.py). Their code also stretches each part of a
    synthetic slice that is lower than the original up to it, which takes losses below 0 away; this does not.

    >>> healthy, crushed = np.ones((2, 10, 9, 5), bool)
    >>> crushed[:4, :3] = False
    >>> relative_height_loss(healthy, crushed, lowest=0.5).anterior
    0.4
    """
    for name, mask in (("synthetic", synthetic), ("original", original)):
        if mask.dtype.kind != "b" or mask.ndim != 3 or mask.shape != original.shape:
            raise ValueError(f"Expected `{name}` to be a boolean volume, and both of one shape, got {mask.shape}")
    parts: dict[tuple[str, int], list[Array]] = {(side, part): [] for side in ("syn", "ori") for part in range(4)}
    for slice_ in _central_slices(original, breadth):
        pair = {"syn": synthetic[:, :, slice_].sum(axis=0), "ori": original[:, :, slice_].sum(axis=0)}
        if not (pair["syn"].any() and pair["ori"].any()):
            continue
        first, last = np.flatnonzero(pair["syn"])[[0, -1]]
        edges = [first + (last + 1 - first) * third / 3 for third in (1, 2)]
        third = np.searchsorted(edges, np.arange(len(pair["syn"])) + 0.5)
        for side, heights in pair.items():
            middle = heights[int(np.average(np.arange(len(heights)), weights=heights))]
            is_kept = heights >= max(1, lowest * middle)
            parts[side, 0].append(heights[is_kept])
            for part in range(3):
                parts[side, part + 1].append(heights[is_kept & (third == part)])
    return HeightLoss(*(_relative_loss(parts["syn", part], parts["ori", part]) for part in range(4)))


def _central_slices(mask: Array, breadth: float) -> range:
    """Returns the slices about the middle of a mask."""
    weights = mask.sum(axis=(0, 1))
    if not weights.any():
        return range(0)
    first, last = np.flatnonzero(weights)[[0, -1]]
    middle, reach = round(float(np.average(np.arange(len(weights)), weights=weights))), int((last - first) * breadth)
    return range(max(first, middle - reach), min(last, middle + reach) + 1)


def _relative_loss(synthetic: Sequence[Array], original: Sequence[Array]) -> float:
    healthy, compressed = (np.concatenate([*heights, np.empty(0)]) for heights in (synthetic, original))
    if not (healthy.size and compressed.size):
        return math.nan
    return float((healthy.mean() - compressed.mean()) / healthy.mean())


def _by_reader(reference: Mapping[str, float]) -> dict[str, dict[str, dict[str, float]]]:
    """Returns the readings by measurement, reader and reading."""
    held: dict[str, dict[str, dict[str, float]]] = {}
    for key, value in reference.items():
        name, *remaining = key.split(BETWEEN)
        if len(remaining) > 2:
            raise ValueError(f"Expected a reference to be called name, name/reader or name/reader/reading, got {key!r}")
        if remaining:
            held.setdefault(name, {}).setdefault(remaining[0], {})[remaining[1] if len(remaining) > 1 else "1"] = float(
                value
            )
    return held


def _reader_consensus(readers: Mapping[str, Mapping[str, float]], period: float | None) -> float:
    """Returns the mean over readers of each reader's mean; NaN without a reading."""
    defined = [value for by in readers.values() for value in by.values() if not math.isnan(value)]
    if not defined:
        return math.nan
    # Circular readings are taken as near to the first as they can be.
    means = [
        np.mean(near)
        for by in readers.values()
        if (near := [unwrapped(value, defined[0], period) for value in by.values() if not math.isnan(value)])
    ]
    return float(np.mean(means))


def _reading_rows(
    name: str, readers: Mapping[str, Mapping[str, float]], reference: float, period: float | None
) -> list[LabelScore]:
    """Returns the rows of single readings."""
    return [
        LabelScore(
            BETWEEN.join((name, reader, reading)),
            "measured_by_reader",
            unwrapped(value, reference, None if math.isnan(reference) else period),
            "absent" if math.isnan(value) else "present",
        )
        for reader, by in readers.items()
        for reading, value in by.items()
    ]
