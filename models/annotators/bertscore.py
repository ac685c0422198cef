"""BERTScore: compares the token embeddings of a report and its reference, from any encoder that transformers loads."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError, UserError
from medimg_eval.evidence import TextPair
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.metrics.reports import BertScores, Rarity, bertscore_of, rarity
from medimg_eval.models.annotators.base import PairAnnotator
from medimg_eval.models.hub import Weights
from medimg_eval.models.text_encoders import loaded, pretrained, quiet

PARTS = BertScores._fields

PREFIXED = ("longformer", "roberta")
"""Types of models whose tokenizers tell a word at the beginning of a text from one after a blank, unless told."""

FILES = (
    *("config.json", "model.safetensors|pytorch_model.bin"),
    *("tokenizer.json|vocab.txt|vocab.json", "tokenizer_config.json|config.json"),
)
"""Files of an encoder's repository; some have no `tokenizer_config.json` and need none."""

LONGEST = 100_000
"""Tokenizers that do not know what their model reads say a number far above this."""


class Tokens(NamedTuple):
    """A text as a model reads it.

    Attributes:
        ids: of its tokens, with the special ones.
        cut: whether the text goes on.
    """

    ids: tuple[int, ...]
    cut: bool


class BertScore(PairAnnotator):
    """BERTScore by bert-score's rules (Zhang et al. 2020).

    Texts are read one at a time, so that a score does not depend on what is beside it. A text that is longer than the
    model reads is cut at its end, and told.

    Args:
        weights: folder or repository of the hub with an encoder and its tokenizer.
        layer: whose output is compared, counted from 1; layers above it are not loaded.
        idf: weighs tokens by how few references of the whole set have them; without it all count alike, and the special
            tokens not at all.
        baseline: what `precision`, `recall` and `f1` are rescaled by, x -> (x - b) / (1 - b); None for no rescaling.
        collapse_blanks: takes several blanks for one first, as CXR-Report-Metric does.

    Raises:
        UsageError: an invalid baseline or layer.
    """

    preferred_batch = 16
    needs: ClassVar[Sequence[Weights]] = (
        Weights(
            "weights",
            "an encoder with its tokenizer (config.json, weights, tokenizer), such as roberta-large",
            "the model hub",
            "of the encoder; see its page",
            FILES,
        ),
    )

    def __init__(
        self,
        weights: str | None = None,
        layer: int = 17,
        *,
        idf: bool = False,
        baseline: Mapping[str, float] | None = None,
        collapse_blanks: bool = False,
        device: str = "auto",
    ) -> None:
        if layer < 1:
            raise UsageError(f"annotator.layer is {layer}; expected at least 1")
        settings = dict(baseline or {})
        if settings and (set(settings) != set(PARTS) or not all(float(value) < 1 for value in settings.values())):
            raise UsageError(f"annotator.baseline is {settings}; expected precision, recall and f1, each below 1")
        self.weights, self.layer, self.idf = weights, layer, idf
        self.baseline = BertScores(**{part: float(settings[part]) for part in PARTS}) if settings else None
        self.collapse_blanks, self.device = collapse_blanks, device
        self.uses_corpus = idf  # type: ignore[misc]  # what it depends on is decided by the setting

    @property
    def revision(self) -> str:
        """Identity in signatures: the weights, and the choices that move the numbers."""
        weighed = "idf of all references" if self.idf else "no idf"
        scale = "not rescaled" if self.baseline is None else f"rescaled by {self.baseline.f1:g}"
        return f"{super().revision} (layer {self.layer}, {weighed}, {scale})"

    def compare(self, pairs: Sequence[TextPair], corpus: Corpus) -> list[dict[str, Any]]:
        """Compares pairs, one at a time: `precision`, `recall` and `f1` of each.

        They are None where the reference leaves nothing to judge by; `cut` says that a text is longer than the model
        reads.

        Raises:
            UserError: the encoder cannot be loaded.
        """
        return [self._compared(pair, corpus) for pair in pairs]

    def _compared(self, pair: TextPair, corpus: Corpus) -> dict[str, Any]:
        due, predicted = (self._encoder.tokens(self._clean(text)) for text in pair)
        weigh = self._weights_of(corpus)
        embedded = self._encoder.embed(due), self._encoder.embed(predicted)
        scores = bertscore_of(*embedded, weigh(due.ids), weigh(predicted.ids), self.baseline)
        reading: dict[str, Any] = {
            part: None if math.isnan(score) else score for part, score in zip(PARTS, scores, strict=True)
        }
        return reading | ({"cut": True} if due.cut or predicted.cut else {})

    def _clean(self, text: str) -> str:
        return re.sub(" +", " ", text) if self.collapse_blanks else text

    def _weights_of(self, corpus: Corpus) -> Callable[[Sequence[int]], npt.NDArray[np.float64]]:
        """Returns what weighs the tokens of a text."""
        if not self.idf:
            special = self._encoder.special
            return lambda ids: np.array([token not in special for token in ids], dtype=float)

        def count() -> Rarity:
            references = [self._clean(reference_text) for several in corpus.references for reference_text in several]
            return rarity(self._encoder.tokens(reference).ids for reference in references)

        return corpus.once((type(self), self.weights, self.collapse_blanks), count).of

    @cached_property
    def _encoder(self) -> _Encoder:
        return _Encoder(self.find(self.needs[0]), self.layer, self.on)


class _Encoder:
    """The lower layers of an encoder, with its tokenizer."""

    def __init__(self, folder: Path, layer: int, device: str) -> None:
        config = pretrained("AutoConfig", folder, "encoder")
        self.tokenizer = pretrained("AutoTokenizer", folder, "encoder")
        if layer > config.num_hidden_layers:
            raise UserError(f"annotator.layer is {layer}, and {folder} has {config.num_hidden_layers} layers")
        self.model = _lower_layers(folder, config, layer).to(device)
        self.device = device
        self.prefix = " " if config.model_type in PREFIXED else ""
        self.longest = int(self.tokenizer.model_max_length)
        if self.longest > LONGEST:
            self.longest = int(config.max_position_embeddings)
        self.special = frozenset(self.tokenizer("")["input_ids"])

    def tokens(self, text: str) -> Tokens:
        text = text.strip()
        text = self.prefix + text if text else text
        ids = self.tokenizer(text, verbose=False)["input_ids"]
        if len(ids) <= self.longest:
            return Tokens(tuple(ids), cut=False)
        return Tokens(tuple(self.tokenizer(text, truncation=True, max_length=self.longest)["input_ids"]), cut=True)

    def embed(self, tokens: Tokens) -> npt.NDArray[np.float32]:
        import torch

        ids = torch.tensor([tokens.ids], device=self.device)
        with torch.inference_mode():
            hidden = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        embedded: npt.NDArray[np.float32] = hidden.float().cpu().numpy()
        return embedded


def _lower_layers(folder: Path, config: Any, layer: int) -> Any:
    import torch

    config.num_hidden_layers = layer
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layer]
    with quiet():  # it would list the layers that are left out
        return loaded("AutoModel", folder, config=config, dtype=torch.float32).eval()
