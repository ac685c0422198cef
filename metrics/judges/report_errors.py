"""Reports as a judge, another model, sees them: GREEN, CheXprompt, CRIMSON, corrections, hallucinations.

What a judge is asked stands in `configs/judging`, its replies are kept word for word, and every number below follows
from what its replies were read as by arithmetic that is public here. A reply that cannot be read is no verdict: the
metric is NaN there, the report is left out of the mean, and how many there were is printed. Where the authors of a
metric count such replies as the worst, that number has a name of its own, `..._as_published`. RadFact is in
`report_radfact`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.answers import ReplyPair
from medimg_eval.metrics.judges.accuracy import replies_in
from medimg_eval.metrics.judges.crimson_weights import crimson_errors, crimson_score, read_crimson
from medimg_eval.metrics.judges.green_counts import (
    CATEGORIES,
    SEVERITIES,
    Correction,
    Errors,
    GreenErrors,
    count_corrections,
    count_errors,
    green_score,
    read_chexprompt,
    read_corrections,
    read_green,
)
from medimg_eval.metrics.judges.hallucination_types import (
    KINDS,
    hallucination_share,
    medihall_score,
    medihall_values,
    read_hallucination,
)
from medimg_eval.metrics.judges.verdicts import verdict_reader, worth
from medimg_eval.metrics.registry import metric

__all__ = [
    "CATEGORIES",
    "KINDS",
    "SEVERITIES",
    "Correction",
    "Errors",
    "GreenErrors",
    "count_corrections",
    "count_errors",
    "crimson_errors",
    "crimson_score",
    "green_score",
    "hallucination_share",
    "medihall_score",
    "read_chexprompt",
    "read_corrections",
    "read_crimson",
    "read_green",
    "read_hallucination",
    "verdict_reader",
]

OSTMEIER = "Ostmeier et al. 2024, GREEN"
ZAMBRANO = "Zambrano Chaves et al. 2025, CheXprompt"
BAHAROON = "Baharoon et al. 2026, CRIMSON"
HUANG = "Huang et al. 2024, FineRadScore, which grades corrections and publishes no score"
CHEN = "Chen et al. 2024, Med-HallMark"

GREEN_SETTINGS = "GREEN's published prompt, first 300 words of each report"
CHEXPROMPT_SETTINGS = "CheXprompt's published instructions with three examples of our own"

_count = partial(
    metric, kind="answer", higher_is_better=False, best=0.0, worst=math.nan, unit="errors", parameter_is_text=True
)
_share = partial(metric, kind="answer", higher_is_better=True, best=1.0, worst=0.0)


def _green(pair: ReplyPair, question: str) -> float:
    return worth(pair, question, lambda found: green_score(found) if pair.text.strip() else 0.0)


@_share(title="GREEN", source=OSTMEIER, asks=("green",), settings=GREEN_SETTINGS)
def green(pair: ReplyPair) -> float:
    """The findings that match over those and the clinically significant errors, as GREEN's own model counts them.

    In [0, 1]; 0 where no finding matches, so also of an empty report. NaN where a reply cannot be read. Of chest
    radiographs alone. The judge must be a checkpoint of GREEN (model@judge=green); for others there is `green_prompt`.
    """
    return _green(pair, "green")


@_share(title="GREEN (unread as 0)", source=OSTMEIER, asks=("green",), settings=GREEN_SETTINGS)
def green_as_published(pair: ReplyPair) -> float:
    """GREEN with 0 for replies that cannot be read, which is how its authors' program has it.

    A reply that was cut off is then as bad as a bad report; `judge_failures` says how many there are. NaN where the
    judge was not asked.
    """
    if "green" in pair.judged and pair.judged["green"] is None:
        return 0.0 if pair.references else math.nan
    return _green(pair, "green")


@metric(
    kind="answer",
    title="GREEN matched findings",
    higher_is_better=True,
    best=math.nan,
    worst=0.0,
    unit="findings",
    source=OSTMEIER,
    asks=("green",),
    settings=GREEN_SETTINGS,
)
def green_matched(pair: ReplyPair) -> float:
    """The number of findings that both reports have, as GREEN's own model counts them."""
    return worth(pair, "green", lambda found: float(found["matched"]))


@_count(
    title="GREEN significant errors",
    source=OSTMEIER,
    asks=("green",),
    settings=GREEN_SETTINGS,
    parameter="a to f",
    parameter_optional=True,
)
def green_significant(pair: ReplyPair, category: str | None = None) -> float:
    """The number of clinically significant errors, as GREEN's own model counts them; @a to @f of one category.

    a: a finding that is not there; b: a finding left out; c: a wrong place; d: a wrong severity; e: a comparison that
    is not there; f: a comparison left out.
    """
    return worth(pair, "green", lambda found: count_errors(found, "significant", category))


@_count(
    title="GREEN insignificant errors",
    source=OSTMEIER,
    asks=("green",),
    settings=GREEN_SETTINGS,
    parameter="a to f",
    parameter_optional=True,
)
def green_insignificant(pair: ReplyPair, category: str | None = None) -> float:
    """The number of clinically insignificant errors, as GREEN's own model counts them; @a to @f of one category.

    Categories as in `green_significant`. They cost nothing in GREEN itself.
    """
    return worth(pair, "green", lambda found: count_errors(found, "insignificant", category))


@_share(title="GREEN's prompt, another judge", source=OSTMEIER, asks=("green_prompt",), settings=GREEN_SETTINGS)
def green_prompt(pair: ReplyPair) -> float:
    """The findings that match over those and the significant errors, as any judge counts them by GREEN's prompt.

    The same arithmetic as `green`, but not GREEN, whose own model was trained to count: the table names the judge.
    """
    return _green(pair, "green_prompt")


@_count(
    title="Significant errors by GREEN's prompt",
    source=OSTMEIER,
    asks=("green_prompt",),
    settings=GREEN_SETTINGS,
    parameter="a to f",
    parameter_optional=True,
)
def green_prompt_significant(pair: ReplyPair, category: str | None = None) -> float:
    """The number of clinically significant errors, as any judge counts them by GREEN's prompt; @a to @f of one kind.

    Categories as in `green_significant`.
    """
    return worth(pair, "green_prompt", lambda found: count_errors(found, "significant", category))


_chexprompt = partial(
    _count, source=ZAMBRANO, asks=("chexprompt",), settings=CHEXPROMPT_SETTINGS, parameter="A to F",
    parameter_optional=True,
)  # fmt: skip


@_chexprompt(title="CheXprompt errors")
def chexprompt_errors(pair: ReplyPair, category: str | None = None) -> float:
    """The number of errors in a report that a judge counts as CheXprompt asks for them; @A to @F of one kind.

    Of clinical significance and without; kinds as in `green_significant`. The authors ask GPT-4; the table names the
    judge.
    """
    return worth(pair, "chexprompt", lambda found: count_errors(found, "all", category))


@_chexprompt(title="CheXprompt significant errors")
def chexprompt_significant(pair: ReplyPair, category: str | None = None) -> float:
    """The number of clinically significant errors that a judge counts as CheXprompt asks; @A to @F of one kind.

    Kinds as in `green_significant`.
    """
    return worth(pair, "chexprompt", lambda found: count_errors(found, "significant", category))


@_chexprompt(title="CheXprompt insignificant errors")
def chexprompt_insignificant(pair: ReplyPair, category: str | None = None) -> float:
    """The number of clinically insignificant errors that a judge counts as CheXprompt asks; @A to @F of one kind.

    Kinds as in `green_significant`.
    """
    return worth(pair, "chexprompt", lambda found: count_errors(found, "insignificant", category))


_signed = partial(metric, kind="answer", higher_is_better=True, best=1.0, worst=-1.0, source=BAHAROON)


@_signed(title="CRIMSON", asks=("crimson",), settings="CRIMSON's published prompt without guidelines")
def crimson(pair: ReplyPair) -> float:
    """The weighed findings that are right less those that are invented, over those of the reference, in (-1, 1].

    As `crimson_score` says: 1 for a report with the same abnormal findings, also for none beside a normal reference; 0
    for a normal or empty report beside findings. The prompt is the one that CRIMSON's own model was trained on
    (model@judge=crimson); the table names the judge. Of chest radiographs alone.
    """
    return worth(pair, "crimson", crimson_score)


@_signed(title="CRIMSON (guided)", asks=("crimson_guided",), settings="CRIMSON's published prompt with guidelines")
def crimson_guided(pair: ReplyPair) -> float:
    """CRIMSON by a judge that is told the authors' guidelines on significance and attributes.

    For judges that were not trained for it, as the authors ask GPT. The same arithmetic as `crimson`.
    """
    return worth(pair, "crimson_guided", crimson_score)


@_count(
    title="CRIMSON errors",
    source=BAHAROON,
    asks=("crimson",),
    settings="CRIMSON's published prompt without guidelines",
    parameter="false, missing or attribute",
)
def crimson_error_count(pair: ReplyPair, kind: str) -> float:
    """The number of findings that are invented (@false), missed (@missing), or wrong in an attribute (@attribute)."""
    if kind not in ("false", "missing", "attribute"):
        raise UsageError(f"crimson_error_count@{kind}: expected false, missing or attribute")
    return worth(pair, "crimson", lambda found: crimson_errors(found, kind))  # type: ignore[arg-type]


@_count(
    title="Corrections",
    unit="corrections",
    source=HUANG,
    asks=("corrections",),
    settings="a prompt of our own in the manner of FineRadScore",
    parameter="emergent, urgent, actionable or not_actionable",
    parameter_optional=True,
)
def corrections(pair: ReplyPair, severity: str | None = None) -> float:
    """The number of corrections, line by line, that a report needs to say what its reference says, by a judge.

    @emergent, @urgent, @actionable and @not_actionable count those of one severity. FineRadScore publishes no way of
    making one number of them, and neither is one made here.
    """
    if severity is not None and severity not in SEVERITIES:
        raise UsageError(f"corrections@{severity}: there is no such severity{nearest(severity, SEVERITIES)}")
    return worth(pair, "corrections", lambda found: count_corrections(found, severity))


def _kinds(verdict: Any) -> list[str | None]:
    return replies_in(verdict) if isinstance(verdict, Mapping) else [verdict]


@metric(
    kind="answer",
    title="MediHall",
    higher_is_better=True,
    best=math.nan,
    worst=math.nan,
    source=CHEN,
    asks=("medihall",),
    parameter="what each kind is worth, such as 0/1/2/3/4/5 for " + "/".join(KINDS),
    parameter_is_text=True,
)
def medihall(pair: ReplyPair, values: str) -> float:
    """The mean over an answer's sentences of what their kinds of hallucination are worth, by a judge.

    The parameter gives the six values, with slashes between them, from the worst kind to correct statements: the
    published data do not hold them, and none are assumed. NaN where a sentence is not judged, and without any.
    """
    by_kind = medihall_values(values)
    return worth(pair, "medihall", lambda found: medihall_score(_kinds(found), by_kind))


@metric(
    kind="answer",
    title="Hallucinations",
    higher_is_better=False,
    best=0.0,
    worst=math.nan,
    source=CHEN,
    asks=("medihall",),
    parameter=", ".join(KINDS[:-1]),
    parameter_is_text=True,
)
def hallucinations(pair: ReplyPair, kind: str) -> float:
    """The share of an answer's sentences that are a hallucination of one of Med-HallMark's kinds, by a judge.

    NaN where a sentence is not judged, and without any.
    """
    if kind not in KINDS[:-1]:
        raise UsageError(f"hallucinations@{kind}: there is no such kind{nearest(kind, KINDS[:-1])}")
    return worth(pair, "medihall", lambda found: hallucination_share(_kinds(found), kind))


@_share(title="Sentences without hallucination", source=CHEN, asks=("medihall",))
def hallucination_free(pair: ReplyPair) -> float:
    """The share of an answer's sentences that are correct statements, by a judge.

    NaN where a sentence is not judged, and without any.
    """
    return worth(pair, "medihall", lambda found: hallucination_share(_kinds(found), "correct"))
