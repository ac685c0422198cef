"""`score measurements=`: tables of numbers, or structured reports, beside the numbers that are right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medimg_eval.data.tables import read_table
from medimg_eval.errors import UserError, nearest
from medimg_eval.file_scores.frame import (
    Candidate,
    answering,
    columns_of,
    listed,
    named_files,
    numeric_columns,
    references_of,
    table_layout,
    task_config,
)
from medimg_eval.file_scores.structured_reports import with_tables
from medimg_eval.instantiate import build_task
from medimg_eval.models import PrecomputedNumbers

ROLES = {"case": True, "patient": False}


def measurement_candidates(wanted: Mapping[str, Any]) -> list[Candidate]:
    """Measurement tables as models, by the references' numeric columns.

    Raises:
        UsageError: the references are not named, or a column is given to nothing that is measured.
        UserError: a table lacks a column.
    """
    references = references_of(wanted, "measurements", "the table of numbers that are right")
    called = {key: str(value) for key, value in (wanted["columns"] or {}).items()}
    rows = read_table(references)
    every = list(rows[0].values) if rows else []
    right = columns_of(references, ROLES, called, every)
    names = numeric_columns(rows, {*right.values(), wanted["by"]})
    if not names:
        raise UserError(f"{references}: has no column of numbers beside that of the case")
    target = {"_target_": "medimg_eval.data.targets.NumberColumns", "columns": names}
    layout = {**table_layout("Table", references, right, wanted), "target": target}
    settings = {"metrics": wanted["metrics"]} if wanted["metrics"] else {}
    task = build_task(
        task_config("MeasurementTask", "measurements", listed(layout, wanted), measures=names, **settings)
    )
    candidates = []
    for name, path in with_tables("measurements", named_files("measurements", wanted["measurements"]), wanted).items():
        held = read_table(path)
        own = columns_of(path, {"case": True}, called, every)
        columns = {name: called.get(name, name) for name in names}
        for name_, column in columns.items():
            if held and column not in held[0].values:
                raise UserError(
                    f"{path}: has no column {column!r}{nearest(column, held[0].values)}; name that of {name_} with "
                    f"'columns={{\"{name_}\": NAME}}'"
                )
        config = {"root": str(path), "columns": columns, "case": own["case"]}
        predicted = dict.fromkeys(row.text(own["case"]) for row in held)
        candidates.append(Candidate(task, answering(name, PrecomputedNumbers, config), predicted))
    return candidates
