"""Weights from files: of a `fit` run, of Lightning, of nnU-Net-like trainers, of torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from medimg_eval.errors import UserError

HOLDERS = ("state_dict", "model", "model_state_dict", "network", "network_weights", "net")
"""Keys under which trainers put the weights among other things."""

PREFIXES = ("model.network.", "network.", "module.", "model.", "net.", "_orig_mod.", "")
"""What wrappers put before the names of a network's tensors."""


def load_weights(network: nn.Module, path: Path) -> None:
    """Loads weights saved by `fit`, by Lightning or by torch into a network.

    Args:
        network: whose `state_dict` the weights must cover exactly.
        path: a checkpoint, or the folder of a `fit` run.

    Raises:
        UserError: no such file, not a checkpoint, or weights of another architecture.
    """
    if path.is_dir():
        path = path / "checkpoints" / "best.ckpt"
    if not path.is_file():
        raise UserError(
            f"{path}: no such checkpoint; set model.checkpoint to a .ckpt or .pt file, or to a fit run's folder"
        )
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(f"{path}: cannot be loaded as weights ({error})") from error
    stored = _innermost(stored)
    wanted = network.state_dict()
    for prefix in PREFIXES:
        weights = {key.removeprefix(prefix): value for key, value in stored.items() if key.startswith(prefix)}
        if wanted.keys() <= weights.keys():
            break
    else:
        missing = sorted(wanted.keys() - stored.keys())
        raise UserError(
            f"{path}: holds weights of another network: {len(missing)} of {len(wanted)} tensors are missing, "
            f"such as {missing[0]!r}"
        )
    odd = [key for key, value in wanted.items() if weights[key].shape != value.shape]
    if odd:
        raise UserError(
            f"{path}: {odd[0]!r} has shape {tuple(weights[odd[0]].shape)}, "
            f"the network expects {tuple(wanted[odd[0]].shape)}"
        )
    network.load_state_dict({key: weights[key] for key in wanted})


def _innermost(stored: Any) -> Mapping[str, Any]:
    while isinstance(stored, dict):
        inner = next((stored[key] for key in HOLDERS if isinstance(stored.get(key), dict)), None)
        if inner is None:
            return {str(key): value for key, value in stored.items() if isinstance(value, torch.Tensor)}
        stored = inner
    return {}
