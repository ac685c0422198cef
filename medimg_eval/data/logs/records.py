"""What a log of another program holds: a record per reply, or per score."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LABEL = re.compile(r"^\s*\(?([A-Z])\s*[.:)]\s*")
"""The letter that some programs keep before an option."""


@dataclass(frozen=True)
class LogRecord:
    """A reply to one question.

    Attributes:
        case: id of the question.
        prediction: the reply, word for word; of a model that weighed options, the letter of the likeliest.
        reference: what is right: a letter where there are options, else a text.
        question: its text.
        options: letter -> text.
        repeat: which of several replies to the question it is, counted from 0.
        scores: by metric, how the program scored it.
        patient: whom it is about, where the log says so.
        failure: what went wrong where there is no reply.
    """

    case: str
    prediction: str
    reference: str
    question: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    repeat: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    patient: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Log:
    """What one model replied to one set of questions.

    Attributes:
        program: that wrote it.
        file: where it lies.
        model: who replied.
        dataset: what the program calls the questions.
        records: the replies.
        notes: what readers of the numbers must know.
    """

    program: str
    file: Path
    model: str
    dataset: str
    records: Sequence[LogRecord]
    notes: Sequence[str] = ()


def lettered(texts: Sequence[Any]) -> dict[str, str]:
    """Options by letter; letters that the texts begin with, all in their order, are taken off."""
    found = [LABEL.match(str(text)) for text in texts]
    marked = [match.group(1) for match in found if match]
    if marked == list(LETTERS[: len(texts)]):
        return {letter: LABEL.sub("", str(text)).strip() for letter, text in zip(marked, texts, strict=True)}
    return dict(zip(LETTERS, (str(text).strip() for text in texts), strict=False))


def letter_of(right: Any, options: Mapping[str, str], first: int = 0) -> str:
    """The letter of what is right, given as a letter, as a place counted from `first`, or as an option's text."""
    told = str(right).strip()
    label = LABEL.match(told)
    if not options or told.upper() in options:
        return told.upper() if options else told
    if told.isdecimal() and first <= int(told) < first + len(options):
        return list(options)[int(told) - first]
    same = [letter for letter, text in options.items() if text.casefold() == told.casefold()]
    return same[0] if len(same) == 1 else label.group(1) if label and label.group(1) in options else told


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Those of the values that are numbers, truths as 0 and 1."""
    return {str(name): float(value) for name, value in values.items() if isinstance(value, bool | int | float)}


def write_records(log: Log, file: Path) -> Path:
    """Writes replies as `score answers=` reads them, as JSON lines; a record without a reply has no line."""
    rows = [
        {
            "id": record.case,
            "repeat": record.repeat,
            "question": record.question,
            "reference": record.reference,
            "prediction": record.prediction,
            **({"options": dict(record.options)} if record.options else {}),
            **({"patient": record.patient} if record.patient else {}),
            "scores": dict(record.scores),
        }
        for record in log.records
        if not record.failure
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return file
