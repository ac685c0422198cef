"""Metrics of counts, two of which rest on what other models say; and one of answers, which asks a judge."""

from typing import Any, NamedTuple

from medimg_eval.evidence import Requirement
from medimg_eval.metrics import metric


class CountPair(NamedTuple):
    """A count by hand and one by a model, and what providers said of them."""

    reference: Any
    prediction: Any
    said: Any


@metric(kind="cell count", title="Count error", higher_is_better=False, best=0.0, worst=1.0, source="acme")
def count_error(pair: CountPair) -> float:
    """The error of the count over the count by hand, at most 1."""
    return min(1.0, abs(pair.prediction.cells - pair.reference.cells) / max(1, pair.reference.cells))


@metric(
    kind="cell count",
    title="Remark agrees",
    higher_is_better=True,
    best=1.0,
    worst=0.0,
    source="acme",
    requires=(Requirement("annotation", "number_words"),),
)
def remark_agrees(pair: CountPair) -> float:
    """Whether remark and note name the same number."""
    reference, prediction = pair.said("number_words", "reference"), pair.said("number_words", "remark")
    return float(reference["number"] == prediction["number"])


@metric(
    kind="cell count",
    title="Grey",
    higher_is_better=None,
    best=0.0,
    worst=0.0,
    source="acme",
    requires=(Requirement("features", "mean_grey"),),
)
def field_grey(pair: CountPair) -> float:
    """How bright the field is that was counted in."""
    return float(pair.said("mean_grey", "picture")[0])


@metric(
    kind="answer",
    title="Polite",
    higher_is_better=True,
    best=1.0,
    worst=0.0,
    source="acme",
    requires=(Requirement("verdict", "judge", "acme_polite"),),
)
def polite(pair: Any) -> float:
    """Whether a judge finds an answer polite."""
    return pair.verdict("acme_polite")
