"""What answers to questions are worth and how they are written: functions that tasks of questions share."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import yaml

from medimg_eval.case import Boxes, Case, Condition, Image, Points
from medimg_eval.case_index import remembered
from medimg_eval.configs.names import file_of
from medimg_eval.degradations import DrawKey, degrade_image
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.answers import UNREAD, AnsweredQuestion
from medimg_eval.question import Message, Question
from medimg_eval.tasks.base import Layout
from medimg_eval.tasks.questions.templates import Template, moved


def marked(value: Any) -> Points | Boxes | None:
    """Marks in voxels from (x, y) or (x1, y1, x2, y2), else None."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) not in (2, 4):
        return None
    if len(value) == 2:
        return Points(np.array([[value[1], value[0]]], float), ("",))
    left, top, right, bottom = value
    return Boxes(np.array([[top, left, bottom - 1, right - 1]], float), ("",))


def question_of(case: Case) -> Question:
    """The question of a case; raises CaseError where its record has none."""
    if case.question is None:
        case.target.read()  # says what is wrong with the record
        raise CaseError(f"case {case.id!r} has no question; this task's layout must give one")
    return case.question


def values_of(name: str, pair: AnsweredQuestion) -> Mapping[str, float]:
    """A metric's values by kind of question, by its own names, or by its name."""
    definition, parameter = parse(name)
    value: Any = definition.function(pair) if parameter is None else definition.function(pair, parameter)
    return value if isinstance(value, Mapping) else {pair.kind: float(value)}


def failed_scores(name: str, pair: AnsweredQuestion, damned: AnsweredQuestion) -> list[LabelScore]:
    """Scores of a failed case by its empty and worst answer; NaN where unjudged."""
    definition, rows = parse(name)[0], []
    try:
        for label, value_ in values_of(name, pair).items():  # NaN where the metric does not judge such questions
            unasked = math.isnan(value_) and definition.name != "judge_failures"
            value = values_of(name, damned).get(label, math.nan) if unasked else value_
            if not math.isnan(value):
                rows.append(
                    LabelScore(label, name, value if definition.intermediate else float(definition.worst), "failed")
                )
    except Exception:  # noqa: BLE001 - whatever it raises, such as of several references, this is not judged by it
        return [LabelScore(UNREAD, name, math.nan, "failed")]
    return rows


def credit_of_draw(case: Case) -> float | None:
    """Expected `accuracy` of a random option; None where not judged."""
    question = case.question
    if question is None or question.kind in ("number", "point"):
        return None if question is None else 0.0
    if question.kind not in ("choice", "choices", "yes_no"):
        return None
    count = len(question.options) or 2
    if question.kind == "choices" and len(case.target.read().value) > 1:
        return 0.0  # one option is never several
    return 1 / count


def accuracy_of_draw(cases: Sequence[Case]) -> dict[str, float]:
    """The expected `accuracy` of one who draws an option of each question; nothing where no question has any."""

    def compute() -> dict[str, float]:
        worth, drawn = array("d"), False
        for case in cases:
            credit = credit_of_draw(case)
            if credit is not None:
                worth.append(credit)
            question = case.question
            drawn = drawn or (question is not None and (bool(question.options) or question.kind == "yes_no"))
        return {"accuracy": float(np.mean(worth))} if worth and drawn else {}

    return remembered(cases, "accuracy of a draw", compute)


def written_out(kind: str, value: Any) -> str:
    """Right answer as written: letters with commas, or the first text."""
    if kind == "choices":
        return ", ".join(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        return value[0]
    return f"{value:g}" if isinstance(value, float) else str(value)


def as_shown(images: tuple[Image, ...], blind: str) -> tuple[Image, ...]:
    """Shown images: none, or grey ones, for blind models."""
    if blind == "remove":
        return ()
    return (
        tuple(degrade_image(image, Condition("grey"), DrawKey(0, "")) for image in images)
        if blind == "grey"
        else images
    )


def is_judging(name: str) -> bool:
    """Whether there is a question to a judge of that name."""
    return file_of("judging", name) is not None


@cache
def judging_question(name: str) -> Mapping[str, Any]:
    """A metric's question to judges, from our `configs/judging` or a plug-in's."""
    path = file_of("judging", name)
    if path is None:
        raise UsageError(f"task.judge.{name}: a metric needs the question {name!r} to a judge, which is not set")
    loaded: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def exemplars_of(
    shots: Mapping[str, Any], layout: Layout, template: Template
) -> tuple[tuple[Image, ...], tuple[Message, ...]]:
    """Images and turns shown before every question."""
    if not shots:
        return (), ()
    cases = list(layout.cases(str(shots.get("split", "dev"))))
    ids = [str(case_id) for case_id in shots.get("ids", ())]
    by_id = {case.id: case for case in cases}
    UsageError.refuse_unknown("task.shots names a case", by_id, *ids)
    chosen = [by_id[case_id] for case_id in ids] if ids else cases[: int(shots.get("number", 1))]
    images: list[Image] = []
    turns: list[Message] = []
    for case in chosen:
        read = tuple(reference.read() for reference in case.images)
        messages, _ = template.messages(question_of(case), case.attributes, len(read))
        turns += [moved(message, len(images)) for message in messages if message.role != "system"]
        turns.append(Message("assistant", (written_out(question_of(case).kind, case.target.read().value),)))
        images += read
    return tuple(images), tuple(turns)
