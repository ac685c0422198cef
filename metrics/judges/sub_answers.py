"""Sub-answers: the parts of a reference that an answer has, and the parts of the answer that are right, by a judge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.judges.verdicts import objects, verdict_reader
from medimg_eval.metrics.registry import judge_says, metric
from medimg_eval.metrics.segmentation import ratio

SEAT = "after SEAT of TableEval (Zhu et al. 2025)"


@verdict_reader("sub_answers")
def read_sub_answers(reply: str) -> dict[str, int] | None:
    """Returns {"due", "given", "matched"}: parts of the reference, of the answer, and pairs that say the same.

    The reply is `{"reference": [texts], "answer": [texts], "matched": [[0, 1], ...]}`, with pairs of places from 0. A
    part is matched once at most. None where the object is not there, or a pair points beyond the lists.
    """
    for content in objects(reply):
        due, given_count, pairs = (content.get(key) for key in ("reference", "answer", "matched"))
        if not (isinstance(due, list) and isinstance(given_count, list) and isinstance(pairs, list)):
            continue
        if not all(_is_pair(pair, len(due), len(given_count)) for pair in pairs):
            return None
        firsts, seconds = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
        return {"due": len(due), "given": len(given_count), "matched": min(len(firsts), len(seconds))}
    return None


def _is_pair(pair: Any, due: int, given: int) -> bool:
    is_valid = isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)
    return is_valid and 0 <= pair[0] < due and 0 <= pair[1] < given


def sub_answer_scores(counts: Mapping[str, int]) -> tuple[float, float, float]:
    """Returns sub-answers' precision, recall and F1.

    Precision is NaN without any given, recall without any due.

    >>> sub_answer_scores({"due": 4, "given": 2, "matched": 2})
    (1.0, 0.5, 0.6666666666666666)
    """
    matched, given_count, due = counts["matched"], counts["given"], counts["due"]
    return ratio(matched, given_count), ratio(matched, due), ratio(2 * matched, given_count + due)


_share = partial(
    metric, kind="answer", higher_is_better=True, best=1.0, source=SEAT, requires=judge_says("sub_answers")
)


def _answer_score(pair: AnsweredQuestion, place: int) -> float:
    verdict = pair.judged.get("sub_answers")
    if isinstance(verdict, int | float):  # of a case that failed
        return math.nan if math.isnan(verdict) else 0.0
    return sub_answer_scores(verdict)[place] if isinstance(verdict, Mapping) and "matched" in verdict else math.nan


@_share(title="Sub-answers, precision", worst=math.nan)
def sub_answer_precision(pair: AnsweredQuestion) -> float:
    """The share of an answer's parts that say what a part of the reference says, by a judge; NaN without parts."""
    return _answer_score(pair, 0)


@_share(title="Sub-answers, recall", worst=0.0)
def sub_answer_recall(pair: AnsweredQuestion) -> float:
    """The share of the reference's parts that a part of the answer says, by a judge; NaN without a verdict."""
    return _answer_score(pair, 1)


@_share(title="Sub-answers, F1", worst=0.0)
def sub_answer_f1(pair: AnsweredQuestion) -> float:
    """The harmonic mean of precision and recall of an answer's parts, by a judge; NaN without a verdict."""
    return _answer_score(pair, 2)
