"""`phi_scan`: what still identifies a patient, in headers, side-cars and names of files, or in generated reports."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from rich.text import Text

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import printer, say_written
from medimg_eval.configs.overrides import plain
from medimg_eval.deid import EDITION, KINDS, PhiReport, scan_folder
from medimg_eval.errors import UsageError, UserError
from medimg_eval.trust import guarded

if TYPE_CHECKING:
    from medimg_eval.data.records import Row
    from medimg_eval.metrics.phi import Leakage

COLUMNS = ("path", "level", "kind", "attribute", "rule", "action", "count", "masked")


def run(config: DictConfig) -> None:
    """Scans a folder or reports for identities; prints counts only.

    Raises:
        UsageError: neither or both are named, or an option does not exist.
        UserError: something identifies a patient, or cannot be read.
    """
    wanted = plain(config)
    if (wanted["path"] is None) == (wanted["reports"] is None):
        raise UsageError("phi_scan looks at one thing at a time; add path=FOLDER or reports=FILE")
    if not isinstance(wanted["shown"], int) or isinstance(wanted["shown"], bool) or wanted["shown"] < 0:
        raise UsageError(f"expected a whole number for shown, got {wanted['shown']!r}")
    if wanted["path"] is None:
        _scan_reports(wanted)
    else:
        _scan_folder(wanted)


def _scan_folder(wanted: Mapping[str, Any]) -> None:
    path = Path(str(wanted["path"])).expanduser()
    before = None if wanted["before"] is None else Path(str(wanted["before"])).expanduser()
    report = scan_folder(path, before=before, keep=[str(name) for name in as_list(wanted["keep"])])
    console = printer()
    _print_counts(console, report)
    _print_places(console, report, wanted["shown"])
    for note in _scan_notes(report):
        console.print(Text(note, style="dim"), soft_wrap=True)
    if wanted["out"] is not None:
        _write_report(Path(str(wanted["out"])).expanduser(), report)
    files = sum(1 for findings, _ in report.by_file().values() if findings)
    if report.found:
        raise UserError(f"{path}: {report.found} places in {files} files identify a patient or may; see above")


def _print_counts(console: Console, report: PhiReport) -> None:
    table = Table(title="What identifies a patient", title_justify="left")
    for heading in ("kind", "found", "in files", "to be looked at", "in files "):
        table.add_column(heading, justify="left" if heading == "kind" else "right")
    for kind, row in report.counts().items():
        if any(row.values()):
            numbers = (row["found"], row["found_files"], row["look"], row["look_files"])
            table.add_row(KINDS[kind], *(f"{number:,}" if number else "" for number in numbers))
    if table.row_count:
        console.print(table)
    totals = ", ".join(f"{count:,} {what}" for what, count in report.looked.most_common()) or "none"
    console.print(f"files looked at: {totals}", highlight=False)


def _print_places(console: Console, report: PhiReport, shown: int) -> None:
    counts: Counter[tuple[str, ...]] = Counter()
    for finding in report.findings:
        counts[finding.level, finding.attribute or KINDS[finding.kind], finding.rule, finding.action] += 1
    if not counts or not shown:
        return
    by_place = Table(title="Where", title_justify="left")
    for heading in ("", "attribute", "what is wrong", "the profile's action", "files"):
        by_place.add_column(heading, justify="right" if heading == "files" else "left")
    ordered = sorted(counts.items(), key=lambda item: (item[0][0] != "found", -item[1], item[0]))
    for (level, attribute, rule, action), count in ordered[:shown]:
        # As they are: names of files may hold what rich takes for markup.
        by_place.add_row(*map(Text, (level, attribute, rule, action)), f"{count:,}")
    console.print(by_place)
    _print_rest(console, len(ordered) - shown, "places")
    by_file = Table(title="Files", title_justify="left")
    for heading in ("file", "found", "to be looked at"):
        by_file.add_column(heading, justify="left" if heading == "file" else "right")
    files = report.by_file()
    for path, (findings, look) in list(files.items())[:shown]:
        by_file.add_row(Text(path.as_posix()), f"{findings:,}", f"{look:,}")
    console.print(by_file)
    _print_rest(console, len(files) - shown, "files")


def _print_rest(console: Console, rest: int, what: str) -> None:
    if rest > 0:
        console.print(f"... and {rest:,} more {what}; out=FOLDER writes them all", highlight=False)


def _scan_notes(report: PhiReport) -> Iterable[str]:
    yield f"Attributes: {EDITION}. Values are shown nowhere; their shapes are in the table that out= writes."
    yield "Pixels were not looked at: text burned into them is told by headers alone, and faces by what a volume shows."
    if report.paired is None:
        yield "UIDs, shifted dates and pseudonyms can be judged only beside the files as they were: add before=FOLDER."
    else:
        unpaired_ = report.looked["DICOM"] - report.paired
        unpaired = f"; dates of the other {unpaired_:,} were not compared" if unpaired_ else ""
        yield f"{report.paired:,} DICOM files have one of the same name before{unpaired}."
    if report.declared:
        options = ", ".join(f"{name} ({count:,} files)" for name, count in report.declared.most_common())
        yield f"Options of the profile that files declare, and that were believed: {options}."
    if report.left_out:
        kinds = ", ".join(f"{count:,} x {what}" for what, count in report.left_out.most_common())
        yield f"Left out, for they were taken to tell of nobody or are not there: {kinds}."
    if report.passed:
        kinds = ", ".join(f"{count:,} x {suffix}" for suffix, count in report.passed.most_common(8))
        yield f"Of these only the names were looked at: {kinds}."


def _write_report(folder: Path, report: PhiReport) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(report.rows())
    with (folder / "phi_scan.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows({name: guarded(value) for name, value in row.items()} for row in rows)
    content = {
        "profile": EDITION,
        "found": report.found,
        "counts": report.counts(),
        "files": [{"path": path.as_posix(), "found": a, "look": b} for path, (a, b) in report.by_file().items()],
        "looked_at": dict(report.looked),
        "names_only": dict(report.passed),
        "left_out": dict(report.left_out),
        "declared": dict(report.declared),
        "paired": report.paired,
        "findings": rows,
    }
    (folder / "phi_scan.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    say_written([folder / "phi_scan.csv", folder / "phi_scan.json"])


def _scan_reports(wanted: Mapping[str, Any]) -> None:
    """Prints how many generated reports hold apparent or known patients.

    Raises:
        UserError: a report repeats a listed name, or phrases of a single patient.
    """
    from medimg_eval.metrics.phi import leakage, rare_phrases

    file = Path(str(wanted["reports"])).expanduser()
    column, tokens = str(wanted["column"]), wanted["tokens"]
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise UsageError(f"expected a whole number of at least 1 for tokens, got {tokens!r}")
    texts = [str(row.values[column] or "") for row in _read_headers(file, [column])]
    training = None
    if wanted["training"] is not None:
        rows = _read_headers(Path(str(wanted["training"])).expanduser(), [column, str(wanted["patient"])])
        whose = [_patient_of(row, str(wanted["patient"])) for row in rows]
        training = rare_phrases([str(row.values[column] or "") for row in rows], whose, tokens=tokens)
    leaks = leakage(texts, vocabulary=_read_names(wanted["names"]), training=training)
    _print_shares(leaks, tokens, None if training is None else training.patients)
    if wanted["out"] is not None:
        _write_texts(Path(str(wanted["out"])).expanduser(), leaks)
    leaked = int(((leaks.verified > 0) | (leaks.phrases > 0)).sum())
    if leaked:
        raise UserError(f"{file}: {leaked} of {len(texts)} reports repeat a patient; see above")


def _read_headers(file: Path, columns: Sequence[str]) -> list[Row]:
    from medimg_eval.data.tables import read_table

    rows = read_table(file)
    if not rows:
        raise UserError(f"{file}: holds no reports")
    UsageError.refuse_unknown(f"{file} has no column", rows[0].values, *columns, end="; set column= or patient=")
    for row in rows:
        if not row.values.keys() >= set(columns):  # records of JSON may differ
            raise row.error(f"lacks the column {' or '.join(map(repr, columns))}; give every record one")
    return rows


def _patient_of(row: Row, column: str) -> str:
    patient = "" if row.values[column] is None else str(row.values[column]).strip()
    if not patient:  # all such reports would count as those of one patient
        raise row.error(f"names no patient in the column {column!r}; fill it in, or leave the report out")
    return patient


def _read_names(file: str | None) -> Any:
    """The terms of a file of names; None without one."""
    from medimg_eval.metrics.phi import Vocabulary

    if file is None:
        return None
    path = Path(file).expanduser()
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UserError(f"{path}: cannot be read; expected a text file in UTF-8, one name or number per line") from None
    terms = Vocabulary()
    if not any(map(str.strip, lines)):
        raise UserError(f"{path}: holds no name; expected one name or number per line")
    for line in filter(str.strip, lines):
        if any(map(str.isdigit, line)):
            terms.add(line, "listed number")
        else:
            terms.add_person(line, "listed name")
    return terms


_TITLES = {
    "phi_leak_rate": "repeat a listed name or number",
    "phi_suspected_rate": "hold what looks like a patient",
    "leaked_vocabulary_rate": "repeat a phrase of one training patient",
    "leaked_marked_rate": "repeat one with a mark of de-identification",
    "placeholder_rate": "hold a mark of de-identification",
}


def _print_shares(found: Leakage, tokens: int, patients: int | None) -> None:
    console = printer()
    table = Table(title="Generated reports that ...", title_justify="left")
    for heading in ("", "reports", "share", "95% CI"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, share in found.shares().items():
        interval = f"{100 * share.low:.2f} to {100 * share.high:.2f} %"
        table.add_row(_TITLES[name], f"{share.texts:,} of {share.of:,}", f"{100 * share.value:.2f} %", interval)
    console.print(table)
    notes = ["Intervals are those of Clopper and Pearson, and take reports for independent."]
    if found.kinds:
        notes.append("Spans: " + ", ".join(f"{kind} in {count:,}" for kind, count in found.kinds.items()) + ".")
    if patients is not None:
        notes.append(f"Phrases: {tokens} words or more that training holds of one of {patients:,} patients alone.")
    if not found.has_vocabulary:
        notes.append("Listed names and numbers were not looked for: add names=FILE.")
    if not found.has_training:
        notes.append("Phrases of the training set were not looked for: add training=FILE.")
    for note in notes:
        console.print(Text(note, style="dim"), soft_wrap=True)


def _write_texts(folder: Path, found: Leakage) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("suspected", "verified", "placeholders", "phrases", "marked_phrases", "longest")
    counts = [getattr(found, name).tolist() for name in names]
    with (folder / "phi_scan.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["report", *names])
        writer.writerows([index, *row] for index, row in enumerate(zip(*counts, strict=True)))
    shares = {name: share._asdict() for name, share in found.shares().items()}
    content = {"shares": shares, "kinds": dict(found.kinds)}
    (folder / "phi_scan.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    say_written([folder / "phi_scan.csv", folder / "phi_scan.json"])
