"""`segmentation_scores` for label maps that lie on a GPU, or anywhere else that torch knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor

from medimg_eval.metrics import EmptyPolicy, InstanceRule, LabelPair, LabelScore, LesionRule, Settings, Surface
from medimg_eval.metrics.segmentation import LabelMapPair, Labels, scores_of_pairs
from medimg_eval.metrics.segmentation.pairs import CaseLabels, _region_layers
from medimg_eval.tensors._maps import TensorMaps

_WHOLE = {torch.uint8, torch.uint16, torch.uint32, torch.int8, torch.int16, torch.int32, torch.int64}

_Makers: TypeAlias = dict[str, Callable[[CaseLabels], LabelPair]]


def segmentation_scores(  # noqa: PLR0913 - named arguments, each with a default
    reference: Tensor,
    prediction: Tensor,
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
) -> list[LabelScore]:
    """Returns scores by label and metric, on tensors.

    `medimg_eval.metrics` on tensors.

    Overlaps are counted, and surfaces and their distances found, on the device of the maps; the arguments and the
    values are those of `medimg_eval.metrics.segmentation_scores`. Integer label maps are 2-D or 3-D; boolean masks,
    which may overlap, (label, *spatial). A metric that looks at the masks themselves, such as clDice or the instance
    metrics, is given them on the CPU, cropped.

    Raises:
        ValueError: If an argument is not as said above, or the maps' shapes or devices differ.
        UsageError: As `medimg_eval.metrics.segmentation_scores` does.

    >>> reference = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 2]])
    >>> prediction = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]])
    >>> for score in segmentation_scores(
    ...     reference, prediction, (3, 2), labels={1: "liver", 2: "cyst"}, metrics=("dice", "hd")
    ... ):
    ...     print(*score)
    liver dice 0.8 present
    liver hd 2.0 present
    cyst dice 0.0 missed
    cyst hd 10.0 missed
    """
    with torch.no_grad():
        return scores_of_pairs(
            partial(_label_pairs, reference, prediction),
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


def _label_pairs(
    reference: Tensor,
    prediction: Tensor,
    spacing: tuple[float, ...],
    regions: Mapping[str, tuple[int, ...]],
    settings: Mapping[str, Settings],
    ignore: int | None,
) -> Iterable[tuple[str, LabelPair]]:
    _check_sides(reference, prediction, spacing, regions)
    if reference.dtype == torch.bool:
        if ignore is not None:
            raise ValueError(f"Expected no `ignore` with boolean masks, which hold no label {ignore}")
        makers: _Makers = {}
        for index, (name, wanted) in enumerate(settings.items()):
            makers |= _pair_makers(reference[index], prediction[index], spacing, {name: (1,)}, {name: wanted}, None)
    else:
        makers = _pair_makers(reference, prediction, spacing, regions, settings, ignore)
    return CaseLabels({name: makers[name] for name in regions}).pairs().items()


def _pair_makers(
    reference: Tensor,
    prediction: Tensor,
    spacing: tuple[float, ...],
    regions: Mapping[str, Sequence[int]],
    settings: Mapping[str, Settings],
    ignore: int | None,
) -> _Makers:
    """Returns, by the name of each region, what makes its pair of masks."""
    makers: _Makers = {}
    for layer in _region_layers(regions):
        surface = settings[layer[0]].surface
        maps = TensorMaps(reference, prediction, spacing, [regions[name] for name in layer], surface, ignore)
        for index, name in enumerate(layer):
            makers[name] = partial(LabelPair.of, cast("LabelMapPair", maps), index, settings[name], name)
    return makers


def _check_sides(reference: Tensor, prediction: Tensor, spacing: tuple[float, ...], regions: Mapping[str, Any]) -> None:
    """Refuses pairs other than label maps or mask stacks."""
    if prediction.shape != reference.shape or prediction.device != reference.device:
        raise ValueError(
            f"Expected `prediction` to have the reference's shape and device ({tuple(reference.shape)}, "
            f"{reference.device}), got {tuple(prediction.shape)}, {prediction.device}"
        )
    masks = reference.dtype == torch.bool
    kinds = {torch.bool} if masks else _WHOLE
    for name, tensor in (("reference", reference), ("prediction", prediction)):
        if tensor.dtype not in kinds:
            words = "boolean masks like the reference" if masks else "an integer label map"
            raise ValueError(f"Expected `{name}` to be {words}, got dtype {tensor.dtype}")
    axes = reference.ndim - masks
    if axes not in (2, 3) or axes != len(spacing):
        raise ValueError(
            f"Expected 2-D or 3-D maps with one spacing per axis, got shape {tuple(reference.shape)} and {spacing}"
        )
    if masks and len(regions) != len(reference):
        raise ValueError(f"Expected `labels` to name each of {len(reference)} masks, got {list(regions)}")
