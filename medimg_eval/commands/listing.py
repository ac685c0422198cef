"""The configs of a group, from every place that Hydra looks in."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig

from medimg_eval.errors import UserError

# The parser in C, where PyYAML was built with it: there are a hundred files to read.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def configs_of(group: str) -> dict[str, dict[str, Any]]:
    """The configs of a group, by name, from every place that Hydra looks in."""
    found: dict[str, dict[str, Any]] = {}
    for source in HydraConfig.get().runtime.config_sources:
        if source.schema not in ("pkg", "file") or source.provider == "hydra":
            continue
        root = files(source.path) if source.schema == "pkg" else Path(source.path)
        folder = root / group
        for entry in sorted(folder.iterdir(), key=lambda e: e.name) if folder.is_dir() else ():
            if entry.name.endswith(".yaml"):
                text = entry.read_text(encoding="utf-8")
                try:
                    loaded = yaml.load(text, Loader=_LOADER)  # noqa: S506 - it is a safe one
                except Exception as error:
                    raise UserError(f"{entry}: cannot be read as YAML ({error})") from error
                comment = next((line for line in text.splitlines() if line.startswith("# description:")), "")
                config = {"description": comment.removeprefix("# description:").strip()}
                config |= {str(key): value for key, value in loaded.items()} if isinstance(loaded, dict) else {}
                found.setdefault(entry.name.removesuffix(".yaml"), config)
    return found
