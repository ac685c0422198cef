"""What metrics of texts judge: answers and reports beside one or more right texts.

The metrics judge answers in free words and reports, and are NaN of other kinds. Where several texts are right, each
definition says which counts. An answer that was not given or not understood is an empty text, which has the worst
value; a right text of nothing but blanks is none, and its answer is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.registry import metric
from medimg_eval.metrics.text.profiles import cleaned
from medimg_eval.metrics.text.word_overlap import Words

PAPINENI = "Papineni et al. 2002"
COCO = "Chen et al. 2015, pycocoevalcap"

RUNS = "tokeniser: runs of letters and digits, case: lower, aggregation: mean"

Tokeniser = Callable[[str], Words]

overlap_metric = partial(metric, kind="answer", higher_is_better=True, best=1.0, worst=0.0)


def texts_of(pair: AnsweredQuestion) -> tuple[str, tuple[str, ...]] | None:
    """Returns what was answered in free words, "" for nothing, and the texts that are right: both as they are.

    None for a question of another kind, of a model that chose without writing, and where no right text has a letter.
    """
    if pair.kind not in ("open", "report") or pair.preferences is not None or not (right := pair.references):
        return None
    return pair.text, right


def cleaned_of(pair: AnsweredQuestion) -> tuple[str, tuple[str, ...]] | None:
    """Returns the texts of `texts_of` as metrics of words take them: cleaned as the pair says.

    Raises:
        UsageError: there is no cleaner of the pair's name.
    """
    found = texts_of(pair)
    if found is None or not pair.clean:
        return found
    return cleaned(found[0], pair.clean), tuple(cleaned(one, pair.clean) for one in found[1])


def best_of(pair: AnsweredQuestion, tokenise: Tokeniser, judge: Callable[[Words, Words], float]) -> float:
    """Returns the best value over the right texts, which is NaN where there is nothing to judge."""
    found = cleaned_of(pair)
    if found is None:
        return math.nan
    text = tokenise(found[0])
    return max(judge(text, tokenise(reference)) for reference in found[1])


def read_value(pair: AnsweredQuestion, annotator: str, value: Callable[[Any], float]) -> float:
    """Returns what is made of an annotator's reading; NaN of other questions, and where the annotator failed."""
    read = None if texts_of(pair) is None else pair.read(annotator)
    return math.nan if read is None else value(read)


def read_part(pair: AnsweredQuestion, annotator: str, which: str) -> float:
    """Returns a number of an annotator's reading; NaN also where the reading has none."""
    return read_value(pair, annotator, lambda read: math.nan if read[which] is None else float(read[which]))
