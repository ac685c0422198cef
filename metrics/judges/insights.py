"""Insights that a model lists beside those that are due: a judge's matrix of matches, recall and precision."""

from __future__ import annotations

import json
import math
import re
from functools import partial
from typing import Any

import numpy as np

from medimg_eval.metrics.answers import AnsweredQuestion, split_thought
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.judges.verdicts import verdict_reader
from medimg_eval.metrics.registry import judge_says

MATCH = 0.5
"""Share of the points from which on two insights match one to one."""

_BULLET = re.compile(r"^\s*(?:[-*\N{BULLET}]|\(?\d+[.)])\s+")
_insight = partial(answer_share, source="InsightBench's practice; own definition", requires=judge_says("insights"))


def list_insights(text: str) -> list[str]:
    r"""Returns the insights of an answer: its lines, without bullets and numbers.

    >>> list_insights("1. An effusion.\n- No nodule.")
    ['An effusion.', 'No nodule.']
    """
    lines = (_BULLET.sub("", line).strip() for line in split_thought(text).answer.splitlines())
    return [line for line in lines if line]


@verdict_reader("insight_matrix")
def read_insight_matrix(reply: str) -> list[list[float]] | None:
    """Returns points of 1 to 10, a row for each found insight, a column for each due one; None without them."""
    start, stop = reply.find("[["), reply.rfind("]]")
    try:
        rows = json.loads(reply[start : stop + 2]) if 0 <= start < stop else None
    except ValueError:
        return None
    sound = isinstance(rows, list) and all(
        isinstance(row, list) and row and len(row) == len(rows[0])
        and all(isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 10 for value in row)
        for row in rows
    )  # fmt: skip
    return [[float(value) for value in row] for row in rows] if sound and rows else None


def _insight_matches(pair: AnsweredQuestion) -> Floats | None:
    """Returns insight matches, (found, due), 0 to 1, or None."""
    due = pair.value if isinstance(pair.value, list | tuple) else [pair.value]
    insights = list_insights(pair.output)
    verdict: Any = pair.judged.get("insights")
    if not insights or (isinstance(verdict, int | float) and not math.isnan(verdict)):
        return np.zeros((1, len(due)))
    matrix = np.array(verdict, np.float64) if isinstance(verdict, list) else np.zeros((0, 0))
    return (matrix - 1) / 9 if matrix.shape == (len(insights), len(due)) else None


@_insight(title="Insight recall")
def insight_recall(pair: AnsweredQuestion) -> float:
    """The mean over due insights of the best match that was found."""
    matches = _insight_matches(pair)
    return math.nan if matches is None else float(matches.max(0).mean())


@_insight(title="Insight precision")
def insight_precision(pair: AnsweredQuestion) -> float:
    """The mean over found insights of the best match that was due."""
    matches = _insight_matches(pair)
    return math.nan if matches is None else float(matches.max(1).mean())


@_insight(title="Insight F1")
def insight_f1(pair: AnsweredQuestion) -> float:
    """The harmonic mean of `insight_recall` and `insight_precision`."""
    recall, precision = insight_recall(pair), insight_precision(pair)
    return 0.0 if recall + precision == 0 else 2 * recall * precision / (recall + precision)


@_insight(title="Insights matched")
def insight_matched(pair: AnsweredQuestion) -> float:
    """The share of due insights that are matched one to one at half the points or more.

    A vague insight therefore does not count for several.
    """
    from scipy.optimize import linear_sum_assignment

    matches = _insight_matches(pair)
    if matches is None:
        return math.nan
    rows, columns = linear_sum_assignment(matches * (matches >= MATCH), maximize=True)
    return float((matches[rows, columns] >= MATCH).sum() / matches.shape[1])
