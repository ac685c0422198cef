"""BLEU of answers and reports beside one or more right texts.

BLEU over a test set is no mean of BLEU over texts: n-grams are counted over all texts first. Each case therefore leaves
its counts as rows, and `bleu`, `bleu_13a` and `bleu_13a_exp` are summaries of them: functions of sums, which are added
up anew in every resample. What is judged, and what is an empty text, is as in `texts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from medimg_eval.metrics._replies import ReplyPair
from medimg_eval.metrics._texts_bleu import (
    Real,
    bleu_coco,
    bleu_exp,
    bleu_of,
    bleu_plain,
    evidence_of,
    lengths_of,
    order_of,
    pieces_of,
)
from medimg_eval.metrics._texts_overlap import ORDERS, Counts, Words, counts
from medimg_eval.metrics._texts_words import split_words, words_13a
from medimg_eval.metrics.registry import metric, summary
from medimg_eval.metrics.texts import COCO, PAPINENI, Tokeniser, cleaned_of

_BLANKS = "tokeniser: blanks, case: kept, aggregation: counts of the set"
_13A = "tokeniser: 13a, case: kept, aggregation: counts of the set"


@metric(
    kind="answer",
    title="BLEU (sentence)",
    higher_is_better=True,
    best=1.0,
    worst=0.0,
    source=f"{PAPINENI}; NLTK's sentence_bleu",
    parameter="n",
    parameter_most=ORDERS,
    settings="tokeniser: blanks, case: lower, aggregation: mean, smoothing: none",
)
def sentence_bleu(pair: ReplyPair, n: float) -> float:
    """BLEU of a single answer, without smoothing: clipped n-gram precision up to n and brevity penalty.

    Its mean over cases is the kind of BLEU that MedEvalKit and LLaVA-Med print; `bleu` is that of the test set. Words
    are split at blanks after lower-casing. In [0, 1]; 0 where no n-gram of some length matches, so that
    `sentence_bleu@4` of an answer of three words is 0 even if it is right. Several right texts count together, as in
    `bleu`.
    """
    order, found = order_of("sentence_bleu", n), _counted(pair, _lower_words)
    if found is None:
        return math.nan
    return bleu_of(found.matches[:order], [max(0, found.words - length) for length in range(order)], found.due)


def _lower_words(text: str) -> Words:
    return split_words(text.lower())


@lru_cache(maxsize=8)
def _counts_of(text: str, references: tuple[str, ...], tokenise: Tokeniser) -> Counts:
    return counts(tokenise(text), tuple(tokenise(reference) for reference in references))


def _counted(pair: ReplyPair, tokenise: Tokeniser) -> Counts | None:
    found = cleaned_of(pair)
    return None if found is None else _counts_of(*found, tokenise)


_evidence = partial(metric, kind="answer", source=PAPINENI, evidence=True, worst=math.nan, best=math.nan)


def _count(pair: ReplyPair, tokenise: Tokeniser, which: Callable[[Counts], int]) -> float:
    found = _counted(pair, tokenise)
    return math.nan if found is None else float(which(found))


@_evidence(title="n-grams matched", higher_is_better=True, parameter="n", parameter_most=ORDERS)
def bleu_matches(pair: ReplyPair, n: float) -> float:
    """How many n-grams of the answer a right text has too, clipped, in words between blanks.

    Evidence for `bleu`.
    """
    order = order_of("bleu_matches", n)
    return _count(pair, split_words, lambda found: found.matches[order - 1])


@_evidence(title="Words", higher_is_better=True)
def bleu_words(pair: ReplyPair) -> float:
    """How many words between blanks the answer has.

    Evidence for `bleu`.
    """
    return _count(pair, split_words, lambda found: found.words)


@_evidence(title="Words of the right text", higher_is_better=True)
def bleu_due(pair: ReplyPair) -> float:
    """How many words between blanks the right text has; of several the one nearest in length to the answer.

    Evidence for `bleu`.
    """
    return _count(pair, split_words, lambda found: found.due)


@_evidence(title="n-grams matched (13a)", higher_is_better=True, parameter="n", parameter_most=ORDERS)
def bleu_13a_matches(pair: ReplyPair, n: float) -> float:
    """How many n-grams of the answer a right text has too, clipped, in words by the rule 13a.

    Evidence for `bleu_13a`.
    """
    order = order_of("bleu_13a_matches", n)
    return _count(pair, words_13a, lambda found: found.matches[order - 1])


@_evidence(title="Words (13a)", higher_is_better=True)
def bleu_13a_words(pair: ReplyPair) -> float:
    """How many words by the rule 13a the answer has.

    Evidence for `bleu_13a`.
    """
    return _count(pair, words_13a, lambda found: found.words)


@_evidence(title="Words of the right text (13a)", higher_is_better=True)
def bleu_13a_due(pair: ReplyPair) -> float:
    """How many words by the rule 13a the right text has; of several the one nearest in length to the answer.

    Evidence for `bleu_13a`.
    """
    return _count(pair, words_13a, lambda found: found.due)


@summary(
    needs=evidence_of("bleu"),
    title="BLEU",
    higher_is_better=True,
    best=1.0,
    source=COCO,
    parameter="n",
    settings=f"{_BLANKS}, smoothing: tiny (COCO)",
    pieces=pieces_of("bleu"),
    remark=lengths_of("bleu", "words between blanks"),
)
def bleu(sums: Real, n: float) -> Any:
    """BLEU of the test set up to n-grams of length n: clipped counts are summed over all answers first, as COCO does.

    The geometric mean of the shares of n-grams that match, for 1 to n, times exp(1 - r / c) where the answers' c words
    are fewer than the right texts' r. Words are split at blanks and keep case and punctuation, as in pycocoevalcap when
    it is given plain text. Where no n-gram of some length matches anywhere, its share is 1e-15 of an n-gram, as there.
    In [0, 1]; 0 where all answers are empty.
    """
    return bleu_coco(sums, int(n))


@summary(
    needs=evidence_of("bleu_13a"),
    title="BLEU (13a)",
    higher_is_better=True,
    best=1.0,
    source=PAPINENI,
    parameter="n",
    settings=f"{_13A}, smoothing: none",
    pieces=pieces_of("bleu_13a"),
    remark=lengths_of("bleu_13a", "words by the rule 13a"),
)
def bleu_13a(sums: Real, n: float) -> Any:
    """BLEU of the test set as `bleu`, with words by the rule 13a of mteval: punctuation apart, case kept.

    That of sacreBLEU's corpus_bleu without smoothing, in [0, 1] instead of 0 to 100, and of `evaluate`'s bleu: 0 where
    no n-gram of some length matches anywhere.
    """
    return bleu_plain(sums, int(n))


@summary(
    needs=evidence_of("bleu_13a"),
    title="BLEU (sacreBLEU)",
    higher_is_better=True,
    best=1.0,
    source="Post 2018, sacreBLEU",
    parameter="n",
    settings=f"{_13A}, smoothing: exp",
    pieces=pieces_of("bleu_13a_exp", "bleu_13a"),
    remark=lengths_of("bleu_13a", "words by the rule 13a"),
)
def bleu_13a_exp(sums: Real, n: float) -> Any:
    """BLEU of the test set as `bleu_13a`, smoothed as sacreBLEU does by default.

    The k-th length of n-grams of which none matches counts as if 1 / 2^k matched. In [0, 1] instead of 0 to 100; 0
    where no word matches, and where the answers are too short for n-grams of some length.
    """
    return bleu_exp(sums, int(n))
