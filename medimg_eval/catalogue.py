"""The configs of a group, from every place that Hydra looks in."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig

from medimg_eval.configs.names import path_meant, paths_of, shortest_names
from medimg_eval.errors import LIST, UsageError, UserError, nearest

# The parser in C, where PyYAML was built with it: there are a hundred files to read.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def configs_of(group: str) -> dict[str, dict[str, Any]]:
    """The configs of a group, by the shortest name of each, from every place that Hydra looks in."""
    found: dict[str, dict[str, Any]] = {}
    for root in _roots():
        for name, path in sorted(shortest_names(paths_of(root, group)).items()):
            if name not in found:
                found[name] = _read(root / group / f"{path}.yaml")
    return found


def config_named(group: str, name: str) -> dict[str, Any]:
    """The config that a name means on the command line.

    Raises:
        UsageError: there is none, or several.
    """
    names: list[str] = []
    for root in _roots():
        paths = paths_of(root, group)
        path = path_meant(group, name, paths)
        if path is not None:
            return _read(root / group / f"{path}.yaml")
        names += shortest_names(paths)
    raise UsageError(f"there is no {group} {name!r}{nearest(name.rpartition('/')[2], names, LIST)}")


def _roots() -> Iterator[Traversable]:
    for source in HydraConfig.get().runtime.config_sources:
        if source.schema in ("pkg", "file") and source.provider != "hydra":
            yield files(source.path) if source.schema == "pkg" else Path(source.path)


def _read(file: Traversable) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8")
    try:
        loaded = yaml.load(text, Loader=_LOADER)  # noqa: S506 - it is a safe one
    except Exception as error:
        raise UserError(f"{file}: cannot be read as YAML ({error})") from error
    comment = next((line for line in text.splitlines() if line.startswith("# description:")), "")
    config = {"description": comment.removeprefix("# description:").strip()}
    return config | ({str(key): value for key, value in loaded.items()} if isinstance(loaded, dict) else {})
