"""`list`: the tasks, models, metrics, suites and published systems there are. Imports no torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from omegaconf import DictConfig
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from medimg_eval.api.listing import FILTERS, KINDS, Entry, chosen_entries, entries_of, families_of, nothing_passes
from medimg_eval.arguments import as_list
from medimg_eval.catalogue import config_named, with_parents
from medimg_eval.commands.console import printer, say
from medimg_eval.errors import LIST, UsageError, invalid
from medimg_eval.published_numbers import published_numbers


def run(config: DictConfig) -> None:
    """Prints counts, filtered lines, a card, or JSON."""
    if config.what != "all" and config.what not in KINDS:
        raise UsageError(invalid("what", config.what, (*KINDS, "all")))
    if config.card is not None:
        _show_card(str(config.card), as_json=config.json)
        return
    filtered = any(config[key] is not None for key in FILTERS)
    kinds = KINDS if config.what == "all" else (config.what,)
    entries_ = {kind: chosen_entries(entries_of(kind), config) for kind in kinds}
    if filtered and not any(entries_.values()):
        every = {name: entry for kind in kinds for name, entry in entries_of(kind).items()}
        raise nothing_passes(", ".join(kinds), every, config)
    console = printer()
    if config.json:
        console.print_json(json.dumps({kind: _plain_entries(entries) for kind, entries in entries_.items()}))
    elif config.what == "all" and not filtered:
        for kind, entries in entries_.items():
            counts = ", ".join(f"{name} {n}" for name, n in Counter(families_of(entries)).most_common() if name)
            say(console, f"{kind:<11}{len(entries):>4}  {counts}".rstrip())
        say(console, f"\n{LIST} tasks family=vqa modality=ct access=open search=spine   (each may be left out)")
        say(console, f"{LIST} card=NAME   a task's source, licence, access, split, published numbers")
    else:
        rows = sum(len(entries) * (5 if kind == "systems" else 1) for kind, entries in entries_.items())
        with console.pager() if console.is_terminal and rows > console.height else nullcontext():
            for kind, entries in entries_.items():
                _show_entries(console, kind, entries)


def _show_entries(console: Any, kind: str, entries: Mapping[str, Entry]) -> None:
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
            if value := system.get(key):
                say(console, f"  {key}: {', '.join(value.values()) if isinstance(value, dict) else value}")


def _plain_entries(entries: Mapping[str, Entry]) -> dict[str, Any]:
    return {name: entry.text if entry.system is None else dict(entry.system) for name, entry in entries.items()}


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
            text = escape(" ".join(map(str, as_list(value))))
            console.print(f"[bold]{key}[/]: {text}", highlight=False)
