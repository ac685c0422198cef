"""MONAI bundles: the network, its weights, and what the bundle's inference config says of its use."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from medimg_eval.errors import UserError
from medimg_eval.models.checkpoints import load_weights
from medimg_eval.models.class_mapping import known_classes
from medimg_eval.trust import require_trust

log = logging.getLogger(__name__)

READING = ("LoadImage", "EnsureChannelFirst", "AsChannelFirst", "AddChannel", "EnsureType", "ToDevice", "ToTensor")
"""Transforms that bring an image into memory, which is done before a model is asked."""


@dataclass(frozen=True)
class Bundle:
    """What was read of a bundle.

    Attributes:
        network: with its weights.
        classes: what `configs/metadata.json` calls each output channel, background left out; empty where it says
            nothing.
        preprocess: the config's `preprocessing` without what reads files; empty where there is none.
        window: arguments of the config's `inferer` when that is a sliding window: `roi_size`, `overlap`,
            `sw_batch_size`.
    """

    network: nn.Module
    classes: Mapping[int, str] = field(default_factory=dict)
    preprocess: Sequence[Callable[[Any], Any]] = ()
    window: Mapping[str, Any] = field(default_factory=dict)


def read_bundle(folder: Path) -> Bundle:
    """Reads a bundle, whose config runs code: it must be trusted (`medimg_eval.trust`).

    Args:
        folder: holds `configs/inference.json` (or .yaml) with a `network_def` (or `network`), and `models/model.pt`.

    Raises:
        UserError: it is no bundle, it is not trusted, or its weights do not fit its network.
    """
    from monai.bundle import ConfigParser

    configs = [folder / "configs" / f"inference.{suffix}" for suffix in ("json", "yaml", "yml")]
    config = next((path for path in configs if path.is_file()), None)
    if config is None:
        raise UserError(f"{folder}: is no MONAI bundle; expected configs/inference.json or .yaml in it")
    parser = ConfigParser()
    parser.read_config(str(config))
    require_trust(config, _would_run(parser.config))
    parser["bundle_root"] = str(folder)
    if "network_def" not in parser:
        raise UserError(f"{config}: defines no `network_def`")
    network: nn.Module = parser.get_parsed_content("network_def")
    load_weights(network, folder / "models" / "model.pt")
    return Bundle(network, _channel_names(folder), _preprocessing(parser), _window(parser))


def _would_run(config: Any) -> Iterator[str]:
    """The classes and expressions of a bundle's config, and the files that it takes in, which may hold more."""
    for key, value in config.items() if isinstance(config, Mapping) else enumerate(config):
        if isinstance(value, str):
            if key == "_target_" or "$" in value or value.startswith("%"):
                yield value
        elif isinstance(value, Mapping | Sequence):
            yield from _would_run(value)


def _channel_names(folder: Path) -> Mapping[int, str]:
    path = folder / "configs" / "metadata.json"
    if not path.is_file():
        return {}
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: is no JSON ({error})") from error
    outputs: Mapping[str, Any] = described.get("network_data_format", {}).get("outputs", {})
    first: Mapping[str, Any] = next(iter(outputs.values()), {})
    channels: Mapping[str, Any] = first.get("channel_def", {})
    named = {int(channel): str(name) for channel, name in channels.items() if str(channel).isdigit()}
    return known_classes(named) if len(named) > 1 else {}


def _preprocessing(parser: Any) -> Sequence[Callable[[Any], Any]]:
    said = parser.config.get("preprocessing")
    if said is None:
        return ()
    if not (isinstance(said, dict) and isinstance(said.get("transforms"), list)):
        log.warning("the bundle's preprocessing is no list of transforms and is left out; set model.preprocess")
        return ()
    names = [str(step.get("_target_", "")).rpartition(".")[2] for step in said["transforms"]]
    wanted = [number for number, name in enumerate(names) if not name.startswith(READING)]
    steps = [parser.get_parsed_content(f"preprocessing#transforms#{number}") for number in wanted]
    return tuple(step for step in steps if step is not None)  # None where it is disabled


def _window(parser: Any) -> Mapping[str, Any]:
    said = parser.config.get("inferer")
    if not isinstance(said, dict) or "SlidingWindowInferer" not in str(said.get("_target_")):
        return {}
    inferer = parser.get_parsed_content("inferer")
    return {"roi_size": inferer.roi_size, "overlap": inferer.overlap, "sw_batch_size": inferer.sw_batch_size}
