"""How much two texts have in common: n-grams, longest common subsequence, METEOR's alignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.metrics.text.gram_counts import GramCounts, Pairing, Words, count_together


class Counts(NamedTuple):
    """Counts that corpus BLEU sums over texts.

    Attributes:
        matches: by n, from 1 to 4: n-grams that a reference has too, each at most as often as the reference that has
            it most often.
        words: of the text.
        due: words of the reference whose length is nearest to it, of equally near ones the shorter.
    """

    matches: tuple[int, ...]
    words: int
    due: int


def ngrams(words: Words, n: int) -> Iterator[Any]:
    """Yields the runs of n words: tuples, or the words themselves where n is 1."""
    return iter(words) if n == 1 else zip(*(words[start:] for start in range(n)), strict=False)


def counts_of_many(pairings: Iterable[Pairing]) -> list[Counts]:
    """Returns what BLEU counts of texts, each beside one or more references."""
    return [found for counts in count_together(pairings) for found in _clipped_counts(counts)]


def _clipped_counts(counts: GramCounts) -> Iterator[Counts]:
    right, said = counts.shared
    most = np.zeros(counts.gram.size, np.int64)
    np.maximum.at(most, said, counts.times[right])
    matches = counts.sums(said, np.minimum(counts.times, most)[said])
    begins, lengths = counts.leaders.tolist(), counts.lengths.tolist()
    for begin, end in zip(begins, [*begins[1:], len(lengths)], strict=True):
        words = lengths[begin]
        due = min(lengths[begin + 1 : end], key=lambda length: (abs(length - words), length))
        yield Counts(tuple(map(int, matches[begin].tolist())), words, due)


def _clipped(text: Words, references: tuple[Words, ...], n: int) -> int:
    if len(references) == 1 and n > 1:
        # Long n-grams seldom occur twice; where one side has each but once, sets say all, in half the time.
        said = set(ngrams(text, n))
        if len(said) == max(0, len(text) - n + 1):
            return len(said.intersection(ngrams(references[0], n)))
    counted = Counter(ngrams(text, n))
    held = [Counter(ngrams(reference, n)) for reference in references]
    if len(held) == 1:
        most = held[0]
        return sum([min(count, most[gram]) for gram, count in counted.items() if gram in most])
    return sum(min(count, max(one[gram] for one in held)) for gram, count in counted.items())


def overlap(one: Words, other: Words, n: int = 1) -> int:
    """Returns how many n-grams two texts share, each as often as the one has it that has it less often."""
    return _clipped(one, (other,), n)


def common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence.

    A row of the usual table is one integer, whose bits say where the length does not grow (Hyyrö 2004): one addition
    of long integers per word instead of a loop over the other text.
    """
    places: dict[str, int] = {}
    bit = 1
    for word in one:
        places[word] = places.get(word, 0) | bit
        bit <<= 1
    row = full = bit - 1
    for found in map(places.get, other):
        if found is not None:
            kept = row & found
            row = (row + kept) | (row - kept)
    return (~row & full).bit_count()


class Alignment(NamedTuple):
    """METEOR's alignment: how many words match, and in how many runs that are in order on both sides."""

    matches: int
    chunks: int


def aligned_words(
    text: Words,
    reference: Words,
    stem: Callable[[str], str],
    synonyms: Callable[[str], Collection[str]] | None = None,
) -> Alignment:
    """Aligns words that are equal, then of those left ones that have the same stem, as NLTK's METEOR does.

    Each word from the last to the first takes the last word of the reference that is still free. With `synonyms`, those
    left after that are aligned whose stem is a synonym of the other's stem: as in NLTK, which looks up stems.
    """
    partners = [-1] * len(text)  # of each word: the place of its partner
    said = list(map(str.lower, text))
    free = _by_word(enumerate(map(str.lower, reference)))
    left = _pair_off(said, range(len(said) - 1, -1, -1), free, partners)
    if left and (lone := sorted((place, word) for word, places in free.items() for place in places)):
        for place in left:
            said[place] = stem(said[place])
        free = _by_word((place, stem(word)) for place, word in lone)
        left = _pair_off(said, left, free, partners)
        if synonyms is not None:
            for place in left:
                options = [free.get(other, []) for other in synonyms(said[place])]
                places = max(options, key=lambda free_of: free_of[-1] if free_of else -1, default=[])
                if places:
                    partners[place] = places.pop()
    matches = chunks = 0
    before = -1  # the partner of the word in front, -1 for none
    for partner in partners:
        if partner >= 0:
            matches += 1
            chunks += before < 0 or partner != before + 1
        before = partner
    return Alignment(matches, chunks)


def _by_word(placed: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """Returns word -> its places, which are given ascending."""
    held: dict[str, list[int]] = {}
    for place, word in placed:
        if word in held:
            held[word].append(place)
        else:
            held[word] = [place]
    return held


def _pair_off(
    said: Sequence[str], waiting: Iterable[int], free: Mapping[str, list[int]], partners: list[int]
) -> list[int]:
    """Gives each waiting word the last free place of the same word; returns those that find none."""
    lone = []
    for place in waiting:
        if places := free.get(said[place]):
            partners[place] = places.pop()
        else:
            lone.append(place)
    return lone
