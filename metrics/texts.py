"""Overlap of texts: BLEU, ROUGE, METEOR, in pure Python, of answers and reports beside one or more right texts.

The metrics judge answers in free words and reports, and are NaN of other kinds. Where several texts are right, each
definition says which counts. An answer that was not given or not understood is an empty text.

BLEU over a test set is no mean of BLEU over texts: n-grams are counted over all texts first. Each case therefore leaves
its counts as rows, and `bleu` and `bleu_13a` are summaries of them, whose intervals count anew in every resample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics._replies import ReplyPair
from medimg_eval.metrics._texts_overlap import ORDERS, Counts, Words, aligned_words, common_subsequence, counts, overlap
from medimg_eval.metrics._texts_stems import stem
from medimg_eval.metrics._texts_words import split_words, words, words_13a
from medimg_eval.metrics.registry import Rows, metric, summary

PAPINENI = "Papineni et al. 2002"
LIN = "Lin 2004; rouge-score"
COCO = "Chen et al. 2015, pycocoevalcap"
LAVIE = "Banerjee and Lavie 2005; NLTK"

_BETA = 1.2
"""How much more recall weighs than precision in pycocoevalcap's ROUGE-L."""

Tokeniser = Callable[[str], Words]


def texts_of(pair: ReplyPair) -> tuple[str, tuple[str, ...]] | None:
    """Returns what was answered in free words, "" for nothing, and the texts that are right.

    None for a question of another kind, of a model that chose without writing, and where no right text has a letter.
    """
    if pair.kind not in ("open", "report") or pair.preferences is not None or not pair.references:
        return None
    return pair.text, pair.references


def bleu_of(matches: Sequence[int], said: Sequence[int], due: int) -> float:
    """Returns BLEU of what was counted, of one text or summed over many.

    The geometric mean of the shares of n-grams that match, times exp(1 - r / c) where the c words said are fewer than
    the r words of the references. No smoothing: 0 where no n-gram of some length matches.

    Args:
        matches: by n from 1: n-grams that match, clipped.
        said: by n from 1: n-grams that were said.
        due: words of the references.
    """
    if not all(matches):
        return 0.0
    mean = sum(math.log(match / total) for match, total in zip(matches, said, strict=True)) / len(said)
    return math.exp(mean + min(0.0, 1 - due / said[0]))


def rouge_n(text: Words, reference: Words, n: int) -> float:
    """Returns ROUGE-N: the F1 of the n-grams that two texts share. 0 where either has none."""
    shared = overlap(text, reference, n)
    return _f1(shared, max(0, len(text) - n + 1), max(0, len(reference) - n + 1))


def rouge_longest(text: Words, reference: Words) -> float:
    """Returns ROUGE-L: the F1 of the longest common subsequence of words. 0 where either text is empty."""
    return _f1(common_subsequence(text, reference), len(text), len(reference))


def meteor_of(text: Words, reference: Words) -> float:
    """Returns METEOR of words that are equal or have the same stem, without synonyms.

    With m words aligned in c runs, P = m / words said, R = m / words of the reference:
    P R / (0.9 P + 0.1 R) (1 - 0.5 (c / m)^3). Identical texts of w words have 1 - 0.5 / w^3.
    """
    found = aligned_words(text, reference, stem)
    if not found.matches:
        return 0.0
    precision, recall = found.matches / len(text), found.matches / len(reference)
    mean = precision * recall / (0.9 * precision + 0.1 * recall)
    return mean * (1 - 0.5 * (found.chunks / found.matches) ** 3)


def _f1(shared: int, said: int, due: int) -> float:
    return 2 * shared / (said + due) if shared else 0.0


def _best(pair: ReplyPair, tokenise: Tokeniser, judge: Callable[[Words, Words], float]) -> float:
    """Returns the best value over the right texts, which is NaN where there is nothing to judge."""
    found = texts_of(pair)
    if found is None:
        return math.nan
    text = tokenise(found[0])
    return max(judge(text, tokenise(reference)) for reference in found[1])


_overlap = partial(metric, kind="answer", higher_is_better=True, best=1.0, worst=0.0)


@_overlap(title="BLEU (sentence)", source=f"{PAPINENI}; NLTK's sentence_bleu", parameter="n", parameter_most=ORDERS)
def sentence_bleu(pair: ReplyPair, n: float) -> float:
    """BLEU of a single answer, without smoothing: clipped n-gram precision up to n and brevity penalty.

    Its mean over cases is the kind of BLEU that MedEvalKit and LLaVA-Med print; `bleu` is that of the test set. Words
    are split at blanks after lower-casing. In [0, 1]; 0 where no n-gram of some length matches, so that
    `sentence_bleu@4` of an answer of three words is 0 even if it is right. Several right texts count together, as in
    `bleu`.
    """
    order, found = _order("sentence_bleu", n), _counted(pair, lambda text: split_words(text.lower()))
    if found is None:
        return math.nan
    return bleu_of(found.matches[:order], [max(0, found.words - length) for length in range(order)], found.due)


@_overlap(title="ROUGE-1", source=LIN)
def rouge_1(pair: ReplyPair) -> float:
    """The F1 of the words that answer and right text share.

    Words as rouge-score takes them, without its optional stemmer: lower-case runs of letters and digits. Unlike there,
    letters beyond ASCII count, and each Han or kana character is a word. In [0, 1]; of several right texts the best.
    """
    return _best(pair, words, lambda text, reference: rouge_n(text, reference, 1))


@_overlap(title="ROUGE-2", source=LIN)
def rouge_2(pair: ReplyPair) -> float:
    """The F1 of the pairs of neighbouring words that answer and right text share.

    Words as in `rouge_1`. In [0, 1]; 0 for texts of one word; of several right texts the best.
    """
    return _best(pair, words, lambda text, reference: rouge_n(text, reference, 2))


@_overlap(title="ROUGE-L", source=LIN)
def rouge_l(pair: ReplyPair) -> float:
    """The F1 of the longest common subsequence of words of answer and right text.

    Words as in `rouge_1`; recall and precision weigh the same, as in rouge-score. In [0, 1]; of several right texts
    the best. `rouge_l_coco` is the other ROUGE-L.
    """
    return _best(pair, words, rouge_longest)


@_overlap(title="ROUGE-L (COCO)", source=COCO)
def rouge_l_coco(pair: ReplyPair) -> float:
    """The F-score of the longest common subsequence with recall weighted by 1.2, as pycocoevalcap has it.

    Words are split at blanks, and keep case and punctuation. Of several right texts the best precision and the best
    recall are taken, each for itself. In [0, 1].
    """
    found = texts_of(pair)
    if found is None:
        return math.nan
    text = split_words(found[0])
    references = [split_words(reference) for reference in found[1]]
    shared = [common_subsequence(text, reference) for reference in references]
    if not any(shared):
        return 0.0
    precision = max(shared) / len(text)
    recall = max(common / len(reference) for common, reference in zip(shared, references, strict=True))
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


@_overlap(title="METEOR (exact, stem)", source=LAVIE)
def meteor_stem(pair: ReplyPair) -> float:
    """METEOR of equal words and equal Porter stems, without synonyms.

    The parameters are NLTK's (alpha 0.9, beta 3, gamma 0.5), so this is its METEOR without WordNet, and not the Java
    program's. Words as in `rouge_1`. In [0, 1); of several right texts the best.
    """
    return _best(pair, words, meteor_of)


def _counted(pair: ReplyPair, tokenise: Tokeniser) -> Counts | None:
    found = texts_of(pair)
    if found is None:
        return None
    return counts(tokenise(found[0]), tuple(tokenise(reference) for reference in found[1]))


_evidence = partial(metric, kind="answer", source=PAPINENI, evidence=True, worst=math.nan, best=math.nan)


def _count(pair: ReplyPair, tokenise: Tokeniser, which: Callable[[Counts], int]) -> float:
    found = _counted(pair, tokenise)
    return math.nan if found is None else float(which(found))


@_evidence(title="n-grams matched", higher_is_better=True, parameter="n", parameter_most=ORDERS)
def bleu_matches(pair: ReplyPair, n: float) -> float:
    """How many n-grams of the answer a right text has too, clipped, in words between blanks.

    Evidence for `bleu`.
    """
    order = _order("bleu_matches", n)
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
    order = _order("bleu_13a_matches", n)
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


def _evidence_of(name: str) -> tuple[str, ...]:
    return (*(f"{name}_matches@{n}" for n in range(1, ORDERS + 1)), f"{name}_words", f"{name}_due")


@summary(needs=_evidence_of("bleu"), title="BLEU", higher_is_better=True, best=1.0, source=COCO, parameter="n")
def bleu(rows: Rows, n: float) -> float:
    """BLEU of the test set up to n-grams of length n: clipped counts are summed over all answers first, as COCO does.

    The geometric mean of the shares of n-grams that match, for 1 to n, times exp(1 - r / c) where the answers' c words
    are fewer than the right texts' r. Words are split at blanks and keep case and punctuation, as in pycocoevalcap when
    it is given plain text. No smoothing: 0 where no n-gram of some length matches anywhere, where pycocoevalcap gives
    a small number. In [0, 1].
    """
    return _corpus("bleu", rows, n)


@summary(
    needs=_evidence_of("bleu_13a"), title="BLEU (13a)", higher_is_better=True, best=1.0, source=PAPINENI, parameter="n"
)
def bleu_13a(rows: Rows, n: float) -> float:
    """BLEU of the test set as `bleu`, with words by the rule 13a of mteval: punctuation apart, case kept.

    That of sacreBLEU's corpus_bleu without smoothing, in [0, 1] instead of 0 to 100, and of `evaluate`'s bleu.
    """
    return _corpus("bleu_13a", rows, n)


def _corpus(name: str, rows: Rows, n: float) -> float:
    order = _order(name, n)
    words_said = rows.of(f"{name}_words").value
    if np.isnan(words_said).all():
        return math.nan
    matches = [int(np.nansum(rows.of(f"{name}_matches@{length}").value)) for length in range(1, order + 1)]
    said = [int(np.nansum(np.maximum(0, words_said - length))) for length in range(order)]
    return bleu_of(matches, said, int(np.nansum(rows.of(f"{name}_due").value)))


def _order(name: str, n: float) -> int:
    if n not in range(1, ORDERS + 1):
        raise UsageError(f"Expected n of metric {name!r} to be 1, 2, 3 or 4, as in '{name}@4', got {n:g}")
    return int(n)
