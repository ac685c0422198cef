"""Configs that stand in run folders: what they name is looked at before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from medimg_eval.models.base import Model
from medimg_eval.tasks.base import Task
from medimg_eval.trust import require_trust

OWN = "medimg_eval"
PLUGINS = ("medimg_eval.configs", "medimg_eval.metrics")
"""Groups of entry points; whoever has installed a package with one of them trusts it."""

PARTS = ("cases", "reference", "files", "read_frames", "videos")
"""What layouts, targets, splits and files of frames are known by: these protocols have no common class."""

RUNS_CODE = ("_args_", "allow_pickle", "trust_remote_code")
"""Keys by which a class of ours may run what it finds; what stands under `_args_` has no name to be known by."""


METRICS = ("metrics", "monitor")
"""Keys of names of metrics, whose module is imported where they are named with it."""


def require_ours(config: Any, source: Path) -> None:
    """Refuses configs naming classes outside this package.

    Ours are the classes that this package defines, and those of installed packages with our entry points. A module or
    function that is reached through one of them is not. The config is that of a task or a layout, as the manifest
    `source` has it, with classes called as they are now. Raises UserError where it names something else, or refers to
    other values (`${...}`), and the folder is not trusted.
    """
    require_trust(source, _find_strangers(config, "task_config"))


def _find_strangers(config: Any, place: str) -> Iterator[str]:
    """Foreign classes in a config, with their positions."""
    if isinstance(config, Mapping):
        if "_target_" in config and not _is_ours(config["_target_"]):
            yield f"{config['_target_']} ({place}._target_)"
        for key, value in config.items():
            if key in RUNS_CODE and value:
                yield f"{key}={value!r} ({place})"
            if key in METRICS:
                yield from (f"{name} ({place}.{key})" for name in _own_metrics(value))
            yield from _find_strangers(value, f"{place}.{key}")
    elif isinstance(config, list | tuple):
        for number, value in enumerate(config):
            yield from _find_strangers(value, f"{place}.{number}")
    elif isinstance(config, str) and "${" in config:
        yield f"{config} ({place})"


def _own_metrics(names: Any) -> list[str]:
    """Names of metrics in modules outside package and plug-ins."""
    several = names if isinstance(names, list | tuple) else [names]
    bases = [name.partition("@")[0] for name in several if isinstance(name, str)]
    return [base for base in bases if "." in base and base.partition(".")[0] not in _trusted_roots()]


def _trusted_roots() -> set[str]:
    return {OWN, *(entry.module.partition(".")[0] for group in PLUGINS for entry in entry_points(group=group))}


def _is_ours(target: Any) -> bool:
    from hydra.utils import get_object  # as instantiate looks it up

    from medimg_eval.data.many import nnunet_task  # the layouts, which it is of, import this

    roots = _trusted_roots()
    names = target.split(".") if isinstance(target, str) else [""]
    if names[0] not in roots or any(name.startswith("_") for name in names):
        return False
    try:
        target_object = get_object(target)
    except Exception:  # noqa: BLE001 - what cannot be found is not ours
        return False
    if not isinstance(target_object, type):
        return target_object is nnunet_task  # the one function that makes a task
    is_known = issubclass(target_object, Task | Model) or any(
        callable(getattr(target_object, part, None)) for part in PARTS
    )
    return is_known and target_object.__module__.partition(".")[0] in roots
