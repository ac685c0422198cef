"""BLEU by sacreBLEU's tokenisers and smoothings, of test sets and of single answers, and by NLTK's method 1.

Names say the tokeniser, then the smoothing: `bleu_intl_floor@4`, `sentence_bleu_13a_exp@4`.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import answer_share, share_summary
from medimg_eval.metrics.nlp import split_words, words_13a, words_intl
from medimg_eval.metrics.text.bleu_scores import bleu_smoothed, counted, evidence_of, lengths_of, order_of, pieces_of
from medimg_eval.metrics.text.gram_counts import ORDERS
from medimg_eval.metrics.text.texts import PAPINENI
from medimg_eval.metrics.text.word_overlap import Counts

_SMOOTHINGS = {
    "none": "0 where no n-gram of some length matches",
    "exp": "the k-th length of n-grams of which none matches counts as if 1 / 2^k matched",
    "floor": "a length of n-grams of which none matches counts as if 0.1 matched",
    "add_k": "1 is added to the matches and to the n-grams of each length above 1",
}
_TOKENISERS = {"13a": words_13a, "intl": words_intl}
_SOURCE = "Post 2018, sacreBLEU; Chen and Cherry 2014"


def _variant_name(tokeniser: str, smoothing: str) -> str:
    return f"bleu_{tokeniser}" + ("" if smoothing == "none" else f"_{smoothing}")


def _variant_settings(tokeniser: str, smoothing: str) -> str:
    value = {"floor": "floor[0.1]", "add_k": "add-k[1]"}.get(smoothing, smoothing)
    return f"tokeniser: {tokeniser}, case: kept, aggregation: {{}}, smoothing: {value}"


def _declare_of_set(tokeniser: str, smoothing: str) -> None:
    def total(sums: Floats, n: float) -> Any:
        return bleu_smoothed(sums, int(n), smoothing)

    name, evidence, method = _variant_name(tokeniser, smoothing), f"bleu_{tokeniser}", smoothing.replace("_", "-")
    total.__doc__ = (
        f"BLEU of the test set with words by `{tokeniser}`, smoothed by sacreBLEU's `{method}`.\n\n"
        f"{_SMOOTHINGS[smoothing]}. In [0, 1] instead of 0 to 100; 0 where no word matches."
    )
    total.__qualname__ = name
    share_summary(
        name=name,
        title=f"BLEU ({tokeniser}, {smoothing})",
        source=_SOURCE,
        needs=evidence_of(evidence),
        parameter="n",
        settings=_variant_settings(tokeniser, smoothing).format("counts of the set"),
        pieces=pieces_of(name, evidence),
        remark=lengths_of(evidence, f"words by {tokeniser}"),
    )(total)


_of_answer = partial(answer_share, parameter="n", parameter_most=ORDERS)


def _declare_of_answer(tokeniser: str, smoothing: str) -> None:
    name, tokenise = f"sentence_{_variant_name(tokeniser, smoothing)}", _TOKENISERS[tokeniser]

    def judged(pair: AnsweredQuestion, n: float) -> float:
        order, counts = order_of(name, n), counted(pair, tokenise)
        if counts is None:
            return math.nan
        return float(bleu_smoothed(_text_counts(counts, order), order, smoothing, effective=True))

    judged.__doc__ = (
        f"BLEU of a single answer with words by `{tokeniser}`, smoothed by sacreBLEU's "
        f"`{smoothing.replace('_', '-')}`, with effective order.\n\n"
        f"{_SMOOTHINGS[smoothing]}. Lengths that the answer is too short for are left out. In [0, 1]; 0 where no word "
        "matches."
    )
    judged.__qualname__ = name
    settings = _variant_settings(tokeniser, smoothing).format("mean")
    title = f"BLEU (sentence, {tokeniser}, {smoothing})"
    _of_answer(name=name, title=title, source=_SOURCE, settings=f"{settings}, effective order: yes")(judged)


def _text_counts(found: Counts, order: int) -> Floats:
    """Returns the counts of one text as `bleu_smoothed` takes them."""
    totals = [max(0, found.words - length) for length in range(order)]
    return np.array([*found.matches[:order], *totals, found.due], np.float64)


@_of_answer(
    title="BLEU (sentence, method 1)",
    source=f"{PAPINENI}; Chen and Cherry 2014; NLTK's sentence_bleu",
    settings="tokeniser: blanks, case: lower, aggregation: mean, smoothing: method1[0.1]",
)
def sentence_bleu_method1(pair: AnsweredQuestion, n: float) -> float:
    """BLEU of a single answer, smoothed by NLTK's method 1: a length without a match counts as if 0.1 matched.

    Words as in `sentence_bleu`, split at blanks after lower-casing. A length that the answer is too short for counts
    as one n-gram of which none matches. In [0, 1]; 0 where no word matches.
    """
    order, counts = order_of("sentence_bleu_method1", n), counted(pair, split_words, lower=True)
    if counts is None:
        return math.nan
    sums = _text_counts(counts, order)
    if sums[order]:
        sums[order:-1] = np.maximum(sums[order:-1], 1)
    return float(bleu_smoothed(sums, order, "floor"))


for _tokeniser, _smoothing in product(_TOKENISERS, _SMOOTHINGS):
    if _variant_name(_tokeniser, _smoothing) not in ("bleu_13a", "bleu_13a_exp"):  # declared in `bleu_scores`
        _declare_of_set(_tokeniser, _smoothing)
    _declare_of_answer(_tokeniser, _smoothing)
