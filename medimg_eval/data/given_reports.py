"""Tables of reports, and of the labels that people gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from medimg_eval.data.records import Row
from medimg_eval.data.tables import read_table
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.metrics.reports import LabelScheme

IDS = ("id", "case", "case_id", "accession", "study", "study_id")
"""Columns, in any case, that name a report where none is said to."""

WRITTEN = {"positive": "1", "negative": "0", "uncertain": "-1", "blank": ""}
"""State -> what tables of labels hold, as CheXpert and MIMIC-CXR write it."""


class GivenReport(NamedTuple):
    """A report of a table.

    Attributes:
        id: its own, or `row N` where the table has no column of ids.
        text: what it says; "" for a blank one.
        patient: whose; its id where the table does not say.
    """

    id: str
    text: str
    patient: str


def read_reports(
    file: Path, column: str, id_column: str | None = None, patient_column: str | None = None
) -> list[GivenReport]:
    """Reports of a table, blank ones too, in its order.

    Args:
        file: as of `read_table`.
        column: of the texts.
        id_column: of their ids; None for the first of `IDS` that there is, or else the number of the row.
        patient_column: of patients; None for each report its own.

    Raises:
        UsageError: there is no such column.
        UserError: the table cannot be read, holds no report, or an id is blank or stands twice.
    """
    rows = read_table(file)
    wanted = {"column": column, "id": id_column, "patient": patient_column}
    columns = _label_columns(file, rows, {key: name for key, name in wanted.items() if name is not None})
    named = id_column or next((name for name in columns if name.lower() in IDS), None)
    reports: dict[str, GivenReport] = {}
    for number, row in enumerate(rows, start=1):
        own = f"row {number}" if named is None else _cell_text(row, named)
        if not own or own in reports:
            fault = "is blank" if not own else f"names {own!r}, as an earlier row does"
            raise row.error(f"column {named!r} {fault}; expected an id of its own for each report")
        reports[own] = GivenReport(
            own, _cell_text(row, column), _cell_text(row, patient_column) if patient_column else own
        )
    if not any(report.text.strip() for report in reports.values()):
        raise UserError(f"{file}: column {column!r} holds no report")
    return list(reports.values())


def read_labels(
    file: Path, scheme: LabelScheme, id_column: str | None = None, codes: str = "table"
) -> dict[str, dict[str, str]]:
    """People's labels of reports: id -> finding -> scheme's value.

    Args:
        file: a table with a column of ids and one for each finding; findings without a column are left out.
        scheme: names findings and values.
        id_column: as of `read_reports`.
        codes: `table` where cells hold what the command `label` writes (1, 0, -1 and nothing of findings with states),
            `values` where they hold the scheme's own values.

    Raises:
        UsageError: there is no column of ids, or of any finding; `codes` is none of the two.
        UserError: the table cannot be read, or a cell holds another value.
    """
    UsageError.refuse_invalid("codes", ("table", "values"), codes)
    rows = read_table(file)
    columns = _label_columns(file, rows, {} if id_column is None else {"id": id_column})
    named = id_column or next((name for name in columns if name.lower() in IDS), None)
    findings = [name for name in scheme.findings if name in columns]
    if named is None or not findings:
        lacks = f"a column of ids ({', '.join(IDS)})" if named is None else "the columns of findings"
        raise UsageError(f"{file} lacks {lacks}; it has {', '.join(columns)}")
    meaning = written_values(scheme) if codes == "table" else {}
    codes_ = (
        {code: value for value, code in reversed(meaning.items())}
        if meaning
        else {value: value for value in scheme.values}
    )
    return {_cell_text(row, named): {name: _label_value(row, name, codes_) for name in findings} for row in rows}


def written_values(scheme: LabelScheme) -> dict[str, str]:
    """Table values of a scheme: states, or the values themselves."""
    if not scheme.states:
        return {value: value for value in scheme.values}
    return {value: WRITTEN[scheme.state(value)] for value in scheme.values}


def _label_value(row: Row, name: str, known: Mapping[str, str]) -> str:
    text = _cell_text(row, name)
    short = text.removesuffix(".0")
    if short not in known:
        held = ", ".join(map(repr, known))
        raise row.error(f"column {name!r} holds {text!r}, expected one of {held}")
    return known[short]


def _label_columns(file: Path, rows: Sequence[Row], wanted: Mapping[str, str]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows for name in row.values))
    for key, name in wanted.items():
        if rows and name not in columns:
            raise UsageError(f"{file} has no column {name!r}{nearest(name, columns)}; set {key}=")
    return columns


def _cell_text(row: Row, column: str) -> str:
    """Cell text; "" for missing ones and other programs' NaN."""
    text = row.text(column) if column in row.values else ""
    return "" if text.lower() == "nan" else text
