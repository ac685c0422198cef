"""Patients whose reports stand in order, with the structured findings of all of them: Lunguage's table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from medimg_eval.arguments import grouped
from medimg_eval.case import Case, Geometry
from medimg_eval.data.layouts.base import existing_root
from medimg_eval.data.layouts.report_sets.tables import Stated
from medimg_eval.data.tables import read_table
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.metrics.reports import timeline_row
from medimg_eval.question import Question
from medimg_eval.tasks.base import Layout

NEEDED = ("subject_id", "study_id", "sequence", "sent", "sent_idx", "section")
"""Columns without which a patient's reports cannot be put together."""

Asked = Literal["reports", "findings"]

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class TimelineKey(Stated):
    """Patient's rows as JSON reference; `content` is hashed."""

    def geometry(self) -> Geometry:
        """Raises CaseError: rows lie on no grid."""
        raise CaseError("the findings of a patient lie on no grid")


@dataclass(kw_only=True)
class PatientTimelines(Layout):
    """Patients with several studies, in Lunguage's rows of findings.

    A patient's studies stand by `sequence`. What is right are the rows with a group (`gt_entity_group`), numbered
    from 0 as they stand. Patients with fewer studies than asked for are left out.

    Args:
        records: the table below the root.
        ask: `reports`: the sentences of each report in order, out of which findings are to be read and grouped;
            `findings`: the findings themselves, with number, day and status, which are to be grouped.
        times: a table of MIMIC-CXR's metadata with `study_id`, `StudyDate` and `StudyTime`, for the days since the
            first study; "" for the table's own `StudyDateTime` or `day_from_first`, where it has one.
        least_studies: that a patient must have.
        hidden: sections that are not shown, such as the history.
    """

    root: str
    records: str = "dataset/Lunguage.csv"
    ask: Asked = "reports"
    times: str = ""
    least_studies: int = 2
    hidden: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuses a way to ask that there is not."""
        UsageError.refuse_invalid("task.layout.ask", ("reports", "findings"), self.ask)
        self._left_out: dict[str, str] = {}

    def cases(self, split: str) -> list[Case]:
        """The patients, in the order of the table; all serve any split.

        Raises:
            UserError: the table is missing, lacks a column, or no patient is left.
        """
        root = existing_root(self.root)
        path = root / self.records
        rows = [dict(row.values) for row in read_table(path)]
        UserError.refuse_unknown(f"{path}: has no column", rows[0] if rows else {}, *NEEDED)
        days = self._days(root, rows)
        self._left_out, cases = {}, []
        for patient, own in grouped((str(row["subject_id"]), row) for row in rows).items():
            studies = sorted({(_as_number(row["sequence"]), str(row["study_id"])) for row in own})
            if len(studies) < self.least_studies:
                self._left_out[patient] = f"has {len(studies)} studies, fewer than {self.least_studies}"
            else:
                cases.append(self._case(patient, own, [study for _, study in studies], days, path))
        if not cases:
            raise UserError(f"{path}: no patient has {self.least_studies} studies; set task.layout.least_studies")
        return cases

    def left_out(self) -> dict[str, str]:
        """Patient -> what it lacks."""
        return self._left_out

    def _case(self, patient: str, own: Rows, studies: Sequence[str], days: Mapping[str, float], path: Path) -> Case:
        first = min((days[study] for study in studies if study in days), default=0.0)
        since = {study: int(days[study] - first + 1e-6) for study in studies if study in days}
        positions = {study: number for number, study in enumerate(studies)}
        ordered = sorted(own, key=lambda row: (positions[str(row["study_id"])], _as_number(row["sent_idx"])))
        truth: list[dict[str, Any]] = []
        for row in ordered:
            timeline = timeline_row(row)
            if "entity_group" in timeline and "entity" in timeline:
                study = str(row["study_id"])
                truth.append({**timeline, "idx": len(truth), **({"day": since[study]} if study in since else {})})
        wrong = "" if truth else f"{path}: no finding of patient {patient!r} has a group, `gt_entity_group`"
        text = self._reports(ordered, studies, since) if self.ask == "reports" else _observation_lines(truth)
        about = {"studies": str(len(studies)), "findings": str(len(truth))}
        key = TimelineKey(json.dumps(truth, ensure_ascii=False), wrong)
        return Case(patient, (), key, patient, about, Question(text, "open"))

    def _reports(self, ordered: Rows, studies: Sequence[str], since: Mapping[str, int]) -> str:
        """Reports in order, numbered and dated, a line per section."""
        parts = []
        for number, study in enumerate(studies, 1):
            day = f", day {since[study]}" if study in since else ""
            parts.append(f"Study {number} ({study}{day})")
            own = [row for row in ordered if str(row["study_id"]) == study and row["section"] not in self.hidden]
            for section, rows in grouped((str(row["section"]), row) for row in own).items():
                sentences = dict.fromkeys((str(row["sent_idx"]), str(row["sent"]).strip()) for row in rows)
                parts.append(f"{section}: {' '.join(text for _, text in sentences if text)}")
        return "\n".join(parts)

    def _days(self, root: Path, rows: Rows) -> dict[str, float]:
        """Study -> time in days; studies without time are absent."""
        if not self.times:
            days = {str(row["study_id"]): _day_of(row) for row in rows}
            return {study: day for study, day in days.items() if day is not None}
        path = root / self.times
        table = [dict(row.values) for row in read_table(path)]
        UserError.refuse_unknown(
            f"{path}: has no column", table[0] if table else {}, "study_id", "StudyDate", "StudyTime"
        )
        dated: dict[str, float] = {}
        for row in table:
            study, day = f"s{str(row['study_id']).removeprefix('s')}", _mimic_day(row, path)
            dated[study] = min(day, dated.get(study, day))
        return dated


def _observation_lines(truth: Rows) -> str:
    """Findings that are given, one a line: number, day, status, and the phrase."""
    lines = []
    for row in truth:
        phrase = " ".join(str(row[name]) for name in ("entity", *_SAID) if row.get(name))
        status = f", status: {row['dx_status']}" if row.get("dx_status") else ""
        lines.append(f"IDX: {row['idx']}, DAY: {row.get('day', row.get('sequence', ''))}{status}: {phrase}")
    return "\n".join(lines)


_SAID = (
    *("location", "morphology", "distribution", "measurement", "severity", "comparison", "onset", "no change"),
    *("improved", "worsened", "placement", "past hx", "other source", "assessment limitations"),
)
"""What stands behind a finding's name in the authors' second stage, in their order."""


def _day_of(row: Mapping[str, Any]) -> float | None:
    stated = str(row.get("StudyDateTime") or "").strip()
    if stated:
        with CaseError.about(str(row["study_id"]), f"has the time {stated!r}, which is none", ValueError):
            return _in_days(datetime.fromisoformat(stated).replace(tzinfo=UTC))
    match = re.match(r"(\d+)", str(row.get("day_from_first") or ""))
    return float(match[1]) if match else None


def _mimic_day(row: Mapping[str, Any], path: Path) -> float:
    """Date and time of MIMIC-CXR's metadata: `21800506`, and `213014.531` for 21:30:14."""
    time = str(row["StudyTime"]).partition(".")[0].zfill(6)
    with UserError.about(
        path, f"has the date {row['StudyDate']!r} of study {row['study_id']}, which is none", ValueError
    ):
        clock = timedelta(hours=int(time[:2]), minutes=int(time[2:4]), seconds=int(time[4:6]))
        return _in_days(
            datetime.strptime(str(row["StudyDate"]).partition(".")[0], "%Y%m%d").replace(tzinfo=UTC) + clock
        )


def _in_days(when: datetime) -> float:
    return (when - datetime(1, 1, 1, tzinfo=UTC)) / timedelta(days=1)


def _as_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("inf")
