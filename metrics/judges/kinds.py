"""Kinds that a judge sorts an answer into, such as ways to fail or levels of risk, and their shares."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share, neutral_metric
from medimg_eval.metrics.judges.verdicts import objects, verdict_reader
from medimg_eval.metrics.registry import Requirement, judge_says, metric

MEDVAL = "after MedVAL (Aali et al. 2025)"

_LEVEL = re.compile(r"\b(?:risk[\s_]*)?level\D{0,12}([1-4])\b", re.IGNORECASE)


@verdict_reader("kinds")
def read_kinds(reply: str) -> list[str] | None:
    """Returns the kinds that a reply names as JSON, `{"kinds": ["a", "b"]}`, in lower case with underscores.

    An empty list says that none applies. None where there is no such object, or it holds anything but texts.
    """
    for content in objects(reply):
        kinds = content.get("kinds")
        if isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds):
            return [re.sub(r"[\s-]+", "_", kind.strip().lower()) for kind in kinds]
    return None


def _question_of(parameter: Any) -> tuple[Requirement, ...]:
    question, _, kind = str(parameter).partition(":")
    if not question or not kind:
        raise UsageError(f"judged_kind@{parameter}: expected QUESTION:KIND, such as lmod_failures:hallucination")
    return judge_says(question)


@neutral_metric(
    kind="answer",
    title="Kind, by a judge",
    source="the judge's prompt",
    parameter="QUESTION:KIND",
    parameter_is_text=True,
    check=_question_of,
    requires=_question_of,
    value_kind="proportion",
    optional=True,
)
def judged_kind(pair: AnsweredQuestion, parameter: str) -> float:
    """Whether a judge sorts an answer into a kind, by a question of `configs/judging` whose reader is `kinds`.

    `none` asks whether it names no kind. An answer may be of several kinds, so shares need not add up to 1. NaN where
    the judge was not asked, or its reply holds no verdict.
    """
    question, _, kind = parameter.partition(":")
    kinds = pair.judged.get(question)
    if not isinstance(kinds, list):
        return math.nan
    return float(not kinds if kind == "none" else kind in kinds)


@verdict_reader("risk_level")
def read_risk_level(reply: str) -> dict[str, Any] | None:
    """Returns {"level": 1 to 4, "errors": kinds} of a reply in JSON or words, or None."""
    for content in objects(reply):
        level, errors = content.get("level", content.get("risk_level")), content.get("errors") or []
        if isinstance(level, int) and not isinstance(level, bool) and 1 <= level <= 4 and isinstance(errors, list):
            return {"level": level, "errors": [str(error).strip().lower().replace(" ", "_") for error in errors]}
    named = _LEVEL.findall(reply)
    return {"level": int(named[-1]), "errors": []} if named else None


def _risk_level(pair: AnsweredQuestion) -> float:
    verdict = pair.judged.get("medval")
    if isinstance(verdict, int | float):  # of a case that failed
        return math.nan if math.isnan(verdict) else 4.0
    return float(verdict["level"]) if isinstance(verdict, Mapping) and "level" in verdict else math.nan


@metric(
    kind="answer",
    title="MedVAL risk level",
    higher_is_better=False,
    best=1.0,
    worst=4.0,
    source=MEDVAL,
    requires=judge_says("medval"),
)
def medval_level(pair: AnsweredQuestion) -> float:
    """The level of risk of a text beside what it was made of, 1 (none) to 4 (high), by a judge; no reference is used.

    NaN without a verdict.
    """
    return _risk_level(pair)


@answer_share(title="MedVAL, safe", source=MEDVAL, requires=judge_says("medval"), value_kind="proportion")
def medval_safe(pair: AnsweredQuestion) -> float:
    """Whether a text may be used without a person changing it: a level of risk of 1 or 2, by a judge.

    NaN without a verdict.
    """
    level = _risk_level(pair)
    return math.nan if math.isnan(level) else float(level <= 2)
