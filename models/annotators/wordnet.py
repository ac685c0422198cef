"""METEOR with synonyms, from the WordNet that a user has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from medimg_eval.evidence import TextPair
from medimg_eval.metrics.nlp import WORDNET_FILES, Corpus, WordNet, words
from medimg_eval.metrics.text import meteor_of
from medimg_eval.models.annotators.base import PairAnnotator
from medimg_eval.models.hub import Weights

_DATABASE = Weights(
    argument="folder",
    what="the files of WordNet's database (index.noun, data.noun, noun.exc and so on)",
    source="wordnet.princeton.edu, NLTK's data (corpora/wordnet) or Debian's package wordnet-base",
    licence="WordNet's, which allows any use",
    files=WORDNET_FILES,
    on_hub=False,
)


class WordNetMeteor(PairAnnotator):
    """METEOR of two texts, with the synonyms of a WordNet.

    Args:
        folder: with WordNet's database, such as `nltk_data/corpora/wordnet`.
        preferred_batch: pairs at once.
    """

    needs: ClassVar[Sequence[Weights]] = (_DATABASE,)
    file_arguments: ClassVar[tuple[str, ...]] = ("folder",)

    def __init__(self, folder: str | None = None, preferred_batch: int = 32) -> None:
        self.folder, self.preferred_batch = folder, preferred_batch

    def compare(self, pairs: Sequence[TextPair], corpus: Corpus) -> list[dict[str, Any]]:
        """Returns `meteor` of each pair; raises UserError where the files are not WordNet's."""
        find = self._database.synonyms
        return [{"meteor": meteor_of(words(pair.prediction), words(pair.reference), synonyms=find)} for pair in pairs]

    @cached_property
    def _database(self) -> WordNet:
        return WordNet(self.find(_DATABASE))
