"""Steps of a model's reasoning: which are right, where the first error is, which of the due ones are there.

What a model thinks is parted into steps, and a judge is asked about one at a time (`thought_steps`); about each step of
the answer key's `rationale` it is asked whether the reasoning says it (`key_steps`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from medimg_eval.metrics.answers import AnsweredQuestion, split_thought
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import answer_share, neutral_metric, share_summary
from medimg_eval.metrics.judges.verdicts import replies_in, sentences
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, judge_says

MME_COT = "MME-CoT (Jiang et al. 2025, arXiv 2502.09621), steps by a judge"
VISUAL_PROCESS = "VisualProcessBench (Wang et al. 2025, arXiv 2503.10291)"

_NUMBERED = re.compile(r"\n(?=\s*(?:step\s*)?\d{1,2}\s*[.:)])", re.IGNORECASE)
_STEP_LABEL = re.compile(
    r"^[\s*#>-]*(?:step\s*)?\[?(\d{1,3})[\]\s:.)*]*(?:-\s+)?(incorrect|correct|neutral|-1|\+?1|0)\b",
    re.IGNORECASE | re.MULTILINE,
)
LABELS = {"correct": 1, "1": 1, "+1": 1, "incorrect": -1, "-1": -1, "neutral": 0, "0": 0}

_judged = partial(answer_share, source=MME_COT, optional=True)
_correct = partial(_judged, requires=judge_says("thought_steps"))
_due = partial(_judged, requires=judge_says("key_steps"))


def reasoning_steps(text: str, sent: str | None = None) -> list[str]:
    r"""Returns reasoning steps: numbered, else paragraphs, lines or sentences.

    Reasoning is what was thought; of a reply without a thought all of it.

    >>> reasoning_steps("<think>Air outside.\n\nSo a pneumothorax.</think>B")
    ['Air outside.', 'So a pneumothorax.']
    """
    parted = split_thought(text, sent)
    reasoning = (parted.thought or parted.answer).strip()
    for parts in (_NUMBERED.split(f"\n{reasoning}"), re.split(r"\n\s*\n", reasoning), reasoning.splitlines()):
        steps = [part.strip() for part in parts if any(map(str.isalpha, part))]
        if len(steps) > 1:
            return steps
    return sentences(reasoning)


def rationale_steps(given: Any) -> list[str]:
    """Returns due steps: a list, or a text's paragraphs, lines or sentences."""
    if isinstance(given, str):
        return reasoning_steps(given)
    return [str(step) for step in given] if isinstance(given, Sequence) else []


def _step_verdicts(pair: AnsweredQuestion, question: str) -> list[float] | None:
    """Returns readable step verdicts; None where nothing was judged."""
    verdict = pair.judged.get(question)
    if (not verdict and not isinstance(verdict, int | float)) or (isinstance(verdict, float) and math.isnan(verdict)):
        return None
    if isinstance(verdict, int | float):  # of a case that failed
        return [-1.0 if question == "thought_steps" else 0.0]
    return [float(verdict) for verdict in replies_in(verdict) if verdict is not None]


@_correct(title="Steps right")
def step_correctness(pair: AnsweredQuestion) -> float:
    """The share of reasoning steps that the judge finds right, of those right or wrong; NaN where there is none."""
    verdicts = [verdict for verdict in _step_verdicts(pair, "thought_steps") or () if verdict]
    return float(np.mean([verdict > 0 for verdict in verdicts])) if verdicts else math.nan


@_correct(title="Before the first error")
def steps_before_error(pair: AnsweredQuestion) -> float:
    """The share of reasoning steps before the first that the judge finds wrong; 1 where none is."""
    verdicts = _step_verdicts(pair, "thought_steps")
    if not verdicts:
        return math.nan
    first = next((index for index, verdict in enumerate(verdicts) if verdict < 0), len(verdicts))
    return first / len(verdicts)


@_due(title="Key steps")
def key_step_recall(pair: AnsweredQuestion) -> float:
    """The share of the steps of the answer key's rationale that the reasoning says, by the judge."""
    verdicts = _step_verdicts(pair, "key_steps")
    return float(np.mean(verdicts)) if verdicts else math.nan


@_judged(title="Steps F1", requires=judge_says("thought_steps", "key_steps"))
def key_step_f1(pair: AnsweredQuestion) -> float:
    """The harmonic mean of `step_correctness` and `key_step_recall`."""
    precision, recall = step_correctness(pair), key_step_recall(pair)
    if math.isnan(precision) or math.isnan(recall):
        return math.nan
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def read_step_labels(text: str, number: int) -> list[int | None]:
    r"""Returns step labels: 1 right, -1 wrong, 0 neither, None.

    What a model says of each of so many steps; None where it says nothing.

    >>> read_step_labels("Step 1: correct\n2. incorrect", 3)
    [1, -1, None]
    """
    labels: list[int | None] = [None] * number
    for match in _STEP_LABEL.finditer(split_thought(text).answer):
        index = int(match[1]) - 1
        if 0 <= index < number:
            labels[index] = LABELS[match[2].lower()]
    return labels


def _step_labels(pair: AnsweredQuestion) -> tuple[list[int], list[int | None]] | None:
    """Returns step labels and the model's; None without labels."""
    labels = pair.more.get("step_labels")
    if not isinstance(labels, Sequence) or isinstance(labels, str) or not labels:
        return None
    truth = [int(label) for label in labels]
    return truth, read_step_labels(pair.output, len(truth))


@neutral_metric(kind="answer", title="Steps, counted", optional=True, value_kind="count", source=VISUAL_PROCESS)
def step_counts(pair: AnsweredQuestion) -> Mapping[str, float]:
    """The number of labelled steps that are right or wrong, that the model calls so, and both.

    Neutral steps are left out; a step of which it says nothing, or neutral, is called neither.
    """
    labelled = _step_labels(pair)
    if labelled is None:
        return {"all": math.nan}
    pairs = [(truth, judged) for truth, judged in zip(*labelled, strict=True) if truth]
    counts = {}
    for name, sign in (("right", 1), ("wrong", -1)):
        counts[f"{name}, due"] = float(sum(truth == sign for truth, _ in pairs))
        counts[f"{name}, said"] = float(sum(judged == sign for _, judged in pairs))
        counts[f"{name}, both"] = float(sum(truth == judged == sign for truth, judged in pairs))
    return counts


@answer_share(title="First error", optional=True, value_kind="proportion", source=VISUAL_PROCESS)
def first_error_found(pair: AnsweredQuestion) -> float:
    """Whether the first step that the model calls wrong is the first that is; of a chain without errors, none."""
    labelled = _step_labels(pair)
    if labelled is None:
        return math.nan
    truth, judged = labelled
    return float((truth.index(-1) if -1 in truth else None) == (judged.index(-1) if -1 in judged else None))


_ORDER = ("right, due", "right, said", "right, both", "wrong, due", "wrong, said", "wrong, both")


def _step_pieces(rows: ScoreTable) -> Floats:
    return np.stack([np.nan_to_num(rows.value) * (rows.label == name) for name in _ORDER], axis=1)


_step_f1 = partial(share_summary, needs=("step_counts",), source=VISUAL_PROCESS, pieces=_step_pieces)


def _f1(sums: Floats, place: int) -> Floats:
    due, judged, both = (sums[..., place + number] for number in range(3))
    return quotient(2 * both, due + judged)


@_step_f1(title="F1 of right steps")
def right_step_f1(sums: Floats) -> Floats:
    """The F1 of steps that are right, over all steps of all cases but neutral ones."""
    return _f1(sums, 0)


@_step_f1(title="F1 of wrong steps")
def wrong_step_f1(sums: Floats) -> Floats:
    """The F1 of steps that are wrong, over all steps of all cases but neutral ones."""
    return _f1(sums, 3)


@_step_f1(title="Macro F1 of steps")
def step_macro_f1(sums: Floats) -> Floats:
    """The mean of `right_step_f1` and `wrong_step_f1`."""
    return (_f1(sums, 0) + _f1(sums, 3)) / 2
