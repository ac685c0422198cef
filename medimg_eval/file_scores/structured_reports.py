"""DICOM SR as a product sends them, turned into the tables that `score classes=` and `score measurements=` read."""

from __future__ import annotations

import csv
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medimg_eval.data.tables import read_table
from medimg_eval.errors import UsageError, UserError, shortened
from medimg_eval.imaging.dicom import MeasuredGroup, StructuredReport, is_structured_report, read_structured_report
from medimg_eval.system import walk

log = logging.getLogger(__name__)

CASE = "case"
KEYS = ("file", "folder", "accession", "study", "patient")
"""What a case may be called by, the first that fits."""


def with_tables(kind: str, files: Mapping[str, Path], wanted: Mapping[str, Any]) -> dict[str, Path]:
    """Files with tables in place of structured report folders.

    The tables are written beside the runs, so that what was read can be looked at.

    Raises:
        UsageError: there are such reports, and no references.
        UserError: a folder holds no report, or two of one case.
        CaseError: a report cannot be read.
    """
    return {
        name: _write_table(kind, name, path, wanted) if path.is_dir() or path.suffix.lower() == ".dcm" else path
        for name, path in files.items()
    }


def _write_table(kind: str, name: str, path: Path, wanted: Mapping[str, Any]) -> Path:
    if wanted["references"] is None:
        raise UsageError(f"{kind}={path}: reports of a product need references=, the table of what is right")
    files = [path] if path.is_file() else [path / entry for entry, stat in walk(path) if stat is not None]
    reports = [read_structured_report(file) for file in sorted(files) if is_structured_report(file)]
    if not reports:
        raise UserError(f"{path}: holds no structured report; expected DICOM SR by TID 1500, or name a table")
    references = Path(str(wanted["references"])).expanduser()
    column = str((wanted["columns"] or {}).get(CASE, CASE))
    ids = {row.text(column) for row in read_table(references) if column in row.values}
    cases = _case_names(reports, ids, path)
    rows = [dict(_report_cells(report)) for report in reports]
    findings = sorted({group.finding for report in reports for group in report.groups if group.finding})
    header = list(dict.fromkeys(name for row in rows for name in row if name not in findings))
    out = Path(str(wanted["runs"])) / "reports_read" / f"{kind}-{name}.csv"
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [CASE, *findings, *header], restval="")
        writer.writeheader()
        for case, row in zip(cases, rows, strict=True):
            writer.writerow({CASE: case, **dict.fromkeys(findings, 0), **row})
    log.info("%s: %s structured reports read, as a table: %s", name, f"{len(reports):,}", out)
    return out


def _case_names(reports: Sequence[StructuredReport], ids: set[str], path: Path) -> list[str]:
    """Names of cases: the first kind of name that the references know."""
    named = {key: [_report_name(report, key) for report in reports] for key in KEYS}
    fitting = [key for key in KEYS if set(named[key]) & ids]
    chosen = named[fitting[0]] if fitting else named["file"]
    if twice := [case for case, count in Counter(chosen).items() if count > 1]:
        raise UserError(
            f"{path}: {len(twice)} cases have several structured reports: {shortened(twice)}; keep one each"
        )
    return chosen


def _report_name(report: StructuredReport, key: str) -> str:
    if key == "file":
        return report.path.stem if report.path.suffix.lower() == ".dcm" else report.path.name
    return report.path.parent.name if key == "folder" else report.keys[key]


def _report_cells(report: StructuredReport) -> list[tuple[str, Any]]:
    """Column -> cell of a report: findings, assessments, numbers.

    A finding is 1 where nothing is said of how sure it is, and the largest number of several groups; of findings that a
    report does not name the table says 0. Numbers are called by group, name and unit.
    """
    cells: dict[str, Any] = {}
    for group in report.groups:
        if group.finding:
            cells[group.finding] = max(cells.get(group.finding, 0.0), _highest_certainty(group))
        for name, value in group.evaluations.items():
            if cells.setdefault(name, value) != value:
                cells[f"{group.name}: {name}"] = value
        for measurement in group.measurements:
            column = f"{group.name}: {measurement.name}" + ("" if measurement.unit == "1" else f" [{measurement.unit}]")
            if column in cells:
                raise UserError(
                    f"{report.path}: {column!r} is there twice, such as of two findings alike; which of them counts "
                    "cannot be told: make a table of the reports, and name that"
                )
            cells[column] = measurement.value
    return list(cells.items())


def _highest_certainty(group: MeasuredGroup) -> float:
    return max((measurement.value for measurement in group.measurements if measurement.certainty), default=1.0)
