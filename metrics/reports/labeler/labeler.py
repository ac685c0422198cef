"""What an English chest X-ray report says, by our own rules: a labeller of 14 observations, and what it is built on.

The rules are called `rule_labeler` wherever a score comes from them. They are no copy of CheXpert's labeller and no
CheXbert: how far they agree with CheXbert on real reports is unknown until it is measured with CheXbert's weights.
They were written for X-ray reports of the chest in English; of other reports they say little.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from medimg_eval.metrics.nlp import is_english, late_pattern, lower, section_spans, sentence_spans
from medimg_eval.metrics.reports.labeler.findings import (
    ATELECTASIS,
    CONSOLIDATION,
    DEVICES,
    EDEMA,
    EFFUSION,
    ENLARGED,
    FRACTURE,
    HEART,
    LESION,
    NEGATIVE,
    NO_FINDING,
    OPACITY,
    PLEURA,
    PNEUMONIA,
    PNEUMOTHORAX,
    POSITIVE,
    UNCERTAIN,
)
from medimg_eval.metrics.reports.labeler.lengths import Measurement, measured
from medimg_eval.metrics.reports.labeler.sentence import Said, Sentence, side_of, trend_of
from medimg_eval.metrics.reports.labeler.sentence_findings import read, tell

OBSERVATIONS = (
    ENLARGED,
    HEART,
    OPACITY,
    LESION,
    EDEMA,
    CONSOLIDATION,
    PNEUMONIA,
    ATELECTASIS,
    PNEUMOTHORAX,
    EFFUSION,
    PLEURA,
    FRACTURE,
    DEVICES,
    NO_FINDING,
)
"""The 14 observations, spelled as CheXpert has them, in the order of CheXbert; join them by name, never by position."""

_ASIDE = ("indication", "comparison", "technique", "examination")
_SPEAKS_OF_IT = late_pattern(
    r"(?:it|they|these|this|both) (?:has|have|had|is|are|was|were|may|could|cannot|does|do)\b", re.IGNORECASE
)


class Mention(NamedTuple):
    """One thing that a report says of an observation.

    Attributes:
        finding: one of `OBSERVATIONS`, never "No Finding".
        status: 1 present, 2 absent, 3 in doubt.
        side: "left", "right", "bilateral", or "" where none is said.
        start: where the words lie in the text: the first letter.
        end: the letter behind the last.
        trend: "new", "improved", "worse", "unchanged", "resolved", or "" where nothing is said.
    """

    finding: str
    status: int
    side: str
    start: int
    end: int
    trend: str


def label_report(text: str) -> dict[str, int]:
    """Labels a report by our rules: status of 14 observations.

    Returns the status of every observation by name: 0 not mentioned, 1 positive, 2 negative, 3 uncertain, and for
    "No Finding" 0 or 1, as CheXbert writes them. Several mentions of an observation are put together by `combined`.
    Indication, comparison, technique and examination are left out where the report has such headings. A text in another
    language than English (`medimg_eval.metrics.nlp.is_english`) is 0 throughout, and has no `mentions`.

    No Finding is 1 where no other observation but Support Devices, and no other abnormality such as emphysema, is
    positive or uncertain, and the text does say something: that something is absent or normal, or that there is a
    device. An empty text is 0 throughout. Heart failure makes an otherwise unmentioned heart size uncertain.

    The agreement of these rules with CheXbert on real reports is unknown.

    >>> {name: status for name, status in label_report("Small left effusion. No pneumothorax.").items() if status}
    {'Pneumothorax': 2, 'Pleural Effusion': 1}
    """
    statuses: dict[str, list[int]] = {}
    clean, speaks, failing = True, False, False
    lowered = lower(text)
    for start, end in _judged_sentences(text):
        findings = tell(lowered, start, end)
        speaks, clean = speaks or findings.speaks, clean and findings.clean
        for observation, status in findings.statuses:
            statuses.setdefault(observation, []).append(status)
        if findings.swollen and not failing:
            sentence = read(lowered, start, end)
            failing = any(_names_failure(lowered, sentence, swollen) for swollen in findings.swollen)
    labels = dict.fromkeys(OBSERVATIONS, 0) | {name: combined(statuses) for name, statuses in statuses.items()}
    if failing and not labels[HEART]:
        labels[HEART] = UNCERTAIN
    labels[NO_FINDING] = int(clean and (speaks or bool(statuses)))
    return labels


def combined(statuses: Iterable[int]) -> int:
    """Returns an observation's joint status: 1 before 3 before 2, else 0.

    CheXpert's rules for pairs: negative and uncertain are uncertain, negative and positive are positive, uncertain and
    positive are positive. Of all three together its program says uncertain, since it asks for the first pair first;
    here it is positive, which each of the other two rules demands.
    """
    held = set(statuses)
    return next((status for status in (POSITIVE, UNCERTAIN, NEGATIVE) if status in held), 0)


def mentions(text: str) -> list[Mention]:
    """Returns mentions of observations, in text order.

    Things that are only asked for or belong to the history ("evaluate for pneumonia") are no mentions, nor is anything
    in the sections indication, comparison, technique and examination.

    >>> [tuple(mention) for mention in mentions("Improved left effusion.")]
    [('Pleural Effusion', 1, 'left', 14, 22, 'improved')]
    """
    mentions, lowered = [], lower(text)
    for sentence in (read(lowered, start, end) for start, end in _judged_sentences(text)):
        for index, finding in enumerate(sentence.said):
            if finding.status is None or not finding.observations:
                continue
            item = sentence.items[finding.at]
            start, end = sentence.spans[item.first][0], sentence.spans[item.behind - 1][1]
            side, trend = side_of(sentence, index), trend_of(sentence, index)
            mentions += [Mention(name, finding.status, side, start, end, trend) for name in finding.observations]
    return mentions


def measurements(text: str) -> list[Measurement]:
    """Returns stated lengths in cm or mm, in text order.

    "2.5 x 3 cm" are two extents of one thing, "3-4 cm" is a range, of which the middle counts; "3,5 cm" has a decimal
    comma, "1,200 mm" parts thousands. Lengths of things that are said to be absent ("no nodule above 5 mm"), pressures
    ("5 cm H2O") and areas are left out, and those in the sections indication, comparison, technique and examination.

    >>> [(one.thing, one.millimetres) for one in measurements("ET tube tip 3.5 cm above the carina.")]
    [('endotracheal tube to carina', (35.0,))]
    """
    aside = [(start, end) for name, start, end in section_spans(text) if name in _ASIDE]
    return [
        measurement
        for measurement in measured(text)
        if not any(start <= measurement.start < end for start, end in aside)
    ]


def sentences(text: str) -> list[str]:
    """Returns the sentences of a report, blanks folded, without the marks of lists.

    Decimals, units and abbreviations end no sentence ("3.5 cm", "a.m.", "T. 5"); items of lists are sentences, also
    those without blanks.

    >>> sentences("1.Stable.2.No effusion")
    ['Stable.', 'No effusion']
    """
    return [" ".join(text[start:end].split()) for start, end in sentence_spans(text)]


@lru_cache(maxsize=64)  # metrics of one report, which are computed together, read it once
def _judged_sentences(text: str) -> tuple[tuple[int, int], ...]:
    """Where the sentences lie that are judged."""
    if not is_english(text):
        return ()
    spans = section_spans(text)
    return tuple(span for name, start, end in spans if name not in _ASIDE for span in _join_sentences(text, start, end))


def _join_sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields sentence spans, joining those about "it" to the previous."""
    joined: tuple[int, int] | None = None
    for first, behind in sentence_spans(text, start, end):
        if joined and _SPEAKS_OF_IT.match(text, first):
            joined = joined[0], behind
            continue
        if joined:
            yield joined
        joined = first, behind
    if joined:
        yield joined


def _names_failure(lowered: str, sentence: Sentence, said: Said) -> bool:
    item = sentence.items[said.at]
    words = lowered[sentence.spans[item.first][0] : sentence.spans[item.behind - 1][1]]
    return "chf" in words or "failure" in words
