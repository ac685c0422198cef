"""What an answer says of a claim, by a judge: it agrees, disagrees, or does neither."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import neutral_metric
from medimg_eval.metrics.judges.verdicts import objects, verdict_reader
from medimg_eval.metrics.registry import judge_says

STANCES = {"agree": 1.0, "neutral": 0.5, "disagree": 0.0}
"""What an answer does -> how far it agrees."""

RIGHT = {"true": "agree", "false": "disagree", "mixture": "neutral"}
"""Veracity of a claim -> what an answer should do; of a fabricated claim nothing is said to be right."""

_SAID = re.compile(r"""['"]?agreement['"]?\s*:\s*['"]?(Agree|Disagree|None|Neutral)\b""", re.IGNORECASE)

_stance = partial(neutral_metric, kind="answer", source="Kaur et al. 2024, UPHILL", requires=judge_says("stance"))


@verdict_reader("stance")
def read_stance(reply: str) -> str | None:
    """Returns `agree`, `disagree` or `neutral` of a reply in UPHILL's form, JSON or not; None where it names none.

    What is neither "Agree" nor "Disagree" under the key is neutral, as its authors' program has it.
    """
    for content in objects(reply):
        if "agreement" in content:
            named = str(content["agreement"]).strip().lower()
            return named if named in ("agree", "disagree") else "neutral"
    match = _SAID.search(reply)
    if match is None:
        return None
    stated = match.group(1).lower()
    return stated if stated in ("agree", "disagree") else "neutral"


@_stance(title="Agreement")
def stance(pair: AnsweredQuestion) -> float:
    """How far an answer agrees with the claim of its question: 1 agrees, 0 disagrees, 0.5 does neither."""
    return STANCES.get(_stated(pair), math.nan)


def _refuse_unknown(parameter: Any) -> None:
    UsageError.refuse_invalid("stance", STANCES, str(parameter))


@_stance(
    title="Stance", parameter="agree, disagree or neutral", parameter_is_text=True, check=_refuse_unknown,
    value_kind="proportion",
)  # fmt: skip
def stance_share(pair: AnsweredQuestion, parameter: str) -> float:
    """Whether an answer takes a stance towards the claim of its question; NaN where no judge told it."""
    stated = _stated(pair)
    return float(stated == parameter) if stated else math.nan


@_stance(title="Factual accuracy", higher_is_better=True, best=1.0, worst=0.0, value_kind="proportion")
def stance_accuracy(pair: AnsweredQuestion) -> float:
    """Whether an answer agrees with a true claim, disagrees with a false one, and does neither with a mixed one.

    NaN of a claim that was made up (`fabricated`), which its authors leave out.
    """
    stated, due = _stated(pair), RIGHT.get(_veracity(pair))
    return float(stated == due) if stated and due else math.nan


def _stated(pair: AnsweredQuestion) -> str:
    stated = pair.judged.get("stance")
    return stated if isinstance(stated, str) and stated in STANCES else ""


def _veracity(pair: AnsweredQuestion) -> str:
    value = pair.value[0] if isinstance(pair.value, list | tuple) and pair.value else pair.value
    return str(value).strip().lower()
