"""Views of a chest X-ray study that are made from its report and the other views."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from medimg_eval.case import Case, Reference, Text
from medimg_eval.data.layouts.synthesis.prompts import FINDINGS
from medimg_eval.data.layouts.table import Table
from medimg_eval.data.records import Entry, Row, Target, given
from medimg_eval.data.tables import read_table
from medimg_eval.errors import MissingDataError

VIEWS: Mapping[str, str] = {"AP": "AP", "PA": "PA", "LATERAL": "LATERAL", "LL": "LATERAL"}
"""How MIMIC-CXR names a view -> what the authors of ViewXGen take it for."""

MOST = 3
"""Images of a study that the authors' model reads and makes at most."""


@dataclass(kw_only=True)
class ViewXGen(Table):
    """ViewXGen's MIMIC-CXR: generate each image from report and other views.

    A list has a line of dicom, subject, study, view and number of images for each image. As in the authors' loader,
    studies of more than three images, and those of which an image is missing in the list, are left out. The split
    `prompts` holds the cases of `test` with the other images in the place of their own, in the order of the list.

    Args:
        reports: the report's text file below the root.
        labels: MIMIC-CXR's table of CheXpert's labels by study, whose findings become attributes; none where empty.
        given: whether the other images are shown, else the report alone.
        others: see `Table`.
    """

    header: Sequence[str] = ("dicom_id", "subject_id", "study_id", "ViewPosition", "count")
    id: str = "dicom_id"
    patient: str = "subject_id"
    image: str = "files/p{subject_id:.2}/p{subject_id}/s{study_id}/{dicom_id}.jpg"
    reports: str = "reports/s{study_id}.txt"
    labels: str = ""
    given: bool = True

    def entries(self, root: Path) -> list[Entry]:
        """The images of whole studies, with view, study and findings as attributes."""
        studies: dict[tuple[str | None, str], list[Entry]] = defaultdict(list)
        for entry in super().entries(root):
            studies[entry.split, entry.row.text("study_id")].append(entry)
        findings = self._findings(root)
        return [
            replace(entry, attributes={**_row_attributes(entry.row), **findings.get(number, {})})
            for (_, number), study in studies.items()
            if len(study) <= MOST and len(study) == int(study[0].row.number("count"))
            for entry in study
        ]

    def _findings(self, root: Path) -> Mapping[str, Mapping[str, str]]:
        if not self.labels:
            return {}
        rows = read_table(root / self.labels)
        return {
            row.text("study_id"): {name: str(int(row.number(name))) for name in FINDINGS if row.text(name)}
            for row in rows
        }

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The report of the study, and which view is asked for."""
        return ReportAndView(root, self.reports)

    def cases(self, split: str) -> list[Case]:
        """Images of a split; `prompts` are `test` with other views."""
        if split != "prompts":
            return super().cases(split)
        cases = super().cases("test")
        studies: dict[str, list[Case]] = defaultdict(list)
        for case in cases:
            studies[case.attributes["study"]].append(case)
        return [
            self._asked(
                case, [other_case for other_case in studies[case.attributes["study"]] if other_case is not case]
            )
            for case in cases
        ]

    def _asked(self, case: Case, others: Sequence[Case]) -> Case:
        cases_shown = others if self.given else ()
        views = "+".join(case.attributes["view"] for case in cases_shown) or "none"
        images = tuple(image for case in cases_shown for image in case.images)
        return replace(case, images=images, attributes={**case.attributes, "given": views})


def _row_attributes(row: Row) -> dict[str, str]:
    stated = row.text("ViewPosition")
    if stated not in VIEWS:
        raise row.error(f"ViewPosition is {stated!r}, expected one of {', '.join(VIEWS)}")
    return {"study": row.text("study_id"), "view": VIEWS[stated]}


@dataclass(frozen=True)
class ReportAndView:
    """Report after the asked view: `LATERAL view. the heart is normal`."""

    root: Path
    file: str

    def reference(self, entry: Entry) -> Reference[Text]:
        """Lower-case text, as the authors'; MissingDataError without a report."""
        path = self.root / entry.row.fill(self.file)
        try:
            report = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise MissingDataError(f"{path}: there is no report of study {entry.row.text('study_id')!r}") from None
        words = report.replace("  ", " ").replace("  ", " ").lower()
        return given(Text(f"{VIEWS[entry.row.text('ViewPosition')]} view. {words.strip()}"), entry)
