"""Samples of lm-eval and lmms-eval: JSON lines with a record per question and filter."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medimg_eval.data.logs.records import Log, LogRecord, letter_of, lettered, numbers_of
from medimg_eval.data.tables import read_json
from medimg_eval.errors import UserError

OWN = frozenset(("doc_id", "target", "resps", "filtered_resps", "doc_hash", "prompt_hash", "target_hash", "input"))
"""Fields that are no metrics."""
DATED = re.compile(r"^(?:samples_(?P<lm>.+)_\d{4}-\d\d-\d\dT[\d.\-:]+|\d{8}_\d{6}_samples_(?P<lmms>.+))$")
QUESTION = ("question", "query", "q", "problem", "input", "prompt")


def is_samples(first: Mapping[str, Any]) -> bool:
    """Whether a record is one of lm-eval or lmms-eval."""
    return "doc_id" in first and "filtered_resps" in first


def read_samples(file: Path, rows: Sequence[Mapping[str, Any]]) -> Log:
    """Reads a task's samples, by the first filter.

    The replies of others are the same.

    Raises:
        UserError: a question has two different replies, as happens where a file was appended to.
    """
    program = "lm-eval" if "doc" in rows[0] or "arguments" in rows[0] else "lmms-eval"
    named = DATED.match(file.stem)
    task = next((name for name in named.groups() if name), file.stem) if named else file.stem
    records: dict[str, LogRecord] = {}
    for row in rows:
        record = _make_record(row)
        before = records.setdefault(record.case, record)
        if before.prediction != record.prediction:
            raise UserError(
                f"{file}: question {record.case} has two replies; the file was appended to by a second start: keep "
                "the lines of one"
            )
    notes = []
    if program == "lmms-eval":
        notes.append("lmms-eval keeps no options in its samples; name the task by task= to have them judged as options")
    return Log(program, file, _model_name(file), task, list(records.values()), notes)


def _model_name(file: Path) -> str:
    """Who replied, as the results beside the samples say, or else their folder."""
    for results_file in sorted(file.parent.glob("*results*.json"), reverse=True):
        held = read_json(results_file)
        if isinstance(held, dict) and held.get("model_name"):
            return str(held["model_name"]).replace("/", "_")
    return file.resolve().parent.name


def _make_record(row: Mapping[str, Any]) -> LogRecord:
    doc, arguments = row.get("doc") or {}, row.get("arguments") or {}
    weighed = [list(argument.values()) for argument in arguments.values() if isinstance(argument, Mapping)]
    replies = row["filtered_resps"]
    options = (
        lettered([option[1] for option in weighed]) if _weighs_options(weighed, replies) else _question_options(doc)
    )
    reference = letter_of(row["target"], options)
    if _weighs_options(weighed, replies):
        likelihoods = [float(reply[0]) for reply in replies]
        prediction = list(options)[likelihoods.index(max(likelihoods))]
    else:
        prediction = _reply_text(row.get("resps", replies))
    question = next((str(doc[name]) for name in QUESTION if isinstance(doc.get(name), str)), "")
    asking = weighed[0][0] if weighed and isinstance(weighed[0][0], str) else row.get("input")
    scores = numbers_of({name: value for name, value in row.items() if name not in OWN})
    return LogRecord(str(row["doc_id"]), prediction, reference, question or str(asking or ""), options, scores=scores)


def _weighs_options(weighed: Sequence[Sequence[Any]], replies: Any) -> bool:
    """Whether the model gave each option a likelihood."""
    return len(weighed) > 1 and len(replies) == len(weighed) and all(isinstance(option[-1], str) for option in weighed)


def _question_options(doc: Mapping[str, Any]) -> dict[str, str]:
    """The options of a question as its data set keeps them."""
    held = next((doc[name] for name in ("choices", "options") if doc.get(name)), None)
    if isinstance(held, Mapping):
        inner = held.get("text", held)  # as ARC and others do: {"text": [...], "label": [...]}
        return lettered(inner) if isinstance(inner, Sequence) else {str(key): str(text) for key, text in held.items()}
    if isinstance(held, Sequence) and not isinstance(held, str):
        return lettered(held)
    return {
        letter: str(doc[name]) for letter, name in zip("ABCD", ("opa", "opb", "opc", "opd"), strict=True) if name in doc
    }


def _reply_text(held: Any) -> str:
    """The reply in lists of one."""
    while isinstance(held, list) and held:
        held = held[0]
    return "" if held is None or held == [] else str(held)
