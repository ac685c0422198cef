"""How much two texts have in common: n-grams, longest common subsequence, METEOR's alignment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

ORDERS = 4
"""The longest n-grams that BLEU counts."""

Words = tuple[str, ...]

_BITS = 16
"""Of a word's number in an integer that stands for four of them; numbers count from 1."""

_SHIFT = np.uint64(_BITS)

_Placed = tuple[int, str]
"""The place of a word, and the word or its stem."""

_Pair = tuple[int, int]


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


def counts(text: Words, references: tuple[Words, ...]) -> Counts:
    """Returns what BLEU counts of one text beside one or more references."""
    nearest = min((len(reference) for reference in references), key=lambda length: (abs(length - len(text)), length))
    numbers = dict(zip(set(text).union(*references), range(1, 1 << _BITS), strict=False))
    if len(numbers) == (1 << _BITS) - 1:
        return Counts(tuple(_clipped(text, references, n) for n in range(1, ORDERS + 1)), len(text), nearest)
    said, held = _keys(text, numbers), [_keys(reference, numbers) for reference in references]
    times = [keys.searchsorted(said, "right") - keys.searchsorted(said) for keys in held]
    most = times[0] if len(times) == 1 else np.maximum.reduce(times)
    # The k-th time that an n-gram is said it matches where a reference has it k times.
    matched = np.arange(said.size) - said.searchsorted(said) < most
    matches, start = [], 0
    for n in range(ORDERS):
        end = start + max(0, len(text) - n)
        matches.append(int(np.count_nonzero(matched[start:end])))
        start = end
    return Counts(tuple(matches), len(text), nearest)


def _keys(words: Words, numbers: dict[str, int]) -> npt.NDArray[np.uint64]:
    """Returns all n-grams of a text, for n from 1 to 4, as integers in ascending order: longer ones are larger."""
    together = np.empty(sum(max(0, len(words) - n) for n in range(ORDERS)), np.uint64)
    size = len(words)
    shorter = together[:size]
    shorter[:] = np.fromiter(map(numbers.__getitem__, words), np.uint64, size)
    tokens, end = shorter.copy(), size
    for n in range(1, min(ORDERS, size)):
        longer = together[end : end + size - n]
        np.left_shift(shorter[:-1], _SHIFT, out=longer)
        longer |= tokens[n:]
        shorter, end = longer, end + size - n
    together.sort()
    return together


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
    pairs: list[tuple[int, int]] = []
    # From the last word to the first on the left, from the first to the last on the right, as `_pair_off` takes them.
    left = list(zip(range(len(text) - 1, -1, -1), map(str.lower, reversed(text)), strict=True))
    free = list(enumerate(map(str.lower, reference)))
    left, free = _pair_off(left, free, None, pairs)
    if left and free:
        left, free = ([(place, stem(word)) for place, word in some] for some in (left, free))
        left, free = _pair_off(left, free, None, pairs)
    if synonyms is not None:
        _pair_off(left, free, synonyms, pairs)
    pairs.sort()
    breaks = sum([b[0] - a[0] != 1 or b[1] - a[1] != 1 for a, b in pairwise(pairs)])
    return Alignment(len(pairs), breaks + bool(pairs))


def _pair_off(
    left: list[_Placed], free: list[_Placed], alike: Callable[[str], Collection[str]] | None, pairs: list[_Pair]
) -> tuple[list[_Placed], list[_Placed]]:
    """Adds the pairs that words make, each taking the last one that is free; returns what is left of both sides."""
    held: dict[str, list[int]] = defaultdict(list)
    for place, word in free:
        held[word].append(place)
    lone, used = [], set()
    for one in left:
        if alike is None:
            places = held.get(one[1])
        else:
            options = [held.get(other, []) for other in alike(one[1])]
            places = max(options, key=lambda free_of: free_of[-1] if free_of else -1, default=[])
        if places:
            partner = places.pop()
            pairs.append((one[0], partner))
            used.add(partner)
        else:
            lone.append(one)
    return lone, [one for one in free if one[0] not in used]
