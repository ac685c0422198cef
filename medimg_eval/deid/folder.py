"""A whole folder looked through for what identifies a patient: headers, side-cars and names, never pixels.

>>> from medimg_eval.deid.folder import scan_folder
>>> scan_folder(Path("out"), before=Path("original")).counts()  # doctest: +SKIP
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medimg_eval.deid.dicom_headers import header_findings, past_of, read_whole
from medimg_eval.deid.ps3_15 import OPTIONS
from medimg_eval.deid.quick_scan import name_doubts
from medimg_eval.deid.sidecars import json_findings, picture_findings, slide_findings, volume_findings
from medimg_eval.deid.values import KINDS, Finding, Past, shown, suspicions
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.dicom import OLD_NAME
from medimg_eval.imaging.formats import identify
from medimg_eval.imaging.library_logs import kept_log
from medimg_eval.metrics.phi import Vocabulary
from medimg_eval.system import walk


@dataclass
class PhiReport:
    """Identifying facts of a folder, or of the folder of one file.

    Attributes:
        findings: in the order of the files; their paths are relative, and parts that name a patient are masked.
        looked: what a file is -> how many were looked at.
        passed: suffix -> how many files are of a kind that is not looked at, but for their names.
        left_out: what values, or files, are that tell of nobody or could not be looked at -> how many.
        declared: option of the profile -> how many files say that they make use of it.
        paired: files that have a file of the same name before; None where none were given.
    """

    root: Path
    findings: list[Finding] = field(default_factory=list)
    looked: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    declared: Counter[str] = field(default_factory=Counter)
    paired: int | None = None

    @property
    def found(self) -> int:
        """How many places break a rule."""
        return sum(finding.count for finding in self.findings if finding.level == "found")

    def counts(self) -> dict[str, dict[str, int]]:
        """Returns by kind: rule-breaking places and files, and doubtful ones."""
        table = {}
        for kind in KINDS:
            row = {}
            for level in ("found", "look"):
                some = [finding for finding in self.findings if finding.kind == kind and finding.level == level]
                row[level] = sum(finding.count for finding in some)
                row[f"{level}_files"] = len({finding.path for finding in some})
            table[kind] = row
        return table

    def by_file(self) -> dict[Path, tuple[int, int]]:
        """Returns by file: rule-breaking and doubtful places, most first."""
        table: dict[Path, list[int]] = {}
        for finding in self.findings:
            table.setdefault(finding.path, [0, 0])[finding.level == "look"] += finding.count
        ordered = sorted(table.items(), key=lambda item: (-item[1][0], -item[1][1], str(item[0])))
        return {path: (certain, look) for path, (certain, look) in ordered}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields one flat record per finding."""
        columns = ("level", "kind", "attribute", "rule", "action", "count", "masked")
        for finding in self.findings:
            yield {"path": finding.path.as_posix()} | {name: getattr(finding, name) for name in columns}


def scan_folder(path: str | Path, *, before: Path | None = None, keep: Collection[str] = ()) -> PhiReport:
    """Looks through every file of a folder.

    Args:
        path: a folder, or one file.
        before: the folder, or file, before it was de-identified. Files of the same relative name are compared place by
            place; UIDs, names and numbers of all of it are looked for everywhere.
        keep: names of `OPTIONS` that the data may make use of, beside what each file declares.

    Raises:
        CaseError: there is no such file or folder, or it holds no files.
        UsageError: there is no such option.
    """
    path = Path(path)
    UsageError.refuse_invalid("option of the profile", OPTIONS, *keep)
    root, names, missing = _list_files(path)
    pasts, everything = _read_past(before)
    report = PhiReport(root, paired=None if before is None else 0)
    report.left_out.update({"links to files that are not there": missing} if missing else {})
    terms = Vocabulary()
    terms.update(everything.terms)
    families = {name: _file_family(root / name) for name in names}
    for name, family in families.items():
        if family == "dicom":
            past = pasts.get(name, everything) if before is not None else None
            report.paired = None if report.paired is None else report.paired + (name in pasts)
            terms.update(_scan_header(report, root, name, keep, past))
    for name, family in families.items():
        if family != "dicom":
            _scan_sidecar(report, root, name, family, terms, keep)
    doubtful = _scan_names(report, root, names, terms)
    order = {name: index for index, name in enumerate(names)}
    report.findings.sort(key=lambda one: order[one.path.as_posix()])
    report.findings = [replace(finding, path=Path(shown(finding.path, doubtful))) for finding in report.findings]
    return report


def _list_files(path: Path) -> tuple[Path, list[str], int]:
    """The folder, its files, hidden ones too, and how many links lead nowhere."""
    if path.is_file():
        return path.parent, [path.name], 0
    if not path.is_dir():
        raise CaseError(f"{path}: no such file or folder")
    entries = list(walk(path, hidden=True))
    names = sorted(name for name, state in entries if state is not None)
    if not names:
        raise CaseError(f"{path}: holds no files")
    return path, names, len(entries) - len(names)


def _file_family(path: Path) -> str:
    """`dicom`, `volume`, `picture`, `slide`, `json`; `unreadable`; "" for what is not looked at."""
    if path.suffix.lower() == ".json":
        return "json"
    try:
        family = identify(path)
    except CaseError:
        return "unreadable" if path.suffix.lower() in (".dcm", ".ima", ".nii", ".gz", ".png", ".jpg", ".jpeg") else ""
    if family == "slide":
        with path.open("rb") as stream:
            return "dicom" if stream.read(132)[128:] == b"DICM" else family
    return family if family in ("dicom", "volume", "picture") else ""


def _read_past(before: Path | None) -> tuple[Mapping[str, Past], Past]:
    """Former identifiers by relative name and overall; UIDs are shared."""
    everything = Past()
    pasts: dict[str, Past] = {}
    if before is None:
        return pasts, everything
    root, names, _ = _list_files(before)
    unread = 0  # counted, for a name of a file may be that of a patient
    for name in names:
        if _file_family(root / name) != "dicom":
            continue
        try:
            past = past_of(read_whole(root / name))
        except Exception:  # noqa: BLE001 - values are parsed late, and damaged ones raise what pydicom met
            unread += 1
            continue
        everything.uids |= past.uids
        everything.terms.update(past.terms)
        past.uids = everything.uids
        pasts[name] = past
    if unread:
        raise CaseError(f"{before}: {unread} of its DICOM files cannot be read; write or copy them again")
    if not pasts:
        raise CaseError(f"{before}: holds no DICOM file to compare with")
    return pasts, everything


def _scan_header(report: PhiReport, root: Path, name: str, keep: Collection[str], past: Past | None) -> Vocabulary:
    try:
        dataset = read_whole(root / name)
        findings, terms, declared = header_findings(dataset, Path(name), keep=keep, past=past, left_out=report.left_out)
    except Exception:  # noqa: BLE001 - as above
        report.findings.append(_unread_finding(name))
        return Vocabulary()
    report.looked["DICOM"] += 1
    report.declared.update(declared)
    report.findings += findings
    return terms


def _scan_sidecar(
    report: PhiReport, root: Path, name: str, family: str, terms: Vocabulary, keep: Collection[str]
) -> None:
    path = root / name
    looks = {
        "json": lambda: json_findings(path, terms, keep, report.left_out),
        "volume": lambda: volume_findings(path, terms),
        "picture": lambda: picture_findings(path, terms, report.left_out),
        "slide": lambda: slide_findings(path, terms, report.left_out),
    }
    if path.name == OLD_NAME:
        what = "is an index that an earlier version left here, with the ids of patients; delete it"
        report.findings.append(Finding(Path(name), "identity", "", what))
        return
    if family not in looks:
        marks = path.name.startswith(".")  # .gitkeep, .lock: empty files of programs
        if family == "unreadable" or (path.stat().st_size == 0 and not marks):
            report.findings.append(_unread_finding(name))
        else:
            report.passed[path.suffix.lower() or "no suffix"] += 1
        return
    try:
        with kept_log("nibabel.global"), kept_log("tifffile"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large or odd pictures, whose pixels nobody reads here
            report.findings += [replace(finding, path=Path(name)) for finding in looks[family]()]
        report.looked[{"json": "JSON"}.get(family, family)] += 1
    except CaseError:
        report.findings.append(_unread_finding(name))


def _unread_finding(name: str) -> Finding:
    return Finding(Path(name), "unread", "", "cannot be read, so that nothing is known of it")


def _scan_names(report: PhiReport, root: Path, names: list[str], terms: Vocabulary) -> set[str]:
    """Scans names of files and folders; returns parts to hide."""
    doubtful: dict[str, list[str]] = {}
    for part in dict.fromkeys(part for name in names for part in Path(name).parts):
        doubts = list(name_doubts(part))
        doubts += [what for what in suspicions(part.replace("_", " "), terms) if what.startswith("repeats")]
        if doubts:
            doubtful[part] = list(dict.fromkeys(doubts))
    for name in names:
        for what in dict.fromkeys(what for part in Path(name).parts for what in doubtful.get(part, ())):
            report.findings.append(Finding(Path(name), "name", "", what))
    return set(doubtful)
