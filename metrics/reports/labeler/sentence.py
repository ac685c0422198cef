"""What the report rules find in a sentence: phrases, and the things that it names."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from medimg_eval.metrics.nlp import late_pattern

WORD = late_pattern(r"[a-z]+(?:'[a-z]+)?|\d+(?:\.\d+)?|[,;:/&?]")
NOT, DOUBT, ASKED, HELD = "not", "doubt", "asked", "held"
"""What can hold for the words that follow."""

ABOUT = ("size", "change", "side", "normal", "large", "border")
"""Parts of phrases that say more about what is named."""


class Item(NamedTuple):
    """Phrase in a sentence: part, content, first word and end."""

    kind: str
    holds: Any
    first: int
    behind: int


@dataclass
class Said:
    """A thing that a sentence names.

    Attributes:
        at: its place among the items.
        observations: what it is; none for a finding outside the 14.
        status: 1 present, 2 absent, 3 in doubt; None while nothing is known, and of a thing that is asked for.
        scope: what held where it was named.
        trend: how it has changed; "" where nothing is said.
        joined: the comma or word that joins it with what was named before; "" for none.
        doubted: of what is seen of the heart and the mediastinum: whether it is said to be hard to judge.
    """

    at: int
    observations: tuple[str, ...]
    status: int | None
    scope: str = ""
    trend: str = ""
    joined: str = ""
    doubted: bool = False


class Told(NamedTuple):
    """Facts that a sentence states of a report, wherever it stands.

    Attributes:
        statuses: observation and status of each thing that it names, but for those that are only asked for.
        speaks: whether it says that something is absent, normal or unchanged.
        clean: whether nothing but devices is present or in doubt.
        swollen: the things named that are an oedema which is present or in doubt.
    """

    statuses: tuple[tuple[str, int], ...] = ()
    speaks: bool = False
    clean: bool = True
    swollen: tuple[Said, ...] = ()


@dataclass
class Sentence:
    """Findings of one sentence.

    Attributes:
        text: the text in lower case that it lies in.
        start: its first letter.
        end: the letter behind its last.
        length: how many words it has.
        items: the phrases in their order.
        said: what it names.
        scopes: of each item: what held behind it.
    """

    text: str
    start: int
    end: int
    length: int
    items: list[Item]
    said: list[Said] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each word in the text."""
        return [match.span() for match in WORD.finditer(self.text, self.start, self.end)]


_ENDS = ("turn", "finding", "other", "seen", "not before", "verb", ",", "and", "or")


def side_of(sentence: Sentence, index: int) -> str:
    """Returns the side of a thing: before, else behind; "" without."""
    return _nearest_word(sentence, index, "side")


def trend_of(sentence: Sentence, index: int) -> str:
    """Returns the trend of a thing by cues or nearest word."""
    return sentence.said[index].trend or _nearest_word(sentence, index, "change")


def _nearest_word(sentence: Sentence, index: int, kind: str) -> str:
    items, at = sentence.items, sentence.said[index].at
    for item in reversed(items[:at]):
        if item.kind == kind:
            return str(item.holds)
        if kind == "change" and item.kind == "held":
            return "unchanged"
        if item.kind in ("turn", "verb", "not before") or (
            item.kind in ("finding", "other", "seen") and kind == "side"
        ):
            break
        if item.kind in ("finding", "other", "seen"):
            break
    verb = False
    for item in items[at + 1 :]:
        if item.kind == kind:
            return str(item.holds)
        if item.kind == "turn" or (verb and item.kind in _ENDS) or item.kind in ("not before", "not behind"):
            break
        if item.kind in ("finding", "other", "seen") and kind == "side":
            break
        verb = verb or item.kind == "verb"
    return ""
