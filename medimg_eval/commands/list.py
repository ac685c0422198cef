"""`list`: the tasks, models, metrics and suites there are. Imports no torch."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.table import Table

from medimg_eval.commands.common import as_list, printer
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.metrics import available

# The parser in C, where PyYAML was built with it: there are a hundred files to read.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

KINDS = ("tasks", "models", "metrics", "suites")


def run(config: DictConfig) -> None:
    """Prints names and descriptions, one task's card, or all of it as JSON."""
    if config.what != "all" and config.what not in KINDS:
        raise UsageError(f"there is no list of {config.what!r}{nearest(config.what, (*KINDS, 'all'))}")
    kinds = KINDS if config.what == "all" else (config.what,)
    found = {kind: _entries(kind) for kind in kinds}
    if config.card is not None:
        tasks = _yaml("task")
        if config.card not in tasks:
            raise UsageError(f"there is no task {config.card!r}{nearest(config.card, tasks)}")
        found = {"card": tasks[config.card].get("card", {})}
    console = printer()
    if config.json:
        console.print_json(json.dumps(found))
    elif config.card is not None:
        for key, value in found["card"].items():
            console.print(f"[bold]{key}[/]: {' '.join(map(str, as_list(value)))}", highlight=False)
    else:
        for kind, entries in found.items():
            table = Table("name", "what it is", title=kind, title_justify="left", title_style="bold", box=None)
            for name, text in entries.items():
                table.add_row(name, text)
            console.print(table)


def _entries(kind: str) -> dict[str, Any]:
    if kind == "metrics":
        return {
            name + (f"@{metric.parameter}" if metric.parameter else ""): f"{metric.title}: {metric.definition}"
            for name, metric in sorted(available().items())
        }
    return {name: _describe(config) for name, config in _yaml(kind.removesuffix("s")).items()}


def _describe(config: dict[str, Any]) -> str:
    text: str = config.get("card", {}).get("description") or config.get("description", "")
    return text


def _yaml(group: str) -> dict[str, dict[str, Any]]:
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
