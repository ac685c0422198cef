"""How the words of the report rules are written down, and found: phrases with alternatives, in one tree of words.

A phrase is a row of places between blanks. A place holds alternatives between bars; "~" behind one stands for the word
with and without an s, "?" in front of a place for one that may be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """Effect of a phrase.

    Attributes:
        kind: its part, such as "finding" or "not before".
        holds: what comes with it, such as the observations that it names.
    """

    kind: str
    holds: Any = None


Node = dict[str, Any]
"""A node of the tree: word -> node, and "" -> the entry of the phrase that ends here."""


def expanded(phrase: str) -> Iterator[tuple[str, ...]]:
    """Yields the rows of words that a phrase stands for.

    >>> list(expanded("?small nodule~"))
    [('nodule',), ('nodules',), ('small', 'nodule'), ('small', 'nodules')]
    """
    alternatives = []
    for words_ in phrase.split():
        words = [""] if words_.startswith("?") else []
        for word in words_.removeprefix("?").split("|"):
            words += [word[:-1], f"{word[:-1]}s"] if word.endswith("~") else [word]
        alternatives.append(words)
    for row in product(*alternatives):
        yield tuple(word for word in row if word)


def planted(phrases: Iterable[tuple[str, Any, str]]) -> Node:
    """Returns the phrase tree; later phrases replace equal ones.

    Phrases are given as (kind, what it holds, phrases between line ends).
    """
    root: Node = {}
    for kind, holds, lines in phrases:
        entry = Entry(kind, holds)
        for line in filter(None, map(str.strip, lines.splitlines())):
            for words in expanded(line):
                node = root
                for word in words:
                    node = node.setdefault(word, {})
                node[""] = entry
    return root


def longest(
    root: Node, words: Sequence[str], start: int, end: int, fillers: frozenset[str]
) -> tuple[Entry | None, int]:
    """Returns the longest phrase at a word, fillers not counted, and its end."""
    node, entry_found, behind = root.get(words[start]), None, start + 1
    at = start + 1
    while node is not None:
        if (entry := node.get("")) is not None:
            entry_found, behind = entry, at
            if len(node) == 1:  # nothing goes on from here
                break
        below = None
        while at < end and (below := node.get(words[at])) is None and words[at] in fillers:
            at += 1
        if at == end:
            break
        node = below
        at += 1
    return entry_found, behind
