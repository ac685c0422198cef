"""MediHall: kinds of hallucinations that a judge finds in an answer, as Med-HallMark tells them apart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from medimg_eval.errors import UsageError, invalid
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.judges.verdicts import replies_in, verdict_reader, worth
from medimg_eval.metrics.registry import judge_says

KINDS = ("catastrophic", "critical", "attribute", "prompt_induced", "minor", "correct")
"""From the worst to none, as the data set numbers them from 0."""

_NAMED = re.compile(
    r"\b(?:(catastrophic|critical|attribute|minor)|(?:confusion\s+)?(prompt)[\s-]*induced)\s+hallucinations?\b"
    r"|\b(correct)\s+statements?\b",
    re.IGNORECASE,
)


def medihall_values(given: str) -> dict[str, float]:
    """Returns points by kind of a text "0/1/2/3/4/5"; UsageError unless six numbers."""
    try:
        values = [float(number) for number in given.split("/")]
    except ValueError:
        values = []
    if len(values) != len(KINDS) or not all(map(math.isfinite, values)):
        raise UsageError(
            f"medihall@{given}: expected what each of the six kinds is worth, {'/'.join(KINDS)}, as numbers with "
            "slashes between them; 0/0.2/0.4/0.6/0.8/1 are those of CoMT (Jiang et al., arXiv 2406.11451)"
        )
    return dict(zip(KINDS, values, strict=True))


def medihall_score(kinds: Sequence[str | None], values: Mapping[str, float]) -> float:
    """Returns MediHall: mean points of an answer's sentences.

    Points follow from a sentence's kind of hallucination.

    Args:
        kinds: by sentence, one of `KINDS`; None where the judge's reply names none.
        values: the points of each kind.

    Returns:
        NaN where a sentence is not judged, and without any.
    """
    if not kinds or None in kinds:
        return math.nan
    return math.fsum(values[str(kind)] for kind in kinds) / len(kinds)


def hallucination_share(kinds: Sequence[str | None], kind: str) -> float:
    """Returns the share of an answer's sentences of a kind; NaN if none, or unjudged."""
    UsageError.refuse_invalid("kind of hallucination", KINDS, kind)
    return medihall_score(kinds, {name: float(name == kind) for name in KINDS})


@verdict_reader("hallucination")
def read_hallucination(reply: str) -> str | None:
    """Returns the kind of hallucination that a reply names last; None where it names none."""
    matches = list(_NAMED.finditer(reply))
    if not matches:
        return None
    name = next(group for group in matches[-1].groups() if group).lower()
    return "prompt_induced" if name == "prompt" else name


_medihall = partial(answer_share, source="Chen et al. 2024, Med-HallMark", requires=judge_says("medihall"))


def _hallucination_kinds(verdict: Any) -> list[str | None]:
    return replies_in(verdict) if isinstance(verdict, Mapping) else [verdict]


@_medihall(
    title="MediHall",
    best=math.nan,
    worst=math.nan,
    parameter="what each kind is worth, such as 0/1/2/3/4/5 for " + "/".join(KINDS),
    parameter_is_text=True,
)
def medihall(pair: AnsweredQuestion, values: str) -> float:
    """The mean over an answer's sentences of what their kinds of hallucination are worth, by a judge.

    The parameter gives the six values, with slashes between them, from the worst kind to correct statements. NaN where
    a sentence is not judged, and without any.
    """
    by_kind = medihall_values(values)
    return worth(pair, "medihall", lambda found: medihall_score(_hallucination_kinds(found), by_kind))


@_medihall(
    title="Hallucinations",
    higher_is_better=False,
    best=0.0,
    worst=math.nan,
    parameter=", ".join(KINDS[:-1]),
    parameter_is_text=True,
    value_kind="bounded",
)
def hallucinations(pair: AnsweredQuestion, kind: str) -> float:
    """The share of an answer's sentences that are a hallucination of one of Med-HallMark's kinds, by a judge.

    NaN where a sentence is not judged, and without any.
    """
    if kind not in KINDS[:-1]:
        raise UsageError(invalid("kind of hallucinations", kind, KINDS[:-1]))
    return worth(pair, "medihall", lambda found: hallucination_share(_hallucination_kinds(found), kind))


@_medihall(title="Sentences without hallucination")
def hallucination_free(pair: AnsweredQuestion) -> float:
    """The share of an answer's sentences that are correct statements, by a judge.

    NaN where a sentence is not judged, and without any.
    """
    return worth(pair, "medihall", lambda found: hallucination_share(_hallucination_kinds(found), "correct"))
