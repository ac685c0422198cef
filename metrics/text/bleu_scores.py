"""BLEU of answers and reports beside one or more right texts.

BLEU over a test set is no mean of BLEU over texts: n-grams are counted over all texts first. Each case therefore leaves
its counts as rows, and `bleu`, `bleu_13a` and `bleu_13a_exp` are summaries of them: functions of sums, which are added
up anew in every resample. What is judged, and what is an empty text, is as in `texts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import answer_share, share_summary
from medimg_eval.metrics.nlp import split_words, words_13a, words_intl
from medimg_eval.metrics.registry import ScoreTable, metric
from medimg_eval.metrics.text.cider import count_beside_cider
from medimg_eval.metrics.text.gram_counts import ORDERS, Pairing, Words, count_together
from medimg_eval.metrics.text.texts import COCO, PAPINENI, Tokeniser, cleaned_of, tokeniser_of, unserved, with_others
from medimg_eval.metrics.text.word_overlap import Counts, clipped_counts

_TINY, _SMALL = 1e-15, 1e-9
"""What pycocoevalcap adds to matches and to n-grams, so that nothing is divided by 0."""

_FLOOR = 0.1
"""Matches that sacreBLEU's `floor` and NLTK's method 1 count where there is none."""


def order_of(name: str, n: float) -> int:
    """Returns n as integer; UsageError unless 1 to 4."""
    if n not in range(1, ORDERS + 1):
        raise UsageError(f"Expected n of metric {name!r} to be 1, 2, 3 or 4, as in '{name}@4', got {n:g}")
    return int(n)


def evidence_of(name: str) -> tuple[str, ...]:
    """Returns the names of the metrics that leave the counts of a BLEU."""
    return (*(f"{name}_matches@{n}" for n in range(1, ORDERS + 1)), f"{name}_words", f"{name}_reference_length")


def pieces_of(name: str, evidence: str = "") -> Callable[[ScoreTable, float], Floats]:
    """Returns what tells for each row of a BLEU's evidence what it adds.

    Columns are, by n, the n-grams that match; by n, the n-grams that were said; last the words of the right text.
    """

    def pieces(rows: ScoreTable, n: float) -> Floats:
        order = order_of(name, n)
        pieces = np.zeros((rows.value.size, 2 * order + 1))
        values = np.nan_to_num(rows.value)
        for length, need in enumerate(evidence_of(evidence or name)[:order]):
            own = rows.metric == need
            pieces[own, length] = values[own]
        *_, words, due = evidence_of(evidence or name)
        own = rows.metric == words
        pieces[own, order:-1] = np.maximum(0, values[own, None] - np.arange(order))
        own = rows.metric == due
        pieces[own, -1] = values[own]
        return pieces

    return pieces


def lengths_of(evidence: str, words: str) -> Callable[[ScoreTable, float], str]:
    """Returns answer lengths of BLEU evidence, needed for interpretation."""

    def remark(rows: ScoreTable, n: float) -> str:
        predicted_length, due = (rows.of(need).value for need in evidence_of(evidence)[-2:])
        ratios = predicted_length[due > 0] / due[due > 0]
        if not ratios.size:
            return ""
        lower, median, upper = np.percentile(ratios, [25, 50, 75]).tolist()
        return f"{words} for each one of the right text: median {median:.2f}, quartiles {lower:.2f} and {upper:.2f}"

    return remark


def _split_sums(sums: Floats, order: int) -> tuple[Floats, Floats, Floats]:
    """Returns matches, answer n-grams (..., n), and reference words (...)."""
    return sums[..., :order], sums[..., order:-1], sums[..., -1]


def _brevity_penalty(said: Floats, due: Floats) -> Floats:
    """Returns the brevity penalty exp(1 - r / c), at most 1; empty 0."""
    words = said[..., 0]
    shorter = 1 - due / np.where(words > 0, words, np.inf)
    return np.where(words > 0, np.exp(np.minimum(0, np.where(words > 0, shorter, 0))), 0.0)


def _geometric_mean(shares: Floats) -> Floats:
    """Returns the geometric mean over the last axis; zeros give 0."""
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(shares).mean(axis=-1)
    return np.exp(logs)


def _mask_values(values: Floats, due: Floats) -> Floats:
    return np.where(due > 0, values, math.nan)


def bleu_coco(sums: Floats, order: int) -> Floats:
    """Returns pycocoevalcap's BLEU of summed counts, with tiny shares for 0."""
    matches, predicted_words, due = _split_sums(sums, order)
    shares = np.where(matches > 0, matches / np.maximum(predicted_words, 1), _TINY / (predicted_words + _SMALL))
    return _mask_values(_geometric_mean(shares) * _brevity_penalty(predicted_words, due), due)


def bleu_smoothed(sums: Floats, order: int, smoothing: str = "none", *, effective: bool = False) -> Floats:
    """Returns BLEU of summed counts, smoothed as sacreBLEU; unmatched 0.

    Args:
        sums: (..., 2 order + 1): by n the n-grams that match, by n those that were said, the words of the right text.
        order: the longest n-grams.
        smoothing: what a length without a match counts: `none` 0, `floor` 0.1 matches, `exp` 1 / 2^k matches if it is
            the k-th of its kind; or `add_k`, which adds 1 to matches and n-grams of all lengths but words.
        effective: leaves out lengths that the texts are too short for, which otherwise make 0 of it.
    """
    matches, predicted_counts, due = _split_sums(sums, order)
    some, brevity = (matches > 0).any(axis=-1), _brevity_penalty(predicted_counts, due)
    if smoothing == "add_k":
        added = np.arange(order) > 0
        matches, predicted_counts = matches + added, predicted_counts + added
    lacking = matches == 0
    if smoothing == "exp":
        matches = np.where(lacking, 0.5 ** np.cumsum(lacking, axis=-1), matches)
    elif smoothing == "floor":
        matches = np.where(lacking, _FLOOR, matches)
    shares, held = matches / np.maximum(predicted_counts, 1), predicted_counts > 0
    if not effective:
        return _mask_values(np.where(some & held.all(axis=-1), _geometric_mean(shares) * brevity, 0.0), due)
    with np.errstate(divide="ignore"):
        logs = np.where(held, np.log(shares), 0.0).sum(axis=-1) / np.maximum(held.sum(axis=-1), 1)
    return _mask_values(np.where(some, np.exp(logs) * brevity, 0.0), due)


def bleu_of(matches: Sequence[int], said: Sequence[int], due: int) -> float:
    """Returns BLEU of what was counted, of one text or summed over many.

    The geometric mean of the shares of n-grams that match, times exp(1 - r / c) where the c words said are fewer than
    the r words due of the references. No smoothing: 0 where no n-gram of some length matches. n-grams are counted by n
    from 1; those that match are clipped.
    """
    if not all(matches):
        return 0.0
    mean = sum(math.log(match / total) for match, total in zip(matches, said, strict=True)) / len(said)
    return math.exp(mean + min(0.0, 1 - due / said[0]))


_BLANKS = "tokeniser: blanks, case: kept, aggregation: counts of the set"
_13A = "tokeniser: 13a, case: kept, aggregation: counts of the set"

_bleu_13a = partial(
    share_summary, needs=evidence_of("bleu_13a"), parameter="n", remark=lengths_of("bleu_13a", "words by the rule 13a")
)


@answer_share(
    title="BLEU (sentence)",
    source=f"{PAPINENI}; NLTK's sentence_bleu",
    parameter="n",
    parameter_most=ORDERS,
    settings="tokeniser: blanks, case: lower, aggregation: mean, smoothing: none",
)
def sentence_bleu(pair: AnsweredQuestion, n: float) -> float:
    """BLEU of a single answer, without smoothing: clipped n-gram precision up to n and brevity penalty.

    Its mean over cases is the kind of BLEU that MedEvalKit and LLaVA-Med print; `bleu` is that of the test set. Words
    are split at blanks after lower-casing. In [0, 1]; 0 where no n-gram of some length matches, so that
    `sentence_bleu@4` of an answer of three words is 0 even if it is right. Several right texts count together, as in
    `bleu`.
    """
    order, counts = order_of("sentence_bleu", n), counted(pair, split_words, lower=True)
    if counts is None:
        return math.nan
    return bleu_of(counts.matches[:order], [max(0, counts.words - length) for length in range(order)], counts.due)


def counted(pair: AnsweredQuestion, tokenise: Tokeniser, *, lower: bool = False) -> Counts | None:
    """Returns counts of a pair; None without text or words.

    A fixed tokeniser that needs blanks between words gives None for languages without.

    Args:
        pair: of texts.
        tokenise: `split_words`, which stands for the tokeniser of the pair's language, or another, which stays.
        lower: whether texts are taken in lower case.
    """
    texts, fixed = cleaned_of(pair), tokenise is not split_words
    if texts is None or (fixed and unserved(["bleu_13a"], pair.language)):
        return None
    return with_others(pair, _counts_of, tokenise if fixed else tokeniser_of(tokenise, pair.language), lower)


def _counts_of(pairs: Sequence[AnsweredQuestion], tokenise: Tokeniser, lower: bool) -> list[Counts]:
    def split(text: str) -> Words:
        return tokenise(text.lower() if lower else text)

    pairings = (Pairing.of(*both, split) for pair in pairs if (both := cleaned_of(pair)))
    return clipped_counts(count_together(pairings) if lower else count_beside_cider(pairs, pairings, tokenise))


def declare_counts(name: str, tokenise: Tokeniser, words: str, mark: str = "") -> None:
    """Declares the metrics that leave the counts of a BLEU: `NAME_matches`, `NAME_words`, `NAME_reference_length`."""

    def count(pair: AnsweredQuestion, which: Callable[[Counts], int]) -> float:
        counts = counted(pair, tokenise)
        return math.nan if counts is None else float(which(counts))

    def matches(pair: AnsweredQuestion, n: float) -> float:
        order = order_of(f"{name}_matches", n)
        return count(pair, lambda found: found.matches[order - 1])

    def said(pair: AnsweredQuestion) -> float:
        return count(pair, lambda found: found.words)

    def reference_length(pair: AnsweredQuestion) -> float:
        return count(pair, lambda found: found.due)

    matches.__doc__ = f"How many n-grams of the answer a right text has too, clipped, in {words}."
    said.__doc__ = f"How many {words} the answer has."
    reference_length.__doc__ = (
        f"How many {words} the right text has; of several the one nearest in length to the answer."
    )
    some: dict[str, Any] = {"parameter": "n", "parameter_most": ORDERS}
    for full, function, title, facts in (
        (f"{name}_matches", matches, "n-grams matched", some),
        (f"{name}_words", said, "Words", {}),
        (f"{name}_reference_length", reference_length, "Words of the right text", {}),
    ):
        function.__doc__ = f"{function.__doc__}\n\nEvidence for `{name}`."
        function.__qualname__ = full
        metric(
            kind="answer",
            name=full,
            title=title + mark,
            source=PAPINENI,
            intermediate=True,
            worst=math.nan,
            best=math.nan,
            higher_is_better=True,
            value_kind="count",
            **facts,
        )(function)


declare_counts("bleu", split_words, "words between blanks")
declare_counts("bleu_13a", words_13a, "words by the rule 13a", " (13a)")
declare_counts("bleu_intl", words_intl, "words by sacreBLEU's `intl`", " (intl)")


@share_summary(
    needs=evidence_of("bleu"),
    title="BLEU",
    source=COCO,
    parameter="n",
    settings=f"{_BLANKS}, smoothing: tiny (COCO)",
    pieces=pieces_of("bleu"),
    remark=lengths_of("bleu", "words between blanks"),
)
def bleu(sums: Floats, n: float) -> Any:
    """BLEU of the test set up to n-grams of length n: clipped counts are summed over all answers first, as COCO does.

    The geometric mean of the shares of n-grams that match, for 1 to n, times exp(1 - r / c) where the answers' c words
    are fewer than the right texts' r. Words are split at blanks and keep case and punctuation, as in pycocoevalcap when
    it is given plain text. Where no n-gram of some length matches anywhere, its share is 1e-15 of an n-gram, as there.
    In [0, 1]; 0 where all answers are empty.
    """
    return bleu_coco(sums, int(n))


@_bleu_13a(title="BLEU (13a)", source=PAPINENI, settings=f"{_13A}, smoothing: none", pieces=pieces_of("bleu_13a"))
def bleu_13a(sums: Floats, n: float) -> Any:
    """BLEU of the test set as `bleu`, with words by the rule 13a of mteval: punctuation apart, case kept.

    That of sacreBLEU's corpus_bleu without smoothing, in [0, 1] instead of 0 to 100, and of `evaluate`'s bleu: 0 where
    no n-gram of some length matches anywhere.
    """
    return bleu_smoothed(sums, int(n))


@_bleu_13a(
    title="BLEU (sacreBLEU)",
    source="Post 2018, sacreBLEU",
    settings=f"{_13A}, smoothing: exp",
    pieces=pieces_of("bleu_13a_exp", "bleu_13a"),
)
def bleu_13a_exp(sums: Floats, n: float) -> Any:
    """BLEU of the test set as `bleu_13a`, smoothed as sacreBLEU does by default.

    The k-th length of n-grams of which none matches counts as if 1 / 2^k matched. In [0, 1] instead of 0 to 100; 0
    where no word matches, and where the answers are too short for n-grams of some length.
    """
    return bleu_smoothed(sums, int(n), "exp")
