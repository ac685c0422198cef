"""`score answers=`: tables of answers to questions, beside what is right, without a YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from medimg_eval.data.records import Row
from medimg_eval.data.tables import read_table
from medimg_eval.file_scores.frame import (
    Candidate,
    answering,
    columns_of,
    dividing_column,
    listed,
    named_files,
    task_config,
)
from medimg_eval.instantiate import build_task, changed
from medimg_eval.models.precomputed import PrecomputedReports
from medimg_eval.question import Kind
from medimg_eval.tasks import Task

KEY = {"id": True, "reference": True, "question": False, "options": False, "kind": False, "patient": False}
ANSWER = {"id": True, "prediction": True}
LETTER = re.compile(r"(?:(?:option|choice)[ _]?)?([A-Z])", re.IGNORECASE)
"""A column that holds an option."""


def answer_candidates(wanted: Mapping[str, Any]) -> list[Candidate]:
    """Answer tables as models, with the key there or apart.

    Raises:
        UserError: a table lacks a column.
    """
    candidates = []
    key = None if wanted["references"] is None else Path(str(wanted["references"])).expanduser()
    task = None if key is None else answer_task(wanted, key)
    for name, path in named_files("answers", wanted["answers"]).items():
        columns = columns_of(path, ANSWER, wanted["columns"], KEY)
        model = answering(name, PrecomputedReports, {"file": str(path), **columns})
        predicted = dict.fromkeys(row.text(columns["id"]) for row in read_table(path))
        candidates.append(Candidate(task or answer_task(wanted, path), model, predicted))
    return candidates


def answer_task(wanted: Mapping[str, Any], path: Path) -> Task:
    """Task of a table's questions and answers; config as of `answer_candidates`."""
    columns = columns_of(path, KEY, wanted["columns"], ANSWER)
    layout: dict[str, Any] = {
        "_target_": "AnswerTable",
        "root": str(path.parent),
        "records": {"test": path.name},
        "id": columns["id"],
        "question": columns.get("question") or {"text": "(the question is not in the table)"},
        "min_images": 0,
        **_answer_kind(read_table(path), columns),
    }
    if "patient" in columns:
        layout["patient"] = columns["patient"]
    if attributes := dividing_column(wanted):
        layout["attributes"] = {name: name for name in attributes}
    settings = {name: wanted[name] for name in ("metrics", "extraction") if wanted[name]}
    task = build_task(task_config("QuestionTask", "answers", listed(layout, wanted), **settings))
    return task if wanted["metrics"] else changed(task, metrics=_choose_metrics(task))


def _answer_kind(rows: Sequence[Row], columns: Mapping[str, str]) -> dict[str, Any]:
    """Options that are chosen from, and the kind of answer."""
    right = columns["reference"]
    letters = [name for name in rows[0].values if LETTER.fullmatch(name)]
    options: dict[str, Any] = {}
    if "options" in columns:
        options = {"dict": columns["options"]}  # which takes lists with letters, too
        first = next((row.value(columns["options"]) for row in rows if row.text(columns["options"])), "")
        if isinstance(first, list) or str(first).lstrip().startswith("["):
            options = {"list": columns["options"]}
    elif len(letters) > 1:
        options = {"columns": letters}
    elif all(re.fullmatch("[A-J]", row.text(right)) for row in rows):
        options = {"fixed": {letter: letter for letter in sorted({row.text(right) for row in rows} | {"A", "B"})}}
    kind: Any = "choice" if options else "by_answer"
    if "kind" in columns:
        kind = {"column": columns["kind"], "kinds": {kind: kind for kind in (*get_args(Kind), "by_answer")}}
    return {"kind": kind, "options": options, "answer": {"either" if options else "value": right}}


def _choose_metrics(task: Task) -> list[str]:
    """Whether answers are right, and of texts how near they come."""
    kinds = {case.question.kind for case in task.cases("test") if case.question is not None}
    closed, texts = kinds - {"open", "report"}, kinds & {"open", "report"}
    return [*["accuracy"] * bool(closed), *["exact_match", "token_f1"] * bool(texts), "unanswered"]
