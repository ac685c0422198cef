"""What a log of another program holds: a record per reply, or per score."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from medimg_eval.case import Case
from medimg_eval.errors import UserError

LABEL = re.compile(r"^\s*\(?([A-Z])\s*[.:)]\s*")
"""The letter that some programs keep before an option."""


class NoRepliesError(UserError):
    """A log of scores alone."""


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
    """Replies of one model to one set of questions.

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
    """Options by letter; sequential letters before texts are removed."""
    matches = [LABEL.match(str(text)) for text in texts]
    marked = [match.group(1) for match in matches if match]
    if marked == list(ascii_uppercase[: len(texts)]):
        return {letter: LABEL.sub("", str(text)).strip() for letter, text in zip(marked, texts, strict=True)}
    return dict(zip(ascii_uppercase, (str(text).strip() for text in texts), strict=False))


def letter_of(right: Any, options: Mapping[str, str]) -> str:
    """Letter of the right option, by letter, index from 0 or text."""
    text_ = str(right).strip()
    label = LABEL.match(text_)
    if not options or text_.upper() in options:
        return text_.upper() if options else text_
    if text_.isdecimal() and int(text_) < len(options):
        return list(options)[int(text_)]
    letters = [letter for letter, text in options.items() if text.casefold() == text_.casefold()]
    return letters[0] if len(letters) == 1 else label.group(1) if label and label.group(1) in options else text_


def first_right(right: Any) -> str:
    """First right text of a cell's list, or the text."""
    held = right
    if isinstance(right, str) and right.startswith("["):
        for read in (json.loads, ast.literal_eval):
            try:
                held = read(right)
                break
            except (ValueError, SyntaxError):
                continue
    return str(held[0]) if isinstance(held, Sequence) and not isinstance(held, str) and held else str(held)


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Values that are numbers, with truths as 0 and 1."""
    return {str(name): float(value) for name, value in values.items() if isinstance(value, bool | int | float)}


def write_records(log: Log, folder: Path) -> tuple[Path, Path]:
    """Writes questions and replies as JSON lines for `score answers=`.

    Returns:
        The file of the questions, and that of the replies.
    """
    questions: dict[str, dict[str, Any]] = {}
    for record in log.records:
        question: dict[str, Any] = {
            "id": record.case,
            "question": record.question or "?",
            "reference": record.reference,
        }
        question |= {"options": dict(record.options)} if record.options else {}
        questions.setdefault(record.case, question | ({"patient": record.patient} if record.patient else {}))
    replies = [
        {"id": record.case, "repeat": record.repeat, "prediction": record.prediction}
        for record in log.records
        if not record.failure
    ]
    folder.mkdir(parents=True, exist_ok=True)
    return (
        write_lines(folder / f"{log.model}-questions.jsonl", list(questions.values())),
        write_lines(folder / f"{log.model}.jsonl", replies),
    )


def write_disagreements(
    log: Log, theirs: str, ours: str, differing: Sequence[tuple[LogRecord, float]], folder: Path
) -> Path:
    """Writes replies that the two programs score otherwise, with both scores."""
    rows = [
        {
            "id": record.case,
            "repeat": record.repeat,
            "question": record.question,
            "reference": record.reference,
            "prediction": record.prediction,
            f"{log.program}: {theirs}": record.scores[theirs],
            f"medimg_eval: {ours}": value,
        }
        for record, value in differing
    ]
    return write_lines(folder / f"{log.model}-{theirs.replace('/', '-')}-differs.jsonl", rows)


def matched(log: Log, cases: Sequence[Case]) -> Log:
    """Records matched to a task's cases by id or question.

    Raises:
        UserError: none is, or options stand in another order, so that letters mean something else.
    """
    by_id = {case.id: case for case in cases}
    texts = Counter(_normalise_text(case.question.text) for case in cases if case.question is not None)
    by_text = {
        text: case
        for case in cases
        if case.question is not None and texts[text := _normalise_text(case.question.text)] == 1
    }
    by_ids = all(record.case in by_id for record in log.records)
    matched_records = []
    for record in log.records:
        case = by_id.get(record.case) if by_ids else by_text.get(_normalise_text(record.question))
        if case is None:
            continue
        options = case.question.options if case.question is not None else {}
        if (
            record.options
            and options
            and [*map(_normalise_text, record.options.values())] != [*map(_normalise_text, options.values())]
        ):
            raise UserError(
                f"{log.file}: question {record.case!r} has other options, or in another order, than case {case.id!r} "
                "of the task; leave out task= to score the log by its own"
            )
        matched_records.append(replace(record, case=case.id))
    if not matched_records:
        raise UserError(f"{log.file}: none of its {len(log.records)} questions is one of the task's {len(cases)} cases")
    unmatched = len(log.records) - len(matched_records)
    notes = (
        [f"{unmatched} of {len(log.records)} replies are to questions that the task does not have"] if unmatched else []
    )
    return replace(log, records=matched_records, notes=[*log.notes, *notes])


def _normalise_text(text: str) -> str:
    return " ".join(text.split()).casefold()


def write_lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Writes JSON lines; returns the file."""
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return file
