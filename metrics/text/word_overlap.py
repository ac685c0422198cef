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
    """Yields word n-grams: tuples, or words for n = 1."""
    return iter(words) if n == 1 else zip(*(words[start:] for start in range(n)), strict=False)


def counts_of_many(pairings: Iterable[Pairing]) -> list[Counts]:
    """Returns what BLEU counts of texts, each beside one or more references."""
    return clipped_counts(count_together(pairings))


def clipped_counts(passes: Iterable[GramCounts]) -> list[Counts]:
    """Returns what BLEU counts of texts whose n-grams were counted, in their order."""
    return [counts_ for counts in passes for counts_ in _clipped_counts(counts)]


def _clipped_counts(counts: GramCounts) -> Iterator[Counts]:
    right, text_counts = counts.shared
    most = np.zeros(counts.gram.size, np.int64)
    np.maximum.at(most, text_counts, counts.times[right])
    matches = counts.sums(text_counts, np.minimum(counts.times, most)[text_counts])
    begins, lengths = counts.leaders.tolist(), counts.lengths.tolist()
    for begin, end in zip(begins, [*begins[1:], len(lengths)], strict=True):
        words = lengths[begin]
        due = min(lengths[begin + 1 : end], key=lambda length: (abs(length - words), length))
        yield Counts(tuple(map(int, matches[begin].tolist())), words, due)


def _clipped_count(text: Words, references: tuple[Words, ...], n: int) -> int:
    if len(references) == 1 and n > 1:
        # Long n-grams seldom occur twice; where one side has each but once, sets say all, in half the time.
        predicted = set(ngrams(text, n))
        if len(predicted) == max(0, len(text) - n + 1):
            return len(predicted.intersection(ngrams(references[0], n)))
    counted = Counter(ngrams(text, n))
    held = [Counter(ngrams(reference, n)) for reference in references]
    if len(held) == 1:
        most = held[0]
        return sum([min(count, most[gram]) for gram, count in counted.items() if gram in most])
    return sum(min(count, max(reference_counts[gram] for reference_counts in held)) for gram, count in counted.items())


def overlap(one: Words, other: Words, n: int = 1) -> int:
    """Returns shared n-grams, clipped by the rarer count."""
    return _clipped_count(one, (other,), n)


def common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence.

    A row of the usual table is one integer, whose bits say where the length does not grow (Hyyrö 2004): one addition
    of long integers per word instead of a loop over the other text.
    """
    masks: dict[str, int] = {}
    bit = 1
    for word in one:
        masks[word] = masks.get(word, 0) | bit
        bit <<= 1
    row = full = bit - 1
    for mask in map(masks.get, other):
        if mask is not None:
            matched = row & mask
            row = (row + matched) | (row - matched)
    return (~row & full).bit_count()


class Alignment(NamedTuple):
    """METEOR alignment: matched words and ordered chunks."""

    matches: int
    chunks: int


def aligned_words(
    text: Words,
    reference: Words,
    stem: Callable[[str], str],
    synonyms: Callable[[str], Collection[str]] | None = None,
) -> Alignment:
    """Aligns equal words, then equal stems, as NLTK's METEOR.

    Each word from the last to the first takes the last word of the reference that is still free. With `synonyms`, those
    left after that are aligned whose stem is a synonym of the other's stem: as in NLTK, which looks up stems.
    """
    partners = [-1] * len(text)  # of each word: the place of its partner
    lowered = list(map(str.lower, text))
    free = _by_word(enumerate(map(str.lower, reference)))
    unmatched = _pair_off(lowered, range(len(lowered) - 1, -1, -1), free, partners)
    if unmatched and (lone := sorted((index, word) for word, positions in free.items() for index in positions)):
        for index in unmatched:
            lowered[index] = stem(lowered[index])
        free = _by_word((index, stem(word)) for index, word in lone)
        unmatched = _pair_off(lowered, unmatched, free, partners)
        if synonyms is not None:
            for index in unmatched:
                options = [free.get(synonym, []) for synonym in synonyms(lowered[index])]
                places_free = max(options, key=lambda free_of: free_of[-1] if free_of else -1, default=[])
                if places_free:
                    partners[index] = places_free.pop()
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
    for index, word in placed:
        if word in held:
            held[word].append(index)
        else:
            held[word] = [index]
    return held


def _pair_off(
    said: Sequence[str], waiting: Iterable[int], free: Mapping[str, list[int]], partners: list[int]
) -> list[int]:
    """Pairs words with the last free equals; returns the rest."""
    lone = []
    for index in waiting:
        if options := free.get(said[index]):
            partners[index] = options.pop()
        else:
            lone.append(index)
    return lone
