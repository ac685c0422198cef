"""Metrics of a mask against those of several readers: each, all together, and how far readers agree themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats
from medimg_eval.metrics.declarations import error_metric, neutral_metric, share_metric
from medimg_eval.metrics.raters.fusion import fuse_masks
from medimg_eval.metrics.raters.sample_sets import generalised_energy_distance, pairwise_iou
from medimg_eval.metrics.registry import asked_metrics, metric
from medimg_eval.metrics.scores import LabelScore

QUBIQ_THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
STATUSES = {
    (True, True): "present",
    (True, False): "missed",
    (False, True): "hallucinated",
    (False, False): "absent",
}
"""Whether a reader marks anything, and whether the mask does -> status of the score."""
_QUBIQ = "QUBIQ challenge, MICCAI 2020 and 2021, arXiv 2405.18435"

rater_metrics = partial(asked_metrics, kind="raters", what="masks of several readers", once=True)
_overlap = partial(share_metric, kind="raters")
_spread = partial(neutral_metric, kind="raters", value_kind="bounded")


@dataclass(frozen=True, eq=False)
class RaterPair:
    """One label of one case: a mask, and that of each reader.

    Attributes:
        raters: (reader, *spatial), boolean.
        mask: (*spatial), boolean.
        probability: (*spatial), where the model gave any; the mask as 0 and 1 elsewhere.
    """

    raters: Bools
    mask: Bools
    probability: Floats

    @cached_property
    def to_each(self) -> Floats:
        """Dice of the mask to each reader's, (reader,); 1 of two empty ones."""
        return _dice_of(pairwise_iou(self.mask[None], self.raters)[0])

    @cached_property
    def among(self) -> Floats:
        """Mean Dice of each reader to the others, (reader,); NaN of one alone."""
        overlap = _dice_of(pairwise_iou(self.raters, self.raters))
        number = len(overlap)
        return (overlap.sum(axis=1) - 1) / (number - 1) if number > 1 else np.full(number, math.nan)

    @cached_property
    def mean_rater(self) -> Floats:
        """The share of readers that mark each voxel."""
        return np.asarray(self.raters.mean(axis=0), dtype=np.float64)


def _dice_of(overlap: Floats) -> Floats:
    return np.asarray(2 * overlap / (1 + overlap))


@_overlap(title="Dice to readers", source="mean over readers of Dice 1945")
def dice_to_raters(pair: RaterPair) -> float:
    """The mean over readers of the Dice to each; two empty masks agree. In [0, 1]."""
    return float(pair.to_each.mean())


@_overlap(title="Lowest Dice to a reader", source="least over readers of Dice 1945")
def dice_to_raters_min(pair: RaterPair) -> float:
    """The lowest Dice to any reader; two empty masks agree. In [0, 1]."""
    return float(pair.to_each.min())


@_overlap(title="Dice to majority", source="Dice 1945")
def dice_to_majority(pair: RaterPair) -> float:
    """The Dice to the voxels that more than half of the readers mark; two empty masks agree. In [0, 1]."""
    return _to_fused(pair, "majority")


@_overlap(title="Dice to STAPLE", source="Warfield et al. 2004, doi 10.1109/TMI.2004.828354")
def dice_to_staple(pair: RaterPair) -> float:
    """The Dice to the voxels that STAPLE gives a probability of 0.5 or more; two empty masks agree. In [0, 1]."""
    return _to_fused(pair, "staple")


def _to_fused(pair: RaterPair, how: Any) -> float:
    return float(_dice_of(pairwise_iou(pair.mask[None], fuse_masks(pair.raters, how)[None]))[0, 0])


@_spread(title="Dice among readers", source="mean over pairs of readers of Dice 1945")
def rater_dice(pair: RaterPair) -> float:
    """The mean Dice of two readers; NaN of one alone. In [0, 1]."""
    return float(pair.among.mean())


@_spread(title="Lowest reader", source="least over readers of their mean Dice to the others")
def rater_dice_min(pair: RaterPair) -> float:
    """The lower end of the readers' band: the least mean Dice of a reader to the others. In [0, 1]."""
    return float(pair.among.min())


@_spread(title="Highest reader", source="largest over readers of their mean Dice to the others")
def rater_dice_max(pair: RaterPair) -> float:
    """The upper end of the readers' band: the largest mean Dice of a reader to the others. In [0, 1]."""
    return float(pair.among.max())


@_overlap(title="Within readers' range", source="this package", value_kind="proportion")
def within_rater_range(pair: RaterPair) -> float:
    """Whether the mean Dice to readers is at least that of the reader who agrees least with the others.

    1 or 0; NaN of one reader alone.
    """
    least = pair.among.min()
    return math.nan if math.isnan(least) else float(pair.to_each.mean() >= least - 1e-12)


@error_metric(kind="raters", title="GED²", worst=2.0, source="Kohl et al., NeurIPS 2018, arXiv 1806.05034")
def ged(pair: RaterPair) -> float:
    """Generalised energy distance squared (GED^2): 2 E d(mask, reader) - E d(reader, reader'), d being 1 - IoU.

    There is one mask a case; `generalised_energy_distance` takes several samples together. Pairs of a reader with
    itself count, as published. A reader's own mask does not get 0 where readers differ. In [0, 2].
    """
    return generalised_energy_distance(pair.mask[None], pair.raters)


@_overlap(title="QUBIQ Dice", source=_QUBIQ)
def qubiq_dice(pair: RaterPair) -> float:
    """The mean Dice of probability and share of readers, both cut at 0.1, 0.3, 0.5, 0.7 and 0.9.

    A mask counts as probabilities 0 and 1. Two empty cuts agree. In [0, 1].
    """
    cuts = [(pair.probability >= step, pair.mean_rater >= step) for step in QUBIQ_THRESHOLDS]
    return float(np.mean([_dice_of(pairwise_iou(cut[None], due[None]))[0, 0] for cut, due in cuts]))


@error_metric(kind="raters", title="Brier (readers)", worst=1.0, source="Brier 1950")
def brier_to_raters(pair: RaterPair) -> float:
    """The mean over voxels of (probability - share of readers)^2. In [0, 1]; NaN without voxels."""
    return float(((pair.probability - pair.mean_rater) ** 2).mean()) if pair.mask.size else math.nan


@metric(
    kind="raters",
    title="Uncertainty NCC",
    higher_is_better=True,
    best=1.0,
    worst=-1.0,
    source="Hu et al., MICCAI 2019; the S_NCC of Baumgartner et al., MICCAI 2019, of variances instead of entropies",
    value_kind="correlation",
)
def uncertainty_ncc(pair: RaterPair) -> float:
    """The correlation over voxels of the model's variance p (1 - p) with the readers' variance.

    NaN where either is the same everywhere, as of a mask without probabilities. In [-1, 1].
    """
    variance, due = (values * (1 - values) for values in (pair.probability.ravel(), pair.mean_rater.ravel()))
    if not variance.size or np.ptp(variance) < 1e-12 or np.ptp(due) < 1e-12:
        return math.nan
    return float(np.corrcoef(variance, due)[0, 1])


def rater_scores(
    raters: Sequence[npt.NDArray[np.integer[Any]]],
    labels: npt.NDArray[np.integer[Any]],
    *,
    regions: Mapping[str, Sequence[int]],
    metrics: Sequence[str],
    probabilities: Mapping[str, Floats] | None = None,
) -> list[LabelScore]:
    """Returns the score of every label against all readers, label by label.

    Args:
        raters: label maps of readers, (*spatial) each.
        labels: label map that is judged.
        regions: name -> the labels that make it up.
        metrics: names of metrics of kind "raters".
        probabilities: of each region, (*spatial), where the model gave them.

    Raises:
        ValueError: shapes do not match, or there is no reader.
    """
    wanted = rater_metrics(metrics)
    if not raters or any(rater.shape != labels.shape for rater in raters):
        shapes = [rater.shape for rater in raters]
        raise ValueError(f"raters is invalid: expected label maps of shape {labels.shape}, got {shapes}")
    scores = []
    for name, members in regions.items():
        masks = np.stack([np.isin(rater, members) for rater in raters])
        mask = np.isin(labels, members)
        soft = mask.astype(np.float64) if probabilities is None else np.asarray(probabilities[name], dtype=np.float64)
        pair = RaterPair(masks, mask, soft)
        status = STATUSES[bool(masks.any()), bool(mask.any())]
        for asked_for, (definition, _) in wanted.items():
            scores.append(LabelScore(name, asked_for, float(definition.function(pair)), status))
    return scores


def worst_rater_scores(regions: Mapping[str, Sequence[int]], metrics: Sequence[str]) -> list[LabelScore]:
    """Returns failed scores of an unanswered case; readers' agreement is NaN."""
    wanted = rater_metrics(metrics)
    return [
        LabelScore(name, asked_for, float(definition.worst), "failed")
        for name in regions
        for asked_for, (definition, _) in wanted.items()
    ]
