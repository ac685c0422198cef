"""Annotators: models that read reports, for metrics to compare what they read.

A metric of reports that needs a model is told in two parts: an annotator, which is a model and loads weights, and a
function below it, which is arithmetic on what the annotator returned. Metrics name the annotators that they need
(`reads=("chexbert",)`); `configs/annotator/chexbert.yaml` says which class that is and where its weights are.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from medimg_eval.errors import UserError
from medimg_eval.metrics._corpus import Corpus
from medimg_eval.models.base import Model


class TextPair(NamedTuple):
    """A report and what a model wrote in its place."""

    reference: str
    prediction: str


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


class Annotator(Model, ABC):
    """What `TextAnnotator` and `PairAnnotator` share.

    Attributes:
        name: what metrics call it; set by whoever makes it.
        preferred_batch: texts or pairs that it likes to be given at once.
        needs: the weights that must come from the user.
    """

    name: str = ""
    preferred_batch: int = 32
    needs: ClassVar[Sequence[Weights]] = ()
    file_arguments: ClassVar[tuple[str, ...]] = ("weights",)
    pace_arguments: ClassVar[tuple[str, ...]] = ("device", "preferred_batch")

    def check_ready(self) -> None:
        """Raises UserError when weights are not there, within a second and without loading any."""
        for one in self.needs:
            located(getattr(self, one.argument), one, self.name)

    @property
    def revision(self) -> str:
        """What signatures say of the weights: their names, with what identifies the files."""
        return ", ".join(_called(getattr(self, one.argument), one, self.name) for one in self.needs)


class TextAnnotator(Annotator):
    """Reads single texts: labels, entities and relations, structured findings."""

    @abstractmethod
    def annotate(self, texts: Sequence[str]) -> Sequence[Any]:
        """Reads a batch of texts.

        Args:
            texts: reports, which may be empty.

        Returns:
            What it read in each, in order, as JSON holds it.

        Raises:
            Exception: whatever it raises is recorded against the reports of the batch.
        """


class PairAnnotator(Annotator):
    """Compares a report with its reference: similarities that are too large to keep, such as of embeddings."""

    uses_corpus: ClassVar[bool] = False
    """Whether what it returns depends on the whole set of references, such as on how many of them have a word."""

    @abstractmethod
    def compare(self, pairs: Sequence[TextPair], corpus: Corpus) -> Sequence[Any]:
        """Compares a batch of pairs.

        Args:
            pairs: texts, which may be empty.
            corpus: all references of the set, whatever part of it is in the batch.

        Returns:
            What it found of each pair, in order, as JSON holds it.

        Raises:
            Exception: whatever it raises is recorded against the reports of the batch.
        """


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


def _called(given: str | None, weights: Weights, metric: str) -> str:
    path = located(given, weights, metric)
    snapshot = next((parent.name for parent in (path, *path.parents) if parent.parent.name == "snapshots"), "")
    if snapshot:
        return f"{hub_name(given or '').repository}@{snapshot[:8]}"
    return path.name
