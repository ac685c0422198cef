"""Tables of what was said and where things were found, as JSON lines and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.case import Boxes, Case, Points
from medimg_eval.codecs import Stored
from medimg_eval.data.logs import write_lines
from medimg_eval.system import whole
from medimg_eval.trust import guarded

if TYPE_CHECKING:
    from medimg_eval.tasks import Task

AXES = {2: ("y", "x"), 3: ("x", "y", "z")}
"""What columns of places are called along an image's axes: of pictures (row, column), of volumes (i, j, k)."""

Row = dict[str, Any]


def rows_of(task: Task, case: Case, stored: Stored) -> list[Row]:
    """Rows of a table, as `score classes=`, `answers=` and `points=` read them."""
    if isinstance(stored, Mapping):
        if "probabilities" in stored:
            return [{"case": case.id, **stored["probabilities"]}]
        return [_answer_row(case, stored)]
    value = task.codec.read(stored) if task.codec.form == "places" else None
    if isinstance(value, Points):
        return _place_rows(case.id, value.names, value.scores, _number_columns("", np.asarray(value.positions)))
    if isinstance(value, Boxes):
        corners = np.asarray(value.corners)
        axes = corners.shape[1] // 2
        ends = _number_columns("_min", corners[:, :axes]) | _number_columns("_max", corners[:, axes:])
        return _place_rows(case.id, value.names, value.scores, ends)
    return []


def _answer_row(case: Case, stored: Mapping[str, Any]) -> Row:
    texts, weighed = stored.get("texts") or [], stored.get("preferences")
    row: Row = {"id": case.id, "image": case.images[0].files[0].name if case.images else ""}
    if case.question is not None and case.question.text:
        row["question"] = case.question.text
    if case.question is not None and case.question.options:
        row["options"] = dict(case.question.options)
    row["prediction"] = texts[-1] if texts else max(weighed, key=weighed.get) if weighed else ""
    return row | ({"confidence": stored["confidence"]} if "confidence" in stored else {})


def _number_columns(ending: str, numbers: Any) -> dict[str, Any]:
    named = AXES[numbers.shape[1]]
    return {f"{name}{ending}": numbers[:, column] for column, name in enumerate(named)}


def _place_rows(case: str, names: Sequence[str], scores: Any, columns: Mapping[str, Any]) -> list[Row]:
    ordered = sorted(columns)
    rows = []
    for number, name in enumerate(names):
        row: Row = {"case": case, "label": name, **{key: float(columns[key][number]) for key in ordered}}
        rows.append(row | ({} if scores is None else {"score": float(scores[number])}))
    return rows


def write_tables(folder: Path, name: str, rows: Sequence[Row]) -> dict[Path, int]:
    """Writes rows as JSON lines and CSV without spreadsheet formulas."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines, table = folder / f"{name}.jsonl", folder / f"{name}.csv"
    with whole(lines) as partial:
        write_lines(partial, rows)
    with whole(table) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns or ["case"], lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell_text(value) for key, value in row.items()} for row in rows)
    return {lines: len(rows), table: len(rows)}


def _cell_text(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else guarded(value)
