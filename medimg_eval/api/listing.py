"""What there is, for people to look through: tasks, models, metrics, suites, published systems. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from medimg_eval.catalogue import MODALITIES, configs_of, families, with_parents
from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics import available

FILTERS = ("family", "modality", "access", "search")
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


def families_of(entries: Mapping[str, Entry]) -> list[str]:
    """The family of each entry, without what it is within that."""
    return [entry.family.partition("/")[0] for entry in entries.values()]


def chosen_entries(entries: Mapping[str, Entry], filters: Mapping[str, Any]) -> dict[str, Entry]:
    """The entries that pass every filter."""
    family, access = filters["family"], filters["access"]
    modality = None if filters["modality"] is None else str(filters["modality"]).lower()
    words = str(filters["search"] or "").lower().split()
    named = re.compile(rf"\b({MODALITIES.get(re.sub(r'[- ]', '', modality or ''), re.escape(modality or ''))})\b", re.I)

    def passes(name: str, entry: Entry) -> bool:
        searchable = f"{name} {entry.text} {entry.about}".lower()
        return (
            (family is None or str(family) in (entry.family, entry.family.partition("/")[0]))
            and (modality is None or bool(named.search(f"{entry.text} {entry.about}")))
            and (access is None or str(access) == entry.access)
            and all(word in searchable for word in words)
        )

    return {name: entry for name, entry in entries.items() if passes(name, entry)}


def nothing_passes(what: str, entries: Mapping[str, Entry], filters: Mapping[str, Any]) -> UsageError:
    """Error for filters without matches, with their possible values."""
    values = [(key, str(filters[key])) for key in FILTERS[:-1] if filters[key] is not None]
    values += [("search", word) for word in str(filters["search"] or "").lower().split()]
    lacking = [
        f"no {key} {value!r}{nearest(value, _filter_options(key, entries))}"
        for key, value in values
        if not chosen_entries(entries, dict.fromkeys(FILTERS) | {key: value})
    ]
    why = "; ".join(lacking) or "each lets some through, all of them nothing; leave one out"
    return UsageError(f"nothing of {what} passes these filters: {why}")


def _filter_options(key: str, entries: Mapping[str, Entry]) -> set[str]:
    """Values of a filter, or longer words of a search."""
    if key == "modality":
        return set(MODALITIES)
    if key == "access":
        return {entry.access for entry in entries.values()} - {""}
    if key == "family":
        return set(families_of(entries)) - {""}
    texts = " ".join([f"{name} {entry.text} {entry.about}" for name, entry in entries.items()])
    return set(re.findall(r"[a-z]{4,}", texts.lower()))


def entries_of(kind: str) -> dict[str, Entry]:
    """All entries of a kind, by name."""
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
        return {name: _describe_task(with_parents(config), folders[name]) for name, config in configs_of(group).items()}
    rooms = model_rooms() if kind == "models" else {}
    return {
        name: Entry(config["description"], rooms.get(str(config.get("_target_", "")).rpartition(".")[2], ""))
        for name, config in configs_of(group).items()
    }


def _describe_task(config: Mapping[str, Any], family: str) -> Entry:
    card, layout = config.get("card") or {}, config.get("layout") or {}
    access = str(card.get("access", ""))
    way = "open" if access.startswith("open") else next((level for level in ACCESS if level in access), "")
    about = (
        f"{config.get('title', '')} {card.get('modality', '')} {layout.get('modality', '')} {card.get('source', '')}"
    )
    return Entry(card.get("description") or config.get("description", ""), family, about, way)


def model_rooms() -> dict[str, str]:
    """Room of each model class, from the models' public interface."""
    stub = (files("medimg_eval.models") / "__init__.pyi").read_text(encoding="utf-8")
    parts = re.findall(r"from \.(\w+)[\w.]* import (\([^)]*\)|[^\n]*)", stub)
    return {name: room for room, names in parts for name in re.findall(r"as (\w+)", names)}


def published_systems() -> dict[str, dict[str, Any]]:
    """Published systems with description, commands and status.

    Each name has `modalities`, `what`, `status`, `commands`, and where there is something to say `evidence` and
    `lacks`.
    """
    text = (files("medimg_eval.configs") / "systems.yaml").read_text(encoding="utf-8")
    return {str(name): system for name, system in yaml.safe_load(text).items()}
