"""Lesion-wise metrics as the BraTS challenges define them, each challenge by its own `LesionRule`.

How lesions come about, in steps:

1. The reference's mask is dilated. What of the mask lies in one connected part of that is one lesion.
2. The prediction's connected parts are its lesions; by the rules of 2024 parts whose dilations touch are one, and
   small ones are dropped. Some rules then join, in both masks, lesions that touch the same lesion of another label
   (`LesionRule.join_through`), which needs that label's pair: `LabelPair.sibling`.
3. A lesion is found by all predicted lesions that touch its dilation; together they are its prediction. One that
   touches the dilations of several lesions belongs to each of them.
4. A predicted lesion that touches no dilation is a false positive, however small.
5. Lesions of at most the rule's volume leave the mean; what touches them is no false positive all the same.
6. The score is the sum over the lesions that are left (one that was not found gets Dice and NSD 0, and the penalty
   as HD95) and over false positives (the same), over the number of both. With neither, it is perfect.

Dilation counts voxels; volumes and distances use the spacing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Bools, Floats
from medimg_eval.metrics.registry import metric
from medimg_eval.metrics.segmentation.connected_components import (
    Integers,
    connected_parts,
    dilated,
    once_per_pair,
    shared_voxels,
)
from medimg_eval.metrics.segmentation.matching_rules import LesionRule
from medimg_eval.metrics.segmentation.overlap import ratio
from medimg_eval.metrics.segmentation.pairs import LabelPair
from medimg_eval.metrics.segmentation.surface_distance import hd95

if TYPE_CHECKING:
    from medimg_eval.metrics.segmentation.pairs import Surface

BRATS = "BraTS 2023 and 2024, https://github.com/rachitsaluja/BraTS-2023-Metrics and BraTS-2024-Metrics"

_score = partial(metric, kind="mask", source=BRATS, defined_when_empty=True, rules=("lesions",))


@dataclass(frozen=True, eq=False)
class Lesions:
    """The lesions of one label of one case that enter the mean.

    Attributes:
        rule: The label's own rule.
        reference: int32 (*spatial): the number of each voxel's lesion in the reference; 0 elsewhere.
        prediction: int32 (*spatial): the number of each voxel's predicted lesion; 0 elsewhere.
        parts: Of each lesion: its number, and those of the predicted lesions that found it.
        dices: float64 (lesion,).
        false_positives: How many predicted lesions touch no lesion.
        penalty: What HD95 is for a lesion that was not found, and for a false positive, in mm.
        spacing: Voxel size in mm along each axis.
    """

    rule: LesionRule
    reference: Integers
    prediction: Integers
    parts: tuple[tuple[int, tuple[int, ...]], ...]
    dices: Floats
    false_positives: int
    penalty: float
    spacing: tuple[float, ...]

    @property
    def tp(self) -> int:
        """How many of the lesions were found."""
        return sum(bool(matched) for _, matched in self.parts)

    @property
    def fn(self) -> int:
        """How many of the lesions were not found."""
        return len(self.parts) - self.tp

    def mean(self, values: float, penalty: float, perfect: float) -> float:
        """Returns lesions' sum and penalties over lesions and false positives."""
        counted = self.false_positives if self.rule.false_positives else 0
        number = len(self.parts) + counted
        return (values + counted * penalty) / number if number else perfect

    @cached_property
    def surfels(self) -> list[LabelPair]:
        """Masks of found lesions and predictions, for surfel distances."""
        return [LabelPair(*masks, self.spacing, "surfel") for masks in self._found()]

    @cached_property
    def borders(self) -> list[LabelPair]:
        """Pairs that measure distances between border voxels."""
        return [LabelPair(*masks, self.spacing, "voxel") for masks in self._found()]

    def _found(self) -> Iterator[tuple[Bools, Bools]]:
        from scipy.ndimage import find_objects

        if not self.tp:
            return
        boxes, predicted_boxes = find_objects(self.reference), find_objects(self.prediction)
        chosen = np.zeros(len(predicted_boxes) + 1, bool)
        for lesion, matched in self.parts:
            if not matched:
                continue
            held = [boxes[lesion - 1], *(predicted_boxes[part - 1] for part in matched)]
            box = tuple(
                slice(min(span.start for span in spans), max(span.stop for span in spans))
                for spans in zip(*held, strict=True)
            )
            chosen[list(matched)] = True
            yield self.reference[box] == lesion, chosen[self.prediction[box]]
            chosen[list(matched)] = False


@once_per_pair
def lesions_of(pair: LabelPair) -> Lesions:
    """Returns a pair's lesions and detections, by its `LesionRule`.

    All within the box that holds both masks: a path of neighbours that leaves a box can be pressed flat against
    its side, so that neither distances in steps nor connections depend on what lies outside.

    Raises:
        UsageError: If lesions are to be joined through a label that the case does not name.
    """
    rule = pair.settings.lesions.for_label(pair.name)
    around, prediction = _number_lesions(pair)
    if rule.join_through:
        around = _join_lesions(pair, rule, _reference_lesions)[around]
        prediction = _join_lesions(pair, rule, _predicted_lesions)[prediction]
    count = int(around.max(initial=0))
    reference = around * pair.reference
    sizes = np.bincount(around[pair.reference], minlength=count + 1)
    predicted_sizes = np.bincount(prediction[pair.prediction], minlength=1)
    predicted_sizes[0] = 0  # what was dropped
    lesions, parts, _ = shared_voxels(around, prediction)
    overlaps = np.bincount(reference[prediction > 0], minlength=count + 1)
    covered = np.bincount(lesions, predicted_sizes[parts], minlength=count + 1)
    dices = np.where(covered > 0, 2 * overlaps / np.maximum(sizes + covered, 1), 0.0)
    starts = np.searchsorted(lesions, np.arange(count + 2))
    kept_lesions = [lesion for lesion in range(1, count + 1) if sizes[lesion] * pair.voxel_size > rule.min_volume]
    return Lesions(
        rule=rule,
        reference=reference,
        prediction=prediction,
        parts=tuple((lesion, tuple(parts[starts[lesion] : starts[lesion + 1]].tolist())) for lesion in kept_lesions),
        dices=dices[kept_lesions],
        false_positives=int(np.count_nonzero(predicted_sizes[1:])) - len(np.unique(parts)),
        penalty=math.hypot(*pair.shape) if rule.penalty == "diagonal" else float(rule.penalty),
        spacing=pair.spacing,
    )


@once_per_pair
def _number_lesions(pair: LabelPair) -> tuple[Integers, Integers]:
    """Numbers the reference's dilated lesions and the predicted lesions, before any are joined."""
    rule = pair.settings.lesions.for_label(pair.name)
    return _number_dilated(pair.reference, pair, rule), _number_predicted(pair, rule)


def _reference_lesions(pair: LabelPair) -> Integers:
    return _number_lesions(pair)[0] * pair.reference


def _predicted_lesions(pair: LabelPair) -> Integers:
    return _number_lesions(pair)[1]


def _number_dilated(mask: Bools, pair: LabelPair, rule: LesionRule) -> Integers:
    """Numbers the parts of the dilated mask from 1.

    Where lesions are joined the order matters, which is that of the first voxel of a part dilated in the whole
    image, so the box is given room.
    """
    if not pair.settings.lesions.joins:
        return connected_parts(dilated(mask, rule.dilation))[0]
    room = [
        (min(rule.dilation, start), min(rule.dilation, full_size - start - size))
        for start, size, full_size in zip(pair.offset, mask.shape, pair.shape, strict=True)
    ]
    parts = connected_parts(dilated(np.pad(mask, room), rule.dilation))[0]
    return parts[tuple(slice(before, before + size) for (before, _), size in zip(room, mask.shape, strict=True))]


def _join_lesions(pair: LabelPair, rule: LesionRule, lesions: Callable[[LabelPair], Integers]) -> Integers:
    """Returns each lesion's number after joining."""
    ours = lesions(pair)
    groups = np.arange(int(ours.max(initial=0)) + 1)
    for name in rule.join_through:
        sibling = pair.sibling(name)
        if sibling is None:
            raise UsageError(
                f"The rule {rule.name!r} joins lesions of {pair.name!r} through {name!r}, which is not judged: name "
                f"{name} in the task's regions too, or set lesions.labels.{pair.name}.join_through to what is"
            )
        own_lesions, sibling_lesions = _touching_lesions(ours, pair.offset, lesions(sibling), sibling.offset)
        firsts = np.full(len(groups), np.iinfo(np.int64).max)
        np.minimum.at(firsts, groups[own_lesions], sibling_lesions)
        touched = np.unique(groups[own_lesions])
        _, starts, groups_ = np.unique(firsts[touched], return_index=True, return_inverse=True)
        merged = np.arange(len(groups))
        merged[touched] = touched[starts][groups_]
        groups = merged[groups]
    return groups


def _touching_lesions(
    one: Integers, offset: tuple[int, ...], other: Integers, other_offset: tuple[int, ...]
) -> tuple[Integers, Integers]:
    """Returns adjacent lesions of two boxes, at most one step apart."""
    margins = np.pad(one, 2)  # so that whatever lies within a step of the box has all its neighbours
    shift = np.subtract(other_offset, offset)
    near = tuple(
        slice(max(-1 - by, 0), max(size + 1 - by, 0)) for by, size in zip(shift.tolist(), one.shape, strict=True)
    )
    voxels = np.nonzero(other[near])
    numbers = other[near][voxels].astype(np.int64)
    starts = [part.start + by + 2 for part, by in zip(near, shift.tolist(), strict=True)]
    width = int(other.max(initial=0)) + 1
    pairs = []
    for step in product((-1, 0, 1), repeat=one.ndim):
        if np.abs(step).sum() <= 2:  # the steps of `dilated`
            labels_beside = margins[tuple(at + start + by for at, start, by in zip(voxels, starts, step, strict=True))]
            touch = labels_beside > 0
            pairs.append(np.unique(labels_beside[touch].astype(np.int64) * width + numbers[touch]))
    codes = np.unique(np.concatenate(pairs))
    return codes // width, codes % width


def _number_predicted(pair: LabelPair, rule: LesionRule) -> Integers:
    """Numbers the prediction's lesions from 1, with gaps where one was dropped."""
    if rule.merge_predictions:
        numbers = _number_dilated(pair.prediction, pair, rule) * pair.prediction
    else:
        numbers = connected_parts(pair.prediction)[0]
    if rule.small_predictions == "keep":
        return numbers
    unit = 1.0 if rule.small_predictions == "drop-voxels" else pair.voxel_size
    is_large = np.bincount(numbers[pair.prediction], minlength=1) * unit > rule.min_volume
    return numbers * is_large[numbers]


@_score(title="Lesion Dice", higher_is_better=True, best=1.0, worst=0.0)
def lesion_dice(pair: LabelPair) -> float:
    """The mean over lesions and false positives of the Dice of each lesion with what found it, 0 for the others.

    In [0, 1]; 1 if there is no lesion and no false positive.

    >>> import numpy as np
    >>> line = np.ones((1, 80), dtype=bool)
    >>> at = np.arange(80)
    >>> pair = LabelPair(line & (at < 60), line & (at < 40), (1, 1))
    >>> lesion_dice(pair)  # one lesion of 60 mm2, 40 of them found: 2 * 40 / 100
    0.8
    """
    lesions = lesions_of(pair)
    return lesions.mean(float(lesions.dices.sum()), penalty=0.0, perfect=1.0)


@_score(title="Lesion HD95", higher_is_better=False, unit="mm", best=0.0, worst="diagonal")
def lesion_hd95(pair: LabelPair) -> float:
    """The mean over lesions and false positives of the HD95 of each lesion with what found it, the penalty for others.

    Between surfels, whatever the table's surface is. In mm, at least 0; 0 if there is no lesion and no false
    positive.
    """
    lesions = lesions_of(pair)
    measured = sum(hd95(lesion) for lesion in lesions.surfels)
    return lesions.mean(measured + lesions.fn * lesions.penalty, penalty=lesions.penalty, perfect=0.0)


@_score(title="Lesion NSD", higher_is_better=True, best=1.0, worst=0.0, parameter="tolerance in mm")
def lesion_nsd(pair: LabelPair, tolerance: float) -> float:
    """The mean over lesions and false positives of the surface Dice of each lesion with what found it, 0 for others.

    It is that of the code of 2024: between border voxels, whatever the table's surface is, and the mean of the two
    directions' shares, where `nsd` pools them. In [0, 1]; 1 if there is no lesion and no false positive.
    """
    lesions = lesions_of(pair)
    return lesions.mean(sum(_surface_dice(lesion, tolerance) for lesion in lesions.borders), penalty=0.0, perfect=1.0)


def _surface_dice(pair: LabelPair, tolerance: float) -> float:
    both = pair.reference_distances, pair.prediction_distances
    return sum(distances.within(tolerance) / distances.size for distances in both) / 2


@once_per_pair
def _kept_surfaces(pair: LabelPair) -> dict[Surface, LabelPair]:
    """Whole label without dropped lesions, for both surface kinds."""
    prediction = lesions_of(pair).prediction > 0
    return {kind: LabelPair(pair.reference, prediction, pair.spacing, kind) for kind in ("surfel", "voxel")}


@_score(title="Legacy Dice", higher_is_better=True, best=1.0, worst=0.0)
def legacy_dice(pair: LabelPair) -> float:
    """The Dice of the whole label, where predicted lesions that the rule drops are background.

    The column of this name of BraTS. In [0, 1]; 1 if both masks are then empty.
    """
    label_pair = _kept_surfaces(pair)["voxel"]
    both = label_pair.reference_size + label_pair.prediction_size
    return 2 * label_pair.overlap_size / both if both else 1.0


@_score(title="Legacy HD95", higher_is_better=False, unit="mm", best=0.0, worst="diagonal")
def legacy_hd95(pair: LabelPair) -> float:
    """The HD95 of the whole label, where predicted lesions that the rule drops are background.

    The column of this name of BraTS, whose code numbers lesions in 2024 and then measures wrongly from the second on:
    this is what it was meant to be. Between surfels, whatever the table's surface is. In mm; 0 if both masks are then
    empty, the rule's penalty if one is.
    """
    label_pair = _kept_surfaces(pair)["surfel"]
    if label_pair.reference_size and label_pair.prediction_size:
        return hd95(label_pair)
    return lesions_of(pair).penalty if label_pair.reference_size or label_pair.prediction_size else 0.0


@_score(title="Legacy NSD", higher_is_better=True, best=1.0, worst=0.0, parameter="tolerance in mm")
def legacy_nsd(pair: LabelPair, tolerance: float) -> float:
    """The surface Dice of the whole label, by the rule of `lesion_nsd`, without predicted lesions that are dropped.

    The column of this name of BraTS 2024. In [0, 1]; 1 if both masks are then empty, 0 if one is.
    """
    label_pair = _kept_surfaces(pair)["voxel"]
    if label_pair.reference_size and label_pair.prediction_size:
        return _surface_dice(label_pair, tolerance)
    return float(not label_pair.reference_size and not label_pair.prediction_size)


@_score(title="Legacy sensitivity", higher_is_better=True, best=1.0, worst=0.0)
def legacy_sensitivity(pair: LabelPair) -> float:
    """The share of the reference's voxels that are predicted, without predicted lesions that the rule drops.

    The column Sensitivity of BraTS, whose code numbers lesions in 2024 and then sums those numbers from the second on:
    this is what it was meant to be. In [0, 1]; without a reference 1 if the prediction is then empty too, else 0.
    """
    label_pair = _kept_surfaces(pair)["voxel"]
    return (
        label_pair.overlap_size / label_pair.reference_size
        if label_pair.reference_size
        else float(not label_pair.prediction_size)
    )


@_score(title="Legacy specificity", higher_is_better=True, best=1.0, worst=0.0)
def legacy_specificity(pair: LabelPair) -> float:
    """The share of voxels outside the reference that are not predicted, without predicted lesions that are dropped.

    The column Specificity of BraTS, over all voxels of the image; see `legacy_sensitivity`. In [0, 1]; 0 if the
    reference fills the image.
    """
    label_pair = _kept_surfaces(pair)["voxel"]
    outside = math.prod(pair.shape) - label_pair.reference_size
    return (outside - label_pair.prediction_size + label_pair.overlap_size) / outside if outside else 0.0


@_score(
    title="Lesions found", higher_is_better=True, best=math.nan, worst=math.nan, intermediate=True, value_kind="count"
)
def lesion_tp(pair: LabelPair) -> float:
    """How many lesions were found, of those that enter the mean."""
    return lesions_of(pair).tp


@_score(title="Lesions missed", higher_is_better=False, best=0.0, worst=math.nan, intermediate=True, value_kind="count")
def lesion_fn(pair: LabelPair) -> float:
    """How many lesions were not found, of those that enter the mean."""
    return lesions_of(pair).fn


@_score(title="False lesions", higher_is_better=False, best=0.0, worst=math.nan, intermediate=True, value_kind="count")
def lesion_fp(pair: LabelPair) -> float:
    """How many predicted lesions touch no lesion."""
    return lesions_of(pair).false_positives


@_score(title="Lesion sensitivity", higher_is_better=True, best=1.0, worst=0.0)
def lesion_sensitivity(pair: LabelPair) -> float:
    """The share of the lesions that were found, of those that enter the mean.

    In [0, 1]; NaN without such a lesion.
    """
    lesions = lesions_of(pair)
    return ratio(lesions.tp, lesions.tp + lesions.fn)


@_score(title="Lesion precision", higher_is_better=True, best=1.0, worst=0.0)
def lesion_precision(pair: LabelPair) -> float:
    """The lesions that were found over the sum of those and of the false positives.

    In [0, 1]; NaN if there are neither.
    """
    lesions = lesions_of(pair)
    return ratio(lesions.tp, lesions.tp + lesions.false_positives)


@_score(title="Lesion F1", higher_is_better=True, best=1.0, worst=0.0)
def lesion_f1(pair: LabelPair) -> float:
    """Twice the lesions that were found over twice those, the missed ones and the false positives.

    In [0, 1]; NaN without a lesion and without a false positive.
    """
    lesions = lesions_of(pair)
    return ratio(2 * lesions.tp, 2 * lesions.tp + lesions.fn + lesions.false_positives)
