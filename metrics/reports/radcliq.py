"""RadCliQ: four scores of a report as one.

`bleu_2` and `radcliq_of` are arithmetic on intermediate results; annotators provide these
(`configs/annotator/bertscore_radcliq.yaml`, `radgraph.yaml`, `chexbert_similarity.yaml`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, comparisons, metric, read_by, summary
from medimg_eval.metrics.reports.radgraph import YU, radgraph_combined
from medimg_eval.metrics.reports.token_matching import WORST_RADCLIQ
from medimg_eval.metrics.text import Words, overlap, read_part, texts_of


class _Line(NamedTuple):
    """A linear function of standardised [radgraph_combined, BERTScore, chexbert_similarity, BLEU-2]."""

    means: tuple[float, float, float, float]
    scales: tuple[float, float, float, float]
    slopes: tuple[float, float, float, float]
    intercept: float

    def at(self, *values: float) -> float:
        terms = zip(self.slopes, values, self.means, self.scales, strict=True)
        return self.intercept + math.fsum(slope * (value - mean) / scale for slope, value, mean, scale in terms)


_RADCLIQ = {
    "v0": _Line(
        means=(0.5398376019082272, 0.6312549595000001, 0.7716797866672277, 0.4607372064809605),
        scales=(0.3018344440559102, 0.22466950746141123, 0.24750333805236252, 0.30336670936092264),
        slopes=(-0.4796252644863446, -0.6762170542369337, -0.46366575161751994, 0.2165861905287535),
        intercept=1.641666666666666,
    ),
    "v1": _Line(
        means=(0.5379231241355762, 0.6175725628125001, 0.7647942121140658, 0.44738335396242174),
        scales=(0.3028258411486429, 0.22430938459304575, 0.2539439110169773, 0.2989271671041838),
        slopes=(-0.37708368261038905, -0.37030009974480316, -0.25261621789593225, 4.315048405024756e-12),
        intercept=2.466552561323256e-10,
    ),
}
"""The numbers in the authors' files (MIT licence), read from them without loading them."""


def radcliq_of(
    version: Literal["v0", "v1"],
    *,
    radgraph_combined: float,
    bertscore: float,
    chexbert_similarity: float,
    bleu_2: float,
) -> float:
    """Returns RadCliQ: a radiologist's expected error count, from four scores.

    A line fitted to radiologists' counts, on scores that are standardised by means and deviations of the authors' data.
    It is no count: it may be negative. In v1 BLEU has a slope of 4e-12, none in effect; in v0 a positive one, so that
    more words in common make a report worse.

    Args:
        version: `v0` or `v1`.
        radgraph_combined: as `report_graphs.radgraph_combined` returns it, in [0, 1].
        bertscore: F1 of distilroberta-base, layer 5, rescaled; at most 1.
        chexbert_similarity: cosine of CheXbert's embeddings, in [-1, 1].
        bleu_2: as `bleu_2` returns it, in [0, 1].

    Returns:
        Lower is better. Of identical texts -1.4407 in v1 and -0.2421 in v0; where RadGraph finds no relation in them,
        -0.8181 and 0.5524.

    Raises:
        UsageError: no such version.
    """
    if version not in _RADCLIQ:
        raise UsageError(f"Expected version to be v0 or v1, got {version!r}")
    return _RADCLIQ[version].at(radgraph_combined, bertscore, chexbert_similarity, bleu_2)


def bleu_2(reference: str, prediction: str) -> float:
    """Returns BLEU-2 as CXR-Report-Metric with fast-bleu, for RadCliQ.

    Words between blanks, in lower case, with full stops apart; no bigram in common counts as 0.1 of one (smoothing
    method 1 of Chen and Cherry 2014), no word in common gives 0.

    Returns:
        In [0, 1].
    """
    due, predicted = _split_words(reference), _split_words(prediction)
    shared = overlap(predicted, due, 1)
    if not shared:
        return 0.0
    pairs = overlap(predicted, due, 2) or 0.1
    mean = math.sqrt(shared / len(predicted) * pairs / max(1, len(predicted) - 1))
    return mean * math.exp(min(0.0, 1 - len(due) / len(predicted)))


def _split_words(text: str) -> Words:
    return tuple(word for word in text.lower().replace(".", " .").split(" ") if word)


_NEEDS = (*read_by("radgraph"), *comparisons("bertscore_radcliq", "chexbert_similarity"))
_SETTINGS = "RadGraph combined, case kept; BERTScore of distilroberta-base with idf of all references, rescaled"

_line = partial(metric, kind="answer", higher_is_better=False, source=YU, requires=_NEEDS)


def _radcliq_value(pair: AnsweredQuestion, version: Literal["v0", "v1"]) -> float:
    texts = texts_of(pair)
    if texts is None:
        return math.nan
    read = pair.read("radgraph")
    if read is None or pair.read("chexbert_similarity") is None:
        return math.nan
    return radcliq_of(
        version,
        radgraph_combined=radgraph_combined(read.reference, read.prediction),
        bertscore=read_part(pair, "bertscore_radcliq", "f1"),
        chexbert_similarity=read_part(pair, "chexbert_similarity", "cosine"),
        bleu_2=max(bleu_2(reference, texts[0]) for reference in texts[1]),
    )


@_line(
    title="RadCliQ-v0",
    best=_RADCLIQ["v0"].at(1.0, 1.0, 1.0, 1.0),
    worst=_RADCLIQ["v0"].at(0.0, WORST_RADCLIQ, 0.0, 0.0),
    settings=f"{_SETTINGS}; BLEU-2 of lower-case words, smoothed",
)
def radcliq_v0(pair: AnsweredQuestion) -> float:
    """RadCliQ-v0: a line through RadGraph, BERTScore, CheXbert similarity and BLEU-2, fitted to radiologists' errors.

    Lower is better and it may be negative: -0.2421 for an identical text with a relation in its graph. BLEU-2 has a
    positive slope. The worst value is that of an answer with nothing in common with the reference in any part.
    """
    return _radcliq_value(pair, "v0")


@_line(
    title="RadCliQ-v1",
    best=_RADCLIQ["v1"].at(1.0, 1.0, 1.0, 1.0),
    worst=_RADCLIQ["v1"].at(0.0, WORST_RADCLIQ, 0.0, 0.0),
    settings=_SETTINGS,
)
def radcliq_v1(pair: AnsweredQuestion) -> float:
    """RadCliQ-v1: a line through RadGraph, BERTScore and CheXbert similarity, fitted to radiologists' errors.

    Lower is better and it may be negative: -1.4407 for an identical text with a relation in its graph, -0.8181 for one
    without. The worst value is that of an answer with nothing in common with the reference in any part.
    """
    return _radcliq_value(pair, "v1")


def _inverse_pieces(rows: ScoreTable) -> npt.NDArray[np.float64]:
    """Contribution of each row: its value, and one."""
    judged = ~np.isnan(rows.value)
    return np.column_stack([np.where(judged, rows.value, 0.0), judged.astype(float)])


@summary(
    needs=("radcliq_v1",),
    title="1/RadCliQ-v1",
    higher_is_better=True,
    best=math.inf,
    source="ReXrank; RadEval",
    settings="1 over the mean of reports",
    pieces=_inverse_pieces,
)
def inverse_radcliq_v1(sums: Any) -> Any:
    """One over the mean of `radcliq_v1`, as ReXrank and RadEval print it.

    It serves comparison with them alone: it has a pole where the mean is 0 and would rank better sets last below it, so
    it is NaN where the mean is not above 0.
    """
    total, count = sums[..., 0], sums[..., 1]
    return quotient(count, total)
