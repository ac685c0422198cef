"""METEOR: words and stems aligned, and in how many runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.nlp import ENGLISH, stem, words
from medimg_eval.metrics.registry import comparisons
from medimg_eval.metrics.text.gram_counts import Words
from medimg_eval.metrics.text.texts import RUNS, best_of, read_part
from medimg_eval.metrics.text.word_overlap import aligned_words


def meteor_of(
    text: Words,
    reference: Words,
    stem: Callable[[str], str] = stem,
    synonyms: Callable[[str], Collection[str]] | None = None,
) -> float:
    """Returns METEOR by equal words, stems, and optional `synonyms`.

    With m words aligned in c runs, P = m / words said, R = m / words of the reference:
    P R / (0.9 P + 0.1 R) (1 - 0.5 (c / m)^3). Identical texts of w words have 1 - 0.5 / w^3.
    """
    alignment = aligned_words(text, reference, stem, synonyms)
    if not alignment.matches:
        return 0.0
    precision, recall = alignment.matches / len(text), alignment.matches / len(reference)
    mean = precision * recall / (0.9 * precision + 0.1 * recall)
    return mean * (1 - 0.5 * (alignment.chunks / alignment.matches) ** 3)


@answer_share(
    title="METEOR (exact, stem)",
    source="Banerjee and Lavie 2005; NLTK",
    settings=f"{RUNS}, matches: words and stems, synonyms: none",
)
def meteor_no_synonyms(pair: AnsweredQuestion) -> float:
    """METEOR of equal words and equal Porter stems, without synonyms.

    The parameters and stems are NLTK's (alpha 0.9, beta 3, gamma 0.5), so this is its METEOR without WordNet, and not
    the Java program's. Words as in `rouge_1`. In [0, 1), for identical texts of w words 1 - 0.5 / w^3; of several right
    texts the best.
    """
    # Porter's stems are English: of other languages only equal words match.
    return best_of(pair, words, meteor_of if pair.language == ENGLISH else partial(meteor_of, stem=str))


@answer_share(
    title="METEOR (WordNet)",
    source="Banerjee and Lavie 2005; NLTK",
    settings=f"{RUNS}, matches: words, stems and synonyms of WordNet",
    requires=comparisons("wordnet"),
)
def meteor_wordnet(pair: AnsweredQuestion) -> float:
    """METEOR of equal words, equal Porter stems, and stems that share a meaning in the WordNet that the user has.

    NLTK's `meteor_score` of the same words, which looks up stems, too: "enlarg" of "enlarged" is not in WordNet. Asked
    for with `annotators.wordnet.folder=PATH`. In English, beside one right text; in [0, 1), for identical texts of w
    words 1 - 0.5 / w^3.
    """
    return read_part(pair, "wordnet", "meteor")
