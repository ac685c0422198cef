"""MetaTensors of MONAI: (channel, *spatial), RAS+."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.exchange.parts import KEYS, LPS, OWN, Array, Parts, as_parts, native, own_facts

if TYPE_CHECKING:
    from monai.data import MetaTensor


def to_metatensor(parts: Parts) -> MetaTensor:
    """Returns a MONAI MetaTensor; see `Image.to_metatensor`."""
    import torch
    from monai.data import MetaTensor

    meta = {"space": "RAS", "original_channel_dim": 0, "spatial_shape": np.array(parts.array.shape[1:])}
    own = {f"{OWN}.{key}": text for key, text in own_facts(parts, picture=parts.array.ndim == 3).items()}
    return MetaTensor(as_tensor(parts.array), affine=torch.from_numpy(parts.affine.copy()), meta={**meta, **own})


def from_metatensor(tensor: MetaTensor) -> Parts:
    """Takes a MONAI MetaTensor apart; see `Image.from_metatensor`."""
    if not 3 <= tensor.ndim <= 4:
        raise UsageError(
            f"expected a MetaTensor of (channel, *spatial) with two or three spatial axes, got {tuple(tensor.shape)}; "
            "take the images of a batch one by one"
        )
    affine_ = np.asarray(tensor.affine.detach().cpu().numpy(), np.float64)
    if affine_.shape not in ((4, 4), (3, 3)):
        raise UsageError(f"expected an affine of (4, 4), or of (3, 3) for a picture, got {affine_.shape}")
    affine = np.eye(4)
    axes = len(affine_) - 1
    affine[:axes, :axes], affine[:axes, 3] = affine_[:axes, :axes], affine_[:axes, axes]
    affine = LPS @ affine if str(tensor.meta.get("space", "")).endswith("LPS") else affine
    facts = {key: str(tensor.meta[name]) for key in KEYS if (name := f"{OWN}.{key}") in tensor.meta}
    return as_parts(tensor.detach().cpu().as_tensor().numpy(), affine, facts)


def as_tensor(array: Array) -> Any:
    """Torch tensor of an array, sharing memory where possible."""
    import torch

    array = native(array)
    if min(array.strides, default=0) < 0 or not array.flags.writeable:
        array = array.copy(order="C")
    return torch.from_numpy(array)
