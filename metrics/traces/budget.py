"""Tokens, seconds and money that answers cost, and how many are right within a budget.

What a server or wrapper did not report is NaN, never 0. Of a model that calls tools all its steps count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from medimg_eval.metrics.answers import AnsweredQuestion, split_thought
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import answer_share, error_metric, error_summary
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.vqa import accuracy_or_exact_match

REPORTED = "as the server or wrapper reported it"

_spent = partial(error_metric, kind="answer", worst=math.nan, optional=True)
_ended = partial(_spent, worst=1.0, value_kind="proportion", source="finish reason `length`, as servers report it")
_within = partial(
    answer_share,
    value_kind="proportion",
    source="share right among all within a budget, as in budget curves of s1 (arXiv 2501.19393)",
)


def turns_of(pair: AnsweredQuestion) -> Sequence[Mapping[str, Any]]:
    """Returns facts of each model reply, or agent step."""
    return [step for step in pair.trace if step.get("kind") == "model"] if pair.trace else pair.turns


def spent(pair: AnsweredQuestion, name: str) -> float:
    """Returns total use of a kind, such as `output`; NaN where a reply lacks it."""
    values = [turn.get("usage", {}).get(name) for turn in turns_of(pair)]
    return float(sum(values)) if values and None not in values else math.nan


@_spent(title="Tokens written", source=REPORTED, value_kind="count")
def output_tokens(pair: AnsweredQuestion) -> float:
    """The number of tokens that the model wrote, thinking included.

    Numbers of different tokenizers are not comparable.
    """
    return spent(pair, "output")


@_spent(title="Tokens read", source=REPORTED, value_kind="count")
def input_tokens(pair: AnsweredQuestion) -> float:
    """The number of tokens of all prompts, those from a prompt cache included."""
    return spent(pair, "input")


@_spent(title="Tokens of thought", source="as the server reported it; of local models counted by their tokenizer")
def thought_tokens(pair: AnsweredQuestion) -> float:
    """The number of tokens that the model spent on thinking, a part of `output_tokens`."""
    return spent(pair, "thought")


@_spent(title="Seconds", unit="s", source="wall clock from a request to its last token; of a batch its share")
def answer_seconds(pair: AnsweredQuestion) -> float:
    """The seconds that the model took, without those of tools."""
    return spent(pair, "seconds")


@_spent(title="Seconds of the longest chain", unit="s", source="MedMASLab's seconds without what waits for other cases")
def chain_seconds(pair: AnsweredQuestion) -> float:
    """The seconds of replies that had to wait for each other: of each round of several agents the longest."""
    longest: dict[Any, float] = {}
    for index, turn in enumerate(turns_of(pair)):
        seconds = turn.get("usage", {}).get("seconds")
        key = turn.get("round", f"alone {index}")
        longest[key] = math.nan if seconds is None else max(seconds, longest.get(key, 0.0))
    return float(sum(longest.values())) if longest else math.nan


@_spent(title="Cost", source="tokens times `price_per_million`")
def answer_cost(pair: AnsweredQuestion) -> float:
    """The cost of all replies, in the currency of the prices."""
    return spent(pair, "cost")


@_ended(title="Truncated")
def truncated(pair: AnsweredQuestion) -> float:
    """Whether the last reply ended because it was too long; its answer is scored as it stands.

    NaN where it is not known why replies ended.
    """
    turns = turns_of(pair)
    reason = turns[-1].get("finish") if turns else None
    return math.nan if not reason else float(reason == "length")


@_ended(title="Truncated in thought")
def thought_truncated(pair: AnsweredQuestion) -> float:
    """Whether the last reply ended because it was too long, before an answer began.

    A part of `truncated`: the rest was cut within the answer.
    """
    is_truncated = truncated(pair)
    if is_truncated != 1.0:
        return is_truncated
    last = turns_of(pair)[-1]
    parted = split_thought(pair.output, last.get("thought"))
    return float(parted.cut or (parted.thought is not None and not parted.answer.strip()))


def _right_within(pair: AnsweredQuestion, name: str, most: float) -> float:
    cost, right = spent(pair, name), accuracy_or_exact_match(pair)
    return math.nan if math.isnan(cost) else right * (cost <= most)


@_within(title="Right within tokens", parameter="most tokens written")
def right_within_tokens(pair: AnsweredQuestion, most: float) -> float:
    """Whether the answer is right and took no more than so many tokens; a point of the budget curve.

    The mean is over all answers, also those that took more.
    """
    return _right_within(pair, "output", most)


@_within(title="Right within seconds", parameter="most seconds")
def right_within_seconds(pair: AnsweredQuestion, most: float) -> float:
    """Whether the answer is right and took no more than so many seconds of the model; a point of the budget curve."""
    return _right_within(pair, "seconds", most)


@_within(title="Right within cost", parameter="highest cost")
def right_within_cost(pair: AnsweredQuestion, most: float) -> float:
    """Whether the answer is right and cost no more than so much; a point of the budget curve."""
    return _right_within(pair, "cost", most)


def _make_sums(name: str) -> Callable[..., Floats]:
    def pieces(rows: ScoreTable) -> Floats:
        right = rows.metric == "accuracy_or_exact_match"
        is_known = ~np.isnan(rows.value)
        return np.stack([rows.value * (is_known & (rows.metric == name)), rows.value * (is_known & right)], axis=1)

    return lambda rows: np.nan_to_num(pieces(rows))


def _per_right(sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: Floats = np.where(sums[..., 0] > 0, sums[..., 0] / sums[..., 1], math.nan)
    return ratios


_ratio = partial(error_summary, source="ratio of sums over all cases")


@_ratio(
    title="Tokens per right answer",
    needs=("output_tokens", "accuracy_or_exact_match"),
    pieces=_make_sums("output_tokens"),
)
def tokens_per_right(sums: Floats) -> Floats:
    """All tokens written over the number of right answers.

    Infinite where none is right; NaN where no tokens were reported.
    """
    return _per_right(sums)


@_ratio(
    title="Cost per right answer", needs=("answer_cost", "accuracy_or_exact_match"), pieces=_make_sums("answer_cost")
)
def cost_per_right(sums: Floats) -> Floats:
    """The cost of all cases over the number of right answers.

    Infinite where none is right; NaN where no cost is known.
    """
    return _per_right(sums)
