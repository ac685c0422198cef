"""Tables of VLMEvalKit and results of MedEvalKit: a row per question, with the set's own columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from medimg_eval.data.logs.records import Log, LogRecord, first_right, letter_of, lettered, numbers_of
from medimg_eval.data.tables import read_json, read_table
from medimg_eval.errors import UserError

NO_REPLY = "Failed to obtain answer"
"""What VLMEvalKit writes where a model raised."""
MOST = 32_767
"""Characters that a cell of a spreadsheet holds."""


def is_vlmevalkit(first: Mapping[str, Any]) -> bool:
    """Whether a row is one of VLMEvalKit's predictions."""
    return {"index", "prediction"} <= set(first)


def is_medevalkit(first: Mapping[str, Any]) -> bool:
    """Whether a row is one of MedEvalKit's results."""
    return "response" in first and bool({"answer", "prompt", "question"} & set(first))


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Rows of a table; "None", "NA" and "null" stay texts."""
    if file.suffix == ".xlsx":
        from openpyxl import load_workbook

        with closing(load_workbook(file, read_only=True, data_only=True)) as book:
            header, *rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)] or [[]]
        names = [str(name) for name in header]
        return [{name: "" if cell is None else cell for name, cell in zip(names, row, strict=False)} for row in rows]
    if file.suffix == ".json":
        held = read_json(file)
        return [row for row in held if isinstance(row, dict)] if isinstance(held, list) else []
    return [dict(row.values) for row in read_table(file)]


def read_vlmevalkit(file: Path, rows: Sequence[Mapping[str, Any]]) -> Log:
    """Reads VLMEvalKit's predictions or what its judge added to them.

    Raises:
        UserError: a question stands there twice.
    """
    records, notes = [], []
    for row in rows:
        options = {letter: str(row[letter]) for letter in ascii_uppercase if str(row.get(letter, "")).strip()}
        prediction = str(row["prediction"])
        failed = prediction if NO_REPLY in prediction else ""
        right = row.get("answer", "")
        scores = numbers_of({name: row[name] for name in ("hit", "score") if row.get(name) not in (None, "")})
        records.append(
            LogRecord(
                str(row["index"]),
                prediction,
                letter_of(right, options) if options else first_right(right),
                str(row.get("question", "")),
                options,
                scores=scores,
                failure=failed,
            )
        )
    if file.suffix == ".xlsx" and (cut := sum(len(record.prediction) >= MOST for record in records)):
        notes.append(f"{cut} replies fill a cell of the spreadsheet and may be cut off there")
    _refuse_twice(file, records)
    folder, dataset = file.resolve().parent, file.stem
    model = folder.parent.name if folder.name.startswith("T20") else folder.name  # a folder for each start
    if dataset.startswith(f"{model}_"):
        dataset = dataset.removeprefix(f"{model}_")
    return Log("VLMEvalKit", file, model, dataset, records, notes)


def read_medevalkit(file: Path, rows: Sequence[Mapping[str, Any]]) -> Log:
    """Reads MedEvalKit's `results.json`, whose questions have no ids: their places are those."""
    records = []
    for index, row in enumerate(rows):
        held = row.get("choices", row.get("options")) or []
        options = dict(held) if isinstance(held, Mapping) else lettered(held)
        scores: dict[str, Any] = {name: row[name] for name in ("correct", "score") if name in row}
        scores |= row["metrics"] if isinstance(row.get("metrics"), dict) else {}
        right = row.get("answer", row.get("golden_answer", ""))
        records.append(
            LogRecord(
                str(row.get("id", index)),
                str(row["response"]),
                letter_of(right, options) if options else first_right(right),
                str(row.get("question") or row.get("prompt") or ""),
                options,
                scores=numbers_of(scores),
            )
        )
    _refuse_twice(file, records)
    return Log("MedEvalKit", file, file.parent.parent.name, file.parent.name, records)


def _refuse_twice(file: Path, records: Sequence[LogRecord]) -> None:
    names: set[str] = set()
    for record in records:
        if record.case in names:
            raise UserError(f"{file}: question {record.case!r} stands there twice; keep one of its rows")
        names.add(record.case)
