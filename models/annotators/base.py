"""Annotators: models that read reports, for metrics to compare what they read.

A metric of reports that needs a model is told in two parts: an annotator, which is a model and loads weights, and a
function below it, which is arithmetic on what the annotator returned. Metrics name the annotators that they need
(`reads=("chexbert",)`); `configs/annotator/chexbert.yaml` says which class that is and where its weights are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from medimg_eval.metrics.nlp import Corpus
from medimg_eval.models.base import Model
from medimg_eval.models.hub import Weights, hub_name, located


class TextPair(NamedTuple):
    """A report and what a model wrote in its place."""

    reference: str
    prediction: str


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


def _called(given: str | None, weights: Weights, metric: str) -> str:
    path = located(given, weights, metric)
    snapshot = next((parent.name for parent in (path, *path.parents) if parent.parent.name == "snapshots"), "")
    if snapshot:
        return f"{hub_name(given or '').repository}@{snapshot[:8]}"
    return path.name
