"""Answers that say when something happens in a video, as a span of time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from medimg_eval.metrics.answers import AnsweredQuestion, texts_among
from medimg_eval.metrics.registry import metric
from medimg_eval.metrics.workflow import read_seconds, temporal_iou

Span = tuple[float, float]

_SECONDS = r"((?:\d+:)?\d+:\d+(?:\.\d+)?|\d+(?:\.\d+)?)\s*(?:s|secs?|seconds?)?"
_SPAN = re.compile(rf"(?<![\d.:]){_SECONDS}\s*(?:-|–|—|,|to|and|until)\s*{_SECONDS}(?!\d|[.:]\d|\s*%)", re.IGNORECASE)

_answers = partial(
    metric, kind="answer", higher_is_better=True, best=1.0, worst=0.0, source="temporal grounding, as usual"
)


def read_spans(text: str) -> list[Span]:
    """Spans of time that a text names, in its order, in seconds: `12.5-20 s`, `00:12 to 01:30`, `[3, 9]`.

    Spans of percentages are none. A reversed span is turned round.
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
    given = read_spans(pair.output)
    if not right:
        return math.nan
    return float(temporal_iou(given[0], right).max()) if given else 0.0


@_answers(title="R@1, IoU", parameter="least IoU", parameter_most=1.0, value_kind="proportion")
def span_iou_at(pair: AnsweredQuestion, least: float) -> float:
    """Whether the first span of time in an answer has at least so large an IoU with the right one.

    Papers print `span_iou_at@0.3`, `span_iou_at@0.5` and `span_iou_at@0.7` as R@1.
    """
    iou = span_iou(pair)
    return math.nan if math.isnan(iou) else float(iou >= least)


@metric(
    kind="answer", title="Evidence looked at", higher_is_better=True, best=1.0, worst=0.0, optional=True,
    source="own definition, for tools as MedScope's",
)  # fmt: skip
def evidence_coverage(pair: AnsweredQuestion) -> float:
    """The share of the right spans of time that some call of a tool looked at, by its `start_s` and `end_s`.

    The key holds `evidence`, spans as a text, or the right answer names them; NaN where neither does, and without a
    trace. Calls that failed looked at nothing.
    """
    given = pair.more.get("evidence")
    texts = texts_among(pair.value if given is None else given)
    right = [span for text in texts for span in read_spans(text) if span[1] > span[0]]
    if not right or not pair.trace:
        return math.nan
    looked = []
    for step in pair.trace:
        arguments = step.get("arguments", {}) if step.get("kind") == "tool" and not step.get("error") else {}
        start, end = arguments.get("start_s"), arguments.get("end_s")
        if isinstance(start, int | float) and isinstance(end, int | float) and end > start:
            looked.append((float(start), float(end)))
    due = _covered(right, [(-math.inf, math.inf)])
    return _covered(right, looked) / due


def _covered(spans: Sequence[Span], by: Sequence[Span]) -> float:
    """Returns how many seconds of the union of spans lie in the union of others."""
    edges = sorted({edge for span in (*spans, *by) for edge in span if math.isfinite(edge)})
    return math.fsum(
        end - start
        for start, end in pairwise(edges)
        if all(any(one[0] <= start and end <= one[1] for one in some) for some in (spans, by))
    )
