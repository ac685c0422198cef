"""How sure a model is of its answer to a question: from likelihoods of options, or from what it writes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from medimg_eval.metrics._confidence import RIGHT, WRONG
from medimg_eval.metrics._replies import ReplyPair
from medimg_eval.metrics.vqa import accuracy
from medimg_eval.question import Reply

_NUMBER = r"(?P<{name}>\d+(?:\.\d+)?)"
_SAID = re.compile(
    r"\bconfiden(?:ce|t)\b[^\d\n]{0,24}?"
    + _NUMBER.format(name="after")
    + r"(?![\d.]*\s*[-\u2013]\s*\d)\s*(?P<of>%|/\s*100\b|(?:/|out of)\s*10\b)?"
    + "|"
    + _NUMBER.format(name="before")
    + r"\s*%\s*(?:confiden(?:ce|t)|sure|certain)\b",
    re.IGNORECASE,
)
"""Such as `Confidence: 85%`, `confidence 0.85`, `confidence is 8/10` and `85 % sure`."""


def with_confidence(model: Any, answers: Sequence[Any]) -> Sequence[Any]:
    """Adds how sure it is to what a model chose whose numbers are log-likelihoods, as it says by `log_likelihoods`.

    The confidence is the largest probability of a softmax over the options. Anything else stays as it is, and is judged
    where answers are accepted.
    """
    if not getattr(model, "log_likelihoods", False):
        return answers
    return [_weighed(answer) for answer in answers]


def _weighed(answer: Any) -> Any:
    reply = Reply(preferences=answer) if isinstance(answer, Mapping) else answer
    if not isinstance(reply, Reply) or not reply.preferences or reply.confidence is not None:
        return answer
    numbers = [float(number) for number in reply.preferences.values()]
    if not all(map(math.isfinite, numbers)):
        return answer
    return replace(reply, confidence=1 / sum(math.exp(number - max(numbers)) for number in numbers))


def kept(prediction: Reply) -> dict[str, float]:
    """What a run keeps of it: the confidence, if there is one."""
    return {} if prediction.confidence is None else {"confidence": prediction.confidence}


def confidence_of(packed: Mapping[str, Any]) -> float | None:
    """How sure a stored reply is, 0 to 1: as it was stored, or as its last text says; None where neither says."""
    known = packed.get("confidence")
    if known is not None:
        return float(known)
    texts = packed.get("texts") or ("",)
    return written_confidence(str(texts[-1]))


def written_confidence(text: str) -> float | None:
    """Reads the confidence that a text names last, 0 to 1; None where it names none.

    A number of at most 1 is a share, a larger one is of 100, unless `/10` or `out of 10` stands behind it.

    >>> written_confidence("B. Confidence: 85%")
    0.85
    """
    found = list(_SAID.finditer(text))
    if not found:
        return None
    last = found[-1]
    of = (last["of"] or ("" if last["after"] else "%")).replace(" ", "")
    number = float(last["after"] or last["before"])
    if of.endswith("10") and not of.endswith("100"):
        number /= 10
    elif of or number > 1:
        number /= 100
    return number if number <= 1 else None


def status_of(metric: str, pair: ReplyPair) -> str:
    """What a Score row says of the answer: of one of `confidence` whether it was right, else how it came about."""
    if metric != "confidence":
        return pair.status
    return RIGHT if accuracy(pair) == 1 else WRONG
