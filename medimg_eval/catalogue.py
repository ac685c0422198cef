"""The configs of a group, from every place that Hydra looks in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from medimg_eval.configs.names import CONFIGS, path_meant, paths_of, plugin_places, shortest_names
from medimg_eval.data.former_names import found_now
from medimg_eval.errors import LIST, UsageError, UserError, invalid

MODALITIES = {
    "ct": r"ct",
    "mri": r"mri?",
    "xray": r"x-?rays?|radiographs?|dx|cr",
    "ultrasound": r"ultrasound|us",
    "pet": r"pet|pt",
    "pathology": r"(histo|patho)\w*|sm|slides?|microscopy",
    "endoscopy": r"\w*endoscopy|colonoscopy|es",
    "fundus": r"fundus|retina\w*",
    "oct": r"oct|opt",
    "dermoscopy": r"dermoscopy|dermatology|skin",
    "text": r"text|none",
}
"""What may be said for a modality -> how cards, DICOM and descriptions call it."""

_places: ContextVar[Sequence[str] | None] = ContextVar("places", default=None)

# The parser in C, where PyYAML was built with it: there are a hundred files to read.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def configs_of(group: str) -> dict[str, dict[str, Any]]:
    """Configs of a group by shortest name, from Hydra's search path."""
    configs: dict[str, dict[str, Any]] = {}
    for root in _iterate_roots():
        for name, path in sorted(shortest_names(paths_of(root, group)).items()):
            if name not in configs:
                configs[name] = _read_config(root / group / f"{path}.yaml")
    return configs


def config_named(group: str, name: str) -> dict[str, Any]:
    """The config that a name means on the command line.

    Raises:
        UsageError: there is none, or several.
    """
    names: list[str] = []
    for root in _iterate_roots():
        paths = paths_of(root, group)
        path = path_meant(group, name, paths)
        if path is not None:
            return _read_config(root / group / f"{path}.yaml")
        names += shortest_names(paths)
    raise UsageError(invalid(group, name, names, f"{LIST} {group}s", like=name.rpartition("/")[2]))


def with_parents(config: Mapping[str, Any], group: str = "task") -> dict[str, Any]:
    """Config merged with its `defaults`: protocols and parent tasks."""
    config_: dict[str, Any] = {}
    for default in config.get("defaults") or []:
        for package_, name in {group: default}.items() if isinstance(default, str) else default.items():
            above, _, package = str(package_).strip("/").partition("@")
            if name != "_self_" and package in ("", "_here_"):
                config_ = merged(config_, with_parents(config_named(above, name), above))
    return merged(config_, config)


def merged(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Config with values set under keys; mappings are merged."""
    inner = {key: held for key in settings if isinstance(held := config.get(key), Mapping)}
    both = {
        key: merged(inner[key], value) if isinstance(value, Mapping) and key in inner else value
        for key, value in settings.items()
    }
    return {**config, **both}


def families(group: str) -> dict[str, str]:
    """Config name -> its folder, such as `vqa`."""
    titles: dict[str, str] = {}
    for root in _iterate_roots():
        for name, path in shortest_names(paths_of(root, group)).items():
            titles.setdefault(name, path.rpartition("/")[0])
    return titles


class TaskFacts(NamedTuple):
    """Attributes that lists sort tasks by.

    Attributes:
        family: folder of the catalogue, such as `vqa`; of other tasks what their class is called; "" if unknown.
        modalities: keys of `MODALITIES`, in their order.
    """

    family: str
    modalities: tuple[str, ...]


def task_facts(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, TaskFacts]:
    """Family and modalities of tasks, by name and stored config."""
    folders = families("task")
    facts = {}
    for task, config in configs.items():
        target = str(config.get("_target_") or "").rpartition(".")[2].removesuffix("Task").lower()
        family = folders.get(task, target).partition("/")[0]
        card, layout = (config.get(key) or {} for key in ("card", "layout"))
        stated = f"{card.get('modality') or ''} {layout.get('modality') or ''}"
        text = f"{task.replace('_', ' ')} {config.get('title') or ''} {card.get('description') or ''}"
        modalities = _find_modalities(stated) or _find_modalities(text, stated=False)
        facts[task] = TaskFacts(target if family == "quickstart" else family, modalities)
    return facts


def _find_modalities(text: str, *, stated: bool = True) -> tuple[str, ...]:
    """Modalities named in a text; in long texts, codes are words."""
    codes = []
    for name, pattern in MODALITIES.items():
        words = re.findall(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
        if any(stated or (name != "text" and (len(word) > 2 or word in ("CT", "MR"))) for word in words):
            codes.append(name)
    return tuple(codes)


@contextmanager
def searching(places: Sequence[str]) -> Iterator[None]:
    """Searches for configs in given places, in order.

    Packages as `pkg://NAME`, folders as `file://PATH`.
    """
    before = _places.set(places)
    try:
        yield
    finally:
        _places.reset(before)


def usual_places(folders: Sequence[str | Path] = ()) -> list[str]:
    """Our configs, those of installed plug-ins, and folders."""
    return [CONFIGS, *plugin_places(), *(f"file://{Path(folder).absolute()}" for folder in folders)]


def _iterate_roots() -> Iterator[Traversable]:
    searched = _places.get()
    for folder in usual_places() if searched is None else searched:
        schema, _, path = folder.partition("://")
        yield files(path) if schema == "pkg" else Path(path)


@cache
def spelled_arguments(target: str) -> tuple[frozenset[str], frozenset[str]]:
    """Arguments that our configs of a class spell out: any, all.

    These stand in the ids of stored runs, be they the default or not.
    """
    root = files(CONFIGS.partition("://")[2])
    names: list[frozenset[str]] = []
    for path in paths_of(root, "model"):
        file = root / "model" / f"{path}.yaml"
        if target.rpartition(".")[2] in file.read_text(encoding="utf-8"):
            config = found_now(_read_config(file))
            if config.get("_target_") == target:
                names.append(frozenset(config) - {"name", "description", "_target_"})
    return (frozenset().union(*names), names[0].intersection(*names)) if names else (frozenset(), frozenset())


def _read_config(file: Traversable) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8")
    with UserError.about(file, "cannot be read as YAML", Exception):
        loaded = yaml.load(text, Loader=_LOADER)  # noqa: S506 - it is a safe one
    comment = next((line for line in text.splitlines() if line.startswith("# description:")), "")
    config = {"description": comment.removeprefix("# description:").strip()}
    return config | ({str(key): value for key, value in loaded.items()} if isinstance(loaded, dict) else {})
