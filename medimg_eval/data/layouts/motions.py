"""Motions of several trials of each subject, without images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from medimg_eval.case import Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.folders import find
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.errors import UserError
from medimg_eval.imaging.motions import Motion, MotionFile


@dataclass(kw_only=True)
class MotionFiles(FolderLayout):
    """A motion file for each trial; cases are called `subject/trial`, and patients are the subjects.

    Args:
        pattern: of the true motions below the root, with `{subject}` and `{case}` for the trial.
    """

    pattern: str

    def entries(self, root: Path) -> list[Entry]:
        """The trials, by subject and name; raises UserError where there is none."""
        found = find(root, self.pattern)
        if not found:
            raise UserError(f"{root}: trials are invalid: expected files of the pattern {self.pattern!r}, got none")
        made = []
        for path, fields in found:
            subject = fields.get("subject", "")
            row = Row(path, "", {**fields, "path": str(path)})
            name = f"{subject}/{fields['case']}" if subject else fields["case"]
            made.append(Entry(name, root, (row,), split=fields.get("split"), patient=subject or None))
        return sorted(made, key=lambda entry: entry.id)

    def truth(self, root: Path, entries: list[Entry]) -> Target:  # type: ignore[override]
        """The files themselves."""
        return _Motions()


class _Motions(Target):
    """Reads the file of a trial."""

    def reference(self, entry: Entry) -> Reference[Motion]:
        """The file."""
        return MotionFile(Path(entry.row.text("path")))
