"""Samples of lm-eval and lmms-eval: JSON lines with a record per question and filter."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medimg_eval.data.logs.records import Log, LogRecord, NoRepliesError, first_right, letter_of, lettered, numbers_of
from medimg_eval.data.tables import read_json
from medimg_eval.errors import UserError

OWN = frozenset(("doc_id", "target", "resps", "filtered_resps", "doc_hash", "prompt_hash", "target_hash", "input"))
"""Fields that are no metrics."""
DATED = re.compile(r"^(?:samples_(?P<lm>.+)_\d{4}-\d\d-\d\dT[\d.\-:]+|\d{8}_\d{6}_samples_(?P<lmms>.+))$")
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d.\-:]+\d|\d{8}_\d{6}")
"""When a start was, in its files' names."""
QUESTION = ("question", "query", "q", "problem", "input", "prompt")


def is_samples(first: Mapping[str, Any]) -> bool:
    """Whether a record is one of lm-eval or lmms-eval."""
    return "doc_id" in first and "filtered_resps" in first


def read_samples(file: Path, rows: Sequence[Mapping[str, Any]]) -> Log:
    """Reads a task's samples, by the first filter.

    The replies of others are the same.

    Raises:
        NoRepliesError: the task weighs one given text for each question.
        UserError: a question has two different replies, as happens where a file was appended to.
    """
    if _weighs_given_text(rows[0]):
        raise NoRepliesError(
            f"{file}: holds likelihoods of given texts and no replies; there is nothing to score again"
        )
    program = "lm-eval" if "doc" in rows[0] or "arguments" in rows[0] else "lmms-eval"
    named = DATED.match(file.stem)
    task = next((name for name in named.groups() if name), file.stem) if named else file.stem
    records: dict[tuple[str, int], LogRecord] = {}
    for row in rows:
        for record in _make_records(row):
            before = records.setdefault((record.case, record.repeat), record)
            if before.prediction != record.prediction:
                raise UserError(
                    f"{file}: question {record.case} has two replies; the file was appended to by a second start: keep "
                    "the lines of one"
                )
    notes = []
    if several := sum(first_right(row["target"]) != str(row["target"]) for row in rows):
        notes.append(f"{several} of {len(rows)} samples have several right texts, of which the first is judged")
    if program == "lmms-eval":
        notes.append("lmms-eval keeps no options in its samples; name the task by task= to have them judged as options")
    return Log(program, file, _model_name(file), task, list(records.values()), notes)


def _model_name(file: Path) -> str:
    """Who replied, as the results beside the samples say, or else their folder.

    Several starts write into one folder: results of the samples' own time come first.
    """
    dated = TIME.search(file.stem)
    results_files = sorted(file.parent.glob("*results*.json"), reverse=True)
    for results_file in sorted(results_files, key=lambda other: dated is None or dated.group() not in other.name):
        held = read_json(results_file)
        # lmms-eval has no model_name where a model was started without a checkpoint.
        if isinstance(held, dict) and (name := held.get("model_name") or held.get("model_source")):
            return str(name).replace("/", "_")
    return file.resolve().parent.name


def _make_records(row: Mapping[str, Any]) -> list[LogRecord]:
    """A question's replies; the program scored the question, which stands by the first."""
    doc, arguments = row.get("doc") or {}, row.get("arguments") or {}
    weighed = [list(argument.values()) for argument in arguments.values() if isinstance(argument, Mapping)]
    replies = row["filtered_resps"]
    if _weighs_options(weighed, replies):
        asked = _count_options(weighed)
        weighed, replies = weighed[:asked], replies[:asked]
    options = (
        lettered([option[1] for option in weighed]) if _weighs_options(weighed, replies) else _question_options(doc)
    )
    reference = letter_of(first_right(row["target"]), options)
    if _weighs_options(weighed, replies):
        likelihoods = [float(reply[0]) for reply in replies]
        predictions = [list(options)[likelihoods.index(max(likelihoods))]]
    else:
        predictions = _reply_texts(row.get("resps", replies))
    question = next((str(doc[name]) for name in QUESTION if isinstance(doc.get(name), str)), "")
    asking = weighed[0][0] if weighed and isinstance(weighed[0][0], str) else row.get("input")
    scores = numbers_of({name: value for name, value in row.items() if name not in OWN})
    case, text = str(row["doc_id"]), question or str(asking or "")
    return [
        LogRecord(case, prediction, reference, text, options, repeat, {} if repeat else scores)
        for repeat, prediction in enumerate(predictions)
    ]


def _count_options(weighed: Sequence[Sequence[Any]]) -> int:
    """How many options were asked; mutual information weighs each once more, without the question."""
    half = len(weighed) // 2
    again = weighed[half:]
    twice = [option[1] for option in weighed[:half]] == [option[1] for option in again]
    return half if twice and not any(str(option[0]).strip() for option in again) else len(weighed)


def _weighs_given_text(row: Mapping[str, Any]) -> bool:
    """Whether the model was only asked how likely one text is: a number, and whether it is its own."""
    reply = row["filtered_resps"][0] if len(row["filtered_resps"]) == 1 else None
    return isinstance(reply, list) and len(reply) == 2 and str(reply[1]) in {"True", "False"}


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


def _reply_texts(held: Any) -> list[str]:
    """The replies to one request, in lists of one and as many as it was repeated."""
    while isinstance(held, list) and len(held) == 1:
        held = held[0]
    replies = held if isinstance(held, list) else [held]
    return ["" if reply is None or reply == [] else str(reply) for reply in replies] or [""]
