"""Readers of a judge's replies: from what it wrote to a verdict that metrics take."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion, extract_report
from medimg_eval.metrics.declarations import error_metric
from medimg_eval.metrics.nlp import late_pattern
from medimg_eval.metrics.registry import available

Reader = Callable[[str], Any]
"""From a reply to a verdict that JSON can hold; None where the reply says nothing that was asked for."""

_READERS: dict[str, Reader] = {}

_END = late_pattern(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+|(?<=[^\W\d]\.)(?=\d{1,2}\.\D)")
"""Between sentences; also before the next number of a list that was written without blanks."""

_NUMBER = late_pattern(r"^(?:\(?\d{1,2}[.)](?!\d)|[-*•])\s*")

_ESCAPE = late_pattern(r'\\(?!["\\/bfnrtu])')
_COMMA = late_pattern(r",(?=\s*[}\]])")


def verdict_reader(name: str) -> Callable[[Reader], Reader]:
    """Registers a verdict reader for `parse: NAME` of questions.

    Questions are a judge's, and the reader is the function below it. The function takes the reply without
    what was thought aloud, and returns what JSON can hold, or None.

    Raises:
        ValueError: another function already has the name.
    """

    def register(function: Reader) -> Reader:
        registered = _READERS.get(name)
        if registered is not None and (registered.__module__, registered.__qualname__) != (
            function.__module__,
            function.__qualname__,
        ):
            raise ValueError(
                f"Expected one reader named {name!r}, got {registered.__module__} and {function.__module__}"
            )
        _READERS[name] = function
        return function

    return register


def reader(name: str) -> Reader:
    """Returns the reader of replies by name.

    Replies of which only thoughts are there have no verdict.

    Raises:
        UsageError: there is no such reader.
    """
    available()  # imports every module that may hold one
    UsageError.refuse_invalid("reader of a judge's replies", _READERS, name)

    def read(reply: str) -> Any:
        report = extract_report(reply).value
        return _READERS[name](report) if report else None

    return read


counted = partial(error_metric, kind="answer", worst=math.nan, unit="errors", parameter_is_text=True)


def worth(pair: AnsweredQuestion, question: str, value: Callable[[Any], float]) -> float:
    """Returns what `value` makes of the verdict on a report.

    NaN of answers of another kind, without a reference, and without a verdict. 0 of a case that failed, for which the
    harness puts a number in the place of every verdict, and takes the metric's worst value.
    """
    if pair.kind not in ("open", "report") or not pair.references:
        return math.nan
    verdict = pair.judged.get(question)
    if isinstance(verdict, int | float):
        return math.nan if math.isnan(verdict) else 0.0
    return math.nan if verdict is None else value(verdict)


def replies_in(verdict: Any) -> list[Any]:
    """Returns a judge's verdicts on one question, possibly per text."""
    if isinstance(verdict, Mapping) and verdict.keys() == {"items", "verdicts"}:
        return list(verdict["verdicts"])
    return [verdict]


def objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yields the JSON objects of a reply, those in others left out.

    Mended are what judges often get wrong: backslashes that escape nothing, commas before a closing bracket, and line
    breaks in texts. Of keys that stand twice the first counts.
    """
    decoder = json.JSONDecoder(strict=False, object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    mended = _COMMA.sub("", _ESCAPE.sub(r"\\\\", text))
    position = mended.find("{")
    while position >= 0:
        try:
            content, end = decoder.raw_decode(mended, position)
        except (ValueError, RecursionError):
            end = position + 1
        else:
            if isinstance(content, Mapping):
                yield content
        position = mended.find("{", end)


def sentences(text: str) -> list[str]:
    """Returns a report's sentences, without list numbers.

    None of a blank text. A sentence ends at a full stop, question or exclamation mark before a blank, and at
    the end of a line.
    """
    parts = (_NUMBER.sub("", part.strip()) for part in _END.split(text))
    return [" ".join(part.split()) for part in parts if any(map(str.isalpha, part))]
