"""BERTScore: greedy matches of token embeddings, and how rare tokens are.

The arithmetic is on embeddings that annotators provide (`configs/annotator/bertscore*.yaml`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.registry import comparisons, metric
from medimg_eval.metrics.reports.radgraph import YU
from medimg_eval.metrics.text import read_part

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
    """Returns inverse document frequencies of tokens, as bert-score.

    Args:
        texts: the tokens of each text, with the special ones: what all texts have weighs 0.
    """
    word_sets = [set(text) for text in texts]
    having = Counter(token for text in word_sets for token in text)
    total = len(word_sets) + 1
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
    due, predicted_weights = np.asarray(reference_weights, dtype=float), np.asarray(prediction_weights, dtype=float)
    if (len(reference), len(prediction)) != (due.size, predicted_weights.size) or reference.shape[
        1:
    ] != prediction.shape[1:]:
        raise UsageError(
            f"Expected embeddings (token, feature) and a weight for each token, got {reference.shape} with {due.size} "
            f"weights and {prediction.shape} with {predicted_weights.size}"
        )
    if (due < 0).any() or (predicted_weights < 0).any():
        raise UsageError(f"Expected weights of at least 0, got {min(due.min(), predicted_weights.min()):g}")
    if not due.sum() > 0:
        return BertScores(math.nan, math.nan, math.nan)
    raw = BertScores(0.0, 0.0, 0.0)
    if predicted_weights.sum() > 0:
        cosines = _unit_vectors(prediction) @ _unit_vectors(reference).T
        precision = float(cosines.max(axis=1) @ predicted_weights / predicted_weights.sum())
        recall = float(cosines.max(axis=0) @ due / due.sum())
        f1 = 2 * precision * recall / (precision + recall) if min(precision, recall) > 0 else 0.0
        raw = BertScores(precision, recall, f1)
    return raw if baseline is None else rescaled(raw, baseline)


def rescaled(scores: BertScores, baseline: BertScores) -> BertScores:
    """Returns scores rescaled to (x - b) / (1 - b)."""
    return BertScores(*((score - base) / (1 - base) for score, base in zip(scores, baseline, strict=True)))


def _unit_vectors(vectors: Floats) -> npt.NDArray[np.float64]:
    wide = vectors.astype(float)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0))


DISTILROBERTA_5 = BertScores(0.84732, 0.84759504, 0.8473319)
DISTILBERT_5 = BertScores(0.6666034, 0.66660464, 0.66620487)
"""Baselines of bert-score 0.3.13 for English: distilroberta-base and distilbert-base-uncased, layer 5."""

WORST_RADCLIQ = rescaled(BertScores(0.0, 0.0, 0.0), DISTILROBERTA_5).f1
"""BERTScore of an empty report, as RadCliQ takes it."""

_ZHANG = "Zhang et al. 2020; bert-score"
_ROBERTA = "roberta-large, layer 17, no idf, not rescaled"

_bertscore = partial(metric, kind="answer", higher_is_better=True, best=1.0)
_roberta = partial(
    _bertscore, worst=0.0, source=_ZHANG, settings=f"{_ROBERTA}, mean of reports", requires=comparisons("bertscore")
)


@_roberta(title="BERTScore", settings=f"{_ROBERTA}, F1, mean of reports")
def bertscore(pair: AnsweredQuestion) -> float:
    """The F1 of the cosines between the tokens' embeddings of report and reference, each with the nearest.

    bert-score's default for English. Values crowd near 1, also of texts with nothing in common. 0 for an empty report.
    """
    return read_part(pair, "bertscore", "f1")


@_roberta(title="BERTScore precision")
def bertscore_precision(pair: AnsweredQuestion) -> float:
    """The mean over the report's tokens of the largest cosine with a token of the reference.

    The precision of `bertscore`. 0 for an empty report.
    """
    return read_part(pair, "bertscore", "precision")


@_roberta(title="BERTScore recall")
def bertscore_recall(pair: AnsweredQuestion) -> float:
    """The mean over the reference's tokens of the largest cosine with a token of the report.

    The recall of `bertscore`. 0 for an empty report.
    """
    return read_part(pair, "bertscore", "recall")


@_bertscore(
    title="BERTScore (RadEval)",
    worst=rescaled(BertScores(0.0, 0.0, 0.0), DISTILBERT_5).f1,
    source="Zhang et al. 2020; RadEval",
    settings="distilbert-base-uncased, layer 5, no idf, rescaled, F1, mean of reports",
    requires=comparisons("bertscore_radeval"),
)
def bertscore_radeval(pair: AnsweredQuestion) -> float:
    """BERTScore as RadEval prints it: of distilbert-base-uncased, rescaled so that unrelated texts have about 0.

    At most 1; -1.9958 for an empty report, which has 0 before rescaling.
    """
    return read_part(pair, "bertscore_radeval", "f1")


@_bertscore(
    title="BERTScore (RadCliQ)",
    worst=WORST_RADCLIQ,
    source=YU,
    settings="distilroberta-base, layer 5, idf of all references, rescaled, F1, mean of reports",
    requires=comparisons("bertscore_radcliq"),
)
def bertscore_radcliq(pair: AnsweredQuestion) -> float:
    """BERTScore that RadCliQ takes: of distilroberta-base, with tokens weighed by how few references have them.

    Rescaled, so that unrelated texts have about 0. At most 1; -5.5502 for an empty report. Not judged where the
    reference holds no token that another lacks, as in a set of one report.
    """
    return read_part(pair, "bertscore_radcliq", "f1")
