"""MONAI's segmentation networks by name, sized for a task."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from medimg_eval.errors import UsageError, UserError, nearest

WINDOW = {2: 256, 3: 96}
"""Voxels along each axis of a window, by the network's axes, where the config names none."""

STEP = 32
"""Windows are cut down to the image in steps that every network of the catalogue can halve often enough."""

LEAST = {"SwinUNETR": {2: 64, 3: 64}, "UNETR": WINDOW}
"""What a network needs along each axis where that is more than `STEP`: its coarsest level must not be a single voxel,
and weights that belong to places in the window, as UNETR's do, need the same window in `fit` and in `test`."""


def build_network(
    config: Mapping[str, Any], *, axes: int, channels: int, classes: int, window: Sequence[int]
) -> nn.Module:
    """Makes a network of `monai.networks.nets`, filling in what its config leaves open.

    Args:
        config: `name`, and arguments of that class; those absent or null follow from the others below.
        axes: spatial axes, for `spatial_dims`.
        channels: of the image, for `in_channels`.
        classes: output channels, for `out_channels` or `num_classes`.
        window: voxels that the network sees at once, for `img_size`.

    Raises:
        UsageError: there is no such network, or it lacks an argument.
        UserError: the network cannot be made for this task.
    """
    from monai.networks import nets

    known: dict[str, Any] = {
        "spatial_dims": axes,
        "in_channels": channels,
        "out_channels": classes,
        "num_classes": classes,
    }
    known["img_size"] = tuple(window)
    name = config.get("name", "")
    made = getattr(nets, str(name), None)
    if not (isinstance(made, type) and issubclass(made, nn.Module)):
        raise UsageError(f"model.network: MONAI has no network {name!r}{nearest(str(name), _names())}")
    taken = inspect.signature(made).parameters
    given = {key: value for key, value in config.items() if key != "name" and value is not None}
    arguments = {key: value for key, value in known.items() if key in taken} | given
    try:
        network: nn.Module = made(**arguments)
    except TypeError as error:
        raise UsageError(f"model.network: {name}: {error}") from error
    except Exception as error:  # a network's own checks, and packages that it alone needs
        raise UserError(f"model.network: {name} cannot be made with {arguments}: {error}") from error
    return network


def fitting_window(name: str, shape: Sequence[int], axes: int) -> tuple[int, ...]:
    """The window for images of this shape: the default, or less where the image is smaller.

    Args:
        name: of the network.
        shape: of an image, (*spatial).
        axes: of the network; a network of fewer axes than the image sees its first ones.

    Returns:
        Voxels along each of the network's axes, in multiples of `STEP`.
    """
    least = LEAST.get(name, {}).get(axes, STEP)
    return tuple(max(least, min(WINDOW[axes], -(-size // STEP) * STEP)) for size in shape[:axes])


def _names() -> list[str]:
    from monai.networks import nets

    found = ((name, getattr(nets, name)) for name in dir(nets))
    return [
        name
        for name, made in found
        if isinstance(made, type)
        and made.__name__ == name
        and issubclass(made, nn.Module)
        and {"out_channels", "num_classes"} & set(inspect.signature(made).parameters)
    ]
