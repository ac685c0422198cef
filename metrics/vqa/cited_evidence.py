"""Answers about videos that cite when their evidence is shown, and what a model looked at before it answered."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.vqa.correctness import accuracy_or_exact_match
from medimg_eval.metrics.vqa.time_grounding import Span, read_spans
from medimg_eval.metrics.workflow import temporal_iou, union_iou

_CITED = re.compile(r"evidence", re.IGNORECASE)
"""What stands before the spans that an answer cites; in an answer without it all spans are."""

_answers = partial(answer_share, source="this package")


def cited_spans(text: str) -> list[Span]:
    """Returns time spans an answer cites, after its last `evidence`.

    Spans are in seconds; an answer without that word has all of them.

    >>> cited_spans("At 3-5 s a clip is seen. Evidence: [12, 18.5], 00:40-00:45. Answer: B")
    [(12.0, 18.5), (40.0, 45.0)]
    """
    marks = list(_CITED.finditer(text))
    return read_spans(text[marks[-1].end() :] if marks else text)


def true_evidence(pair: AnsweredQuestion) -> list[Span]:
    """Returns right spans of a question's `evidence`: pairs of seconds, JSON or texts."""
    stated: Any = pair.more.get("evidence") or ()
    if isinstance(stated, str):
        try:
            stated = json.loads(stated)
        except ValueError:
            return read_spans(stated)
    if len(stated) == 2 and all(isinstance(item, int | float) for item in stated):
        stated = [stated]
    spans: list[Span] = []
    for item in stated:
        spans += read_spans(item) if isinstance(item, str) else [(float(min(item)), float(max(item)))]
    return spans


def looked_at(steps: Sequence[Mapping[str, Any]]) -> list[Span]:
    """Returns stretches (seconds) shown by successful calls with `start` and `end`."""
    calls = [step for step in steps if step.get("kind") == "tool" and not step.get("error")]
    arguments = [step.get("arguments", {}) for step in calls]
    return [
        (float(argument["start"]), float(argument["end"]))
        for argument in arguments
        if {"start", "end"} <= argument.keys()
    ]


@_answers(title="Evidence IoU")
def evidence_iou(pair: AnsweredQuestion) -> float:
    """The intersection over union of the first span that an answer cites and the right one, of several the best.

    In [0, 1], as the mean over questions is called mIoU; 0 of an answer that cites none. NaN where no evidence is
    known.
    """
    right, cited = true_evidence(pair), cited_spans(pair.output)
    if not right:
        return math.nan
    return float(temporal_iou(cited[0], right).max()) if cited else 0.0


@_answers(title="Evidence, R@1, IoU", parameter="least IoU", parameter_most=1.0, value_kind="proportion")
def evidence_iou_at(pair: AnsweredQuestion, least: float) -> float:
    """Whether the first span that an answer cites has at least so large an IoU with a right one."""
    iou = evidence_iou(pair)
    return math.nan if math.isnan(iou) else float(iou >= least)


@_answers(title="Evidence IoU, all spans")
def evidence_union_iou(pair: AnsweredQuestion) -> float:
    """The intersection over union of all time that an answer cites and all time that is evidence.

    In [0, 1]; who cites the whole video gains its share of evidence. NaN where no evidence is known.
    """
    right = true_evidence(pair)
    return union_iou(cited_spans(pair.output), right) if right else math.nan


@_answers(title="Grounded accuracy", parameter="least IoU", parameter_most=1.0, value_kind="proportion")
def grounded_accuracy(pair: AnsweredQuestion, least: float) -> float:
    """Whether an answer is right and cites evidence with at least so large an IoU.

    Open answers are right where they are the right text. NaN where no evidence is known.
    """
    iou = evidence_iou(pair)
    return math.nan if math.isnan(iou) else accuracy_or_exact_match(pair) * float(iou >= least)


@_answers(title="Evidence looked at")
def evidence_seen(pair: AnsweredQuestion) -> float:
    """The share of the time that is evidence which lies in a stretch that the model asked to see.

    In [0, 1]; NaN without a session of tools, and where no evidence with a length is known.
    """
    right = true_evidence(pair)
    total = _covered_seconds(right)
    if not pair.trace or total <= 0:
        return math.nan
    spans = looked_at(pair.trace)
    return (total + _covered_seconds(spans) - _covered_seconds([*right, *spans])) / total


@_answers(
    title="Frames looked at", higher_is_better=None, best=math.nan, worst=math.nan, optional=True, value_kind="count"
)
def frames_seen(pair: AnsweredQuestion) -> float:
    """The number of frames that tools showed the model; NaN without a session of tools."""
    if not pair.trace:
        return math.nan
    return float(sum(len(step.get("images", ())) for step in pair.trace if step.get("kind") == "tool"))


def _covered_seconds(spans: Sequence[Span]) -> float:
    """Seconds that any of the spans covers."""
    total, reached = 0.0, -math.inf
    for start, end in sorted((min(span), max(span)) for span in spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
