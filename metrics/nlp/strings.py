"""Small tools for reading text: alternatives, lower case of the same length, sentences."""

from __future__ import annotations

import re
from typing import cast

SENTENCES = re.compile(r"(?<=[.!?;])(?<!\b[A-Za-z]\.)\s+|(?<=[。！？；])|\n+")
"""Where a sentence ends; not after a single letter and a point, as in "E. coli"."""


class _LatePattern:
    """A regular expression that is compiled when it is first used."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern, self.flags = pattern, flags

    def __getattr__(self, name: str) -> object:
        """Its methods, each looked up once."""
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = method = getattr(re.compile(self.pattern, self.flags), name)
        return method


def late_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Regular expression compiled at its first use: all rules together take 0.1 s."""
    return cast("re.Pattern[str]", _LatePattern(pattern, flags))


def either(phrases: str) -> str:
    """Returns a pattern for any one of some patterns, which commas divide."""
    return "(?:" + "|".join(" ".join(phrase.split()) for phrase in phrases.split(",") if phrase.strip()) + ")"


LONG = 400
"""Characters of a text whose end is read first: an answer that stands there saves the rest of the work."""
_BEGINS = re.compile(r"[.!?]\s|\n")


def ending(text: str) -> str:
    """Returns the end of a long text, from the beginning of a sentence."""
    end = text[-LONG:]
    first = _BEGINS.search(end)
    return end[first.end() :] if first else end


def lower(text: str) -> str:
    """Returns lower-case text of equal length, so positions correspond."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(letter.lower() if len(letter.lower()) == 1 else letter for letter in text)
