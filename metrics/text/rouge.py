"""Overlap of texts: ROUGE, METEOR, CIDEr-D and lengths of answers and reports beside one or more right texts.

The metrics judge answers in free words and reports, and are NaN of other kinds. Where several texts are right, each
definition says which counts. An answer that was not given or not understood is an empty text, which has the worst
value; a right text of nothing but blanks is none, and its answer is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import ReplyPair
from medimg_eval.metrics.nlp import blank_words, split_words, stem, stemmed_words, words
from medimg_eval.metrics.registry import Rows, metric, summary
from medimg_eval.metrics.text.cider import Consensus
from medimg_eval.metrics.text.profiles import cleaned
from medimg_eval.metrics.text.word_overlap import Words, aligned_words, common_subsequence, overlap

PAPINENI = "Papineni et al. 2002"
LIN = "Lin 2004; rouge-score"
COCO = "Chen et al. 2015, pycocoevalcap"
LAVIE = "Banerjee and Lavie 2005; NLTK"
VEDANTAM = "Vedantam et al. 2015, pycocoevalcap"

_BETA = 1.2
"""How much more recall weighs than precision in pycocoevalcap's ROUGE-L."""

Tokeniser = Callable[[str], Words]


def texts_of(pair: ReplyPair) -> tuple[str, tuple[str, ...]] | None:
    """Returns what was answered in free words, "" for nothing, and the texts that are right: both as they are.

    None for a question of another kind, of a model that chose without writing, and where no right text has a letter.
    """
    if pair.kind not in ("open", "report") or pair.preferences is not None or not (right := pair.references):
        return None
    return pair.text, right


def cleaned_of(pair: ReplyPair) -> tuple[str, tuple[str, ...]] | None:
    """Returns the texts of `texts_of` as metrics of words take them: cleaned as the pair says.

    Raises:
        UsageError: there is no cleaner of the pair's name.
    """
    found = texts_of(pair)
    if found is None or not pair.clean:
        return found
    return cleaned(found[0], pair.clean), tuple(cleaned(one, pair.clean) for one in found[1])


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
    found = cleaned_of(pair)
    if found is None:
        return math.nan
    text = tokenise(found[0])
    return max(judge(text, tokenise(reference)) for reference in found[1])


_RUNS = "tokeniser: runs of letters and digits, case: lower, aggregation: mean"
_STEMS = f"{_RUNS}, stemmer: Porter (NLTK) from 4 letters"

_overlap = partial(metric, kind="answer", higher_is_better=True, best=1.0, worst=0.0)


@_overlap(title="ROUGE-1", source=LIN, settings=_RUNS)
def rouge_1(pair: ReplyPair) -> float:
    """The F1 of the words that answer and right text share.

    Words as rouge-score takes them, without its optional stemmer: lower-case runs of letters and digits. Unlike there,
    letters beyond ASCII count, and each Han or kana character is a word. In [0, 1]; of several right texts the best.
    """
    return _best(pair, words, lambda text, reference: rouge_n(text, reference, 1))


@_overlap(title="ROUGE-2", source=LIN, settings=_RUNS)
def rouge_2(pair: ReplyPair) -> float:
    """The F1 of the pairs of neighbouring words that answer and right text share.

    Words as in `rouge_1`. In [0, 1]; 0 for texts of one word; of several right texts the best.
    """
    return _best(pair, words, lambda text, reference: rouge_n(text, reference, 2))


@_overlap(title="ROUGE-L", source=LIN, settings=_RUNS)
def rouge_l(pair: ReplyPair) -> float:
    """The F1 of the longest common subsequence of words of answer and right text.

    Words as in `rouge_1`; recall and precision weigh the same, as in rouge-score. In [0, 1]; of several right texts
    the best. `rouge_l_coco` is the other ROUGE-L.
    """
    return _best(pair, words, rouge_longest)


@_overlap(title="ROUGE-1 (stems)", source=LIN, settings=_STEMS)
def rouge_1_stem(pair: ReplyPair) -> float:
    """The F1 of the words that answer and right text share, after Porter's stemmer.

    As rouge-score with `use_stemmer=True`, which RadEval prints: words of more than three letters are stemmed, by
    NLTK's rules. Otherwise as `rouge_1`.
    """
    return _best(pair, stemmed_words, lambda text, reference: rouge_n(text, reference, 1))


@_overlap(title="ROUGE-2 (stems)", source=LIN, settings=_STEMS)
def rouge_2_stem(pair: ReplyPair) -> float:
    """The F1 of the pairs of neighbouring words that answer and right text share, after Porter's stemmer.

    Stems as in `rouge_1_stem`; otherwise as `rouge_2`.
    """
    return _best(pair, stemmed_words, lambda text, reference: rouge_n(text, reference, 2))


@_overlap(title="ROUGE-L (stems)", source=LIN, settings=_STEMS)
def rouge_l_stem(pair: ReplyPair) -> float:
    """The F1 of the longest common subsequence of words of answer and right text, after Porter's stemmer.

    Stems as in `rouge_1_stem`; otherwise as `rouge_l`.
    """
    return _best(pair, stemmed_words, rouge_longest)


@_overlap(
    title="ROUGE-L (COCO)",
    source=COCO,
    settings="tokeniser: single blanks, case: kept, aggregation: mean, beta: 1.2",
)
def rouge_l_coco(pair: ReplyPair) -> float:
    """The F-score of the longest common subsequence with recall weighted by 1.2, as pycocoevalcap has it.

    Words are split at each blank, and keep case and punctuation: a double blank makes an empty word, and a line break
    is part of one. Of several right texts the best precision and the best recall are taken, each for itself. In [0, 1].
    """
    found = cleaned_of(pair)
    if found is None:
        return math.nan
    text = blank_words(found[0])
    references = [blank_words(reference) for reference in found[1]]
    shared = [common_subsequence(text, reference) for reference in references]
    if not any(shared):
        return 0.0
    precision = max(shared) / len(text)
    recall = max(common / len(reference) for common, reference in zip(shared, references, strict=True))
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


@_overlap(title="METEOR (exact, stem)", source=LAVIE, settings=f"{_RUNS}, matches: words and stems, synonyms: none")
def meteor_stem(pair: ReplyPair) -> float:
    """METEOR of equal words and equal Porter stems, without synonyms.

    The parameters and stems are NLTK's (alpha 0.9, beta 3, gamma 0.5), so this is its METEOR without WordNet, and not
    the Java program's. Words as in `rouge_1`. In [0, 1), for identical texts of w words 1 - 0.5 / w^3; of several right
    texts the best.
    """
    return _best(pair, words, meteor_of)


@metric(
    kind="answer",
    title="CIDEr-D",
    higher_is_better=True,
    best=10.0,
    worst=0.0,
    source=VEDANTAM,
    settings="tokeniser: blanks, case: kept, aggregation: mean, document frequency: all references, sigma: 6",
)
def cider_d(pair: ReplyPair) -> float:
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
    corpus = pair.corpus
    if corpus is None:
        raise UsageError("Metric 'cider_d' weighs words by all right texts of a set, which only a run gathers")

    def weigh() -> Consensus:
        tidy = partial(cleaned, name=pair.clean) if pair.clean else str
        return Consensus.of([[split_words(tidy(one)) for one in references] for references in corpus.references])

    consensus = corpus.once(("cider_d", pair.clean), weigh)
    return consensus.score(split_words(found[0]), [split_words(one) for one in found[1]])


@metric(
    kind="answer",
    title="Length ratio",
    higher_is_better=None,
    best=1.0,
    worst=0.0,
    source="Papineni et al. 2002",
    settings=_RUNS,
)
def length_ratio(pair: ReplyPair) -> float:
    """How many words the answer has for each word of the right text.

    Words as in `rouge_1`. At least 0, which an empty answer has; best 1, for neither more nor fewer words are better;
    NaN where the right text has no words. Of several right texts that counts which is nearest in length, of two that
    are as near the shorter. `length_ratio_quantile` tells how it is spread.
    """
    found = cleaned_of(pair)
    if found is None:
        return math.nan
    said, dues = len(words(found[0])), [len(words(one)) for one in found[1]]
    due = min(dues, key=lambda length: (abs(length - said), length))
    return said / due if due else math.nan


@summary(
    needs=("length_ratio",),
    title="Length ratio, quantile",
    higher_is_better=None,
    best=1.0,
    source=PAPINENI,
    parameter="per cent",
    settings=_RUNS.replace("mean", "quantile"),
)
def length_ratio_quantile(rows: Rows, percent: float) -> float:
    """The length ratio that so many per cent of the answers do not exceed: 50 for the median, 25 and 75 for quartiles.

    Between two answers it is interpolated. Best 1.

    Raises:
        UsageError: more than 100 per cent.
    """
    if percent > 100:
        raise UsageError(f"Expected at most 100 per cent of metric 'length_ratio_quantile', got {percent:g}")
    values = rows.value[~np.isnan(rows.value)]
    return float(np.percentile(values, percent)) if values.size else math.nan
