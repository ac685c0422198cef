"""How sure a model is of its answer to a question: from likelihoods of options, or from what it writes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.calibration import RIGHT, WRONG, right_option
from medimg_eval.metrics.vqa import accuracy
from medimg_eval.question import Reply

_NUMBER = r"(?<![-\d.,])(?P<{name}>\d+(?:[.,]\d+)?|\.\d+)(?!\d|[.,]\d|e-?\d|\s*(?:[-\u2013]|to\b)\s*\d)"
_OF = r"(?P<{name}>%|percent\b|(?:/|\(?out\s+of|\(of)\s*\d+\b)"
_STATISTICS = r"(?!\s+(?:interval|limit|bound|region))"
_SAID = re.compile(
    rf"\bconfiden(?:ce|t)\b{_STATISTICS}(?P<lead>[^\d\n.;!?()]{{0,24}}?(?:\((?P<scale>[^()\n]{{0,24}})\))?"
    rf"\(?[^\d\n.;!?()]{{0,24}}?){_NUMBER.format(name='after')}\s*{_OF.format(name='after_of')}?"
    rf"|{_NUMBER.format(name='before')}\s*{_OF.format(name='before_of')}\s*(?:confiden(?:ce|t)|sure|certain(?:ty)?)\b"
    + _STATISTICS,
    re.IGNORECASE,
)
"""Such as `Confidence: 85%`, `confidence 0.85`, `Confidence (0-10): 8` and `85 % sure`; ranges are not read."""
_NAMED = re.compile(r"[cs](?:onfiden|ure|ertain)", re.IGNORECASE)
"""Stands in whatever `_SAID` finds, and is looked for in a tenth of the time."""
_LEADS = re.compile(r"(?:^|[:=~)]|\b(?:is|of|at|about|score|level|rating))[\s*_`'\"(]*$", re.IGNORECASE)
"""Ends what stands between the word and a number without a unit, which may else count anything."""
_DENIED = re.compile(r"(?:\bnot|n't|\bless than|\bunder|\bbelow|<)\s*$", re.IGNORECASE)
"""Before a number: it says what the confidence is not."""
_SCALES = (1, 5, 10, 100)
"""What confidences are out of."""


def with_confidence(model: Any, answers: Sequence[Any]) -> Sequence[Any]:
    """Adds a choice's confidence, by its log-likelihoods.

    The confidence is the largest probability of a softmax over the options. Anything else stays as it is, and is judged
    where answers are accepted.
    """
    if not getattr(model, "log_likelihoods", False):
        return answers
    return [_weigh_choice(answer) for answer in answers]


def _weigh_choice(answer: Any) -> Any:
    reply = Reply(preferences=answer) if isinstance(answer, Mapping) else answer
    if not isinstance(reply, Reply) or not reply.preferences or reply.confidence is not None:
        return answer
    numbers = [float(number) for number in reply.preferences.values()]
    if not all(map(math.isfinite, numbers)):
        return answer
    return replace(reply, confidence=1 / sum(math.exp(number - max(numbers)) for number in numbers))


def confidence_of(packed: Mapping[str, Any]) -> float | None:
    """Confidence of a stored reply, 0 to 1; None where unstated."""
    confidence = packed.get("confidence")
    if confidence is not None:
        return float(confidence)
    texts = packed.get("texts") or ("",)
    return written_confidence(str(texts[-1]))


def written_confidence(text: str) -> float | None:
    """Last confidence stated in a text, 0 to 1; else None.

    A number of at most 1 is a share and a larger one is of 100, unless `/10`, `out of 5` or the like stands behind it,
    or before it in parentheses.

    >>> written_confidence("B. Confidence: 85%")
    0.85
    """
    if not _NAMED.search(text):
        return None
    shares = [_parse_share(match) for match in _SAID.finditer(text) if _states_confidence(text, match)]
    return shares[-1] if shares else None


def _states_confidence(text: str, found: re.Match[str]) -> bool:
    """Whether a match states confidence, not doubt or a count."""
    if _DENIED.search(text[: found.start("after" if found["after"] else "before")]):
        return False
    plain = found["after"] and not found["after_of"]
    return not plain or bool(found.group().lower().startswith("confidence") and _LEADS.search(found["lead"]))


def _parse_share(found: re.Match[str]) -> float | None:
    """Returns a share; None for invalid ones, as 120 %."""
    number = float((found["after"] or found["before"]).replace(",", "."))
    of = found["after_of"] or found["before_of"] or found["scale"] or ""
    scale = 100 if of.lower() in ("%", "percent") else int((re.findall(r"\d+", of) or [0])[-1])
    if not scale:
        scale = 100 if number > 1 else 1
    return number / scale if scale in _SCALES and number <= scale else None


def status_of(metric: str, pair: AnsweredQuestion, label: str = "") -> str:
    """Status of an answer: of `confidence` or an option right or wrong, else how it arose."""
    if metric == "option_probability":
        return RIGHT if label == right_option(pair) else WRONG
    if metric != "confidence":
        return pair.status
    return RIGHT if accuracy(pair) == 1 else WRONG
