"""The sentences of a report, which are not those of prose: lists without blanks, decimals, line ends without a stop."""

from __future__ import annotations

import re
from collections.abc import Iterator

from medimg_eval.metrics.nlp.strings import late_pattern

_SHORT = ("dr", "drs", "mr", "mrs", "ms", "vs", "st", "fig", "approx", "e.g", "i.e", "a.m", "p.m", "no", "cf", "resp")
"""What a full stop abbreviates; "no" only before a number."""

_END = late_pattern(
    r"""[.!?\n\t ](?:  # one set of letters to begin with is far quicker than one for each alternative
    (?<=[.!?])(?P<stop>[.!?]*[)"']*(?=\s|$))
    |(?<=[a-z)]\.)(?P<tight>(?=\d{1,2}[.)]\s?[A-Za-z]|[A-Z][a-z]))
    |(?<=\n)(?P<lines>[ \t]*(?:\n\s*|(?=[-*\u2022]\s|\d{1,2}[.)]\s*[A-Za-z])))
    |(?<=\n)(?P<line>\s*(?=[A-Z][a-z]))
    |(?<=[ \t])(?P<next>(?=\d{1,2}[.)][ \t]?[A-Z])))""",
    re.VERBOSE,
)
_MARK = late_pattern(r"(?:[-*\u2022#]+\s+|\(?\d{1,2}[.)](?!\d)\s*)+")
_LONGEST_MARK = 12
_WRAPPED = 50
"""A line of fewer letters that ends without a stop ends a sentence if a capital follows; a longer one was wrapped."""


def sentence_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yields sentence spans, without list marks."""
    end = len(text) if end is None else end
    begun = start
    for match in _END.finditer(text, start, end):
        if _ends_sentence(text, begun, match):
            stopped = match.lastgroup in ("stop", "tight")
            yield from _split_within(text, begun, match.end() if stopped else match.start())
            begun = match.end()
    yield from _split_within(text, begun, end)


def _ends_sentence(text: str, begun: int, found: re.Match[str]) -> bool:
    kind = found.lastgroup
    if kind == "line":
        line = text.rfind("\n", 0, found.start()) + 1
        return found.start() - max(begun, line) < _WRAPPED and text[found.start() - 1] not in ",-/"
    if kind == "next":
        return text[found.start() - 1] in ".;:)" or (
            text[max(0, begun - 1) : begun] == "." and _MARK.match(text, begun) is not None
        )
    if kind != "stop" or found.group() != ".":
        return text[begun : found.end()].strip() != "?"  # "? pneumonia" asks in front
    if found.end() - begun < _LONGEST_MARK and _MARK.fullmatch(text, begun, found.end()):
        return False
    word = text[max(begun, found.start() - 8) : found.start()].split()[-1:] or [""]
    short = word[0].lower().lstrip("(")
    following = text[found.end() : found.end() + 4].lstrip()[:1]
    if short == "no" or (len(short) == 1 and short.isalpha()):
        return not following.isdigit()
    return short not in _SHORT or (short in ("a.m", "p.m") and not following.islower() and following != "")


def _split_within(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end and text[start].isspace():
        start += 1
    # Most sentences begin with a letter: no mark, and no need to look for what is written.
    plain = start < end and text[start].isalpha()
    if not plain and (mark := _MARK.match(text, start, end)):
        start = mark.end()
    while end > start and text[end - 1].isspace():
        end -= 1
    if plain or any(map(str.isalnum, text[start:end])):
        yield start, end
