"""CIDEr-D: n-grams that two texts share, each weighted by how few reports of a set have it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.arrays import Floats, Ints
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.nlp import Corpus, split_words
from medimg_eval.metrics.text.gram_counts import ORDERS, SHIFT, GramCounts, Known, Pairing, Whole, Words, count_together
from medimg_eval.metrics.text.profiles import cleaned
from medimg_eval.metrics.text.texts import Tokeniser, cleaned_of, tokeniser_of, with_others

_SIGMA = 6.0
"""Words that a text may be longer or shorter before it is punished much."""


@dataclass(frozen=True, eq=False)
class Consensus:
    """Document frequencies of n-grams in reports, n from 1 to 4.

    Attributes:
        known: the n-grams of the set.
        rarity: by n-gram: log of the reports over those that have it; last that of an n-gram that none has.
    """

    known: Known
    rarity: Floats

    @classmethod
    def of(cls, reports: Sequence[Sequence[Words]]) -> Consensus:
        """Counts the n-grams of reports with one or more references, once per report."""
        texts = [text for references in reports for text in references]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        owners = np.repeat(np.arange(len(reports)), [len(references) for references in reports])
        owner, text = np.repeat(owners, lengths), np.repeat(np.arange(len(texts)), lengths)
        numbers: dict[str, int] = {}
        flat = (numbers.setdefault(word, len(numbers)) for text in texts for word in text)
        tokens = np.fromiter(flat, np.int64, int(lengths.sum()))
        grams, sizes, counted, rank = [], [len(numbers)], [_reports_with(tokens, owner, len(numbers))], tokens
        for n in range(2, ORDERS + 1):
            inside = text[: len(text) - n + 1] == text[n - 1 :]
            keys = (rank[: inside.size] << SHIFT) | tokens[n - 1 :]
            keys = keys[inside]
            ascending = keys.argsort(kind="stable")
            unique, positions = _distinct_numbers(keys[ascending])
            among = np.empty_like(positions)
            among[ascending] = positions
            rank = np.zeros(inside.size, np.int64)
            rank[inside] = among + sum(sizes)
            grams.append(unique)
            sizes.append(unique.size)
            counted.append(_reports_with(among, owner[: inside.size][inside], unique.size))
        most = math.log(max(1, len(reports)))
        return cls(
            Known(numbers, tuple(grams), tuple(np.cumsum([0, *sizes]).tolist())),
            np.append(most - np.log(np.concatenate(counted)), most),
        )

    def scores(self, pairings: Iterable[Pairing]) -> list[float]:
        """Returns CIDEr-D of texts: 10 times the mean likeness to their references."""
        return [score for counts in count_together(pairings, self.known) for score in self.scores_of(counts)]

    def scores_of(self, counts: GramCounts) -> list[float]:
        """Returns CIDEr-D of texts whose n-grams were counted by the numbers of the set."""
        weights = counts.times * self.rarity[np.minimum(counts.gram, self.known.starts[-1])]
        norms = np.sqrt(counts.sums(np.arange(weights.size), weights * weights))
        right, text_counts = counts.shared
        products = counts.sums(right, np.minimum(weights[text_counts], weights[right]) * weights[right])
        apart = np.maximum(1, counts.lengths) - np.maximum(1, counts.lengths[counts.leader])
        similarities = _mean_cosines(products, norms[counts.leader] * norms) * np.exp(
            -(apart * apart) / (2 * _SIGMA**2)
        )
        begins, scores = counts.leaders.tolist(), similarities.tolist()
        return [
            10 * (scores[begin + 1] if end == begin + 2 else float(np.mean(scores[begin + 1 : end])))
            for begin, end in zip(begins, [*begins[1:], len(scores)], strict=True)
        ]


def _mean_cosines(products: Floats, norms: Floats) -> Floats:
    """Returns mean cosines over n, empty ones 0: (text, n) -> (text)."""
    each = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return np.asarray((each[:, 0] + each[:, 1] + each[:, 2] + each[:, 3]) / ORDERS)


def _distinct_numbers(ascending: Whole) -> tuple[Whole, Whole]:
    """Returns distinct ascending numbers, and each number's index."""
    first = np.ones(ascending.size, bool)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first], np.cumsum(first) - 1


def _reports_with(grams: Whole, owners: Whole, size: int) -> Ints:
    """Returns how many reports have each n-gram, of places and reports in parallel."""
    reports = int(owners.max()) + 1 if owners.size else 1
    both = _distinct_numbers(np.sort(grams * reports + owners))[0]
    return np.bincount(both // reports, minlength=size)


@answer_share(
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
    texts = cleaned_of(pair)
    if texts is None:
        return math.nan
    if pair.corpus is None:
        raise UsageError("Metric 'cider_d' weighs words by all right texts of a set, which only a run gathers")
    return with_others(pair, _cider_values, pair.corpus)


def count_beside_cider(
    pairs: Sequence[AnsweredQuestion], pairings: Iterable[Pairing], tokenise: Tokeniser
) -> Iterator[GramCounts]:
    """Yields the counts of pairs, as `count_together`.

    Where CIDEr-D is judged of the set, and by the same words, its values of these pairs come of the same counts.
    """
    corpus = pairs[0].corpus
    consensus = None if corpus is None else corpus.held(_consensus_key(pairs[0]))
    if not isinstance(consensus, Consensus) or tokenise is not tokeniser_of(split_words, pairs[0].language):
        yield from count_together(pairings)
        return
    scores: list[float] = []
    for counts in count_together(pairings, consensus.known):
        scores += consensus.scores_of(counts)
        yield counts
    for pair, score in zip(pairs, scores, strict=True):
        pair.measured[_cider_values, (corpus,)] = score


def _consensus_key(pair: AnsweredQuestion) -> tuple[str, ...]:
    return "cider_d", pair.clean, pair.language


def _cider_values(pairs: Sequence[AnsweredQuestion], corpus: Corpus) -> list[float]:
    clean, language = pairs[0].clean, pairs[0].language
    tokenise = tokeniser_of(split_words, language)

    def weigh() -> Consensus:
        tidy = partial(cleaned, name=clean) if clean else str
        return Consensus.of(
            [[tokenise(tidy(reference)) for reference in references] for references in corpus.references]
        )

    consensus = corpus.once(_consensus_key(pairs[0]), weigh)
    return consensus.scores(Pairing.of(*both, tokenise) for pair in pairs if (both := cleaned_of(pair)))
