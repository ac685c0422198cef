"""Weights that users hold: where they come from, where they lie."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from medimg_eval.errors import UserError


@dataclass(frozen=True)
class Weights:
    """What must come from the user, and all that a message about it has to say.

    Attributes:
        argument: the annotator's constructor argument that names it.
        what: the exact file, or what the folder holds.
        source: where it is had.
        licence: a note on its licence.
        files: of a folder, or a repository of the model hub: the files that must be there; of several joined by "|"
            one.
        on_hub: whether the model hub has it, so that `download` can fetch it.
    """

    argument: str
    what: str
    source: str
    licence: str
    files: tuple[str, ...] = ("config.json",)
    on_hub: bool = True


def located(given: str | None, weights: Weights, metric: str) -> Path:
    """Finds weights on this machine: a file or folder, or a repository `owner/name[@revision][:file]` of the hub.

    The hub is not asked: what is not in its cache here is missing, so that this takes no time, with a network or not.

    Args:
        given: the setting; None or "" for none.
        weights: what is looked for.
        metric: who needs it, for the message.

    Returns:
        The file or folder.

    Raises:
        UserError: it is not there; the message says what, where it is had, on which terms, and which key names it.
    """
    looked = "none is named"
    if given:
        looked = f"{given!r} is neither a path nor in the model hub's cache"
        path = Path(given).expanduser()
        if path.exists():
            lost = next((one for one in weights.files if not _holds(path, one)), None) if path.is_dir() else None
            if lost is None:
                return path
            looked = f"the folder {given} holds no {lost.replace('|', ' or ')}"
        elif (found := _in_hub_cache(given, weights)) is not None:
            return found
    key = f"annotators.{metric}.{weights.argument}"
    fetch = f"fetch them by `python -m medimg_eval download annotator={metric}`, or set" if weights.on_hub else "set"
    cached = ", or HF_HOME to a cache that has them" if weights.on_hub else ""
    raise UserError(
        f"annotator {metric!r} lacks its weights: {weights.what} ({looked}); they are had from {weights.source} "
        f"(licence: {weights.licence}); {fetch} {key}=PATH{cached}"
    )


class HubName(NamedTuple):
    """A repository of the model hub, a revision of it, and a file in it; "" for the default one, and for none."""

    repository: str
    revision: str
    file: str


def hub_name(given: str) -> HubName:
    """Takes `owner/name[@revision][:file]` apart."""
    rest, _, file = given.partition(":")
    repository, _, revision = rest.partition("@")
    return HubName(repository, revision, file)


def _holds(folder: Path, wanted: str) -> bool:
    return any((folder / one).exists() for one in wanted.split("|"))


def _in_hub_cache(given: str, weights: Weights) -> Path | None:
    name = hub_name(given)
    if name.repository.count("/") > 1 or given.startswith((".", os.sep, "~")):
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    path = None
    for wanted in (name.file,) if name.file else weights.files:
        for file in wanted.split("|"):
            try:
                found = try_to_load_from_cache(name.repository, file, revision=name.revision or None)
            except HFValidationError:  # no name that a repository could have
                return None
            if isinstance(found, str):
                break
        else:
            return None
        path = Path(found) if name.file else Path(found).parents[len(Path(file).parts) - 1]
    return path
