"""Answers that say when something happens in a video, as a span of time."""

from __future__ import annotations

import math
import re
from functools import partial

from medimg_eval.metrics.answers import AnsweredQuestion, texts_among
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.workflow import read_seconds, temporal_iou

Span = tuple[float, float]

_SECONDS = r"((?:\d+:)?\d+:\d+(?:\.\d+)?|\d+(?:\.\d+)?)\s*(?:s|secs?|seconds?)?"
_SPAN = re.compile(rf"(?<![\d.:]){_SECONDS}\s*(?:-|–|—|,|to|and|until)\s*{_SECONDS}(?!\d|[.:]\d|\s*%)", re.IGNORECASE)

_answers = partial(answer_share, source="temporal grounding, as usual")


def read_spans(text: str) -> list[Span]:
    """Time spans of a text in seconds: `12.5-20 s`, `00:12 to 01:30`, `[3, 9]`.

    Spans are in the text's order, reversed ones turned round; those of percentages are none.
    """
    pairs = [(read_seconds(start), read_seconds(end)) for start, end in _SPAN.findall(text)]
    return [(min(pair), max(pair)) for pair in pairs if not any(map(math.isnan, pair))]


@_answers(title="Temporal IoU")
def span_iou(pair: AnsweredQuestion) -> float:
    """The intersection over union of the first span of time in an answer and the right one.

    In [0, 1], as the mean over questions is called mIoU. Several right spans: the best. An answer without a span is 0,
    a right span without length meets nothing, and a question whose right answer names no span is NaN.
    """
    right = [span for text in texts_among(pair.value) for span in read_spans(text)] if pair.kind == "open" else []
    spans = read_spans(pair.output)
    if not right:
        return math.nan
    return float(temporal_iou(spans[0], right).max()) if spans else 0.0


@_answers(title="R@1, IoU", parameter="least IoU", parameter_most=1.0, value_kind="proportion")
def span_iou_at(pair: AnsweredQuestion, least: float) -> float:
    """Whether the first span of time in an answer has at least so large an IoU with the right one.

    Papers print `span_iou_at@0.3`, `span_iou_at@0.5` and `span_iou_at@0.7` as R@1.
    """
    iou = span_iou(pair)
    return math.nan if math.isnan(iou) else float(iou >= least)
