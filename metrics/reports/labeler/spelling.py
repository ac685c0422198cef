"""Misspelt names of findings: words that are one edit away from a long one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from string import ascii_lowercase

from medimg_eval.metrics.reports.labeler.phrase_tree import Node

_NAMES = (
    *("atelectasis", "atelectatic", "cardiomegaly", "catheter", "congestion", "consolidation", "consolidations"),
    *("effusion", "effusions", "fracture", "fractures", "infiltrate", "infiltrates", "mediastinum", "opacification"),
    *("opacity", "opacities", "pneumonia", "pneumothorax", "pneumothoraces"),
)
_SHORTEST = 7
"""Shorter words are too near to others."""


def misspellings(known: Collection[str]) -> dict[str, str]:
    """Returns intended names by one-edit misspellings; known words are excluded."""
    near = ((wrong, name) for name in _NAMES for wrong in _one_edit_away(name))
    return {wrong: name for wrong, name in near if len(wrong) >= _SHORTEST and wrong not in known}


def words_of(root: Node) -> set[str]:
    """Returns the words of all phrases of a tree."""
    words: set[str] = set()
    nodes = [root]
    for node in nodes:
        words.update(node)
        nodes += [below for word, below in node.items() if word]
    words.discard("")
    return words


def _one_edit_away(word: str) -> Iterator[str]:
    """Yields one-letter edits after the first letter."""
    for at in range(1, len(word) + 1):
        head, tail = word[:at], word[at:]
        yield head + tail[1:]
        yield head + tail[1:2] + tail[:1] + tail[2:]
        for letter in ascii_lowercase:
            yield head + letter + tail[1:]
            yield head + letter + tail
