"""BERTScore's arithmetic: greedy matches of token embeddings, and how rare tokens are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError

Floats = npt.NDArray[np.floating]


class BertScores(NamedTuple):
    """BERTScore of a pair, or what each is rescaled by."""

    precision: float
    recall: float
    f1: float


class Rarity(NamedTuple):
    """How rare tokens are in a set of texts.

    Attributes:
        weights: token -> log((texts + 1) / (texts that have it + 1)).
        unseen: the weight of a token that no text has: log(texts + 1).
    """

    weights: Mapping[Hashable, float]
    unseen: float

    def of(self, tokens: Sequence[Hashable]) -> npt.NDArray[np.float64]:
        """Returns the weights (token,) of a text's tokens."""
        return np.array([self.weights.get(token, self.unseen) for token in tokens], dtype=float)


def rarity(texts: Iterable[Iterable[Hashable]]) -> Rarity:
    """Returns how rare tokens are in texts, as bert-score weighs them: by how many texts have each.

    Args:
        texts: the tokens of each text, with the special ones: what all texts have weighs 0.
    """
    found = [set(text) for text in texts]
    having = Counter(token for text in found for token in text)
    total = len(found) + 1
    return Rarity({token: math.log(total / (count + 1)) for token, count in having.items()}, math.log(total))


def bertscore_of(
    reference: Floats,
    prediction: Floats,
    reference_weights: Floats | Sequence[float],
    prediction_weights: Floats | Sequence[float],
    baseline: BertScores | None = None,
) -> BertScores:
    """Returns BERTScore of two texts from the embeddings of their tokens.

    Precision is the mean over the prediction's tokens of the largest cosine with a token of the reference, recall the
    same the other way, each weighted; F1 is their harmonic mean (Zhang et al. 2020). Tokens of weight 0, such as the
    special ones, still may be what others match.

    Args:
        reference: (token, feature), float.
        prediction: (token, feature), float.
        reference_weights: (token,), each at least 0.
        prediction_weights: (token,), each at least 0.
        baseline: b of the rescaling x -> (x - b) / (1 - b); None for none.

    Returns:
        Each at most 1, 1 for identical texts; before rescaling at least -1. A prediction whose tokens all weigh 0, such
        as an empty one, says nothing and has 0 before rescaling. A reference of this kind leaves nothing to judge by:
        NaN. Where precision or recall is not above 0, which trained encoders hardly give, F1 is 0: the harmonic mean
        has no bound there.

    Raises:
        UsageError: shapes that do not fit, or a weight below 0.
    """
    due, said = np.asarray(reference_weights, dtype=float), np.asarray(prediction_weights, dtype=float)
    if (len(reference), len(prediction)) != (due.size, said.size) or reference.shape[1:] != prediction.shape[1:]:
        raise UsageError(
            f"Expected embeddings (token, feature) and a weight for each token, got {reference.shape} with {due.size} "
            f"weights and {prediction.shape} with {said.size}"
        )
    if (due < 0).any() or (said < 0).any():
        raise UsageError(f"Expected weights of at least 0, got {min(due.min(), said.min()):g}")
    if not due.sum() > 0:
        return BertScores(math.nan, math.nan, math.nan)
    raw = BertScores(0.0, 0.0, 0.0)
    if said.sum() > 0:
        cosines = _units(prediction) @ _units(reference).T
        precision = float(cosines.max(axis=1) @ said / said.sum())
        recall = float(cosines.max(axis=0) @ due / due.sum())
        f1 = 2 * precision * recall / (precision + recall) if min(precision, recall) > 0 else 0.0
        raw = BertScores(precision, recall, f1)
    return raw if baseline is None else rescaled(raw, baseline)


def rescaled(scores: BertScores, baseline: BertScores) -> BertScores:
    """Returns scores as (x - b) / (1 - b), which leaves 1 where it is and makes b 0."""
    return BertScores(*((score - base) / (1 - base) for score, base in zip(scores, baseline, strict=True)))


def _units(vectors: Floats) -> npt.NDArray[np.float64]:
    wide = vectors.astype(float)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0))
