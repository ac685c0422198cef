"""Networks: MONAI's by name, sized for a task; weights from files of `fit`, Lightning, nnU-Net-like trainers, torch."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.models.fitted import refuse_folds

log = logging.getLogger(__name__)

WINDOW = {2: 256, 3: 96}
"""Voxels along each axis of a window, by the network's axes, where the config names none."""

STEP = 32
"""Windows are cut down to the image in steps that every network of the catalogue can halve often enough."""

LEAST = {"SwinUNETR": {2: 64, 3: 64}, "UNETR": WINDOW}
"""What a network needs along each axis where that is more than `STEP`: its coarsest level must not be a single voxel,
and weights that belong to places in the window, as UNETR's do, need the same window in `fit` and in `test`."""

HOLDERS = ("state_dict", "model", "model_state_dict", "network", "network_weights", "net")
"""Keys under which trainers put the weights among other things."""

PREFIXES = ("model.network.", "network.", "module.", "model.", "net.", "_orig_mod.", "")
"""What wrappers put before the names of a network's tensors."""


HUB = "hf-hub:"
"""How timm marks a model on the Hugging Face hub."""


def build_network(
    config: Mapping[str, Any],
    *,
    axes: int,
    channels: int,
    classes: int,
    window: Sequence[int],
    own: Mapping[str, type[nn.Module]] | None = None,
) -> nn.Module:
    """Makes a network of `monai.networks.nets`, filling in what its config leaves open.

    Args:
        config: `name`, and arguments of that class; those absent or null follow from the others below.
        axes: spatial axes, for `spatial_dims`.
        channels: of the image, for `in_channels`.
        classes: output channels, for `out_channels` or `num_classes`.
        window: voxels that the network sees at once, for `img_size`.
        own: networks by name beside MONAI's.

    Raises:
        UsageError: there is no such network, or it lacks an argument.
        UserError: the network cannot be made for this task.
    """
    from monai.networks import nets

    arguments_: dict[str, Any] = {
        "spatial_dims": axes,
        "in_channels": channels,
        "out_channels": classes,
        "num_classes": classes,
    }
    arguments_["img_size"] = tuple(window)
    name = config.get("name", "")
    network_class = (own or {}).get(str(name)) or getattr(nets, str(name), None)
    if not (isinstance(network_class, type) and issubclass(network_class, nn.Module)):
        raise UsageError(f"model.network: MONAI has no network {name!r}{nearest(str(name), _network_names())}")
    taken = inspect.signature(network_class).parameters
    settings = {key: value for key, value in config.items() if key != "name" and value is not None}
    arguments = {key: value for key, value in arguments_.items() if key in taken} | settings
    try:
        network: nn.Module = network_class(**arguments)
    except TypeError as error:
        raise UsageError(f"model.network: {name}: {error}") from error
    except UserError:
        raise
    except Exception as error:  # a network's own checks, and packages that it alone needs
        raise UserError(f"model.network: {name} cannot be made with {arguments}: {error}") from error
    return network


def build_timm(
    name: str, weights: Path | None, options: Mapping[str, Any], size: tuple[int, int] | None
) -> tuple[nn.Module, dict[str, Any]]:
    """Makes an encoder of timm without its classifier.

    Args:
        name: timm's, or after `hf-hub:` that of a model of timm on the Hugging Face hub, with its weights.
        weights: a file of weights; None for random ones, unless they are the hub's.
        options: further arguments of `timm.create_model`.
        size: rows and columns that it is shown, which transformers are made for; None for its own.

    Returns:
        The encoder, and timm's settings of how pictures are shown to it: `mean`, `std`, `input_size`.

    Raises:
        UserError: timm has no such model, or it cannot be made.
    """
    timm: Any = importlib.import_module("timm")
    hub = name.startswith(HUB)
    if not hub and not timm.is_model(name):
        raise UserError(f"model.encoder: timm has no {name!r}{nearest(name, timm.list_models())}")
    with UserError.about("model.encoder", f"{name!r} cannot be made by timm", Exception):
        network = timm.create_model(name, pretrained=hub, num_classes=0, **options)
        if size is not None and callable(getattr(network, "set_input_size", None)):
            network.set_input_size(img_size=size)
    if weights is not None:
        load_weights(network, weights)
    return network, timm.data.resolve_model_data_config(network)


def fitting_window(name: str, shape: Sequence[int], axes: int) -> tuple[int, ...]:
    """Returns the network's default window, smaller for small images.

    It is in voxels along each of the network's axes, in multiples of `STEP`; a network of fewer axes than the image
    (*spatial) sees its first ones.
    """
    least = LEAST.get(name, {}).get(axes, STEP)
    return tuple(max(least, min(WINDOW[axes], -(-size // STEP) * STEP)) for size in shape[:axes])


def _network_names() -> list[str]:
    from monai.networks import nets

    members = ((name, getattr(nets, name)) for name in dir(nets))
    return [
        name
        for name, member in members
        if isinstance(member, type)
        and member.__name__ == name
        and issubclass(member, nn.Module)
        and {"out_channels", "num_classes"} & set(inspect.signature(member).parameters)
    ]


def load_weights(network: nn.Module, path: Path, prefix: str = "") -> None:
    """Loads weights of `fit`, Lightning, torch or safetensors into a network.

    They must cover its `state_dict`; what they hold beside it, such as a head, is left out. A path is a checkpoint, or
    the folder of a `fit` run. Of several networks in a file, the one is meant whose tensors' names begin with `prefix`.

    Raises:
        UserError: no such file, not a checkpoint, or weights of another architecture.
    """
    path = _checkpoint_file(path)
    if reason := _unfinished_fit(path):
        log.warning("%s; its best checkpoint so far is taken, and may be another one later", reason)
    stored = _innermost_state(_read_checkpoint(path))
    wanted = network.state_dict()
    for start in (prefix,) if prefix else PREFIXES:
        weights = {key.removeprefix(start): value for key, value in stored.items() if key.startswith(start)}
        if wanted.keys() <= weights.keys():
            break
    else:
        missing = sorted({f"{prefix}{key}" for key in wanted} - stored.keys())
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


def kept_beside(path: Path, name: str) -> Tensor | None:
    """Returns a checkpoint's buffer beside weights, such as class names.

    None of any other file. UserError where the path is no checkpoint, or folder of a `fit` run.
    """
    stored = _read_checkpoint(_checkpoint_file(path))
    state = stored.get("state_dict", stored) if isinstance(stored, dict) else {}
    tensor = next((value for key, value in state.items() if key in (f"model.{name}", name)), None)
    return tensor if isinstance(tensor, Tensor) and tensor.dtype == torch.uint8 and len(tensor) else None


def _checkpoint_file(path: Path) -> Path:
    refuse_folds(path)
    file = path / "checkpoints" / "best.ckpt" if path.is_dir() else path
    if not file.is_file():
        mend = "set model.checkpoint to a fit run's folder, or to a file of weights"
        raise UserError(f"{file}: no such checkpoint; {_unfinished_fit(file) or mend}")
    return file


def _unfinished_fit(file: Path) -> str:
    """Message where a checkpoint's fit is unfinished, else ""."""
    try:
        manifest = json.loads((file.parent.parent / "manifest.json").read_text(encoding="utf-8"))
        command, status = manifest.get("command"), manifest.get("status")
    except (OSError, ValueError, AttributeError):
        return ""
    state = "still runs, or was killed" if status == "running" else f"is not finished ({status})"
    return f"the fit in {file.parent.parent} {state}" if command == "fit" and status != "finished" else ""


def _read_checkpoint(file: Path) -> Any:
    with UserError.about(file, "cannot be loaded as weights", Exception):
        if file.suffix == ".safetensors":
            return load_file(file)
        # Files in torch's older form are no zip, and cannot be mapped.
        return torch.load(file, map_location="cpu", weights_only=True, mmap=is_zipfile(file))


def _innermost_state(stored: Any) -> Mapping[str, Any]:
    while isinstance(stored, dict):
        inner = next((stored[key] for key in HOLDERS if isinstance(stored.get(key), dict)), None)
        if inner is None:
            return {str(key): value for key, value in stored.items() if isinstance(value, torch.Tensor)}
        stored = inner
    return {}
