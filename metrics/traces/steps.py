"""Next steps of recorded sessions beside those that a model would take, as GTA and MedCTA judge them.

The recorded next message stands in the answer key as `expected`: `{tool_calls: [{function: {name, arguments}}]}` or
`{content}`; calls of a whole session as `dialogs`, messages of that form. Of a reply, the first call counts alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import answer_share, neutral_metric, share_summary
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.traces.budget import turns_of

Call = Mapping[str, Any]

GTA = "GTA (Wang et al. 2024, github.com/open-compass/GTA), which MedCTA takes over"
TOOL_CLASSES = {
    "perception": ("OCR", "ImageDescription", "RegionAttributeDescription", "TextToBbox"),
    "operation": ("DrawBox", "AddText", "GoogleSearch"),
    "logic": ("Calculator", "Solver", "Plot", "MathOCR", "CountGivenObject"),
    "creativity": ("TextToImage", "ImageStylization"),
}
"""Classes of GTA's tools; MedCTA has the first two of perception, and the third, GoogleSearch and Calculator."""

_EPSILON = 1e-5  # that GTA adds to denominators
_step = partial(answer_share, optional=True, source=GTA)
_count = partial(neutral_metric, kind="answer", optional=True, value_kind="count")


def expected_call(message: Mapping[str, Any]) -> Call | None:
    """Returns the first call of a recorded message; None of an answer.

    >>> expected_call({"tool_calls": [{"function": {"name": "OCR", "arguments": {"image": "x.png"}}}]})["name"]
    'OCR'
    """
    calls = message.get("tool_calls") or ()
    return calls[0].get("function", calls[0]) if calls else None


def _next_step(pair: AnsweredQuestion) -> tuple[Call | None, Call | None] | None:
    """Returns the call made and the call due; None for answers."""
    expected, turns = pair.more.get("expected"), turns_of(pair)
    if not isinstance(expected, Mapping) or not pair.trace:
        return None
    calls = turns[-1].get("calls") or () if turns else ()
    return (calls[0] if calls else None), expected_call(expected)


@_step(title="InstAcc", value_kind="proportion")
def step_kind_accuracy(pair: AnsweredQuestion) -> float:
    """Whether a call was made where one was due, or an answer given; a call that cannot be read is wrong."""
    step = _next_step(pair)
    if step is None:
        return math.nan
    call, due = step
    return float((call is None) == (due is None) and not (call or {}).get("error"))


@_step(title="ToolAcc", value_kind="proportion")
def step_tool_accuracy(pair: AnsweredQuestion) -> float:
    """Whether the tool that was due was called; NaN where an answer was due."""
    call, due = _next_step(pair) or (None, None)
    return math.nan if due is None else float(call is not None and call["name"] == due["name"])


@_step(title="ArgAcc", value_kind="proportion")
def step_argument_accuracy(pair: AnsweredQuestion) -> float:
    """Whether the tool that was due was called with the same arguments, equal in every character.

    NaN where an answer was due.
    """
    call, due = _next_step(pair) or (None, None)
    if due is None:
        return math.nan
    is_same_tool = call is not None and call["name"] == due["name"]
    return float(is_same_tool and dict((call or {}).get("arguments", {})) == dict(due.get("arguments", {})))


@_step(title="Listed answer", value_kind="proportion")
def listed_answer(pair: AnsweredQuestion) -> float:
    """Whether an answer holds a word of each list of aliases, and none that is forbidden.

    Words are whole and in any case. The key holds `listed` as `{whitelist: [[alias]], blacklist: [[word]]}`; NaN where
    it does not, and of a step where a call was due.
    """
    listed, step = pair.more.get("listed"), _next_step(pair)
    if not isinstance(listed, Mapping) or (step is not None and step[1] is not None):
        return math.nan
    if step is not None and step[0] is not None:
        return 0.0

    def holds(words: Sequence[str]) -> bool:
        return bool(re.search(rf"\b(?:{'|'.join(map(re.escape, words))})\b", pair.output, re.IGNORECASE))

    forbidden = [word for words in listed.get("blacklist") or () for word in words]
    return float(all(map(holds, listed["whitelist"])) and not (forbidden and holds(forbidden)))


def _session_calls(pair: AnsweredQuestion) -> tuple[list[str], list[str]] | None:
    """Returns first calls of replies and of the recorded session."""
    dialogs = pair.more.get("dialogs")
    if not isinstance(dialogs, Sequence) or not pair.trace:
        return None
    called = [step["calls"][0]["name"] for step in turns_of(pair) if step.get("calls")]
    return called, [call["name"] for call in map(expected_call, dialogs) if call is not None]


def _by_class(pair: AnsweredQuestion, count: Callable[[list[str], list[str]], list[str]]) -> Mapping[str, float]:
    names = _session_calls(pair)
    if names is None:
        return {"all": math.nan}
    counted = Counter(count(*names))
    return {name: float(sum(counted[tool] for tool in tools)) for name, tools in TOOL_CLASSES.items()}


@_count(title="Calls made, by class", source=GTA)
def class_calls_made(pair: AnsweredQuestion) -> Mapping[str, float]:
    """The number of calls that were made, by class of the tool."""
    return _by_class(pair, lambda made, _due: made)


@_count(title="Calls due, by class", source=GTA)
def class_calls_due(pair: AnsweredQuestion) -> Mapping[str, float]:
    """The number of calls of the recorded session, by class of the tool."""
    return _by_class(pair, lambda _made, due: due)


@_count(title="Calls found, by class", source=GTA)
def class_calls_found(pair: AnsweredQuestion) -> Mapping[str, float]:
    """The number of calls of the recorded session whose tool was called at all, by class of the tool.

    GTA counts so: one call finds all of its tool, so that a precision may lie above 1; see `tool_precision`.
    """
    return _by_class(pair, lambda made, due: [name for name in due if name in made])


def _make_counts(name: str) -> Callable[[ScoreTable], Floats]:
    def pieces(rows: ScoreTable) -> Floats:
        of_class = rows.label == name
        needs = ("class_calls_found", "class_calls_made", "class_calls_due")
        return np.stack([np.nan_to_num(rows.value) * (of_class & (rows.metric == need)) for need in needs], axis=1)

    return pieces


_class_f1 = partial(share_summary, needs=("class_calls_found", "class_calls_made", "class_calls_due"), source=GTA)


def _f1_scores(sums: Floats) -> Floats:
    matched, predicted, due = sums[..., 0], sums[..., 1], sums[..., 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision, recall = matched / (predicted + _EPSILON), matched / due
        scores: Floats = 2 * precision * recall / (precision + recall + _EPSILON)
    return np.where(due > 0, scores, math.nan)


@_class_f1(title="P_F1", pieces=_make_counts("perception"))
def perception_f1(sums: Floats) -> Floats:
    """The F1 of calls of tools that perceive, as GTA counts them; NaN where none is due."""
    return _f1_scores(sums)


@_class_f1(title="O_F1", pieces=_make_counts("operation"))
def operation_f1(sums: Floats) -> Floats:
    """The F1 of calls of tools that search or draw, as GTA counts them; NaN where none is due."""
    return _f1_scores(sums)


@_class_f1(title="L_F1", pieces=_make_counts("logic"))
def logic_f1(sums: Floats) -> Floats:
    """The F1 of calls of tools that compute, as GTA counts them; NaN where none is due."""
    return _f1_scores(sums)
