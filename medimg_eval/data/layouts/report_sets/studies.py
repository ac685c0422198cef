"""Studies of patients: their images by view, the sections of their reports, and the studies before them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case, Geometry, Image, Reference
from medimg_eval.data.layouts.base import existing_root
from medimg_eval.data.questions.archives import ZipPicture
from medimg_eval.data.questions.pictures import FilePicture
from medimg_eval.data.questions.sources import Source, fingerprints
from medimg_eval.data.records import below
from medimg_eval.data.studies.order import UNKNOWN, View, Views, priors, ranks
from medimg_eval.data.studies.tables import (
    Join,
    check_columns,
    exploded,
    filled,
    joined,
    names_of,
    place_of,
    places_of,
    read_frame,
)
from medimg_eval.data.studies.texts import Sections, Texts, unspoilt, whole, written
from medimg_eval.errors import CaseError, SplitError, UsageError, UserError, nearest
from medimg_eval.metrics.nlp import NAMES
from medimg_eval.question import Key, Question
from medimg_eval.system import uncollected
from medimg_eval.tasks.base import Layout

if TYPE_CHECKING:
    import pandas as pd

SECTIONS = tuple(name for name in NAMES if name.isidentifier())
"""Sections that templates may name of any study; they are empty where a report lacks them."""


@dataclass(frozen=True, eq=False)
class StudyReport:
    """The report of a study, or what is wrong with that.

    `content` is its text, and what templates may name beside, which decide together what is asked; `files` are none,
    for tables and archives hold more than one report.
    """

    content: Mapping[str, Any]
    wrong: str = ""
    images: tuple[Reference[Image], ...] = ()
    files: tuple[Path, ...] = ()

    def read(self) -> Key:
        """Returns it; raises CaseError where something is wrong."""
        if self.wrong:
            raise CaseError(self.wrong)
        return Key(self.content["report"])

    def geometry(self) -> Geometry:
        """The grid of the first image."""
        if not self.images:
            raise CaseError("the report belongs to no image, so it has no grid")
        return self.images[0].geometry()


@dataclass(kw_only=True)
class Studies(Layout):
    """Studies whose reports are to be written, one case each; see docs/data/reports.md.

    A study whose report lacks a section that is asked for or needed, or that has no image of the views that are shown,
    is left out: `left_out` says which and why after `cases`. One whose report cannot be read is a case that fails.

    Templates may name each section of `SECTIONS`, `views` (such as `PA, LATERAL`) and `current_images` (the marks of
    its images, for `images: marks`); with `prior` also `prior_report`, `prior_views`, `prior_images` and each section
    as `prior_findings`, empty where there is no study before.

    Args:
        records: the table of images or of studies: a file below the root, a pattern, or a list of these, one after the
            other; or split -> such, of which the split that is asked for is read alone.
        join: tables whose columns are added: `{join: table, on: column}`.
        explode: columns that hold lists with an item for each image.
        study: the column of the study, which is the case's id, or a pattern.
        patient: the column of the patient, or a pattern.
        split: the column of the split, or a pattern; all studies serve any split when empty.
        image: the pattern of an image's file below the root, or `{zip: archive, member: pattern}`; without it, studies
            are asked about by their text alone.
        view: the column of an image's view.
        views: the views that are shown, in this order; several that count as one as a list, and `*` for all others.
            All in the table's order when empty.
        most_images: of a study, the first so many alone are shown; 0 for all.
        report: the pattern of the text file of a report; `{zip: archive, member: pattern}`; or `{columns: {findings:
            column, ...}}`.
        sections: of the report, what is to be written; each must be there.
        needs: further sections that must be there, since they are told.
        when: the columns of a study's time, the coarsest first.
        prior: whether the study before is shown, which is the patient's last strictly earlier one by `when`.
        question: what is asked of all.
        fields: what templates may name beside: name -> column or pattern.
        attributes: for subgroup tables: name -> column or pattern. `views` and, with `prior`, `prior` (yes or no) are
            attributes too.
        allow_overlap: why patients may lie in more than one split; without it that is refused.
        only: a regular expression that is found in the ids of the cases that are meant.
        modality: DICOM code of the images, where their files say none.
        reading: passed to the reader of images.
    """

    root: str
    records: str | Sequence[str] | Mapping[str, Any]
    study: str
    report: str | Mapping[str, Any]
    join: Sequence[Any] = ()
    explode: Sequence[str] = ()
    patient: str = ""
    split: str = ""
    image: str | Mapping[str, str] = ""
    view: str = ""
    views: Sequence[Any] = ()
    most_images: int = 0
    sections: Sequence[str] = ("findings",)
    needs: Sequence[str] = ()
    when: Sequence[str] = ()
    prior: bool = False
    question: str = "Write the report."
    fields: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    allow_overlap: str = ""
    only: str = ""
    modality: str = ""
    reading: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses invalid settings, before any file is read."""
        self._left_out: dict[str, str] = {}
        self._joins = [Join.of(join) for join in self.join]
        self._image = self.image if isinstance(self.image, str) else str(self.image.get("member", ""))
        if not isinstance(self.image, str) and set(self.image) != {"zip", "member"}:
            raise UsageError(
                f"task.layout.image is {dict(self.image)!r}, expected a pattern or {{zip: ..., member: ...}}"
            )
        if isinstance(self.sections, str) or not self.sections:
            raise UsageError(f"task.layout.sections is {self.sections!r}, expected a list of sections to be written")
        if self.prior and not (self.when and self.patient):
            raise UsageError("task.layout.prior needs `patient` and `when`: whose studies, and in which order")
        if self.views and not self.view:
            raise UsageError("task.layout.views needs `view`, the column that says them")

    @property
    def image_pattern(self) -> str:
        """Pattern of images in a folder or archive; "" without."""
        return self.image if isinstance(self.image, str) else self.image["member"]

    def cases(self, split: str) -> list[Case]:
        """The studies of one split, in the order of the table.

        Raises:
            SplitError: there is no such split.
            UserError: the root or a table is missing, a row is not understood, a study has two patients or two splits,
                or no study is left.
        """
        with uncollected():
            root = self.folder()
            frame = self._table(root, split)
            reader = _Read(self, root, frame, split)
            cases = [case for case in reader.cases() if re.search(self.only, case.id)]
            self._left_out = reader.left_out
        if not cases:
            why = next(iter(self._left_out.values()), "none is there")
            raise UserError(f"{root}: no study of split {split!r} is left; the first {why}")
        return cases

    def left_out(self) -> dict[str, str]:
        """Id of each case that `cases` left out -> what it lacks."""
        return self._left_out

    def split_source(self) -> dict[str, str]:
        """Path -> SHA-256 of tables defining splits, as by `fingerprints`."""
        root = self.folder()
        named = list(self.records.values()) if isinstance(self.records, Mapping) else []
        if self.split:
            named = [self.records, *(step.table for step in self._joins)]
        return fingerprints(path for files in named for path in _present_files(root, _as_file_list(files)))

    def folder(self) -> Path:
        """The root; raises UserError when there is no such folder."""
        return existing_root(self.root)

    def _table(self, root: Path, split: str) -> pd.DataFrame:
        files = self.records
        if isinstance(files, Mapping):
            SplitError.refuse_unknown(f"{root}: task.layout.records names no split", files, split)
            files = files[split]
        patterns = self._patterns(Texts(root, self.report).patterns)
        wanted = {name for some in patterns.values() for name in names_of(some)}
        wanted |= {*self.explode, *(name for step in self._joins for name in step.own)}
        frame = exploded(read_frame(root, _as_file_list(files), "records", wanted), self.explode)
        frame = joined(frame, self._joins, root, wanted)
        check_columns(frame, patterns)
        return frame

    def _patterns(self, texts: Sequence[str]) -> dict[str, Sequence[str]]:
        return {
            "study": [self.study],
            "patient": [self.patient],
            "split": [self.split],
            "image": [self.image_pattern],
            "view": [self.view],
            "when": self.when,
            "fields": list(self.fields.values()),
            "attributes": list(self.attributes.values()),
            "report": texts,
        }


def _as_file_list(files: Any) -> list[str]:
    return [files] if isinstance(files, str) else list(files)


def _present_files(root: Path, files: Sequence[str]) -> list[Path]:
    try:
        return Source(files).paths(root)
    except UserError:  # a split that is not at hand has no part in what is asked
        return []


class _Read:
    """The studies of one reading of the tables."""

    def __init__(self, layout: Studies, root: Path, frame: pd.DataFrame, split: str) -> None:
        self.layout, self.root = layout, root
        self._views = Views.of(layout.views, layout.most_images)
        self.left_out: dict[str, str] = {}
        self._rows: dict[str, list[int]] = {}
        """Study -> places of its rows in the table."""
        self._patients: dict[str, str] = {}
        self._pictures: dict[str, Reference[Image]] = {}
        wanted = self._grouped(frame, split)
        before = self._priors(frame) if layout.prior else {}
        self._before = {study: before[study] for study in wanted if study in before}
        self._wanted = wanted
        self._filled(frame, list(dict.fromkeys([*wanted, *self._before.values()])))

    def _grouped(self, frame: pd.DataFrame, split: str) -> list[str]:
        """Puts rows of a study together, and returns the studies of a split."""
        layout = self.layout
        studies, patients = filled(frame, layout.study), filled(frame, layout.patient)
        splits = filled(frame, layout.split)
        if layout.split and split not in set(splits):
            raise SplitError(f"{self.root}: no study of split {split!r}{nearest(split, set(splits))}")
        homes_: dict[str, tuple[str, str]] = {}
        homes: dict[str, str] = {}
        for row, (study, patient, home) in enumerate(zip(studies, patients, splits, strict=True)):
            if not study or (layout.patient and not patient):
                raise UserError(f"{place_of(frame, row)}: says no {'patient' if study else 'study'}")
            if homes_.setdefault(study, (patient, home)) != (patient, home):
                complaint = f"{place_of(frame, self._rows[study][0])} says otherwise"
                raise UserError(f"{place_of(frame, row)}: patient or split of study {study!r} differs: {complaint}")
            if patient and home and not layout.allow_overlap and homes.setdefault(patient, home) != home:
                there = f"{homes[patient]!r} and {home!r}"
                raise UserError(
                    f"{place_of(frame, row)}: patient {patient!r} lies in the splits {there}; set allow_overlap to "
                    "say why that may be"
                )
            self._rows.setdefault(study, []).append(row)
        self._patients = {study: patient for study, (patient, _) in homes_.items()}
        return [study for study, (_, home) in homes_.items() if not layout.split or home == split]

    def _priors(self, frame: pd.DataFrame) -> dict[str, str]:
        try:
            times = ranks([filled(frame, column) for column in self.layout.when]).tolist()
        except UserError as error:
            raise UserError(f"{self.root}: task.layout.when names {', '.join(self.layout.when)}: {error}") from error
        known_times = {
            study: [times[row] for row in rows if times[row] != UNKNOWN] for study, rows in self._rows.items()
        }
        return priors(self._patients, {study: min(some, default=UNKNOWN) for study, some in known_times.items()})

    def _filled(self, frame: pd.DataFrame, studies: Sequence[str]) -> None:
        """Reads what is needed of some studies, and of no other."""
        layout = self.layout
        self._rows = {study: self._rows[study] for study in studies}
        firsts = frame.iloc[[rows[0] for rows in self._rows.values()]]
        texts = Texts(self.root, layout.report).of(firsts)
        self._texts: dict[str, Sections | CaseError] = dict(zip(studies, texts, strict=True))
        self._places = dict(zip(studies, places_of(firsts), strict=True))
        columns_ = {**layout.attributes, **{f"\0{name}": column for name, column in layout.fields.items()}}
        columns = {name: filled(firsts, pattern) for name, pattern in columns_.items()}
        self._told = {
            study: {name: column[index] for name, column in columns.items()} for index, study in enumerate(studies)
        }
        rows = [row for rows in self._rows.values() for row in rows]
        some = frame.iloc[rows]
        files = dict(zip(rows, filled(some, layout.image_pattern, whole=True), strict=True))
        views = dict(zip(rows, filled(some, layout.view), strict=True))
        self._images = {
            study: self._views.shown([(files[row], views[row]) for row in rows]) for study, rows in self._rows.items()
        }
        self._pictured = {study for study, rows in self._rows.items() if any(files[row] for row in rows)}

    def cases(self) -> Iterator[Case]:
        for study in self._wanted:
            why = self._lacks(study)
            if why:
                self.left_out[study] = why
            else:
                yield self._case(study)

    def _lacks(self, study: str) -> str:
        """Why a study is left out; "" where it is not."""
        layout, texts = self.layout, self._texts[study]
        if layout.image and not self._images[study]:
            return f"has no image of the views {self._views}" if study in self._pictured else "has no image"
        if isinstance(texts, CaseError):
            return ""
        if not written(texts, layout.sections) or (layout.needs and not written(texts, layout.needs)):
            named = (*layout.sections, *layout.needs)
            lacking = [name for name in named if not written(texts, [name])]
            return f"has no {' and no '.join(lacking)}"
        return ""

    def _case(self, study: str) -> Case:
        layout, texts = self.layout, self._texts[study]
        before = self._before.get(study)
        attributes = {name: text for name, text in self._told[study].items() if not name.startswith("\0")}
        if layout.view:
            attributes["views"] = _format_views(self._images[study])
        if layout.prior:
            attributes["prior"] = "yes" if before else "no"
        patient = self._patients[study] or None
        earlier: Sections | CaseError = self._texts[before] if before else {}
        if isinstance(texts, CaseError):
            return Case(study, (), StudyReport({}, f"study {study!r}: {texts}"), patient, attributes)
        if isinstance(earlier, CaseError):
            return Case(study, (), StudyReport({}, f"prior study of {study!r}: {earlier}"), patient, attributes)
        fields = self._fields(study, texts, before, earlier)
        studies = [study, before] if before else [study]
        images = [self._picture(image.file, self._places[of]) for of in studies for image in self._images[of]]
        report = StudyReport({"report": written(texts, layout.sections), "fields": fields}, images=tuple(images))
        return Case(study, tuple(images), report, patient, attributes, Question(layout.question, "report", {}, fields))

    def _fields(self, study: str, texts: Sections, before: str | None, read: Sections) -> dict[str, str]:
        images = self._images[study]
        fields = dict.fromkeys(SECTIONS, "") | unspoilt(texts, self.layout.sections)
        fields |= {"views": _format_views(images), "current_images": _image_marks(0, len(images))}
        if self.layout.prior:
            earlier = self._images[before] if before else []
            fields |= {f"prior_{name}": read.get(name, "") for name in SECTIONS}
            fields |= {"prior_report": whole(read), "prior_views": _format_views(earlier)}
            fields["prior_images"] = _image_marks(len(images), len(earlier))
        attributes = {name[1:]: text for name, text in self._told[study].items() if name.startswith("\0")}
        return {**fields, **attributes}

    def _picture(self, name: str, said_by: str) -> Reference[Image]:
        if name not in self._pictures:  # of a study that is another's prior one too
            self._pictures[name] = self._found(name, said_by)
        return self._pictures[name]

    def _found(self, name: str, said_by: str) -> Reference[Image]:
        layout, path = self.layout, below(self.root, name)
        if not isinstance(layout.image, str):
            archive = self.root / layout.image["zip"]
            if archive.is_file() or not path.is_file():
                return ZipPicture(archive, name, said_by, layout.modality, dict(layout.reading))
        return FilePicture(path, None, layout.modality, dict(layout.reading), said_by)


def _format_views(shown: Sequence[View]) -> str:
    return ", ".join(view.view for view in shown if view.view)


def _image_marks(start: int, count: int) -> str:
    return " ".join(f"<image {number}>" for number in range(start + 1, start + count + 1))
