"""CIDEr-D: n-grams that two texts share, each weighted by how few reports of a set have it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial

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

_OF_ORDER = np.eye(ORDERS)

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
        packed = self._packed(texts)
        packed.sort()
        both, owners = np.divmod(packed, len(texts))
        told, _, among = _distinct(both)
        times = np.bincount(owners * told.size + among, minlength=len(texts) * told.size)
        weights = times.reshape(len(texts), -1) * self.rarity[np.minimum(told // ORDERS, self.starts[-1])]
        of_order = _OF_ORDER[told % ORDERS]
        norms = np.sqrt((weights * weights) @ of_order)
        said, right = weights[:1], weights[1:]
        products = (np.minimum(said, right) * right) @ of_order
        own, *others = norms.tolist()
        alike = [
            _cosine(product, own, norm) * _punished(abs(max(1, len(text)) - max(1, len(reference))))
            for product, norm, reference in zip(products.tolist(), others, references, strict=True)
        ]
        return 10 * (alike[0] if len(alike) == 1 else float(np.mean(alike)))

    def _packed(self, texts: Sequence[Words]) -> Whole:
        """Returns of every n-gram of some texts, in one integer, its number, n - 1, and whose it is.

        Those that the set lacks have numbers behind its own, the same in all of these texts.
        """
        known, most, count = self.words.get, self.starts[-1], len(texts)
        strange: dict[str, int] = {}
        tokens = []
        for one in texts:
            numbers = list(map(known, one))
            if None in numbers:
                numbers = [
                    most + strange.setdefault(word, len(strange)) if number is None else number
                    for word, number in zip(one, numbers, strict=True)
                ]
            tokens.append(np.array(numbers, np.int64))
        ranks, free = tokens, most + len(strange)
        packed = [rank * (ORDERS * count) + owner for owner, rank in enumerate(ranks)]
        for n in range(2, ORDERS + 1):
            pairs = zip(ranks, tokens, strict=True)
            keys = np.concatenate([(rank[:-1] << _SHIFT) | row[n - 1 :] for rank, row in pairs])
            held = self.grams[n - 2]
            among = held.searchsorted(keys)
            strangers = held.take(among, mode="clip") != keys if held.size else np.ones(keys.size, bool)
            among += self.starts[n - 1]
            if (lacking := strangers.nonzero()[0]).size:
                others = keys[lacking]
                among[lacking] = free + np.sort(others).searchsorted(others)
                free += others.size
            of_order, ranks, at = among * (ORDERS * count) + (n - 1) * count, [], 0
            for owner, row in enumerate(tokens):
                behind = at + max(0, row.size - n + 1)
                ranks.append(among[at:behind])
                packed.append(of_order[at:behind] + owner)
                at = behind
        return np.concatenate(packed)


def _cosine(products: Sequence[float], own: Sequence[float], other: Sequence[float]) -> float:
    """Returns the mean cosine over lengths of n-grams, 0 for each that either text has none of."""
    total = 0.0  # added up one by one: `sum` corrects rounding from Python 3.12 on
    for product, one, two in zip(products, own, other, strict=True):
        total += product / (one * two) if one * two > 0 else 0.0
    return total / ORDERS


@cache
def _punished(words: int) -> float:
    """Returns what is left to a text that is so many words longer or shorter; one of a word is as long as an empty."""
    return float(np.exp(-(words * words) / (2 * _SIGMA**2)))


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
