"""Overlap of all images of a run at once, as semantic segmentation counts it: an image weighs by its pixels."""

import math
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import evidence_metric, share_summary
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.segmentation.pairs import LabelPair

MMSEG = "mmsegmentation's IoUMetric (mDice, mIoU)"

BACKGROUND = "background"

SIZES = ("voxels_shared", "voxels_reference", "voxels_prediction", "voxels_image")


_count = partial(evidence_metric, kind="mask", source=MMSEG, defined_when_empty=True, value_kind="count")


@_count(title="Voxels of both")
def voxels_shared(pair: LabelPair) -> float:
    """Voxels of both masks."""
    return float(pair.overlap_size)


@_count(title="Voxels of the reference")
def voxels_reference(pair: LabelPair) -> float:
    """Voxels of the reference's mask."""
    return float(pair.reference_size)


@_count(title="Voxels of the prediction")
def voxels_prediction(pair: LabelPair) -> float:
    """Voxels of the prediction's mask."""
    return float(pair.prediction_size)


@_count(title="Voxels of the image")
def voxels_image(pair: LabelPair) -> float:
    """Voxels of the image, within and without the masks."""
    return float(math.prod(pair.shape))


def _check_parameter(parameter: str) -> None:
    if parameter != BACKGROUND:
        raise UsageError(f"pooled overlap takes no {parameter!r}; @{BACKGROUND} counts the background as a class")


def _size_sums(rows: ScoreTable, parameter: str | None = None) -> Floats:
    """Row contributions to label sizes, (row, label x 4)."""
    label = np.unique(rows.label, return_inverse=True)[1]
    size = np.argmax(rows.metric[:, None] == np.array(SIZES), axis=1)
    added = np.zeros((rows.value.size, (int(label.max(initial=-1)) + 1) * len(SIZES)))
    added[np.arange(rows.value.size), label * len(SIZES) + size] = rows.value
    return added


def _of_labels(sums: Floats, parameter: str | None) -> tuple[Floats, Floats]:
    """Intersection and summed sizes, (..., label), background last if counted.

    The background is what is outside of the one label; of several labels their sizes do not tell it: NaN.
    """
    shared, reference, prediction, image = np.moveaxis(sums.reshape(*sums.shape[:-1], -1, len(SIZES)), -1, 0)
    both = reference + prediction
    if parameter is None:
        return shared, both
    outside = image - both + shared if shared.shape[-1] == 1 else np.full_like(shared, math.nan)[..., :1]
    return np.concatenate([shared, outside], axis=-1), np.concatenate([both, (2 * image - both)[..., :1]], axis=-1)


_pooled = partial(
    share_summary,
    source=MMSEG,
    needs=SIZES,
    pieces=_size_sums,
    parameter=f"{BACKGROUND}, which then is one more class",
    parameter_is_text=True,
    parameter_optional=True,
    check=_check_parameter,
)


@_pooled(title="Pooled Dice")
def pooled_dice(sums: Floats, parameter: str | None = None) -> Floats:
    """The Dice of all pixels of a run at once, 2 |R and P| / (|R| + |P|) of sums over cases, then its mean over labels.

    Where `dice` is the mean over cases, here a case counts by its pixels, and one without the label by those that were
    predicted wrongly. With `@background` the background of a task of one label is a class of the mean, as in
    mmsegmentation's mDice. In [0, 1]; NaN where a case could not be counted, and with `@background` of several labels;
    a label that no pixel has is left out.
    """
    shared, both = _of_labels(sums, parameter)
    return _mean_quotient(2 * shared, both)


@_pooled(title="Pooled IoU")
def pooled_iou(sums: Floats, parameter: str | None = None) -> Floats:
    """The IoU of all pixels of a run at once, |R and P| / |R or P| of sums over cases, then its mean over labels.

    It is pooled as `pooled_dice`; with `@background` it is mmsegmentation's mIoU of one label.
    """
    shared, both = _of_labels(sums, parameter)
    return _mean_quotient(shared, both - shared)


def _mean_quotient(over: Floats, under: Floats) -> Floats:
    """Mean quotient over the last axis, without 0 / 0."""
    held = under != 0  # NaN stays
    with np.errstate(invalid="ignore"):
        total = np.where(held, over / np.where(held, under, 1), 0).sum(axis=-1) / held.sum(axis=-1)
    return np.asarray(total, np.float64)
