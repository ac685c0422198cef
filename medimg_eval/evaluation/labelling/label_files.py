"""Tables of labels that were read in reports: for tasks, for RATE-Evals, and every reply with what it cost."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medimg_eval.data.given_reports import GivenReport, written_values
from medimg_eval.evaluation.labelling.report_labels import ReportLabels
from medimg_eval.models.annotators import LabelledReport
from medimg_eval.question import Usage
from medimg_eval.system import whole

FILES = {"labels": "labels.csv", "parquet": "labels.parquet", "replies": "replies.csv", "rate": "rate.json"}
MANIFEST = "labels.json"


def write_labels(labels: ReportLabels, folder: Path, forms: Sequence[str]) -> list[Path]:
    """Writes labels and replies into a folder; returns the files.

    Args:
        labels: what was read.
        folder: made if needed.
        forms: of `FILES`: `labels` (CSV, a column for each finding), `parquet` (the same), `replies` (a row for each
            reply with its cost and what was read in it), `rate` (JSON as RATE-Evals takes labels).
    """
    folder.mkdir(parents=True, exist_ok=True)
    writers: Mapping[str, Callable[[ReportLabels, Path], None]] = {
        "labels": _write_csv,
        "parquet": _write_parquet,
        "replies": _write_replies,
        "rate": _write_rate,
    }
    files = []
    for form in forms:
        files.append(folder / FILES[form])
        with whole(files[-1]) as partial:
            writers[form](labels, partial)
    stated = {
        "model": labels.model,
        "identity": labels.identity,
        "scheme": {key: value for key, value in vars(labels.scheme).items() if value},
        "reports": len(labels.reports),
        "failed": {
            report.id: label.problem
            for report, label in zip(labels.reports, labels.labelled, strict=True)
            if label.problem
        },
        "unread": labels.unread(),
        "taken_back": labels.taken_back(),
        "cost": {name: value for name, value in labels.cost()._asdict().items() if value is not None},
    }
    with whole(folder / MANIFEST) as partial:
        partial.write_text(json.dumps(stated, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return [*files, folder / MANIFEST]


def label_rows(labels: ReportLabels) -> list[dict[str, str]]:
    """Label table rows: id, patient, then each finding.

    Of findings with states that is 1, 0, -1 or nothing, as `ClassColumns` reads it by itself. A finding that was not
    read is `unread`, which tasks refuse until it is mended or a word for it is set.
    """
    written = written_values(labels.scheme)
    return [
        {
            "id": report.id,
            "patient": report.patient,
            **{name: written[value] if value else "unread" for name, value in values.items()},
        }
        for report, values in zip(labels.reports, labels.values(), strict=True)
    ]


def _write_csv(labels: ReportLabels, file: Path) -> None:
    _write_rows(file, label_rows(labels))


def _write_parquet(labels: ReportLabels, file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = label_rows(labels)
    columns = {name: [row[name] for row in rows] for name in ("id", "patient", *labels.scheme.findings)}
    pq.write_table(pa.table(columns, schema=pa.schema([(name, pa.string()) for name in columns])), file)


def _write_replies(labels: ReportLabels, file: Path) -> None:
    _write_rows(file, list(_reply_rows(labels)))


def _reply_rows(labels: ReportLabels) -> Iterator[dict[str, Any]]:
    for report, label in zip(labels.reports, labels.labelled, strict=True):
        for topic, reply in label.replies.items():
            yield _reply_row(report, topic, reply.usage, str(reply)) | _read_of(labels, label, topic)
        if label.problem:
            yield _reply_row(report, "", Usage(), "") | {"problem": label.problem}


def _reply_row(report: GivenReport, topic: str, usage: Usage, reply: str) -> dict[str, Any]:
    return {
        "id": report.id,
        "topic": topic,
        "reply": reply,
        **{f"{name}_tokens": getattr(usage, name) for name in ("input", "output", "thought")},
        "seconds": usage.seconds,
        "cost": usage.cost,
        "values": "",
        "evidence": "",
        "problem": "",
    }


def _read_of(labels: ReportLabels, one: LabelledReport, topic: str) -> dict[str, str]:
    """Cells of what was read in a reply, as JSON."""
    if topic not in labels.scheme.topics():
        return {}
    names = [topic] if topic else list(labels.scheme.findings)
    readings = {name: one.readings[name] for name in names if name in one.readings}
    cells = {
        "values": {name: reading.value for name, reading in readings.items()},
        "evidence": {name: reading.evidence for name, reading in readings.items() if reading.evidence},
        "problem": {name: reading.problem for name, reading in readings.items() if reading.problem},
    }
    return {key: json.dumps(held, ensure_ascii=False) if held else "" for key, held in cells.items()}


def _write_rate(labels: ReportLabels, file: Path) -> None:
    """Labels in RATE-Evals' form, by accession and category."""
    categories = {name: group for group, names in labels.scheme.sets.items() for name in names}
    content = {}
    for report, values in zip(labels.reports, labels.values(), strict=True):
        held: dict[str, list[dict[str, str]]] = {}
        for name, question in labels.scheme.findings.items():
            if values[name]:
                answer = "Yes" if values[name] in labels.scheme.positive else "No"
                held.setdefault(categories.get(name, "findings"), []).append({question or name: answer})
        content[report.id] = {"qa_results": held}
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]) if rows else ["id"])
        writer.writeheader()
        writer.writerows(rows)
