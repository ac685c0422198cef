"""How often each n-gram occurs in texts: of many texts in one pass, as integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from medimg_eval.metrics.arrays import Floats, Ints

Words = tuple[str, ...]

ORDERS = 4
"""The longest n-grams that BLEU and CIDEr count."""

SHIFT = 32
"""An n-gram is the number of the one that is a word shorter, and the number of the last word, in 32 bits each."""

TOGETHER = 64
"""Texts and their references that are counted in one pass: what they take fits into a processor's own memory."""

Whole = Ints


@dataclass(frozen=True, eq=False)
class Known:
    """N-gram numbers of a set of texts, n from 1 to 4.

    Attributes:
        words: word -> its number.
        grams: by n from 2: the n-grams of the set as pairs of numbers, ascending.
        starts: by n from 1: the number of the first n-gram of that length; and of all n-grams how many there are.
    """

    words: Mapping[str, int]
    grams: tuple[Whole, ...]
    starts: tuple[int, ...]


NOTHING = Known({}, (np.empty(0, np.int64),) * (ORDERS - 1), (0,) * (ORDERS + 1))


class Pairing(NamedTuple):
    """Text beside the references it is judged by."""

    text: Words
    references: Sequence[Words]

    @classmethod
    def of(cls, text: str, references: Sequence[str], tokenise: Callable[[str], Words]) -> Pairing:
        """Parts texts into words."""
        return cls(tokenise(text), [tokenise(reference) for reference in references])


@dataclass(frozen=True, eq=False)
class GramCounts:
    """How often the n-grams of some pairings occur in each of their texts.

    The texts of a pairing stand one after the other, what was written first. An entry is an n-gram of a text; entries
    ascend by n-gram, then by text.

    Attributes:
        leaders: the places of what was written.
        leader: by text: the place of what was written in its pairing, which is its own place or an earlier one.
        lengths: by text: its words.
        gram: by entry: the number of the n-gram; of those that the set lacks above all of the set.
        text: by entry: the place of the text.
        times: by entry: how often it occurs there.
        first: by entry: the place where it does first, among all n-grams of all texts.
        slot: by such a place: 4 times the text, and n - 1.
    """

    leaders: Whole
    leader: Whole
    lengths: Whole
    gram: Whole
    text: Whole
    times: Whole
    first: Whole
    slot: Whole

    @cached_property
    def shared(self) -> tuple[Whole, Whole]:
        """Reference entries shared with the text, and its own entries."""
        texts = self.leader.size
        keys = self.gram * texts + self.text
        owner = self.leader[self.text]
        right = (owner != self.text).nonzero()[0]
        wanted = self.gram[right] * texts + owner[right]
        at = keys.searchsorted(wanted)  # never behind the last: each stands before the entry that asks
        hit = keys[at] == wanted
        return right[hit], at[hit]

    def sums(self, entries: Whole, values: Whole | Floats) -> Floats:
        """Returns entry sums by text and n, in text order.

        So they are the same to the last bit, whatever other texts were counted in the same pass.
        """
        placed = np.zeros(self.slot.size)
        placed[self.first[entries]] = values
        sums = np.bincount(self.slot, placed, ORDERS * self.leader.size)
        return sums.astype(np.float64, copy=False).reshape(-1, ORDERS)  # of no n-gram at all they are integers


def count_together(pairings: Iterable[Pairing], known: Known = NOTHING) -> Iterator[GramCounts]:
    """Yields the counts of some pairings after the other."""
    waiting = iter(pairings)
    while some := list(islice(waiting, TOGETHER)):
        yield _count_grams(some, known)


def ranks(tokens: Whole, text: Whole, known: Known) -> Iterator[tuple[Whole, Whole]]:
    """Yields numbered n-grams by n, with their texts.

    n is from 1 to 4.

    Args:
        tokens: numbers of all words of all texts, one text after the other.
        text: of each word, the place of its text.
        known: the n-grams that have numbers; others have some behind all of these.
    """
    free = max(known.starts[-1], int(tokens.max(initial=-1)) + 1)
    rank, inside = tokens, np.ones(tokens.size, bool)
    yield rank, text
    for n in range(2, ORDERS + 1):
        size = max(0, tokens.size - n + 1)
        inside = text[:size] == text[n - 1 :]
        indices = inside.nonzero()[0]
        keys = (rank[indices] << SHIFT) | tokens[indices + n - 1]
        held = known.grams[n - 2]
        among = held.searchsorted(keys)
        strange = (held.take(among, mode="clip") != keys if held.size else np.ones(keys.size, bool)).nonzero()[0]
        among += known.starts[n - 1]
        if strange.size:
            unique, inverse = np.unique(keys[strange], return_inverse=True)
            among[strange] = free + inverse
            free += unique.size
        rank = np.zeros(size, np.int64)
        rank[indices] = among
        yield among, text[indices]


def _count_grams(pairings: Sequence[Pairing], known: Known) -> GramCounts:
    texts = [text for pairing in pairings for text in (pairing.text, *pairing.references)]
    sizes = np.array([1 + len(pairing.references) for pairing in pairings])
    leaders = np.cumsum(sizes) - sizes
    leader = np.repeat(leaders, sizes)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    words = [word for text in texts for word in text]
    numbers = list(map(known.words.get, words))
    if None in numbers:
        most, strange = known.starts[-1], dict[str, int]()
        numbers = [
            most + strange.setdefault(word, len(strange)) if number is None else number
            for word, number in zip(words, numbers, strict=True)
        ]
    tokens = np.array(numbers, np.int64)
    owner = np.repeat(np.arange(len(texts)), lengths)
    parts = list(ranks(tokens, owner, known))
    gram = np.concatenate([rank for rank, _ in parts])
    slot = np.concatenate([text * ORDERS + n for n, (_, text) in enumerate(parts)])
    # In one integer, for numbers are sorted far faster than places by them.
    bits = int(gram.size).bit_length()
    ascending = np.sort((gram << bits) | np.arange(gram.size))
    column = ascending & ((1 << bits) - 1)
    gram, text = ascending >> bits, slot[column] // ORDERS
    begins = np.ones(gram.size, bool)
    begins[1:] = (gram[1:] != gram[:-1]) | (text[1:] != text[:-1])
    at = begins.nonzero()[0]
    return GramCounts(leaders, leader, lengths, gram[at], text[at], np.diff(at, append=gram.size), column[at], slot)
