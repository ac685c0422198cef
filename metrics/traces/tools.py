"""Calls of tools beside those of a reference: which, with what, in what order, and what became of them.

The reference stands in the answer key as `tools`: names, or `{name, arguments}`, in order, each as often as it is
called; or as `tool_set`, where how often and in what order says nothing. Without a trace every metric is NaN, and
without a reference those that compare with it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share, error_metric, neutral_metric
from medimg_eval.metrics.traces.budget import turns_of
from medimg_eval.metrics.vqa import accuracy_or_exact_match

Call = Mapping[str, Any]

UNREADABLE = frozenset({"parsing", "unknown_tool", "arguments", "withdrawn"})
"""Types of errors of calls that no tool was given: unreadable, of no offered tool, against its schema, or too late."""

STOPPED_WELL = frozenset({"answer"})

_OURS = "own definition; multiset of calls, as in docs/evaluate/agents.md"
_better = partial(answer_share, optional=True)
_worse = partial(error_metric, kind="answer", worst=1.0, optional=True)
_number = partial(neutral_metric, kind="answer", optional=True)


def shared_calls(predicted: Sequence[str], reference: Sequence[str]) -> int:
    """Returns calls shared by two sequences, with multiplicity.

    >>> shared_calls(["segment", "segment", "measure"], ["segment", "measure", "lookup"])
    2
    """
    return (Counter(predicted) & Counter(reference)).total()


def lcs_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence.

    >>> lcs_length("abcb", "bcab")
    3
    """
    row = [0] * (len(second) + 1)
    for first_item in first:
        before = 0
        for index, second_item in enumerate(second, 1):
            before, row[index] = (
                row[index],
                before + 1 if first_item == second_item else max(row[index], row[index - 1]),
            )
    return row[-1]


def same_arguments(predicted: Any, reference: Any) -> bool:
    """Returns whether arguments agree: numbers 1e-6, texts caseless, files named.

    >>> same_arguments({"image": "/data/x.png", "t": 1.0}, {"image": "x.png", "t": 1})
    True
    """
    if isinstance(predicted, Mapping) and isinstance(reference, Mapping):
        return predicted.keys() == reference.keys() and all(
            same_arguments(predicted[name], value) for name, value in reference.items()
        )
    if isinstance(predicted, list | tuple) and isinstance(reference, list | tuple):
        return len(predicted) == len(reference) and all(map(same_arguments, predicted, reference))
    if isinstance(predicted, bool) or isinstance(reference, bool):
        return predicted is reference
    if isinstance(predicted, int | float) and isinstance(reference, int | float):
        return math.isclose(predicted, reference, rel_tol=1e-6)
    if isinstance(predicted, str) and isinstance(reference, str):
        predicted_text, reference_text = predicted.strip().casefold(), reference.strip().casefold()
        files = (
            PurePath(predicted_text).suffix
            and PurePath(predicted_text).suffix == PurePath(reference_text).suffix
            and " " not in predicted_text + reference_text
        )
        return predicted_text == reference_text or bool(
            files and PurePath(predicted_text).name == PurePath(reference_text).name
        )
    return bool(predicted == reference)


def calls_in(pair: AnsweredQuestion) -> list[Call]:
    """Returns calls of a trace in order, failed ones included."""
    return [step for step in pair.trace if step.get("kind") == "tool"]


def _reference_calls(pair: AnsweredQuestion) -> list[Call] | None:
    tools = pair.more.get("tools", pair.more.get("tool_set"))
    if tools is None or not pair.trace:
        return None
    tools = tools.split(",") if isinstance(tools, str) else tools
    return [{"name": tool.strip()} if isinstance(tool, str) else tool for tool in tools if tool]


def _call_names(pair: AnsweredQuestion) -> tuple[list[str], list[str]] | None:
    """Returns the names of predicted and reference calls; of a set each once."""
    reference = _reference_calls(pair)
    if reference is None:
        return None
    predicted, due = [call["name"] for call in calls_in(pair)], [call["name"] for call in reference]
    if "tools" not in pair.more:
        return list(dict.fromkeys(predicted)), list(dict.fromkeys(due))
    return predicted, due


def _count_share(pair: AnsweredQuestion, counts: Callable[[list[str], list[str]], tuple[float, float]]) -> float:
    """Returns a count ratio; over nothing 1 if due none, else 0."""
    names = _call_names(pair)
    if names is None:
        return math.nan
    top, bottom = counts(*names)
    return top / bottom if bottom else float(not names[1])


@_better(title="Tool precision", source=_OURS)
def tool_precision(pair: AnsweredQuestion) -> float:
    """The share of calls that the reference also has, each counted as often as both have it.

    A model without calls has 1 where the reference has none either, else 0.
    """
    return _count_share(pair, lambda predicted, due: (shared_calls(predicted, due), len(predicted)))


@_better(title="Tool recall", source=_OURS)
def tool_recall(pair: AnsweredQuestion) -> float:
    """The share of the reference's calls that were made, each counted as often as both have it.

    1 where the reference has none.
    """
    return _count_share(pair, lambda predicted, due: (shared_calls(predicted, due), len(due)))


@_better(title="Tool F1", source=_OURS)
def tool_f1(pair: AnsweredQuestion) -> float:
    """The F1 of calls, 2 shared / (made + due); 1 where there are none on both sides."""
    return _count_share(pair, lambda predicted, due: (2 * shared_calls(predicted, due), len(predicted) + len(due)))


@_better(title="Tool order", source="longest common subsequence over the reference's length")
def tool_order(pair: AnsweredQuestion) -> float:
    """The longest subsequence of names that calls and reference have in the same order, over the reference's length.

    NaN where the reference says nothing about the order.
    """
    if "tools" not in pair.more:
        return math.nan
    return _count_share(pair, lambda predicted, due: (lcs_length(predicted, due), len(due)))


@_better(title="Argument accuracy", source="GTA (Wang et al. 2024), ArgAcc; here typed, and over the reference's calls")
def argument_accuracy(pair: AnsweredQuestion) -> float:
    """The share of the reference's calls that were made with the same arguments.

    Numbers within a relative 1e-6, texts in any case, files by their name. NaN where the reference holds no arguments.
    """
    due = [call for call in _reference_calls(pair) or () if "arguments" in call]
    if not due:
        return math.nan
    remaining, hits = list(calls_in(pair)), 0
    for call in due:
        fits = (
            index
            for index, made_call in enumerate(remaining)
            if made_call["name"] == call["name"] and same_arguments(made_call.get("arguments", {}), call["arguments"])
        )
        index = next(fits, None)
        if index is not None:
            hits += 1
            del remaining[index]
    return hits / len(due)


@_better(title="Valid calls", source=_OURS)
def valid_call_rate(pair: AnsweredQuestion) -> float:
    """The share of calls that could be read, name an offered tool and fit its schema; NaN without calls."""
    calls = calls_in(pair)
    bad = sum((call.get("error") or {}).get("type") in UNREADABLE for call in calls)
    return 1 - bad / len(calls) if calls else math.nan


@_worse(title="Tool errors", source=_OURS)
def tool_error_rate(pair: AnsweredQuestion) -> float:
    """The share of calls that were carried out and failed, of those carried out; NaN without any."""
    done = [call for call in calls_in(pair) if (call.get("error") or {}).get("type") not in UNREADABLE]
    return sum(bool(call.get("error")) for call in done) / len(done) if done else math.nan


@_worse(title="Redundant calls", source=_OURS)
def redundant_call_rate(pair: AnsweredQuestion) -> float:
    """The share of calls that repeat an earlier one of the session, name and arguments; NaN without calls."""
    calls = [json.dumps([call["name"], call.get("arguments")], sort_keys=True) for call in calls_in(pair)]
    return 1 - len(set(calls)) / len(calls) if calls else math.nan


@_worse(title="Too few calls", source="MedCTA (github.com/IVUL-KAUST/MedCTA), under-call", value_kind="proportion")
def under_call(pair: AnsweredQuestion) -> float:
    """Whether there are fewer calls than in the reference."""
    names = _call_names(pair)
    return math.nan if names is None else float(len(names[0]) < len(names[1]))


@_worse(title="Too many calls", source=_OURS, value_kind="proportion")
def over_call(pair: AnsweredQuestion) -> float:
    """Whether there are more calls than in the reference."""
    names = _call_names(pair)
    return math.nan if names is None else float(len(names[0]) > len(names[1]))


@_worse(title="Protocol failure", source=_OURS, value_kind="proportion")
def protocol_failure(pair: AnsweredQuestion) -> float:
    """Whether the session ended otherwise than by an answer: at a limit, with an empty turn, or with a call.

    Whatever the model had said last is scored as its answer all the same.
    """
    reasons = [step["reason"] for step in pair.trace if step.get("kind") == "stop"]
    return float(reasons[-1] not in STOPPED_WELL) if reasons else math.nan


@_better(title="Recovery", source=_OURS, value_kind="proportion")
def recovery(pair: AnsweredQuestion) -> float:
    """Whether the answer is right although a call failed; NaN where none did."""
    return accuracy_or_exact_match(pair) if any(call.get("error") for call in calls_in(pair)) else math.nan


@_number(title="Tool calls", source=_OURS, value_kind="count")
def tool_calls(pair: AnsweredQuestion) -> float:
    """The number of calls, also those that could not be carried out; NaN without a trace."""
    return float(len(calls_in(pair))) if pair.trace else math.nan


@_number(title="Model steps", source=_OURS, value_kind="count")
def model_steps(pair: AnsweredQuestion) -> float:
    """The number of replies that the model gave until the session ended; NaN without a trace."""
    return float(len(turns_of(pair))) if pair.trace else math.nan
