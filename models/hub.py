"""Weights that users hold: where they come from, where they lie; and the base of models that need some for metrics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from medimg_eval.errors import UserError
from medimg_eval.models.base import Model
from medimg_eval.models.providers import Missing
from medimg_eval.models.text_encoders import device_of


@dataclass(frozen=True)
class Weights:
    """Weights that users must provide, with facts for messages.

    Attributes:
        argument: the constructor argument that names it.
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

    @classmethod
    def of_encoder(cls, argument: str, repository: str, licence: str) -> Weights:
        """Weights of a transformer: all files of a repository of the model hub."""
        files = ("config.json", "model.safetensors|pytorch_model.bin")
        return cls(argument, f"{repository}, all its files", f"{repository} on the Hugging Face hub", licence, files)

    def find(self, given: str | None, who: str, role: str = "annotator") -> Path:
        """Finds local weights: file, folder, or hub `owner/name[@revision][:file]`.

        The hub is not asked: what is not in its cache here is missing, so that this takes no time. `given` is the
        setting, `who` needs the weights, and `role` is what that is: `annotator` or `extractor`. A model has no name
        here, and is set by `model.`.

        Raises:
            UserError: it is not there; the message says what, where it is had, on which terms, and which key names it.
        """
        searched = "none is named"
        if given:
            searched = f"{given!r} is neither a path nor in the model hub's cache"
            path = Path(given).expanduser()
            if path.exists():
                missing = (
                    next((file for file in self.files if not _holds_any(path, file)), None) if path.is_dir() else None
                )
                if missing is None:
                    return path
                searched = f"the folder {given} holds no {missing.replace('|', ' or ')}"
            elif (cached_ := _in_hub_cache(given, self)) is not None:
                return cached_
        key = f"{role}s.{who}.{self.argument}" if who else f"model.{self.argument}"
        fetched = ""
        if self.on_hub and given:
            by = f"python -m medimg_eval download {role}={who}" if who else f"hf download {hub_name(given).repository}"
            fetched = f"fetch them by `{by}`, or "
        cached = ", or HF_HOME to a cache that has them" if self.on_hub else ""
        named = f"{role} {who!r}" if who else "the model"
        raise UserError(
            f"{named} lacks its weights: {self.what} ({searched}); they are had from {self.source} "
            f"(licence: {self.licence}); {fetched}set {key}=PATH{cached}"
        )


class HubName(NamedTuple):
    """Repository, revision and file on the hub; "" for defaults."""

    repository: str
    revision: str
    file: str


def hub_name(given: str) -> HubName:
    """Takes `owner/name[@revision][:file]` apart."""
    remaining, _, file = given.partition(":")
    repository, _, revision = remaining.partition("@")
    return HubName(repository, revision, file)


class WithWeights(Model):
    """Base of annotators and extractors that need the user's weights.

    Attributes:
        role: what it is in settings and messages.
        name: what metrics call it; set by whoever makes it.
        needs: the weights that must come from the user.
        preferred_batch: texts, pairs or pictures that it likes to be given at once.
        device: of torch; `auto` takes a GPU where there is one.
    """

    role: ClassVar[str] = "annotator"
    name: str = ""
    needs: ClassVar[Sequence[Weights]] = ()
    preferred_batch: int = 32
    device: str = "auto"
    file_arguments: ClassVar[tuple[str, ...]] = ("weights",)
    pace_arguments: ClassVar[tuple[str, ...]] = ("device", "preferred_batch")

    def check_ready(self) -> None:
        """Raises UserError for missing weights, within a second, loading none."""
        for need in self.needs:
            self.find(need)

    remote: bool = False
    cached: bool = True
    abilities: frozenset[str] = frozenset()

    def missing(self) -> Sequence[Missing]:
        """Missing weights with their settings, else `check_ready`'s message."""
        lacks = []
        for need in self.needs:
            try:
                self.find(need)
            except UserError as error:
                lacks.append(Missing(f"{self.role}s.{self.name}.{need.argument}", str(error)))
        if not lacks:
            try:
                self.check_ready()
            except UserError as error:
                lacks.append(Missing(f"{self.role}s.{self.name}", str(error)))
        return lacks

    @property
    def who(self) -> str:
        """Name in messages."""
        return f"{self.role} {self.name!r}" if self.name else "the model"

    def setting(self, argument: str) -> str:
        """Key that sets an argument; models are named without prefix."""
        return f"{self.role}s.{self.name}.{argument}" if self.name else f"model.{argument}"

    def find(self, weights: Weights) -> Path:
        """Local file or folder of weights; raises UserError as `Weights.find`."""
        return weights.find(getattr(self, weights.argument), self.name, self.role)

    def filled(self, network: Any, weights: Weights, file: str = "", prefix: str = "") -> Any:
        """Network with the weights below `prefix`, on the device; UserError where they differ."""
        from medimg_eval.models.networks import load_weights

        load_weights(network, self.find(weights) / file, prefix)
        return network.eval().requires_grad_(requires_grad=False).to(self.on)

    def called(self, weights: Weights) -> str:
        """Identity of weights: hub repository and commit, or file name."""
        path = self.find(weights)
        snapshot = next((folder.name for folder in (path, *path.parents) if folder.parent.name == "snapshots"), "")
        weights_name = str(getattr(self, weights.argument))
        return f"{hub_name(weights_name).repository}@{snapshot[:8]}" if snapshot else path.name

    @property
    def on(self) -> str:
        """Device of a setting; "auto" takes a GPU where there is one."""
        return device_of(self.device)


def _holds_any(folder: Path, wanted: str) -> bool:
    return any((folder / name).exists() for name in wanted.split("|"))


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
                cached = try_to_load_from_cache(name.repository, file, revision=name.revision or None)
            except HFValidationError:  # no name that a repository could have
                return None
            if isinstance(cached, str):
                break
        else:
            return None
        path = Path(cached) if name.file else Path(cached).parents[len(Path(file).parts) - 1]
    return path
