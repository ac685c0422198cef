"""CIDEr-D: n-grams that two texts share, each weighted by how few reports of a set have it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.nlp import split_words
from medimg_eval.metrics.text.profiles import cleaned
from medimg_eval.metrics.text.texts import cleaned_of, overlap_metric, tokeniser_of
from medimg_eval.metrics.text.word_overlap import ORDERS, Words

_SIGMA = 6.0
"""Words that a text may be longer or shorter before it is punished much."""

_SHIFT = 32
"""An n-gram is the number of the one that is a word shorter, and the number of the last word, in 32 bits each."""

Whole = npt.NDArray[np.int64]
Real = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Consensus:
    """How many reports of a set have each n-gram, for n from 1 to 4.

    Attributes:
        words: word -> its number.
        grams: by n from 2: the n-grams of the set as pairs of numbers, ascending.
        starts: by n from 1: the number of the first n-gram of that length; and of all n-grams how many there are.
        rarity: by n-gram: log of the reports over those that have it; last that of an n-gram that none has.
    """

    words: dict[str, int]
    grams: tuple[Whole, ...]
    starts: tuple[int, ...]
    rarity: Real

    @classmethod
    def of(cls, reports: Sequence[Sequence[Words]]) -> Consensus:
        """Counts the n-grams of a set.

        Args:
            reports: by report: the words of each of its references. An n-gram counts once per report.
        """
        texts = [text for references in reports for text in references]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        owners = np.repeat(np.arange(len(reports)), [len(references) for references in reports])
        owner, text = np.repeat(owners, lengths), np.repeat(np.arange(len(texts)), lengths)
        numbers: dict[str, int] = {}
        flat = (numbers.setdefault(word, len(numbers)) for one in texts for word in one)
        tokens = np.fromiter(flat, np.int64, int(lengths.sum()))
        grams, sizes, counted, rank = [], [len(numbers)], [_reports_with(tokens, owner, len(numbers))], tokens
        for n in range(2, ORDERS + 1):
            inside = text[: len(text) - n + 1] == text[n - 1 :]
            keys = (rank[: inside.size] << _SHIFT) | tokens[n - 1 :]
            keys = keys[inside]
            ascending = keys.argsort(kind="stable")
            unique, _, place = _distinct(keys[ascending])
            among = np.empty_like(place)
            among[ascending] = place
            rank = np.zeros(inside.size, np.int64)
            rank[inside] = among + sum(sizes)
            grams.append(unique)
            sizes.append(unique.size)
            counted.append(_reports_with(among, owner[: inside.size][inside], unique.size))
        most = math.log(max(1, len(reports)))
        return cls(
            numbers,
            tuple(grams),
            tuple(np.cumsum([0, *sizes]).tolist()),
            np.append(most - np.log(np.concatenate(counted)), most),
        )

    def score(self, text: Words, references: Sequence[Words]) -> float:
        """Returns CIDEr-D of a text: 10 times the mean of its likeness to the references."""
        texts = (text, *references)
        lengths = np.array([len(one) for one in texts])
        numbers, owners, orders = self._numbers(texts, np.repeat(np.arange(len(texts)), lengths))
        ascending = numbers.argsort()
        grams, first, among = _distinct(numbers[ascending])
        times = np.bincount(owners[ascending] * grams.size + among, minlength=len(texts) * grams.size)
        weights = times.reshape(len(texts), -1) * self.rarity[np.minimum(grams, self.starts[-1])]
        of_order = (orders[ascending][first][:, None] == np.arange(ORDERS)).astype(np.float64)
        norms = np.sqrt((weights * weights) @ of_order)
        said, right = weights[:1], weights[1:]
        products = (np.minimum(said, right) * right) @ of_order
        both = norms[:1] * norms[1:]
        cosines = np.divide(products, both, out=np.zeros_like(both), where=both > 0).mean(axis=1)
        # Texts are told by their pairs of neighbouring words: one of a single word is as long as an empty one.
        pairs = np.maximum(0, lengths - 1)
        gaps = pairs[0] - pairs[1:]
        return float(10 * (cosines * np.exp(-(gaps * gaps) / (2 * _SIGMA**2))).mean())

    def _numbers(self, texts: Sequence[Words], text: Whole) -> tuple[Whole, Whole, Whole]:
        """Returns of all n-grams of some texts their numbers, whose they are, and n - 1, in parallel.

        Those that the set lacks have numbers behind its own, the same in all of these texts.

        Args:
            texts: the words of each.
            text: by word: whose it is.
        """
        known, most = self.words.get, self.starts[-1]
        tokens = np.array([known(word, -1) for one in texts for word in one], np.int64)
        strange: dict[str, int] = {}
        if (lacking := np.flatnonzero(tokens < 0)).size:
            said = [word for one in texts for word in one]
            for at in lacking.tolist():
                tokens[at] = most + strange.setdefault(said[at], len(strange))
        numbers, owners, rank, free = [tokens], [text], tokens, most + len(strange)
        for n in range(2, ORDERS + 1):
            inside = np.flatnonzero(text[: max(0, text.size - n + 1)] == text[n - 1 :])
            keys = (rank[inside] << _SHIFT) | tokens[inside + n - 1]
            held = self.grams[n - 2]
            among = np.searchsorted(held, keys)
            lacking = (
                np.flatnonzero(held[np.minimum(among, held.size - 1)] != keys) if held.size else np.arange(keys.size)
            )
            among += self.starts[n - 1]
            if lacking.size:
                others = keys[lacking]
                among[lacking] = free + np.sort(others).searchsorted(others)
                free += others.size
            numbers.append(among)
            owners.append(text[inside])
            rank = np.zeros(text.size, np.int64)
            rank[inside] = among
        orders = np.repeat(np.arange(ORDERS), [some.size for some in numbers])
        return np.concatenate(numbers), np.concatenate(owners), orders


def _distinct(ascending: Whole) -> tuple[Whole, npt.NDArray[np.bool_], Whole]:
    """Returns what occurs in ascending numbers, each once; where it does first; and by number its place among these."""
    first = np.ones(ascending.size, bool)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first], first, np.cumsum(first) - 1


def _reports_with(grams: Whole, owners: Whole, size: int) -> Whole:
    """Returns how many reports have each n-gram, of places and reports in parallel."""
    reports = int(owners.max()) + 1 if owners.size else 1
    both = _distinct(np.sort(grams * reports + owners))[0]
    return np.bincount(both // reports, minlength=size)


@overlap_metric(
    title="CIDEr-D",
    best=10.0,
    source="Vedantam et al. 2015, pycocoevalcap",
    settings="tokeniser: blanks, case: kept, aggregation: mean, document frequency: all references, sigma: 6",
)
def cider_d(pair: AnsweredQuestion) -> float:
    """Ten times the mean cosine, for n from 1 to 4, of n-grams weighted by how few reports of the set have them.

    Clipped, times exp(-d^2 / 72) for texts d words apart, as pycocoevalcap's CIDEr-D; "CIDEr" in papers is nearly
    always this. The reports are all references of the test set, whatever part of it is scored or resampled. Words are
    split at blanks and keep case and punctuation; of several right texts the mean counts. In [0, 10].

    Identical texts have 10, unless they have fewer than four words, or for some n only n-grams that every report has,
    which weigh nothing: each such n costs a quarter. A set of one report has 0. Other sets give other values to the
    same texts, and a difference of ten words costs three quarters, so that reports are punished more than captions.

    Raises:
        UsageError: the right texts of the set were not gathered.
    """
    found = cleaned_of(pair)
    if found is None:
        return math.nan
    corpus, tokenise = pair.corpus, tokeniser_of(split_words, pair.language)
    if corpus is None:
        raise UsageError("Metric 'cider_d' weighs words by all right texts of a set, which only a run gathers")

    def weigh() -> Consensus:
        tidy = partial(cleaned, name=pair.clean) if pair.clean else str
        return Consensus.of([[tokenise(tidy(one)) for one in references] for references in corpus.references])

    consensus = corpus.once(("cider_d", pair.clean, pair.language), weigh)
    return consensus.score(tokenise(found[0]), [tokenise(one) for one in found[1]])
