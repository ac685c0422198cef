"""ROUGE: n-grams and longest common subsequences of words."""

from __future__ import annotations

import math
from functools import partial

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.nlp import blank_words, stemmed_words, words
from medimg_eval.metrics.text.gram_counts import Words
from medimg_eval.metrics.text.texts import COCO, RUNS, best_of, cleaned_of, tokeniser_of
from medimg_eval.metrics.text.word_overlap import common_subsequence, overlap

_rouge = partial(answer_share, source="Lin 2004; rouge-score", settings=RUNS)
_rouge_stem = partial(_rouge, settings=f"{RUNS}, stemmer: Porter (NLTK) from 4 letters")

_BETA = 1.2
"""How much more recall weighs than precision in pycocoevalcap's ROUGE-L."""


def rouge_n(text: Words, reference: Words, n: int) -> float:
    """Returns ROUGE-N: F1 of shared n-grams; empty 0."""
    shared = overlap(text, reference, n)
    return _overlap_f1(shared, max(0, len(text) - n + 1), max(0, len(reference) - n + 1))


def rouge_longest(text: Words, reference: Words) -> float:
    """Returns ROUGE-L: F1 of the longest common word subsequence; 0 of an empty text."""
    return _overlap_f1(common_subsequence(text, reference), len(text), len(reference))


def _overlap_f1(shared: int, said: int, due: int) -> float:
    return 2 * shared / (said + due) if shared else 0.0


@_rouge(title="ROUGE-1")
def rouge_1(pair: AnsweredQuestion) -> float:
    """The F1 of the words that answer and right text share.

    Words as rouge-score takes them, without its optional stemmer: lower-case runs of letters and digits. Unlike there,
    letters beyond ASCII count, and each Han or kana character is a word. In [0, 1]; of several right texts the best.
    """
    return best_of(pair, words, lambda text, reference: rouge_n(text, reference, 1))


@_rouge(title="ROUGE-2")
def rouge_2(pair: AnsweredQuestion) -> float:
    """The F1 of the pairs of neighbouring words that answer and right text share.

    Words as in `rouge_1`. In [0, 1]; 0 for texts of one word; of several right texts the best.
    """
    return best_of(pair, words, lambda text, reference: rouge_n(text, reference, 2))


@_rouge(title="ROUGE-L")
def rouge_l(pair: AnsweredQuestion) -> float:
    """The F1 of the longest common subsequence of words of answer and right text.

    Words as in `rouge_1`; recall and precision weigh the same, as in rouge-score. In [0, 1]; of several right texts
    the best. `rouge_l_coco` is the other ROUGE-L.
    """
    return best_of(pair, words, rouge_longest)


@_rouge_stem(title="ROUGE-1 (stems)")
def rouge_1_stem(pair: AnsweredQuestion) -> float:
    """The F1 of the words that answer and right text share, after Porter's stemmer.

    It equals rouge-score with `use_stemmer=True`, which RadEval prints: words of more than three letters are stemmed,
    by NLTK's rules. All else is as in `rouge_1`.
    """
    return best_of(pair, stemmed_words, lambda text, reference: rouge_n(text, reference, 1))


@_rouge_stem(title="ROUGE-2 (stems)")
def rouge_2_stem(pair: AnsweredQuestion) -> float:
    """The F1 of the pairs of neighbouring words that answer and right text share, after Porter's stemmer.

    Stems as in `rouge_1_stem`; otherwise as `rouge_2`.
    """
    return best_of(pair, stemmed_words, lambda text, reference: rouge_n(text, reference, 2))


@_rouge_stem(title="ROUGE-L (stems)")
def rouge_l_stem(pair: AnsweredQuestion) -> float:
    """The F1 of the longest common subsequence of words of answer and right text, after Porter's stemmer.

    Stems as in `rouge_1_stem`; otherwise as `rouge_l`.
    """
    return best_of(pair, stemmed_words, rouge_longest)


@answer_share(
    title="ROUGE-L (COCO)",
    source=COCO,
    settings="tokeniser: single blanks, case: kept, aggregation: mean, beta: 1.2",
)
def rouge_l_coco(pair: AnsweredQuestion) -> float:
    """The F-score of the longest common subsequence with recall weighted by 1.2, as pycocoevalcap has it.

    Words are split at each blank, and keep case and punctuation: a double blank makes an empty word, and a line break
    is part of one. Of several right texts the best precision and the best recall are taken, each for itself. In [0, 1].
    """
    texts = cleaned_of(pair)
    if texts is None:
        return math.nan
    tokenise = tokeniser_of(blank_words, pair.language)
    text = tokenise(texts[0])
    references = [tokenise(reference) for reference in texts[1]]
    shared = [common_subsequence(text, reference) for reference in references]
    if not any(shared):
        return 0.0
    precision = max(shared) / len(text)
    recall = max(common / len(reference) for common, reference in zip(shared, references, strict=True))
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)
