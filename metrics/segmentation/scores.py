"""The scores of whole segmentations: every label under every metric, in one call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Array
from medimg_eval.metrics.registry import Metric, asked_metrics
from medimg_eval.metrics.scores import LabelScore
from medimg_eval.metrics.segmentation.empty_masks import EmptyPolicy
from medimg_eval.metrics.segmentation.matching_rules import InstanceRule, LesionRule
from medimg_eval.metrics.segmentation.pairs import (
    LabelPair,
    Numbers,
    Settings,
    Surface,
    check_arrays,
    checked_spacing,
    label_pairs,
    mask_pairs,
)

Labels: TypeAlias = Mapping[int, str] | Sequence[int] | Mapping[str, Sequence[int]] | Sequence[str]
RequestedMetrics: TypeAlias = Mapping[str, tuple[Metric, float | None]]

_SIZES = ("small", "medium", "large")
"""What the names of metrics begin with that count instances of a size in mm3."""


PairsOf: TypeAlias = Callable[
    [tuple[float, ...], Mapping[str, tuple[int, ...]], Mapping[str, Settings], int | None],
    Iterable[tuple[str, LabelPair]],
]

mask_metrics = partial(asked_metrics, kind="mask", what="masks", once=True)


def segmentation_scores(
    reference: Array,
    prediction: Array,
    spacing: Sequence[float],
    *,
    labels: Labels,
    metrics: Sequence[str] = ("dice", "hd95", "nsd@1"),
    surface: Surface = "surfel",
    empty: EmptyPolicy | str | Mapping[str, Any] = "worst",
    tolerances: Mapping[str, float] | None = None,
    ignore: int | None = None,
    instances: InstanceRule | str | Mapping[str, Any] | None = None,
    lesions: LesionRule | str | Mapping[str, Any] | None = None,
    numbers: tuple[Array, Array] | None = None,
) -> list[LabelScore]:
    """Returns the score of every label under every metric, label by label.

    Args:
        reference: Integer label map, 2-D or 3-D; or boolean masks that may overlap, (label, *spatial).
        prediction: Of the same kind and shape.
        spacing: Voxel size in mm along each spatial axis; NaN where it is not known.
        labels: What is judged. Of label maps: the labels with their names, or as plain numbers; or regions,
            each a name with the labels that make it up, which may overlap. Other labels count as background.
            Of boolean masks: the name of each.
        metrics: Names of metrics of kind "mask"; "nsd@2" is NSD at a tolerance of 2 mm.
        surface: What distances are measured between: "surfel" or "voxel".
        empty: What a label is worth that one side lacks, or each: an `EmptyPolicy`, the name of a preset
            ("worst", "monai", "brats2023", "brats2024", "touchstone", "fairseg"), or a mapping as in a config.
        tolerances: In mm by label name, of metrics asked for without one ("nsd").
        ignore: A label of the reference whose voxels are taken out of both maps before anything is judged.
        instances: How masks fall into instances; see `InstanceRule`.
        lesions: How lesion-wise metrics tell lesions apart: a `LesionRule`, a preset's name or a mapping.
        numbers: For `instances="given"`: integers (*spatial) of the reference and of the prediction that number
            their instances from 1; 0 is none. An instance is what of a label (or region) has one number.

    Raises:
        ValueError: If an argument is not as said above, or the maps' shapes differ.
        UsageError: If there is no such metric of masks, policy or rule, or a spacing is not known that a metric
            needs and the policy says to refuse.

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
    return scores_of_pairs(
        partial(_region_pairs, reference, prediction, numbers),
        spacing,
        labels=labels,
        metrics=metrics,
        surface=surface,
        empty=empty,
        tolerances=tolerances,
        ignore=ignore,
        instances=instances,
        lesions=lesions,
    )


def scores_of_pairs(
    pairs_of: PairsOf,
    spacing: Sequence[float],
    *,
    labels: Labels,
    metrics: Sequence[str],
    surface: Surface,
    empty: EmptyPolicy | str | Mapping[str, Any],
    tolerances: Mapping[str, float] | None,
    ignore: int | None,
    instances: InstanceRule | str | Mapping[str, Any] | None,
    lesions: LesionRule | str | Mapping[str, Any] | None,
) -> list[LabelScore]:
    """Returns `segmentation_scores` of external mask pairs, as from GPUs.

    `pairs_of` is given the spacing (checked), the labels of each region, how each region is judged, and the label to
    ignore; it yields the name of each region with its pair.
    """
    wanted = mask_metrics(metrics)
    policy = EmptyPolicy.of(empty)
    regions = _check_regions(labels)
    _check_tolerances(tolerances or {}, regions, wanted)
    if ignore is not None and (isinstance(ignore, bool) or not isinstance(ignore, (int, np.integer))):
        raise ValueError(f"Expected `ignore` to be a whole number, got {ignore!r}")
    rule = InstanceRule.of(instances)
    sizes = _check_spacing(spacing, wanted, policy, rule)
    lesion_rule = LesionRule.of(lesions)
    for name in lesions.get("labels", {}) if isinstance(lesions, Mapping) else ():
        UsageError.refuse_invalid("lesions.labels: label", regions, name)
    settings = {name: Settings(surface, (tolerances or {}).get(name), rule, lesion_rule) for name in regions}
    pairs = pairs_of(sizes or (1.0,) * len(spacing), regions, settings, ignore)
    return [
        LabelScore(
            name, asked_for, _pair_value(pair, definition, parameter, policy, known=sizes is not None), pair.status
        )
        for name, pair in pairs
        for asked_for, (definition, parameter) in wanted.items()
    ]


def worst_scores(
    labels: Labels,
    metrics: Sequence[str],
    *,
    shape: Sequence[int] | None,
    spacing: Sequence[float] | None,
    empty: EmptyPolicy | str | Mapping[str, Any] = "worst",
) -> list[LabelScore]:
    """Returns "failed" scores of a case without an answer.

    Every label gets every metric's worst value, a distance the `distance` of the policy for empty masks. Where even the
    image is unknown (`shape` or `spacing`, in mm, is None), nothing can be said of the case and every value is NaN.

    Raises:
        ValueError: If an argument is not as said above.
        UsageError: If there is no such metric of masks, or no such policy.

    >>> worst_scores({1: "liver"}, ["hd95"], shape=(2, 4), spacing=(3, 2))
    [LabelScore(label='liver', metric='hd95', value=10.0, status='failed')]
    """
    wanted = mask_metrics(metrics)
    policy = EmptyPolicy.of(empty)
    if shape is None or spacing is None:
        values = dict.fromkeys(wanted, math.nan)
    else:
        sizes = _check_spacing(spacing, wanted, policy, InstanceRule())
        diagonal = math.nan if sizes is None else math.hypot(*np.multiply(shape, sizes))
        values = {name: policy.value("worst", definition, diagonal) for name, (definition, _) in wanted.items()}
    return [
        LabelScore(label, name, value, "failed") for label in _check_regions(labels) for name, value in values.items()
    ]


def needs_spacing(found: Metric, rule: InstanceRule) -> bool:
    """Returns whether a metric needs spacing, for lengths or sizes."""
    if found.needs_spacing or found.unit not in ("", "%") or "lesions" in found.rules:
        return True
    sized = rule.min_volume > 0 or rule.matching == "centroid" or found.name.split("_")[0] in _SIZES
    return "instances" in found.rules and sized


def _pair_value(pair: LabelPair, found: Metric, parameter: float | None, policy: EmptyPolicy, *, known: bool) -> float:
    if not known and needs_spacing(found, pair.settings.instances):
        return math.nan
    rule = None if pair.status == "present" else policy.rule(pair.status, found)
    if rule is not None:
        return policy.value(rule, found, pair.diagonal)
    return float(found.function(pair) if parameter is None else found.function(pair, parameter))


def _check_spacing(
    spacing: Sequence[float], asked: RequestedMetrics, policy: EmptyPolicy, rule: InstanceRule
) -> tuple[float, ...] | None:
    """Returns checked spacing; None where unknown and skipped."""
    if not any(math.isnan(size) for size in spacing):
        return checked_spacing(spacing, len(spacing))
    measured = [name for name, (definition, _) in asked.items() if needs_spacing(definition, rule)]
    if measured and policy.spacing == "refuse":
        raise UsageError(
            f"The spacing is not known, which {', '.join(measured)} needs; give it, or set empty.spacing to 'skip'"
        )
    return None


def _check_regions(labels: Labels) -> dict[str, tuple[int, ...]]:
    """Returns the labels that each name stands for, checked."""
    regions: list[tuple[str, tuple[Any, ...]]]
    if isinstance(labels, Mapping):
        regions = [
            (key, tuple(value)) if isinstance(key, str) else (str(value), (key,)) for key, value in labels.items()
        ]
    else:
        regions = [
            (label, (index,)) if isinstance(label, str) else (str(label), (label,))
            for index, label in enumerate(labels, start=1)
        ]
    for _, members in regions:
        for label in members:
            if not isinstance(label, (int, np.integer)) or isinstance(label, bool) or label < 1:
                raise ValueError(f"Expected `labels` to be whole numbers above 0, got {label!r}")
    named = {name: tuple(int(label) for label in members) for name, members in regions}
    if len(named) < len(regions):
        raise ValueError(f"Expected `labels` to have different names, got {[name for name, _ in regions]}")
    if not named or not all(named.values()):
        raise ValueError("Expected `labels` to hold at least one label, got none")
    return named


def _check_tolerances(tolerances: Mapping[str, float], regions: Mapping[str, Any], asked: RequestedMetrics) -> None:
    if not isinstance(tolerances, Mapping):
        raise UsageError(f"tolerances: expected mm by label name, got {tolerances!r}")
    for name, tolerance in tolerances.items():
        UsageError.refuse_invalid("tolerances: label", regions, name)
        if not isinstance(tolerance, int | float) or not 0 <= tolerance < math.inf:
            raise ValueError(f"Expected the tolerance of {name!r} to be a number of at least 0 mm, got {tolerance!r}")
    for metric, (definition, parameter) in asked.items():
        without = [name for name in regions if name not in tolerances]
        if definition.parameter_optional and parameter is None and without:
            raise UsageError(
                f"Metric {metric!r} has no tolerance for {without[0]!r}: ask for {metric}@2, or give `tolerances`"
            )


def _region_pairs(
    reference: Array,
    prediction: Array,
    numbers: tuple[Array, Array] | None,
    spacing: tuple[float, ...],
    regions: Mapping[str, tuple[int, ...]],
    settings: Mapping[str, Settings],
    ignore: int | None,
) -> Iterator[tuple[str, LabelPair]]:
    """Yields mask pairs of regions, in order."""
    if reference.dtype.kind == "b" and reference.ndim == len(spacing) + 1:
        if ignore is not None:
            raise ValueError(f"Expected no `ignore` with boolean masks, which hold no label {ignore}")
        yield from _overlapping_pairs(reference, prediction, spacing, regions, settings)
        return
    check_arrays(reference, prediction, "iu", "an integer label map")
    checked_spacing(spacing, reference.ndim)
    checked_numbers = None if numbers is None else _checked_numbers(*numbers, reference.shape)
    for name, pair in label_pairs(reference, prediction, spacing, regions, settings, ignore).items():
        pair.numbers = checked_numbers
        yield name, pair


def _checked_numbers(reference: Array, prediction: Array, shape: tuple[int, ...]) -> tuple[Numbers, Numbers]:
    for numbers in (reference, prediction):
        if (
            numbers.dtype.kind not in "iu"
            or numbers.shape != shape
            or (numbers.dtype.kind == "i" and numbers.min(initial=0) < 0)
        ):
            raise ValueError(
                f"Expected `numbers` to be integers of 0 and above, {shape}, got {numbers.dtype} {numbers.shape}"
            )
    return reference, prediction


def _overlapping_pairs(
    reference: Array,
    prediction: Array,
    spacing: tuple[float, ...],
    regions: Mapping[str, tuple[int, ...]],
    settings: Mapping[str, Settings],
) -> Iterator[tuple[str, LabelPair]]:
    if prediction.dtype.kind != "b" or prediction.shape != reference.shape:
        raise ValueError(
            f"Expected `prediction` to be boolean masks of the reference's shape {reference.shape}, "
            f"got {prediction.dtype} of shape {prediction.shape}"
        )
    if len(regions) != len(reference):
        raise ValueError(f"Expected `labels` to name each of {len(reference)} masks, got {list(regions)}")
    yield from mask_pairs(reference, prediction, spacing, {name: settings[name] for name in regions})
