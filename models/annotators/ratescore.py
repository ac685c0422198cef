"""RaTEScore's models: one finds entities in reports, the other says how similar their names are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from medimg_eval.errors import UserError
from medimg_eval.evidence import TextPair
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.metrics.reports import TYPES, sentences, top_matches
from medimg_eval.models.annotators.base import PairAnnotator
from medimg_eval.models.hub import Weights
from medimg_eval.models.text_encoders import NameVectors, encoded, loaded, tokenizer_of

LONGEST = 512
"""Tokens that are read of a sentence."""

SHORTEST = 3
"""Characters of the shortest sentence that is read, as in the authors' code."""

LONGEST_NAME = 30
"""Tokens that are read of an entity's name."""

TOGETHER = 64
"""Sentences that are read at once."""

_ENTITIES = Weights.of_encoder("weights", "Angelakeke/RaTE-NER-Deberta", "see the model card; the metric's code is MIT")
_NAMES = Weights.of_encoder(
    "names", "FremyCompany/BioLORD-2023-C", "see the model card: its terms include those of UMLS and SNOMED CT"
)


class Entity(NamedTuple):
    """Entity that a report names, as the tokenizer spells it, and its type."""

    name: str
    kind: str


def entities_of(tokens: Sequence[str], labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """Returns entities of token labels: start, end, type in lower case.

    Each token has a label: `O`, or `B-` or `I-` with a type. `B-TYPE` begins an entity, and `I-` of any type goes on
    with it; an `I-` that follows none is left out, as RaTEScore's code does. Tokens that the tokenizer adds are not
    given.
    """
    entities: list[tuple[int, int, str]] = []
    start, kind = None, ""
    for index, label in enumerate([*labels, "O"][: len(tokens) + 1]):
        if start is not None and not label.startswith("I-"):
            entities.append((start, index, kind))
            start = None
        if label.startswith("B-"):
            start, kind = index, label[2:].lower()
    return entities


class RaTEScore(PairAnnotator):
    """RaTEScore: entities of two reports, each matched with the most similar.

    Sentences are those of `medimg_eval.metrics.reports.sentences`, where the authors' code takes medspacy's; texts
    are not cut, unless a sentence is longer than 512 tokens. A pair is read by itself, so that an empty report cannot
    shift the others.

    Args:
        weights: the entity model: a folder, or a repository in the hub's cache.
        names: the model of medical names, likewise.
    """

    needs: ClassVar[Sequence[Weights]] = (_ENTITIES, _NAMES)
    file_arguments: ClassVar[tuple[str, ...]] = ("weights", "names")

    def __init__(
        self,
        weights: str | None = "Angelakeke/RaTE-NER-Deberta",
        names: str | None = "FremyCompany/BioLORD-2023-C",
        device: str = "auto",
        preferred_batch: int = 32,
    ) -> None:
        self.weights, self.names = weights, names
        self.device, self.preferred_batch = device, preferred_batch

    def compare(self, pairs: Sequence[TextPair], corpus: Corpus) -> list[dict[str, Any]]:
        """Matches the entities of pairs.

        Returns:
            For each pair `reference` and `prediction`: (type, type of the match, cosine) of each entity, none where
            the other report has no entities; `entities`: how many each has; `cut` where a sentence was too long.

        Raises:
            UserError: the weights cannot be used.
        """
        split = {
            text: [sentence for sentence in sentences(text) if len(sentence) >= SHORTEST]
            for pair in pairs
            for text in pair
        }
        read = self._read(list(dict.fromkeys(sentence for some in split.values() for sentence in some)))
        compared = []
        for pair in pairs:
            reference_entities, predicted_entities = (
                [entity for sentence in split[text] for entity in read[sentence][0]] for text in pair
            )
            reference_vectors, predicted_vectors = (
                self._vectors.of([entity.name for entity in some]) for some in (reference_entities, predicted_entities)
            )
            cosines = (
                reference_vectors @ predicted_vectors.T
                if reference_entities and predicted_entities
                else np.zeros((0, 0))
            )
            kinds, other_kinds = ([entity.kind for entity in some] for some in (reference_entities, predicted_entities))
            comparison: dict[str, Any] = {
                "reference": [list(match) for match in top_matches(kinds, other_kinds, cosines)],
                "prediction": [list(match) for match in top_matches(other_kinds, kinds, cosines.T)],
                "entities": [len(reference_entities), len(predicted_entities)],
            }
            if any(read[sentence][1] for text in pair for sentence in split[text]):
                comparison["cut"] = True
            compared.append(comparison)
        return compared

    def _read(self, texts: Sequence[str]) -> dict[str, tuple[list[Entity], bool]]:
        """Entities by sentence, and whether it was cut."""
        import torch

        entities_by_text: dict[str, tuple[list[Entity], bool]] = {}
        ordered = sorted(texts, key=len)
        for start in range(0, len(ordered), TOGETHER):
            some = ordered[start : start + TOGETHER]
            tokenizer, network, names = self._finder
            inputs, cut = encoded(tokenizer, some, LONGEST, network.device)
            with torch.inference_mode():
                best = network(**inputs).logits.argmax(-1).tolist()
            marks = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
            for text, numbers, labels, long in zip(some, inputs["input_ids"].tolist(), best, cut, strict=True):
                words = [(number, label) for number, label in zip(numbers, labels, strict=True) if number not in marks]
                tokens = tokenizer.convert_ids_to_tokens([number for number, _ in words])
                spans = entities_of(tokens, [names[label] for _, label in words])
                spelt = [
                    Entity(tokenizer.convert_tokens_to_string(tokens[first:last]).strip(), kind)
                    for first, last, kind in spans
                ]
                entities_by_text[text] = [entity for entity in spelt if entity.name], long
        return entities_by_text

    @cached_property
    def _finder(self) -> tuple[Any, Any, dict[int, str]]:
        """Tokenizer, network, and the label of each output."""
        folder = self.find(_ENTITIES)
        network = loaded("AutoModelForTokenClassification", folder).to(self.on).eval()
        labels = {int(number): str(label) for number, label in network.config.id2label.items()}
        strange = sorted({label for label in labels.values() if label != "O" and label[2:].lower() not in TYPES})
        if strange:
            raise UserError(
                f"{folder}: its model labels {strange[0]!r}, expected O, and B- and I- of {', '.join(TYPES)}"
            )
        return tokenizer_of(folder), network, labels

    @cached_property
    def _vectors(self) -> NameVectors:
        return NameVectors(self.find(_NAMES), self.device, LONGEST_NAME)
