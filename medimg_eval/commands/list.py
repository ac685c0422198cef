"""`list`: the tasks, models, metrics and suites there are. Imports no torch."""

from __future__ import annotations

import json
from typing import Any

from omegaconf import DictConfig
from rich.markup import escape
from rich.table import Table

from medimg_eval.arguments import as_list
from medimg_eval.catalogue import config_named, configs_of
from medimg_eval.commands.console import printer
from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics import available
from medimg_eval.published_numbers import published_numbers

KINDS = ("tasks", "models", "metrics", "suites")


def run(config: DictConfig) -> None:
    """Prints names and descriptions, one task's card, or all of it as JSON."""
    if config.what != "all" and config.what not in KINDS:
        raise UsageError(f"there is no list of {config.what!r}{nearest(config.what, (*KINDS, 'all'))}")
    kinds = KINDS if config.what == "all" else (config.what,)
    found = {kind: _entries(kind) for kind in kinds}
    if config.card is not None:
        found = {"card": config_named("task", config.card).get("card", {})}
    console = printer()
    if config.json:
        console.print_json(json.dumps(found))
    elif config.card is not None:
        numbers = published_numbers(found["card"].get("published"), str(config.card))
        for key, value in found["card"].items():
            if key == "published" and numbers:
                console.print(
                    f"[bold]{key}[/]:", *(f"\n  {escape(str(number))}" for number in numbers), highlight=False
                )
            else:
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
    return {name: _describe(config) for name, config in configs_of(kind.removesuffix("s")).items()}


def _describe(config: dict[str, Any]) -> str:
    text: str = config.get("card", {}).get("description") or config.get("description", "")
    return text
