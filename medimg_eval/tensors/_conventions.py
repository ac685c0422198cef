"""The cases of a batch, in the shapes that MONAI's and torchmetrics' metrics take, as two maps of one kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

Regions: TypeAlias = Mapping[str, tuple[int, ...]]

THRESHOLD = "compare it with a threshold first: `preds > 0.5` of probabilities, `preds > 0` of logits"


class Given(NamedTuple):
    """One side of one case, as it was handed in.

    Attributes:
        values: (*spatial) or (channel, *spatial).
        affine: From voxels to mm, of a MetaTensor; None of any other.
    """

    values: Tensor
    affine: Tensor | None


def cases_of(batch: Tensor | Iterable[Tensor]) -> list[Given]:
    """Splits a batch or list into cases of plain tensors.

    A list of cases as `decollate_batch` makes it.
    """
    if not isinstance(batch, Tensor):
        return [Given(torch.as_tensor(tensor).as_subclass(Tensor), getattr(tensor, "affine", None)) for tensor in batch]
    affine = getattr(batch, "affine", None)
    each = affine if affine is not None and affine.ndim == 3 else [affine] * len(batch)
    return [Given(*fields) for fields in zip(batch.as_subclass(Tensor), each, strict=True)]


def stored_spacing(sides: Iterable[Given], axes: int) -> tuple[float, ...] | None:
    """Returns MetaTensors' spacing in mm; else None.

    Raises:
        ValueError: If the two sides bring different ones.
    """
    spacings = [
        tuple(side.affine[:-1, :axes].double().norm(dim=0).tolist())
        for side in sides
        if side.affine is not None and side.affine.shape[-1] > axes
    ]
    for second in spacings[1:]:
        if not torch.allclose(torch.tensor(spacings[0]), torch.tensor(second), rtol=1e-3):
            raise ValueError(
                f"Expected the affines of `preds` and `target` to give one spacing, got {spacings[0]} and {second} mm; "
                "say which is right: update(preds, target, spacing=...)"
            )
    return spacings[0] if spacings else None


def read_pair(
    prediction: Tensor, target: Tensor, axes: int | None, regions: Regions, ignore: int | None = None
) -> tuple[Tensor, Tensor, int]:
    """Returns a case's two label maps or masks, and spatial axes.

    Both sides are given as (*spatial) or (channel, *spatial), and come back as (*spatial), or both bool, (region,
    *spatial); with 2 or 3, found in the shapes unless `axes` says it. Voxels of the target with the label `ignore` are
    taken out of masks; in label maps they stay.

    Raises:
        ValueError: If a side is in no convention, or in more than one.
    """
    sides = {"preds": prediction, "target": target}
    pairs: list[tuple[Tensor, Tensor, int]] = []
    wanted = "2 or 3" if axes is None else axes
    refused = ValueError(
        f"Expected `preds` and `target` to have {wanted} spatial axes of the same sizes, after the case and, if any, "
        f"one channel axis, got shapes (case, {_format_sizes(prediction)}) and (case, {_format_sizes(target)})"
    )
    for spatial in (3, 2) if axes is None else (axes,):
        fits = all(side.ndim - spatial in (0, 1) for side in sides.values())
        if not fits or prediction.shape[prediction.ndim - spatial :] != target.shape[target.ndim - spatial :]:
            continue
        try:
            first, second = (_read_side(name, side, spatial, regions) for name, side in sides.items())
        except ValueError as error:
            refused = error
        else:
            pairs.append((*_align_sides(first, second, regions, ignore), spatial))
    if not pairs:
        raise refused
    # One channel of a slice or one slice of a volume are the same voxels, and nothing is nothing either way.
    if len(pairs) > 1 and len(prediction) > 1 and (prediction.any() or target.any()):
        raise ValueError(
            f"Cases of shape ({_format_sizes(prediction)}) may be labels in 3-D or channels in 2-D; say which with "
            "`spacing` in mm, such as spacing=(1, 1, 1) or spacing=(1, 1)"
        )
    return pairs[-1]


def _read_side(name: str, side: Tensor, axes: int, regions: Regions) -> Tensor:
    """Returns a label map, or boolean masks of the regions."""
    got = f"got `{name}` of shape (case, {_format_sizes(side)}), {str(side.dtype).removeprefix('torch.')}"
    if side.ndim > axes and len(side) != 1:
        return _read_channels(side, regions, got, scores=name != "target")
    if side.dtype == torch.bool:
        if len(regions) != 1:
            raise ValueError(
                f"Expected a boolean mask only where one label is judged, not {len(regions)}, {got}; give a label "
                f"map, or a mask for each of {list(regions)}: (case, {len(regions)}, *spatial)"
            )
        return side if side.ndim > axes else side[None]
    if not side.is_floating_point():
        if name != "target" and _is_white(side, regions):
            raise ValueError(
                f"Expected the labels judged ({', '.join(regions)}), {got} with 0 and 255 alone; give 0 and 1"
            )
        return side[0] if side.ndim > axes else side
    if side.ndim == axes:
        raise ValueError(f"Expected integer labels, or a channel per class before the spatial axes, {got}; {THRESHOLD}")
    if not ((side >= 0) & (side.remainder(1) == 0)).all():
        raise ValueError(f"Expected whole labels in the only channel, {got} with other values; {THRESHOLD}")
    return side[0].to(torch.int64)


def _is_white(side: Tensor, regions: Regions) -> bool:
    """Whether it is a mask picture, whose 255 means foreground."""
    if any(255 in labels for labels in regions.values()):
        return False
    white = side == 255
    return bool(white.any()) and bool((white | (side == 0)).all())


def _read_channels(side: Tensor, regions: Regions, got: str, *, scores: bool) -> Tensor:
    """Returns the label map of one-hot channels, or region masks.

    Scores of classes, whose largest wins, are not taken for a truth: labels as floats, without a channel, look alike.
    """
    highest = max(max(labels) for labels in regions.values())
    classes, masks = len(side) > highest, len(side) == len(regions)
    wanted = (
        f"Expected a channel for each class, of which 0 is background ({highest + 1} or more), or for each of the "
        f"{len(regions)} labels judged ({', '.join(regions)})"
    )
    if classes == masks:
        either = ", which may be either" if classes else ""
        raise ValueError(f"{wanted}, {got}{either}; give a label map, such as `.argmax(1)` of classes")
    binary = bool(((side == 0) | (side == 1)).all())
    if masks and not binary:
        raise ValueError(f"{wanted}, {got} without one for background; {THRESHOLD}")
    if masks:
        return side == 1
    if not binary and not (scores and side.is_floating_point()):
        raise ValueError(
            f"{wanted}, {got} with values other than 0 and 1; give a label map of integers: (case, *spatial)"
        )
    # All zeros, as of a head that has learned nothing yet, are background by every reading.
    if binary and side.any() and bool(((side != 0).sum(0) != 1).any()):
        raise ValueError(f"{wanted}, {got} that overlap or leave voxels without a class; leave out those not judged")
    return (side.to(torch.uint8) if binary else side).argmax(0)


def _align_sides(one: Tensor, target: Tensor, regions: Regions, ignore: int | None) -> tuple[Tensor, Tensor]:
    """Returns label maps unchanged, else both masks without ignored parts."""
    if torch.bool not in (one.dtype, target.dtype):
        return one, target
    masks = _region_masks(one, regions), _region_masks(target, regions)
    if ignore is None:
        return masks
    if target.dtype == torch.bool:
        raise ValueError(f"Expected no `ignore` with a target of boolean masks, which hold no label {ignore}")
    judged = target != ignore
    return masks[0] & judged, masks[1] & judged


def _region_masks(side: Tensor, regions: Regions) -> Tensor:
    if side.dtype == torch.bool:
        return side
    wide = side.to(torch.int64)
    return torch.stack([torch.isin(wide, wide.new_tensor(labels)) for labels in regions.values()])


def _format_sizes(case: Tensor) -> str:
    return ", ".join(str(size) for size in case.shape)
