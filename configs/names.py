"""The short names of configs that lie in folders: `slake` names `task/vqa/slake.yaml`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable

from medimg_eval.errors import UsageError

CONFIGS = "pkg://medimg_eval.configs"

IN_FOLDERS = ("task",)
"""Groups whose configs may lie in folders and still go by their own names; folders mean nothing else."""


def paths_of(root: Traversable, group: str) -> list[str]:
    """The configs of a group below a root, each as `task=PATH` names it; reads names of files alone."""
    return sorted(_below(root / group, "", deep=group in IN_FOLDERS))


def plugin_places() -> list[str]:
    """Where installed plug-ins have their configs, as Hydra names packages."""
    return sorted(f"pkg://{entry.value}" for entry in entry_points(group="medimg_eval.configs"))


def file_of(group: str, name: str) -> Traversable | None:
    """The config of exactly this name, of ours or else of an installed plug-in; None where there is none."""
    ours = files(CONFIGS.partition("://")[2]) / group / f"{name}.yaml"
    if ours.is_file():
        return ours
    theirs = (files(place.partition("://")[2]) / group / f"{name}.yaml" for place in plugin_places())
    return next((file for file in theirs if file.is_file()), None)


@cache
def catalogued(group: str = "task") -> frozenset[str]:
    """The names of our own configs of a group."""
    return frozenset(path.rpartition("/")[2] for path in paths_of(files(CONFIGS.partition("://")[2]), group))


def _below(folder: Traversable, prefix: str, *, deep: bool) -> list[str]:
    found: list[str] = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name.endswith(".yaml"):
            found.append(prefix + entry.name.removesuffix(".yaml"))
        elif deep and not entry.name.startswith((".", "__")):
            found += _below(entry, f"{prefix}{entry.name}/", deep=True)
    return found


def shortest_names(paths: Sequence[str]) -> dict[str, str]:
    """The name that is enough for each config -> its path: its own name, or its path where two share that."""
    own = {path: path.rpartition("/")[2] for path in paths}
    shared = Counter(own.values())
    return {(own[path] if shared[own[path]] == 1 else path): path for path in paths}


def path_meant(group: str, name: str, paths: Sequence[str]) -> str | None:
    """The path that is the name, or else the one that ends in it; None where there is none.

    Raises:
        UsageError: several end in it.
    """
    if name in paths:
        return name
    meant = [path for path in paths if path.endswith(f"/{name}")]
    if len(meant) > 1:
        raise UsageError(f"there are several {group}s {name!r}; say which: {', '.join(f'{group}={p}' for p in meant)}")
    return meant[0] if meant else None
