"""Segmentation metrics of one label at a time, and the scores of whole label maps.

R and P are the reference's and the prediction's mask. Distances are exact, in mm and in float64. What
counts as surface is one setting for all distances: "surfel" weighs each surface point by its area, "voxel"
counts border voxels.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics._pairs import LabelPair, Surface, check_arrays, checked_spacing
from medimg_eval.metrics._surfaces import Floats, Spacing
from medimg_eval.metrics.registry import Metric, metric, parse

__all__ = [
    "LabelPair",
    "LabelScore",
    "Penalty",
    "Surface",
    "assd",
    "dice",
    "hd",
    "hd95",
    "iou",
    "nsd",
    "segmentation_scores",
    "worst_scores",
]

LabelMap: TypeAlias = npt.NDArray[np.integer]
Box: TypeAlias = tuple[slice, ...]
Penalty: TypeAlias = float | Literal["diagonal", "drop"]

METRICS_REVIEW = "Maier-Hein et al., Metrics reloaded, Nat Methods 2024, doi 10.1038/s41592-023-02151-z"
DEEPMIND = "Nikolov et al., J Med Internet Res 2021, doi 10.2196/26151, and its code, surface-distance"

# A surface that lies at the tolerance is within it, however the spacing was rounded: 3 x 0.8 is
# 2.4000000000000004 in float64, and must not miss a tolerance of 2.4.
TOLERANCE_SLACK = 1e-6
# A sum of areas that should be exactly 95 % of a surface may come out a few roundings short of it.
AREA_SLACK = 1e-9

# The distance between surfaces of which one, or each, does not exist.
_NO_DISTANCE = {"absent": math.nan, "missed": math.inf, "hallucinated": math.inf}


class LabelScore(NamedTuple):
    """The value of one metric for one label of one case.

    Attributes:
        label: Its name.
        metric: The metric as it was asked for, such as "nsd@2".
        value: The value; NaN where there is none.
        status: "present" (in both masks), "missed" (not predicted), "hallucinated" (not in the reference),
            "absent" (in neither) or "failed" (there is no prediction to judge).
    """

    label: str
    metric: str
    value: float
    status: str


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

    >>> pair = LabelPair(np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), (1, 1))
    >>> dice(pair)  # 2 * 4 / (4 + 16)
    0.4
    """
    return _ratio(2 * pair.overlap_size, pair.reference_size + pair.prediction_size)


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

    >>> pair = LabelPair(np.eye(4, dtype=bool), np.ones((4, 4), dtype=bool), (1, 1))
    >>> iou(pair)  # 4 / 16
    0.25
    """
    return _ratio(pair.overlap_size, pair.reference_size + pair.prediction_size - pair.overlap_size)


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

    >>> line = np.ones((1, 4), dtype=bool)
    >>> hd(LabelPair(line, line & [True, True, False, False], (1, 1.5)))  # two pixels of 1.5 mm short
    3.0
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    return float(max(pair.reference_distances.max(), pair.prediction_distances.max()))


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

    >>> line = np.ones((1, 40), dtype=bool)
    >>> short = line & (np.arange(40) < 36)
    >>> pair = LabelPair(line, short, (1, 1), surface="voxel")
    >>> round(hd95(pair), 2)  # reference distances: 36 times 0, then 1, 2, 3, 4; rank 0.95 * 39 = 37.05
    2.05
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    return max(
        _percentile95(pair.reference_distances, pair.reference_surface.weights, pair.surface),
        _percentile95(pair.prediction_distances, pair.prediction_surface.weights, pair.surface),
    )


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

    >>> line = np.ones((1, 4), dtype=bool)
    >>> pair = LabelPair(line, line & [True, True, False, False], (1, 1), surface="voxel")
    >>> assd(pair)  # (0 + 0 + 1 + 2) of the reference, (0 + 0) of the prediction, 6 points
    0.5
    """
    if pair.status != "present":
        return _NO_DISTANCE[pair.status]
    distances = np.concatenate([pair.reference_distances, pair.prediction_distances])
    weights = np.concatenate([pair.reference_surface.weights, pair.prediction_surface.weights])
    return float(np.average(distances, weights=weights))


@metric(
    kind="mask",
    title="NSD",
    higher_is_better=True,
    best=1.0,
    worst=0.0,
    parameter="tolerance in mm",
    source=DEEPMIND,
)
def nsd(pair: LabelPair, tolerance: float) -> float:
    """The normalised surface Dice: the share of both surfaces that lies within a tolerance of the other.

    A distance d is within the tolerance t if d <= t (1 + 1e-6). In [0, 1]; 0 if one mask is empty, NaN if
    both are.

    >>> line = np.ones((1, 4), dtype=bool)
    >>> pair = LabelPair(line, line & [True, True, False, False], (1, 1), surface="voxel")
    >>> round(nsd(pair, 1), 4)  # distances 0, 0, 1, 2 and 0, 0: five of six points
    0.8333
    """
    limit = tolerance * (1 + TOLERANCE_SLACK)
    reference, prediction = pair.reference_surface.weights, pair.prediction_surface.weights
    within = reference[pair.reference_distances <= limit].sum()
    within += prediction[pair.prediction_distances <= limit].sum()
    return _ratio(float(within), float(reference.sum() + prediction.sum()))


def segmentation_scores(
    reference: LabelMap,
    prediction: LabelMap,
    spacing: Sequence[float],
    *,
    labels: Mapping[int, str] | Sequence[int],
    metrics: Sequence[str] = ("dice", "hd95", "nsd@1"),
    surface: Surface = "surfel",
    penalty: Penalty = "diagonal",
) -> list[LabelScore]:
    """Returns the score of every label under every metric, label by label.

    A label that is in neither map scores NaN. A label that is in one of them only gets each metric's worst
    value: overlaps and NSD 0, distances the penalty.

    Args:
        reference: Integer label map, 2-D or 3-D.
        prediction: Integer label map of the same shape.
        spacing: Voxel size in mm along each axis.
        labels: The labels to judge, with their names or as plain numbers. Others count as background.
        metrics: Names of metrics of kind "mask"; "nsd@2" is NSD at a tolerance of 2 mm.
        surface: What distances are measured between: "surfel" or "voxel".
        penalty: The distance of a label that is in one map only: the "diagonal" of the image in mm, a
            number of mm, or "drop" for NaN.

    Raises:
        ValueError: If an argument is not as said above, or the maps' shapes differ.
        UsageError: If there is no such metric of masks.

    >>> reference = np.array([[1, 1, 0, 0], [0, 0, 0, 2]])
    >>> prediction = np.array([[1, 1, 1, 0], [0, 0, 0, 0]])
    >>> for score in segmentation_scores(
    ...     reference, prediction, (3, 2), labels={1: "liver", 2: "cyst"}, metrics=("dice", "hd")
    ... ):
    ...     print(*score)
    liver dice 0.8 present
    liver hd 2.0 present
    cyst dice 0.0 missed
    cyst hd 10.0 missed
    """
    check_arrays(reference, prediction, "iu", "an integer label map")
    sizes = checked_spacing(spacing, reference.ndim)
    names = _label_names(labels)
    asked = _mask_metrics(metrics)
    # Asked for up front, so that a wrong penalty is refused whether or not this case has a missed label.
    worst = {name: _worst(found, penalty, reference.shape, sizes) for name, (found, _) in asked.items()}
    boxes = _joint_boxes(reference, prediction, max(names))
    nowhere = (slice(0, 0),) * reference.ndim
    scores = []
    for label, title in names.items():
        box = boxes.get(label, nowhere)
        pair = LabelPair(reference[box] == label, prediction[box] == label, sizes, surface)
        for name, (found, parameter) in asked.items():
            if pair.status == "present":
                value = float(found.function(pair) if parameter is None else found.function(pair, parameter))
            else:
                value = math.nan if pair.status == "absent" else worst[name]
            scores.append(LabelScore(title, name, value, pair.status))
    return scores


def worst_scores(
    labels: Mapping[int, str] | Sequence[int],
    metrics: Sequence[str],
    *,
    shape: Sequence[int] | None,
    spacing: Sequence[float] | None,
    penalty: Penalty = "diagonal",
) -> list[LabelScore]:
    """Returns the scores, of status "failed", of a case that the model gave no answer for.

    Every label gets every metric's worst value. Where even the image is unknown (`shape` or `spacing` is
    None), nothing can be said of the case and every value is NaN.

    Args:
        labels: As for `segmentation_scores`.
        metrics: As for `segmentation_scores`.
        shape: Voxels of the image along each axis.
        spacing: Voxel size in mm along each axis.
        penalty: As for `segmentation_scores`.

    Raises:
        ValueError: If an argument is not as said above.
        UsageError: If there is no such metric of masks.

    >>> worst_scores({1: "liver"}, ["hd95"], shape=(2, 4), spacing=(3, 2))
    [LabelScore(label='liver', metric='hd95', value=10.0, status='failed')]
    """
    asked = _mask_metrics(metrics)
    if shape is None or spacing is None:
        values = dict.fromkeys(asked, math.nan)
    else:
        sizes = checked_spacing(spacing, len(shape))
        values = {name: _worst(found, penalty, shape, sizes) for name, (found, _) in asked.items()}
    return [
        LabelScore(title, name, value, "failed")
        for title in _label_names(labels).values()
        for name, value in values.items()
    ]


def _mask_metrics(metrics: Sequence[str]) -> dict[str, tuple[Metric, float | None]]:
    """Returns the metrics asked for, by the name they were asked by."""
    asked = {name: parse(name) for name in metrics}
    if len(asked) < len(metrics):
        raise ValueError(f"Expected `metrics` to name each metric once, got {list(metrics)}")
    for name, (found, _) in asked.items():
        if found.kind != "mask":
            raise UsageError(f"Metric {name!r} judges {found.kind}, not masks")
    return asked


def _label_names(labels: Mapping[int, str] | Sequence[int]) -> dict[int, str]:
    """Returns the name of every label, checked."""
    for label in labels:
        if not isinstance(label, (int, np.integer)) or isinstance(label, bool) or label < 1:
            raise ValueError(f"Expected `labels` to be whole numbers above 0, got {label!r}")
    named = labels.items() if isinstance(labels, Mapping) else [(label, str(label)) for label in labels]
    names = {int(label): name for label, name in named}
    if len(set(names.values())) < len(labels):
        raise ValueError(f"Expected `labels` to have different names, got {[name for _, name in named]}")
    if not names:
        raise ValueError("Expected `labels` to hold at least one label, got none")
    return names


def _worst(found: Metric, penalty: Penalty, shape: Sequence[int], spacing: Spacing) -> float:
    """Returns the value of an answer that failed, for an image of a shape and spacing."""
    number = isinstance(penalty, (int, float)) and not isinstance(penalty, bool) and penalty >= 0
    if not number and penalty not in ("diagonal", "drop"):
        raise ValueError(f"Expected `penalty` to be 'diagonal', 'drop' or a number of at least 0, got {penalty!r}")
    if found.worst != "diagonal":
        return found.worst
    if penalty == "drop":
        return math.nan
    return math.hypot(*np.multiply(shape, spacing)) if penalty == "diagonal" else float(penalty)


def _joint_boxes(reference: LabelMap, prediction: LabelMap, highest: int) -> dict[int, Box]:
    """Returns the smallest box around each label up to `highest` that is in one of the maps."""
    from scipy.ndimage import find_objects

    boxes: dict[int, Box] = {}
    for label_map in (reference, prediction):
        for label, found in enumerate(find_objects(label_map, max_label=highest), start=1):
            if found is not None:
                boxes[label] = _union(boxes.get(label, found), found)
    return boxes


def _union(one: Box, other: Box) -> Box:
    return tuple(slice(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(one, other, strict=True))


def _percentile95(distances: Floats, weights: Floats, surface: Surface) -> float:
    if surface == "voxel":
        return float(np.percentile(distances, 95))
    order = np.argsort(distances)
    cumulated = np.cumsum(weights[order])
    reached = np.searchsorted(cumulated, 0.95 * cumulated[-1] * (1 - AREA_SLACK))
    return float(distances[order[reached]])


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
