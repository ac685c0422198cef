"""Answers that reason in steps and name a place: which steps are said, in which order, and whether all of it holds."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.nlp import words
from medimg_eval.metrics.vqa.grounding import grade_accuracy, iou_3d

_answers = partial(answer_share, source="this package; 3DReasonKnee publishes no scorer", parameter_most=1.0)

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_NUMBER = re.compile(r"^\s*(?:step\s*)?\d+\s*[.):]\s*|^\s*[-*]\s+", re.IGNORECASE)


def steps_of(text: str) -> list[str]:
    r"""Returns reasoning steps of a text, by lines and sentences.

    >>> steps_of("1. Find the patella. 2) Look at the marrow.\n- No lesion\n{...}")
    ['Find the patella.', 'Look at the marrow.', 'No lesion']
    """
    before = text.partition("{")[0]
    pieces = [_NUMBER.sub("", piece).strip() for piece in _SENTENCE.split(re.sub(r"(\s\d+[.)])\s", r"\n\1 ", before))]
    return [piece for piece in pieces if re.search(r"[^\W\d_]", piece)]


def said_at(right: Sequence[str], said: Sequence[str], least: float) -> list[int]:
    """Returns the index of each right step; -1 if unstated.

    A step says another where it has at least that share of its words; of several the one with the largest share, the
    first of these.
    """
    step_words = [frozenset(words(step)) for step in said]
    indices = []
    for step in right:
        wanted = frozenset(words(step))
        shares = [len(wanted & step) / len(wanted) if wanted else 0.0 for step in step_words]
        best = max(shares, default=0.0)
        indices.append(shares.index(best) if shares and best >= least and best > 0 else -1)
    return indices


def _step_positions(pair: AnsweredQuestion, least: float) -> list[int] | None:
    right = pair.more.get("reasoning") or ()
    steps = steps_of(right) if isinstance(right, str) else [str(step) for step in right]
    return said_at(steps, steps_of(pair.output), least) if steps else None


@_answers(title="Reasoning steps said", parameter="least share of a step's words")
def reasoning_steps_said(pair: AnsweredQuestion, least: float) -> float:
    """The share of the right steps of reasoning that a step of the answer says, by its words.

    In [0, 1]; a step that denies what another claims with the same words counts as said. NaN where no steps are known.
    """
    indices = _step_positions(pair, least)
    return math.nan if indices is None else sum(index >= 0 for index in indices) / len(indices)


@_answers(title="Reasoning steps in order", parameter="least share of a step's words")
def reasoning_steps_ordered(pair: AnsweredQuestion, least: float) -> float:
    """The share of the right steps of reasoning that an answer says in their order, by its words.

    The longest run of steps whose places in the answer never go back, over all right steps; at most
    `reasoning_steps_said`. NaN where no steps are known.
    """
    indices = _step_positions(pair, least)
    if indices is None:
        return math.nan
    ends: list[int] = []
    for index in (index for index in indices if index >= 0):
        position = bisect_right(ends, index)  # several steps may be said in one sentence
        ends[position : position + 1] = [index]
    return len(ends) / len(indices)


@_answers(title="Grades with their place", parameter="least IoU", value_kind="proportion")
def grounded_grades(pair: AnsweredQuestion, least: float) -> float:
    """Whether all grades are right and the box beside them has at least so large an IoU with the right one.

    The answer's `box` is (x1, y1, z1, x2, y2, z2) in mm, as that of the key. NaN where no right box is known.
    """
    right = pair.more.get("box")
    if pair.kind != "grades" or right is None:
        return math.nan
    return float(grade_accuracy(pair) == 1 and iou_3d(_box_of(pair.extraction.value), right) >= least)


@_answers(title="Box IoU beside grades", parameter=None, parameter_most=math.inf)
def graded_box_iou(pair: AnsweredQuestion) -> float:
    """The intersection over union in 3-D, in mm, of the box beside an answer's grades and the right one.

    In [0, 1]; 0 of an answer without a box. NaN where no right box is known.
    """
    right = pair.more.get("box")
    return math.nan if pair.kind != "grades" or right is None else iou_3d(_box_of(pair.extraction.value), right)


def _box_of(answer: Any) -> Any:
    """The `box` of an answer, nested anywhere; None without."""
    if not isinstance(answer, Mapping):
        return None
    if "box" in answer:
        return answer["box"]
    return next((box for item in answer.values() if (box := _box_of(item)) is not None), None)
