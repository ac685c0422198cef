"""Batches of images for a torch DataLoader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.collate import collate as torch_collate  # the module that torch's own docs extend
from torch.utils.data._utils.collate import default_collate_fn_map

from medimg_eval.case import Image, Mask
from medimg_eval.errors import UsageError
from medimg_eval.exchange import as_tensor


def collate(batch: Sequence[Any]) -> Any:
    """Collates samples as torch's `default_collate`, with Images and Masks.

    `DataLoader(dataset, batch_size=4, collate_fn=collate)`: of Images come `array`, (batch, channel, *spatial), in
    their dtype, and `affine`, float64, (batch, 4, 4); of Masks `labels`, (batch, *spatial), and `affine`.

    Raises:
        UsageError: images of one batch differ in shape or dtype.
    """
    kinds: dict[Any, Any] = {**default_collate_fn_map, Image: _collate_images, Mask: _collate_masks}
    return torch_collate(batch, collate_fn_map=kinds)


def _collate_images(batch: Sequence[Image], **_: Any) -> dict[str, torch.Tensor]:
    return {"array": _stack_arrays([image.array for image in batch]), "affine": _stack_affines(batch)}


def _collate_masks(batch: Sequence[Mask], **_: Any) -> dict[str, torch.Tensor]:
    return {"labels": _stack_arrays([mask.labels for mask in batch]), "affine": _stack_affines(batch)}


def _stack_affines(batch: Sequence[Image | Mask]) -> torch.Tensor:
    return torch.from_numpy(np.stack([np.asarray(image.affine, np.float64) for image in batch]))


def _stack_arrays(arrays: Sequence[Any]) -> torch.Tensor:
    kinds = {(array.shape, array.dtype): None for array in arrays}
    if len(kinds) > 1:
        (shape, dtype), (odd, kind) = list(kinds)[:2]
        raise UsageError(
            f"a batch holds arrays of {shape} {dtype} and of {odd} {kind}; crop, pad or convert them in the dataset, "
            "or use batch_size=1"
        )
    return torch.stack([as_tensor(array) for array in arrays])
