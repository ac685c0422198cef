"""Annotators: models that read reports, for metrics to compare what they read.

A metric of reports that needs a model is told in two parts: an annotator, which is a model and loads weights, and a
function below it, which is arithmetic on what the annotator returned. Metrics name the annotators that they need
(`reads=("chexbert",)`); `configs/annotator/chexbert.yaml` says which class that is and where its weights are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from medimg_eval.evidence import Kind, TextPair
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.models.hub import WithWeights


class Annotator(WithWeights, ABC):
    """Base of text and pair annotators; their errors concern a batch."""

    @property
    def revision(self) -> str:
        """Identity of the weights in signatures: their names, with what identifies the files."""
        return ", ".join(self.called(need) for need in self.needs)


class TextAnnotator(Annotator):
    """Reads single texts: labels, entities and relations, structured findings."""

    kind: ClassVar[Kind] = "annotation"

    def observe(self, subjects: Sequence[Any], shared: Any) -> Sequence[Any]:
        """Readings of each text."""
        return self.annotate(subjects)

    @abstractmethod
    def annotate(self, texts: Sequence[str]) -> Sequence[Any]:
        """Reads a batch of texts.

        Args:
            texts: reports, which may be empty.

        Returns:
            What it read in each, in order, as JSON holds it.
        """


class PairAnnotator(Annotator):
    """Compares reports with references where similarities are too large to keep."""

    uses_corpus: ClassVar[bool] = False
    """Whether what it returns depends on the whole set of references, such as on how many of them have a word."""

    kind: ClassVar[Kind] = "comparison"

    def observe(self, subjects: Sequence[Any], shared: Any) -> Sequence[Any]:
        """Findings of each pair, among the references of the set."""
        return self.compare(subjects, getattr(shared, "corpus", shared))

    @abstractmethod
    def compare(self, pairs: Sequence[TextPair], corpus: Corpus) -> Sequence[Any]:
        """Returns what it found of each pair, in order, as JSON holds it.

        Texts may be empty; `corpus` has all references of the set, whatever part of it is in the batch.
        """
