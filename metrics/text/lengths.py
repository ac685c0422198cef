"""How long answers are beside the right texts."""

from __future__ import annotations

import math

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.nlp import words
from medimg_eval.metrics.registry import ScoreTable, metric, summary
from medimg_eval.metrics.text.texts import PAPINENI, RUNS, cleaned_of, tokeniser_of


@metric(
    kind="answer",
    title="Length ratio",
    higher_is_better=None,
    best=1.0,
    worst=0.0,
    source=PAPINENI,
    settings=RUNS,
    value_kind="ratio",
)
def length_ratio(pair: AnsweredQuestion) -> float:
    """How many words the answer has for each word of the right text.

    Words as in `rouge_1`. At least 0, which an empty answer has; best 1, for neither more nor fewer words are better;
    NaN where the right text has no words. Of several right texts that counts which is nearest in length, of two that
    are as near the shorter. `length_ratio_quantile` tells how it is spread.
    """
    texts = cleaned_of(pair)
    if texts is None:
        return math.nan
    tokenise = tokeniser_of(words, pair.language)
    length_, dues = len(tokenise(texts[0])), [len(tokenise(reference)) for reference in texts[1]]
    due = min(dues, key=lambda length: (abs(length - length_), length))
    return length_ / due if due else math.nan


@summary(
    needs=("length_ratio",),
    title="Length ratio, quantile",
    higher_is_better=None,
    best=1.0,
    source=PAPINENI,
    parameter="per cent",
    settings=RUNS.replace("mean", "quantile"),
)
def length_ratio_quantile(rows: ScoreTable, percent: float) -> float:
    """The length ratio that so many per cent of the answers do not exceed: 50 for the median, 25 and 75 for quartiles.

    Between two answers it is interpolated. Best 1.

    Raises:
        UsageError: more than 100 per cent.
    """
    if percent > 100:
        raise UsageError(f"Expected at most 100 per cent of metric 'length_ratio_quantile', got {percent:g}")
    values = rows.value[~np.isnan(rows.value)]
    return float(np.percentile(values, percent)) if values.size else math.nan
