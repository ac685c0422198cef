"""Metrics of the objects that a mask falls into, matched one to one with those of the reference.

An instance is a connected part of a label's mask, or what the mask itself numbers as one. Which of them count, which
may match and which of the possible matches are taken is the `InstanceRule` of the task, printed with the table. TP are
the matches, FN the reference's instances without one, FP the prediction's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from medimg_eval.metrics.arrays import Bools, Floats
from medimg_eval.metrics.declarations import error_metric, share_metric, share_summary
from medimg_eval.metrics.registry import ScoreTable, metric
from medimg_eval.metrics.segmentation.connected_components import (
    Integers,
    connected_parts,
    hungarian,
    match_parts,
    once_per_pair,
    shared_voxels,
)
from medimg_eval.metrics.segmentation.overlap import METRICS_REVIEW, ratio
from medimg_eval.metrics.segmentation.pairs import LabelPair, Settings
from medimg_eval.metrics.segmentation.surface_distance import hd95

AJI = "Kumar et al., IEEE Trans Med Imaging 2017, doi 10.1109/TMI.2017.2677499"
AJI_PLUS = "Graham et al. (HoVer-Net), Med Image Anal 2019, doi 10.1016/j.media.2019.101563"
STARDIST = "Schmidt et al., MICCAI 2018, doi 10.1007/978-3-030-00934-2_30"
DSB2018 = "Caicedo et al., Nat Methods 2019, doi 10.1038/s41592-019-0612-7"
PANOPTIC = "Kirillov et al., Panoptic segmentation, CVPR 2019, doi 10.1109/CVPR.2019.00963"
_share = partial(share_metric, kind="mask", rules=("instances",))
# A label that one mask lacks has its counts like any other.
_count = partial(
    metric,
    kind="mask",
    source=METRICS_REVIEW,
    rules=("instances",),
    worst=math.nan,
    defined_when_empty=True,
    intermediate=True,
)


@dataclass(frozen=True, eq=False)
class Matches:
    """The instances of one label of one case, and which of them match.

    Attributes:
        reference: int32 (*spatial): the reference's instances, numbered from 1; 0 elsewhere.
        prediction: The same of the prediction.
        sizes: int64 (instance,): voxels of each instance of the reference.
        predicted_sizes: int64 (instance,): voxels of each of the prediction.
        ones: int64 (match,): the reference's instance of each match.
        others: int64 (match,): the prediction's.
        shared: int64 (match,): the voxels they share.
        settings: How the label is judged.
        spacing: Voxel size in mm along each axis.
    """

    reference: Integers
    prediction: Integers
    sizes: Integers
    predicted_sizes: Integers
    ones: Integers
    others: Integers
    shared: Integers
    settings: Settings
    spacing: tuple[float, ...]

    @property
    def tp(self) -> int:
        """How many instances match."""
        return len(self.ones)

    @property
    def fn(self) -> int:
        """How many instances of the reference have no match."""
        return len(self.sizes) - self.tp

    @property
    def fp(self) -> int:
        """How many instances of the prediction have no match."""
        return len(self.predicted_sizes) - self.tp

    @cached_property
    def sums(self) -> Integers:
        """Voxels of both instances of each match, (match,)."""
        return self.sizes[self.ones - 1] + self.predicted_sizes[self.others - 1]

    @cached_property
    def ious(self) -> Floats:
        """IoU of each match, (match,)."""
        return self.shared / (self.sums - self.shared)

    @cached_property
    def overlaps(self) -> tuple[Integers, Integers, Integers]:
        """Overlapping instances: reference, prediction and voxels, (overlap,)."""
        return shared_voxels(self.reference, self.prediction)

    def of_size(self, size: str) -> tuple[int, int]:
        """Reference instances by size class, and matched ones."""
        low, high = self.settings.instances.sizes
        volumes = self.sizes * math.prod(self.spacing)
        wanted = {"small": volumes < low, "medium": (volumes >= low) & (volumes < high), "large": volumes >= high}[size]
        return int(np.count_nonzero(wanted)), int(np.count_nonzero(wanted[self.ones - 1]))

    def masks(self, match: int) -> tuple[Bools, Bools]:
        """Returns the two masks of a match."""
        return self.reference == self.ones[match], self.prediction == self.others[match]


@once_per_pair
def matched_instances(pair: LabelPair) -> Matches:
    """Returns a pair's instances and matches, by its `InstanceRule`."""
    rule = pair.settings.instances
    least = rule.min_volume / pair.voxel_size * (1 - 1e-9)
    reference, sizes = _large_enough(_pair_instances(pair, 0), least)
    prediction, predicted_sizes = _large_enough(_pair_instances(pair, 1), least)
    reference_parts, predicted_parts, shared = match_parts(reference, prediction, pair.spacing, rule)
    return Matches(
        reference,
        prediction,
        sizes,
        predicted_sizes,
        reference_parts,
        predicted_parts,
        shared,
        pair.settings,
        pair.spacing,
    )


def _pair_instances(pair: LabelPair, side: int) -> Integers:
    """Returns instances of reference (0) or prediction (1), cropped."""
    rule, mask = pair.settings.instances, (pair.reference, pair.prediction)[side]
    if rule.source == "components":
        return connected_parts(mask, rule.connectivity)[0]
    if pair.numbers is None:
        raise ValueError("Expected `numbers` of the instances, which instances='given' judges by, got none")
    box = tuple(slice(start, start + size) for start, size in zip(pair.offset, mask.shape, strict=True))
    numbers: Integers = np.where(mask, pair.numbers[side][box], 0)
    if int(numbers.max(initial=0)) > max(numbers.size, 1024):  # numbers far apart are too many to count one by one
        _, inverse = np.unique(np.append(numbers.ravel(), 0), return_inverse=True)
        numbers = inverse[:-1].reshape(numbers.shape)
    return numbers.astype(np.int32)


def _large_enough(parts: Integers, least: float) -> tuple[Integers, Integers]:
    """Returns parts of minimum size, renumbered, with voxels."""
    sizes = np.bincount(parts.ravel(), minlength=1)
    sizes[0] = 0
    is_kept = (sizes >= least) & (sizes > 0)
    if is_kept[1:].all():
        return parts, sizes[1:]
    numbers = np.cumsum(is_kept, dtype=np.int32) * is_kept
    return numbers[parts], sizes[is_kept]


@_share(title="PQ", source=PANOPTIC)
def pq(pair: LabelPair) -> float:
    """The panoptic quality: the sum of the matches' IoU over TP + FP / 2 + FN / 2, which is SQ times RQ.

    In [0, 1]; NaN without any instance. Kirillov's matches have an IoU above 0.5, here one of at least the rule's.

    >>> import numpy as np
    >>> line = np.ones((1, 5), dtype=bool)
    >>> pair = LabelPair(line & [1, 1, 1, 0, 1] > 0, line & [1, 1, 0, 0, 0] > 0, (1, 1))
    >>> round(pq(pair), 4)  # one match of IoU 2 / 3, one instance missed: 2 / 3 / 1.5
    0.4444
    """
    matches = matched_instances(pair)
    return ratio(float(matches.ious.sum()), matches.tp + (matches.fp + matches.fn) / 2)


@_share(title="RQ", source=PANOPTIC)
def rq(pair: LabelPair) -> float:
    """The recognition quality of PQ, TP / (TP + FP / 2 + FN / 2): the F1 of instances under PQ's name.

    In [0, 1]; NaN without any instance.
    """
    matches = matched_instances(pair)
    return ratio(matches.tp, matches.tp + (matches.fp + matches.fn) / 2)


@_share(title="SQ", source=PANOPTIC)
def sq(pair: LabelPair) -> float:
    """The segmentation quality of PQ: the mean IoU of the matches, 0 if there are instances and none matches.

    In [0, 1]; NaN without any instance. The 0 is that of the authors' code.
    """
    matches = matched_instances(pair)
    if not matches.tp:
        return 0.0 if matches.fn + matches.fp else math.nan
    return float(matches.ious.mean())


@_share(title="Instance F1", source=METRICS_REVIEW)
def instance_f1(pair: LabelPair) -> float:
    """The F1 of instances, 2 TP / (2 TP + FP + FN).

    In [0, 1]; NaN without any instance.
    """
    matches = matched_instances(pair)
    return ratio(2 * matches.tp, 2 * matches.tp + matches.fp + matches.fn)


@_share(title="Instance precision", source=METRICS_REVIEW)
def instance_precision(pair: LabelPair) -> float:
    """The share of the predicted instances that match one of the reference, TP / (TP + FP).

    In [0, 1]; NaN without a predicted instance.
    """
    matches = matched_instances(pair)
    return ratio(matches.tp, matches.tp + matches.fp)


@_share(title="Instance recall", source=METRICS_REVIEW)
def instance_recall(pair: LabelPair) -> float:
    """The share of the reference's instances that match a predicted one, TP / (TP + FN).

    In [0, 1]; NaN without an instance in the reference.
    """
    matches = matched_instances(pair)
    return ratio(matches.tp, matches.tp + matches.fn)


@_share(title="Instance Dice", source=METRICS_REVIEW)
def instance_dice(pair: LabelPair) -> float:
    """The mean over the reference's instances of the Dice of each with its match, 0 for those without one.

    In [0, 1]; NaN without an instance in the reference. Predicted instances without a match cost nothing here.
    """
    matches = matched_instances(pair)
    return ratio(float((2 * matches.shared / matches.sums).sum()), len(matches.sizes))


@_share(title="AJI", source=AJI)
def aji(pair: LabelPair) -> float:
    """The aggregated Jaccard index: voxels that instances share with their best overlaps, over all voxels of either.

    Each of the reference's instances takes the predicted one of the largest IoU (of equal ones the first), which may
    serve several; whatever overlaps nothing, or is taken by none, adds its voxels to the denominator. `matching` and
    `threshold` play no part. In [0, 1]; NaN without any instance.

    >>> import numpy as np
    >>> line = np.ones((1, 3), dtype=bool)
    >>> pair = LabelPair(line & [1, 0, 1] > 0, line, (1, 1))
    >>> round(aji(pair), 4)  # both take the same: 1 + 1 voxels shared, 3 + 3 in the unions
    0.3333
    """
    matches = matched_instances(pair)
    reference_parts, predicted_parts, shared = matches.overlaps
    ious = _pair_ious(matches, reference_parts, predicted_parts, shared)
    best_first = np.lexsort((predicted_parts, -ious, reference_parts))
    chosen = best_first[np.unique(reference_parts[best_first], return_index=True)[1]]
    return _aggregated_jaccard(matches, reference_parts[chosen], predicted_parts[chosen], shared[chosen])


@_share(title="AJI+", source=AJI_PLUS)
def aji_plus(pair: LabelPair) -> float:
    """AJI of instances paired one to one: the pairs whose IoUs have the largest sum, of all that overlap.

    What has no partner adds its voxels to the denominator. In [0, 1]; NaN without any instance.
    """
    matches = matched_instances(pair)
    reference_parts, predicted_parts, shared = matches.overlaps
    chosen = hungarian(reference_parts, predicted_parts, _pair_ious(matches, reference_parts, predicted_parts, shared))
    return _aggregated_jaccard(matches, reference_parts[chosen], predicted_parts[chosen], shared[chosen])


def _pair_ious(found: Matches, ones: Integers, others: Integers, shared: Integers) -> Floats:
    return shared / (found.sizes[ones - 1] + found.predicted_sizes[others - 1] - shared)


def _aggregated_jaccard(found: Matches, ones: Integers, others: Integers, shared: Integers) -> float:
    """Returns shared voxels over unions and unpaired instances."""
    paired, used = found.sizes[ones - 1], np.unique(others)
    unions = (paired + found.predicted_sizes[others - 1] - shared).sum()
    alone = found.sizes.sum() - paired.sum() + found.predicted_sizes.sum() - found.predicted_sizes[used - 1].sum()
    return ratio(float(shared.sum()), float(unions + alone))


@_share(title="Instance AP", source=STARDIST, parameter="IoU", parameter_most=1.0)
def instance_ap(pair: LabelPair, iou: float) -> float:
    """TP / (TP + FP + FN) of instances that match at an IoU of the parameter: the AP of StarDist and Cellpose.

    As many instances match as can, whatever the rule's `matching`, `threshold` and `assignment`; `inclusive` says
    whether an IoU of exactly the parameter counts. It needs no confidences, so it is no area under a curve. In [0, 1];
    NaN without any instance.
    """
    matches = matched_instances(pair)
    reference_parts, predicted_parts, shared = matches.overlaps
    ious = _pair_ious(matches, reference_parts, predicted_parts, shared)
    allowed = ious >= iou if matches.settings.instances.inclusive else ious > iou
    # A match is worth more than all IoUs together: as many as can be, then those that overlap most.
    tp = len(
        hungarian(
            reference_parts[allowed], predicted_parts[allowed], 1 + ious[allowed] / (2 * max(1, len(matches.sizes)))
        )
    )
    return ratio(tp, len(matches.sizes) + len(matches.predicted_sizes) - tp)


@_share(title="Mean instance AP", source=DSB2018)
def mean_instance_ap(pair: LabelPair) -> float:
    """The mean of `instance_ap` at IoUs of 0.5, 0.55, ... 0.95, as the Data Science Bowl 2018 ranks.

    In [0, 1]; NaN without any instance.
    """
    return float(np.mean([instance_ap(pair, step / 20) for step in range(10, 20)]))


@error_metric(
    kind="mask", title="Instance HD95", unit="mm", worst="diagonal", source=METRICS_REVIEW, rules=("instances",)
)
def instance_hd95(pair: LabelPair) -> float:
    """The mean over the matches of the HD95 between their two instances.

    In mm, at least 0; NaN if nothing matches. It says nothing of what was missed: read it beside the recall.
    """
    matches = matched_instances(pair)
    values = [hd95(LabelPair(*matches.masks(match), pair.spacing, pair.settings)) for match in range(matches.tp)]
    return float(np.mean(values)) if values else math.nan


@_count(title="Matched instances", higher_is_better=True, best=math.nan, value_kind="count")
def instances_matched(pair: LabelPair) -> float:
    """How many of the reference's instances match a predicted one."""
    return matched_instances(pair).tp


@_count(title="Missed instances", higher_is_better=False, best=0.0, value_kind="count")
def instances_missed(pair: LabelPair) -> float:
    """How many of the reference's instances match none of the prediction."""
    return matched_instances(pair).fn


@_count(title="Spurious instances", higher_is_better=False, best=0.0, value_kind="count")
def instances_spurious(pair: LabelPair) -> float:
    """How many predicted instances match none of the reference."""
    return matched_instances(pair).fp


@_count(title="IoU of matches, summed", higher_is_better=True, best=math.nan)
def instances_iou(pair: LabelPair) -> float:
    """The sum of the IoUs of the instances that match."""
    return float(matched_instances(pair).ious.sum())


@share_summary(
    needs=("instances_matched", "instances_missed", "instances_spurious"),
    title="Pooled instance F1",
    source=METRICS_REVIEW,
)
def pooled_instance_f1(rows: ScoreTable) -> float:
    """The F1 of all instances of a run taken together, 2 TP / (2 TP + FP + FN) of the sums over cases.

    Where `instance_f1` is the mean over cases, here a case counts by how many instances it has. In [0, 1]; NaN
    without any instance, or if a case could not be counted.
    """
    tp, fn, fp = (_total_count(rows, f"instances_{name}") for name in ("matched", "missed", "spurious"))
    return ratio(2 * tp, 2 * tp + fp + fn)


@share_summary(
    needs=("instances_iou", "instances_matched", "instances_missed", "instances_spurious"),
    title="Pooled PQ",
    source=PANOPTIC,
)
def pooled_pq(rows: ScoreTable) -> float:
    """The panoptic quality of all instances of a run taken together: the sum of IoUs over TP + FP / 2 + FN / 2.

    Where `pq` is the mean over cases, here a case counts by how many instances it has, as in CoNIC. Of several labels
    all instances are one heap; `by=label` gives each its own. In [0, 1]; NaN without any instance, or if a case could
    not be counted.
    """
    tp, fn, fp = (_total_count(rows, f"instances_{name}") for name in ("matched", "missed", "spurious"))
    return ratio(_total_count(rows, "instances_iou"), tp + (fp + fn) / 2)


@share_summary(
    needs=("instances_matched", "instances_spurious"), title="Pooled instance precision", source=METRICS_REVIEW
)
def pooled_instance_precision(rows: ScoreTable) -> float:
    """The share of all predicted instances of a run that match one of the reference.

    In [0, 1]; NaN without a predicted instance, or if a case could not be counted.
    """
    tp = _total_count(rows, "instances_matched")
    return ratio(tp, tp + _total_count(rows, "instances_spurious"))


@share_summary(needs=("instances_matched", "instances_missed"), title="Pooled instance recall", source=METRICS_REVIEW)
def pooled_instance_recall(rows: ScoreTable) -> float:
    """The share of all the reference's instances of a run that match a predicted one.

    In [0, 1]; NaN without an instance in the reference, or if a case could not be counted.
    """
    tp = _total_count(rows, "instances_matched")
    return ratio(tp, tp + _total_count(rows, "instances_missed"))


def _total_count(rows: ScoreTable, name: str) -> float:
    """Returns a count's sum over cases and labels; NaN if undefined."""
    return float(rows.of(name).value.sum())


def _declare_size(size: str, extent: str) -> Callable[[ScoreTable], float]:
    """Declares the counts of the reference's instances of a size; returns their sensitivity."""
    every, detected = f"{size}_instances", f"{size}_instances_found"

    def count_all(pair: LabelPair) -> float:
        return matched_instances(pair).of_size(size)[0]

    def count_detected(pair: LabelPair) -> float:
        return matched_instances(pair).of_size(size)[1]

    def sensitivity(rows: ScoreTable) -> float:
        return ratio(_total_count(rows, detected), _total_count(rows, every))

    count_all.__doc__ = f"How many of the reference's instances are {extent}."
    count_detected.__doc__ = f"How many of the reference's instances {extent} match a predicted one."
    sensitivity.__doc__ = f"""The share found of all the reference's instances of a run that are {extent}.

    In [0, 1]; NaN if there are none, or if a case could not be counted.
    """
    counted = partial(_count, higher_is_better=True, best=math.nan, value_kind="count")
    counted(name=every, title=f"{size.capitalize()} instances")(count_all)
    counted(name=detected, title=f"{size.capitalize()} instances found")(count_detected)
    declared = share_summary(
        name=f"sensitivity_{size}", needs=(every, detected), title=f"Sensitivity, {size}", source=METRICS_REVIEW
    )
    return declared(sensitivity)


sensitivity_small = _declare_size("small", "below the rule's first size")
sensitivity_medium = _declare_size("medium", "between the rule's two sizes")
sensitivity_large = _declare_size("large", "of the rule's second size or more")
