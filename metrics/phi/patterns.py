"""What looks like a patient in a text: dates, numbers, telephones, people; and what stands in their place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from medimg_eval.metrics.nlp import late_pattern

LONGEST = 4
"""Words that may be written together, apart or with strokes between them, as parts of one name or number are."""

SHORTEST = 4
"""Letters and digits of the shortest term that is looked for alone."""

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_YEAR = r"(?:19|20)\d\d"

PATTERNS: Mapping[str, re.Pattern[str]] = {
    "date": late_pattern(
        rf"(?<![\d.]){_YEAR}([-_./]?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])(?!\d)"
        rf"|(?<![\d.])(?:0?[1-9]|[12]\d|3[01])([-_./])(?:0?[1-9]|[12]\d|3[01])\2{_YEAR}(?!\d)"
        r"|(?<![\d./])(?:0?[1-9]|[12]\d|3[01])/(?:0?[1-9]|[12]\d|3[01])/\d\d(?![\d/])"
        rf"|(?i:\b(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?[ -]{_MONTH},?[ -](?:{_YEAR}|\d\d)\b)"
        rf"|(?i:\b{_MONTH} (?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?,? {_YEAR}\b)"
    ),
    "social security number": late_pattern(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])"),
    "telephone": late_pattern(
        r"(?<![\d.])(?:\+\d{1,3}[ -]?)?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\d.])"
        r"|(?<!\d)\+\d{1,3}(?:[ -]?\d{2,4}){3,4}(?!\d)"
    ),
    "e-mail": late_pattern(r"[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+"),
    "record number": late_pattern(
        r"(?i)\b(?:mrn|medical record|record|patient id|pid|ssn|nhs|accession|acc)\b[ #.:=_-]*"
        r"(?:(?:no|number|nr)\b[ #.:=_-]*)?(?=[a-z0-9-]*\d{3})[a-z0-9][a-z0-9-]{3,}"
        r"|\b(?:mrn|ssn|nhs)\d{4,}"
    ),
    "person": late_pattern(
        r"\b(?:Drs?|Prof|Mrs?|Ms|Miss|Herr|Frau|Mme|Doctor|Professor)\b\.? ?(?=[^\W\d_a-z])[^\W\d_]{2,}"
        r"|\b[^\W\d_]{2,}\^[^\W\d_]+"
        r"|(?i:\b(?:patient(?:'s)? )?name\s*[:=]\s*)(?=[^\W\d_])(?!(?i:removed|anon|none|unknown|n/a))\S+"
    ),
}
"""Kind -> what is written like that. Only full dates count: a year or a month alone names nobody."""

PLACEHOLDER = late_pattern(
    r"_{3,}|\[\*\*.*?\*\*\]|\bX{3,}\b"
    r"|[\[<{](?i:(?:de-?identified|redacted|removed|anonymi[sz]ed|patient|name|doctor|physician|date|time|age|phone|id|mrn"
    r"|hospital|institution|location|address|organi[sz]ation|person|per|loc|org)"
    r"(?:[ _-]?(?:name|id|\d+))?)[\]>}]"
)
"""What de-identification leaves behind: MIMIC-CXR's `___`, MIMIC-III's `[** **]`, `XXXX` of IU X-ray, `[NAME]`."""

_WORD = late_pattern(r"[^\W_]+")


class Span(NamedTuple):
    """Span of a text that may name a patient, without text.

    Attributes:
        kind: a key of `PATTERNS`, or what the vocabulary calls the term.
        start: first character.
        stop: the one after the last.
        known: whether the term is in the vocabulary, and not only written like one.
    """

    kind: str
    start: int
    stop: int
    known: bool


@dataclass
class Vocabulary:
    """Identifying terms, such as name parts and numbers; never shown.

    Attributes:
        terms: the letters and digits of a term, without case -> what it is.
    """

    terms: dict[str, str] = field(default_factory=dict, repr=False)

    def add(self, value: str, what: str) -> None:
        """Adds a number or term, matched whole in any spelling."""
        term = folded(value)
        if len(term) >= SHORTEST:
            self.terms.setdefault(term, what)

    def add_person(self, name: str, what: str) -> None:
        """Adds a name: parts of `SHORTEST` letters, and first pairs."""
        parts = [folded(part) for part in _WORD.findall(name)]
        for part in parts:
            if len(part) >= SHORTEST and not part.isdigit():
                self.terms.setdefault(part, what)
        if len(parts) > 1:
            self.add(parts[0] + parts[1], what)
            self.add(parts[1] + parts[0], what)

    def update(self, other: Vocabulary) -> None:
        """Adds the terms of another."""
        for term, what in other.terms.items():
            self.terms.setdefault(term, what)

    def spans(self, text: str) -> Iterator[Span]:
        """Yields term spans as whole words, longest first."""
        if not self.terms:
            return
        words = [(folded(match.group()), match.start(), match.end()) for match in _WORD.finditer(text)]
        first = 0
        while first < len(words):
            taken = 1
            for last in range(min(first + LONGEST, len(words)), first, -1):
                what = self.terms.get("".join(word for word, _, _ in words[first:last]))
                if what is not None:
                    yield Span(what, words[first][1], words[last - 1][2], known=True)
                    taken = last - first
                    break
            first += taken


def folded(text: str) -> str:
    """Returns the letters and digits of a text, without case."""
    return "".join(letter for letter in text.casefold() if letter.isalnum())


def spans_of(text: str, vocabulary: Vocabulary | None = None, *, kinds: Iterable[str] = PATTERNS) -> list[Span]:
    """Returns spans resembling patients or in the vocabulary, in order.

    `kinds` are those of `PATTERNS` to look for. A pattern within a placeholder or within a term of the vocabulary is
    left out.
    """
    vocabulary_spans = list(vocabulary.spans(text)) if vocabulary is not None else []
    taken = [(match.start(), match.end()) for match in PLACEHOLDER.finditer(text)]
    taken += [(span.start, span.stop) for span in vocabulary_spans]
    spans = [
        Span(kind, match.start(), match.end(), known=False)
        for kind in kinds
        for match in PATTERNS[kind].finditer(text)
        if not any(match.start() < stop and start < match.end() for start, stop in taken)
    ]
    return sorted([*vocabulary_spans, *spans], key=lambda span: (span.start, -span.stop))
