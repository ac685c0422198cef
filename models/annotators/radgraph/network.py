"""RadGraph's network: words embedded by a transformer, spans of them labelled, pairs of spans related.

The architecture is DyGIE++'s (Wadden et al. 2019) without its propagation over coreferences and relations, which
RadGraph does not use. One text is computed at a time, so that nothing depends on what is beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from medimg_eval.errors import UserError
from medimg_eval.models.annotators.radgraph.archive import NER, RELATIONS, Archive

ENCODER = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
CHUNK = 4096
"""Spans that are scored at once."""


class Graph(NamedTuple):
    """Graph that the network finds in a text.

    Attributes:
        entities: (first word, last word, label), by first and then last word.
        relations: (first and last word of one span, of the other, type), by place of the one and then the other.
    """

    entities: list[tuple[int, int, str]]
    relations: list[tuple[tuple[int, int], tuple[int, int], str]]


class Network:
    """The network of an archive.

    Args:
        archive: its weights and settings.
        config: of the encoder, as transformers loads it.
        tokenizer: of the encoder.
        dataset: whose heads are taken where there are several.

    Raises:
        UserError: an archive of another architecture, or an encoder that does not fit it.
    """

    def __init__(self, archive: Archive, config: Any, tokenizer: Any, dataset: str, device: str) -> None:
        settings = archive.settings["model"]
        if settings["modules"].get("coref", {}).get("coref_prop", 0):
            raise UserError("the archive's config.json has coref_prop above 0, which RadGraph models do not have")
        self.tokenizer = tokenizer
        self.device = device
        self.most_words = int(settings["max_span_width"])
        self.most_pieces = settings["embedder"]["token_embedders"]["bert"].get("max_length")
        self.spans_per_word = float(settings["modules"]["relation"]["spans_per_word"])
        ner, related = archive.head(NER, dataset), archive.head(RELATIONS, dataset)
        self.labels, self.kinds = archive.labels[ner], archive.labels[related]
        self.encoder = _load_encoder(config, archive.tensors).to(device)
        self.tensors = {
            name: tensor.to(device) for name, tensor in archive.tensors.items() if not name.startswith(ENCODER)
        }
        self.widths = self.tensors["_endpoint_span_extractor._span_width_embedding.weight"]
        self.ner = (f"_ner._ner_scorers.{ner}.0._module.", f"_ner._ner_scorers.{ner}.1._module.")
        pruner = f"_relation._mention_pruners.{related}._scorer."
        self.mention = (f"{pruner}0._module.", f"{pruner}1._module.")
        self.pair = (f"_relation._relation_feedforwards.{related}.", f"_relation._relation_scorers.{related}.")
        self.before, self.after = _special_tokens(tokenizer)

    @torch.inference_mode()
    def read(self, words: Sequence[str]) -> Graph:
        """Returns the entities and relations in a text of at least one word."""
        embedded = self._embed(words)
        spans = torch.tensor(
            [
                (first, last)
                for first in range(len(words))
                for last in range(first, min(first + self.most_words, len(words)))
            ],
            device=self.device,
        )
        scores, mentions = [], []
        for part in torch.split(spans, CHUNK):
            vectors = self._spans(embedded, part)
            scores.append(self._score(vectors, self.ner))
            mentions.append(self._score(vectors, self.mention)[:, 0])
        chosen = _with_null(torch.cat(scores)).argmax(dim=1).tolist()
        entities = [
            (first, last, self.labels[label])
            for (first, last), label in zip(spans.tolist(), chosen, strict=True)
            if label
        ]
        return Graph(entities, self._relate(embedded, spans, torch.cat(mentions), len(words)))

    def _relate(
        self, embedded: Tensor, spans: Tensor, mentions: Tensor, words: int
    ) -> list[tuple[tuple[int, int], tuple[int, int], str]]:
        """Relates the spans with the highest mention scores, pairwise."""
        kept_count = min(int(torch.ceil(torch.tensor(float(words)) * self.spans_per_word)), len(spans))
        indices = mentions.topk(kept_count).indices.sort().values
        vectors, mentions, spans = self._spans(embedded, spans[indices]), mentions[indices], spans[indices]
        names = [(first, last) for first, last in spans.tolist()]
        relations = []
        for index, vector in enumerate(vectors):  # a row of the table at a time: all of it would not fit in memory
            head_vectors = vector.expand_as(vectors)
            scores = self._score(torch.cat([head_vectors, vectors, head_vectors * vectors], dim=1), self.pair)
            scores = scores + (mentions[index] + mentions)[:, None]
            for other_index, kind in enumerate(_with_null(scores).argmax(dim=1).tolist()):
                if kind:
                    relations.append((names[index], names[other_index], self.kinds[kind - 1]))
        return relations

    def _spans(self, embedded: Tensor, spans: Tensor) -> Tensor:
        first, last = spans.unbind(dim=1)
        return torch.cat([embedded[first], embedded[last], self.widths[last - first]], dim=1)

    def _score(self, vectors: Tensor, names: tuple[str, str]) -> Tensor:
        """Applies a head: linear layers with ReLU, and a last one without."""
        layer = 0
        while (weight := self.tensors.get(f"{names[0]}_linear_layers.{layer}.weight")) is not None:
            bias = self.tensors[f"{names[0]}_linear_layers.{layer}.bias"]
            vectors = functional.relu(functional.linear(vectors, weight, bias))
            layer += 1
        return functional.linear(vectors, self.tensors[f"{names[1]}weight"], self.tensors[f"{names[1]}bias"])

    def _embed(self, words: Sequence[str]) -> Tensor:
        """Returns word embeddings (word, feature): means of their pieces, else 0.

        What is longer than the encoder reads is embedded part by part, each between the special tokens.
        """
        split = [self._pieces(word) for word in words]
        pieces = [piece for of_word in split for piece in of_word]
        most = len(pieces) if self.most_pieces is None else self.most_pieces - len(self.before) - len(self.after)
        parts = [pieces[start : start + most] for start in range(0, len(pieces), max(1, most))]
        hidden = [self._hidden(part) for part in parts]
        width = self.widths.new_zeros(self.encoder.config.hidden_size)
        embedded = torch.cat(hidden) if hidden else width[None, :0]
        means, start = [], 0
        for of_word in split:
            means.append(embedded[start : start + len(of_word)].mean(dim=0) if of_word else width)
            start += len(of_word)
        return torch.stack(means)

    def _pieces(self, word: str) -> list[int]:
        plain = word[1:] if word in ("/.", "/?") else word
        ids: list[int] = self.tokenizer(plain, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _hidden(self, pieces: Sequence[int]) -> Tensor:
        ids = torch.tensor([[*self.before, *pieces, *self.after]], device=self.device)
        output: Tensor = self.encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        return output[len(self.before) : len(self.before) + len(pieces)]


def _with_null(scores: Tensor) -> Tensor:
    """Prepends the null class, whose score is 0."""
    return torch.cat([scores.new_zeros(len(scores), 1), scores], dim=1)


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Returns the special tokens that stand before and after a text."""
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed = tokenizer("a")["input_ids"]
    start = next(position for position in range(len(framed)) if framed[position : position + len(plain)] == plain)
    return framed[:start], framed[start + len(plain) :]


def _load_encoder(config: Any, tensors: Mapping[str, Tensor]) -> Any:
    from transformers import AutoModel

    make: Any = AutoModel.from_config
    encoder = make(config, dtype=torch.float32, trust_remote_code=False)
    stored = {name.removeprefix(ENCODER): tensor for name, tensor in tensors.items() if name.startswith(ENCODER)}
    try:
        missing = encoder.load_state_dict(stored, strict=False).missing_keys
    except RuntimeError as error:
        raise UserError(
            f"the archive's weights do not fit its encoder ({str(error).splitlines()[-1].strip()})"
        ) from None
    lacking = [name for name in missing if not name.startswith("pooler.")]
    if lacking:
        raise UserError(
            f"the archive's weights lack {len(lacking)} tensors of its encoder, such as {lacking[0]!r}; set encoder to "
            "the model that it was trained from"
        )
    return encoder.eval()
