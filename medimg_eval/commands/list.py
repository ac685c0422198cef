"""`list`: the tasks, models, metrics, suites and published systems there are. Imports no torch."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from importlib.resources import files
from typing import Any, NamedTuple

import yaml
from omegaconf import DictConfig
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from medimg_eval.arguments import as_list
from medimg_eval.catalogue import MODALITIES, config_named, configs_of, families, with_parents
from medimg_eval.commands.console import printer, say
from medimg_eval.errors import LIST, UsageError, nearest
from medimg_eval.metrics import available
from medimg_eval.published_numbers import published_numbers

KINDS = ("tasks", "models", "metrics", "suites", "annotators", "extractors", "systems")
ACCESS = ("credentialed", "gated", "on request", "registration", "fetch from source", "open")
"""Ways to get data: the first of these words counts, but for cards that begin with `open`."""


class Entry(NamedTuple):
    """A line of a list.

    Attributes:
        text: what it is.
        family: folder of a task, room of a model, kind of a metric, status of a system.
        about: what is searched besides.
        access: how its data are got.
        system: of a published system, all that is known of it.
    """

    text: str
    family: str = ""
    about: str = ""
    access: str = ""
    system: Mapping[str, Any] | None = None


def run(config: DictConfig) -> None:
    """Prints counts by family, the lines that pass the filters, one task's card, or any of it as JSON."""
    if config.what != "all" and config.what not in KINDS:
        raise UsageError(f"there is no list of {config.what!r}{nearest(config.what, (*KINDS, 'all'))}")
    if config.card is not None:
        _show_card(str(config.card), as_json=config.json)
        return
    filtered = any(config[key] is not None for key in ("family", "modality", "access", "search"))
    kinds = KINDS if config.what == "all" else (config.what,)
    found = {kind: _chosen(_entries(kind), config) for kind in kinds}
    if filtered and not any(found.values()):
        there = {name for kind in kinds for name in _families(_entries(kind))} - {""}
        near = nearest(str(config.family), there) if config.family is not None else ""
        raise UsageError(f"nothing of {', '.join(kinds)} passes these filters; families{near}")
    console = printer()
    if config.json:
        console.print_json(json.dumps({kind: _plain(entries) for kind, entries in found.items()}))
    elif config.what == "all" and not filtered:
        for kind, entries in found.items():
            counts = ", ".join(f"{name} {n}" for name, n in Counter(_families(entries)).most_common() if name)
            say(console, f"{kind:<11}{len(entries):>4}  {counts}".rstrip())
        say(console, f"\n{LIST} tasks family=vqa modality=ct access=open search=spine   (each may be left out)")
        say(console, f"{LIST} card=NAME   a task's source, licence, access, split, published numbers")
    else:
        rows = sum(len(entries) * (5 if kind == "systems" else 1) for kind, entries in found.items())
        with console.pager() if console.is_terminal and rows > console.height else nullcontext():
            for kind, entries in found.items():
                _show(console, kind, entries)


def _show(console: Any, kind: str, entries: Mapping[str, Entry]) -> None:
    if not entries:
        return
    if kind != "systems" and console.is_terminal:  # a line each
        width = max(map(len, entries))
        lines = [f"{name:<{width}}  {entry.text}" for name, entry in entries.items()]
        console.print(Text("\n".join([kind, *lines])), no_wrap=True, overflow="ellipsis")
    elif kind != "systems":
        table = Table("name", "what it is", title=kind, title_justify="left", title_style="bold", box=None)
        for name, entry in entries.items():
            table.add_row(name, escape(entry.text))
        console.print(table)
    for name, entry in entries.items() if kind == "systems" else ():
        system = entry.system or {}
        say(console, f"{name}   [{entry.family}]\n  {entry.text}")
        for line in as_list(system["commands"]):
            say(console, f"    python -m medimg_eval {line}")
        for key in ("released", "evidence", "lacks"):
            if told := system.get(key):
                say(console, f"  {key}: {', '.join(told.values()) if isinstance(told, dict) else told}")


def _plain(entries: Mapping[str, Entry]) -> dict[str, Any]:
    return {name: entry.text if entry.system is None else dict(entry.system) for name, entry in entries.items()}


def _families(entries: Mapping[str, Entry]) -> list[str]:
    return [entry.family.partition("/")[0] for entry in entries.values()]


def _chosen(entries: Mapping[str, Entry], config: Mapping[str, Any]) -> dict[str, Entry]:
    """The entries that pass every filter."""
    family, access = config["family"], config["access"]
    modality = None if config["modality"] is None else str(config["modality"]).lower()
    words = str(config["search"] or "").lower().split()
    named = re.compile(rf"\b({MODALITIES.get(re.sub(r'[- ]', '', modality or ''), re.escape(modality or ''))})\b", re.I)

    def passes(name: str, entry: Entry) -> bool:
        told = f"{name} {entry.text} {entry.about}".lower()
        return (
            (family is None or str(family) in (entry.family, entry.family.partition("/")[0]))
            and (modality is None or bool(named.search(f"{entry.text} {entry.about}")))
            and (access is None or str(access) == entry.access)
            and all(word in told for word in words)
        )

    return {name: entry for name, entry in entries.items() if passes(name, entry)}


def _entries(kind: str) -> dict[str, Entry]:
    if kind == "metrics":
        return {
            name + (f"@{metric.parameter}" if metric.parameter else ""): Entry(
                f"{metric.title}: {metric.definition}", metric.kind
            )
            for name, metric in sorted(available().items())
        }
    if kind == "systems":
        return {
            name: Entry(
                system["what"], system["status"], f"{system['modalities']} {system.get('lacks', '')}", "", system
            )
            for name, system in published_systems().items()
        }
    group = kind.removesuffix("s")
    if kind == "tasks":
        folders = families(group)
        return {name: _task(with_parents(config), folders[name]) for name, config in configs_of(group).items()}
    rooms = _rooms() if kind == "models" else {}
    return {
        name: Entry(config["description"], rooms.get(str(config.get("_target_", "")).rpartition(".")[2], ""))
        for name, config in configs_of(group).items()
    }


def _task(config: Mapping[str, Any], family: str) -> Entry:
    card, layout = config.get("card") or {}, config.get("layout") or {}
    access = str(card.get("access", ""))
    way = "open" if access.startswith("open") else next((one for one in ACCESS if one in access), "")
    about = (
        f"{config.get('title', '')} {card.get('modality', '')} {layout.get('modality', '')} {card.get('source', '')}"
    )
    return Entry(card.get("description") or config.get("description", ""), family, about, way)


def _rooms() -> dict[str, str]:
    """The room of each class of models, as the face of the models states it."""
    stub = (files("medimg_eval.models") / "__init__.pyi").read_text(encoding="utf-8")
    parts = re.findall(r"from \.(\w+)[\w.]* import (\([^)]*\)|[^\n]*)", stub)
    return {name: room for room, names in parts for name in re.findall(r"as (\w+)", names)}


def published_systems() -> dict[str, dict[str, Any]]:
    """The published systems that this package is to carry: what they are, the commands that run them, and their status.

    By name: `modalities`, `what`, `status`, `commands`, and where there is something to say `evidence` and `lacks`.
    """
    text = (files("medimg_eval.configs") / "systems.yaml").read_text(encoding="utf-8")
    return {str(name): system for name, system in yaml.safe_load(text).items()}


def _show_card(name: str, *, as_json: bool) -> None:
    card = with_parents(config_named("task", name)).get("card", {})
    console = printer()
    if as_json:
        console.print_json(json.dumps({"card": card}))
        return
    numbers = published_numbers(card.get("published"), name)
    for key, value in card.items():
        if key == "published" and numbers:
            console.print(f"[bold]{key}[/]:", *(f"\n  {escape(str(number))}" for number in numbers), highlight=False)
        else:
            told = escape(" ".join(map(str, as_list(value))))
            console.print(f"[bold]{key}[/]: {told}", highlight=False)
