"""Texts of reports by section: out of files, an archive of files, or columns of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.data.questions.archives import unzipped
from medimg_eval.data.questions.records import said_nothing
from medimg_eval.data.records import below
from medimg_eval.data.studies.tables import filled
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics.nlp import canonical, section_spans, sections

if TYPE_CHECKING:
    import pandas as pd

BOTH = "findings and impression"
"""The name of a section that is both in one."""

Sections = Mapping[str, str]
"""Name of a section in lower case -> its text."""


@dataclass(frozen=True)
class Texts:
    """Finds the sections of reports in the dataset's folder.

    `report` is the pattern of text files; `{zip: archive, member: pattern}`, where the unpacked file is taken if the
    archive is not there; or `{columns: {section: column or pattern}}`.
    """

    root: Path
    report: str | Mapping[str, Any]

    def __post_init__(self) -> None:
        """Refuses another form."""
        is_valid = isinstance(self.report, str) or set(self.report) in ({"zip", "member"}, {"columns"})
        if not is_valid or not self.report:
            raise UsageError(
                f"task.layout.report is {self.report!r:.80}, expected the pattern of a text file, "
                "{zip: ..., member: ...}, or {columns: {findings: ..., ...}}"
            )

    @property
    def patterns(self) -> list[str]:
        """All that is filled from rows."""
        if isinstance(self.report, str):
            return [self.report]
        return list(self.report["columns"].values()) if "columns" in self.report else [self.report["member"]]

    def of(self, rows: pd.DataFrame) -> list[Sections | CaseError]:
        """Sections of each report, or its fault; files are read once."""
        if not isinstance(self.report, str) and "columns" in self.report:
            names = list(map(canonical, self.report["columns"]))
            texts = zip(*(filled(rows, pattern) for pattern in self.patterns), strict=True)
            return [
                {name: text for name, text in zip(names, row, strict=True) if _says_something(text)} for row in texts
            ]
        held: dict[str, Sections | CaseError] = {}
        names = filled(rows, self.patterns[0])
        for name in dict.fromkeys(names):
            try:
                held[name] = sections("\n".join(self._text(name).splitlines()))  # whatever ends its lines
            except CaseError as error:
                held[name] = error
        return [held[name] for name in names]

    def _text(self, name: str) -> str:
        path = below(self.root, name)
        archive = None if isinstance(self.report, str) else self.root / self.report["zip"]
        try:
            if archive is not None and (archive.is_file() or not path.is_file()):
                return unzipped(archive, name, "task.layout.report").decode("utf-8-sig")
            return path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise CaseError(f"{path}: cannot be read ({error.strerror}); task.layout.report names it") from error
        except UnicodeDecodeError as error:
            raise CaseError(f"{path}: is no UTF-8 text; convert the file to UTF-8") from error


def _says_something(text: str) -> bool:
    return not said_nothing(text) and text.lower().rstrip(".") not in ("none", "n/a")


def written(held: Sections, wanted: Sequence[str]) -> str:
    """The wanted sections one after the other; "" where one is not there.

    One section of findings and impression together counts where both are wanted, and nowhere else.
    """
    names = [canonical(name) for name in wanted]
    if BOTH in held and set(names) == {"findings", "impression"} and not set(names) <= set(held):
        return held[BOTH]
    return " ".join(held[name] for name in names) if all(name in held for name in names) else ""


def unspoilt(held: Sections, wanted: Sequence[str]) -> dict[str, str]:
    """Report sections without text that belongs to wanted headings.

    A column of findings may run on into the impression, which would give away what is asked for.
    """
    secret = {*map(canonical, wanted), BOTH}
    kept_texts = {}
    for name, text in held.items():
        parts = list(section_spans(text))
        spoilt = name not in secret and any(inner in secret for inner, _, _ in parts)
        remaining = [text[start:end].strip() for inner, start, end in parts if inner not in secret]
        kept_texts[name] = " ".join(filter(None, remaining)) if spoilt else text
    return kept_texts


def whole(held: Sections) -> str:
    """A report as one text: its sections under their headings, in their order."""
    return " ".join(f"{name.upper()}: {text}" if name else text for name, text in held.items())
