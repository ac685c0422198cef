"""Trees of DICOM files."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from medimg_eval.arguments import grouped
from medimg_eval.case import Case, Image, Mask, OneFile, Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.records import Entry, OnImage, Row, Target, Unreadable
from medimg_eval.errors import UserError
from medimg_eval.imaging import read_mask
from medimg_eval.imaging.dicom import NAMING, Series, index_tree, naming, salvaged_header
from medimg_eval.patients import patient_key

TRUTHS = ("SEG", "RTSTRUCT")
"""Modalities of what is drawn on an image."""

NO_IMAGES = frozenset({*TRUTHS, "RTDOSE", "RTPLAN", "SR", "PR", "KO", "REG", "DOC"})
"""Modalities that are no case of their own."""


@dataclass(kw_only=True)
class DicomTree(FolderLayout):
    """Folder of DICOM files; each series or single file is a case.

    The index that is made of the tree is kept, so that later runs open new files only. Patients are named by a salted
    key of their id, or of what `patient` says (see `medimg_eval.patients`). A file that cannot be read costs
    the case it is meant for, which fails by its name; one that can be told to belong to no case is a case of its own.

    Args:
        filters: field of `medimg_eval.imaging.dicom.Series` -> the value, or values, of the images that are
            meant, such as `{modality: CT, localizer: false}`.
        id: pattern of the case id: `{series}`, `{study}`, `{stem}` or `{name}` of the first file, `{folder}` below the
            root; where several images share an id, `-1`, `-2`, ... follow.
        unlabelled: what becomes of images without an object for a `ReferencedMask`: `raise`, or `skip`.
        cache: a folder to keep the index in, instead of the user's cache.
        others: see `FolderLayout`; truth that stands in a table comes through the target `TableTarget`, whose `key_is`
            may be `{series}`, `{study}`, `{patient}`, `{stem}`, ...
    """

    filters: Mapping[str, Any] = field(default_factory=dict)
    id: str = "{series}"
    unlabelled: Literal["raise", "skip"] = "raise"
    cache: str = ""

    def entries(self, root: Path) -> list[Entry]:
        """The images by study, series and group."""
        index = index_tree(root, cache=Path(self.cache).expanduser() if self.cache else None)
        drawn = isinstance(self.target, ReferencedMask)
        series = [item for item in index.series(**self.filters) if item.modality not in NO_IMAGES]
        if drawn:  # a damaged object leaves its series without a truth, and must not vanish with it
            series += [item for item in index.series(modality=TRUTHS) if item.damaged and item not in series]
        entries = self._numbered([self._entry(root, item) for item in series])
        return self._drawn(entries, index.series(modality=TRUTHS)) if drawn else entries

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """None: a tree has no splits of its own."""
        return ()

    def _entry(self, root: Path, one: Series) -> Entry:
        first = one.paths[0]
        folder = first.parent.relative_to(root).as_posix()
        facts = {name: getattr(one, name) for name in ("series", "study", "modality", "damaged")}
        attributes = {name: getattr(one, name) for name in ("modality", "body_part", "view", "laterality")}
        facts |= {**attributes, "name": first.name, "stem": first.stem, "folder": folder}
        row = Row(first, "", HeaderValues(one.paths, facts))
        image = self.image_file(one.paths if len(one.paths) > 1 else first)
        name = row.fill(self.id) or (first.stem if one.damaged else folder)
        filled = {key: value for key, value in attributes.items() if value}
        entry = Entry(name, root, (row,), (image,), patient=one.patient or None, attributes=filled)
        if one.damaged or not self.patient:
            return entry
        return replace(entry, patient=patient_key(self.patient_of(entry) or ""))

    def _case(self, entry: Entry, target: Target) -> Case:
        try:
            return super()._case(entry, target)
        except UserError as error:
            # Of an image whose header is lost, the truth may not be found either.
            if not entry.row.values["damaged"]:
                raise
            return Case(entry.id, entry.images, Lost(entry.row.path, str(error)), entry.patient, entry.attributes)

    def _numbered(self, entries: Sequence[Entry]) -> list[Entry]:
        shared = {name for name, count in Counter(entry.id for entry in entries).items() if count > 1}
        counted: Counter[str] = Counter()
        numbered = []
        for entry in entries:
            counted[entry.id] += 1
            numbered.append(replace(entry, id=f"{entry.id}-{counted[entry.id]}") if entry.id in shared else entry)
        return numbered

    def _drawn(self, entries: Sequence[Entry], objects: Sequence[Series]) -> list[Entry]:
        by_series = grouped(
            (series, path) for object_ in objects for path in object_.paths for series in referenced_series(path)
        )
        drawn = {entry.id: by_series.get(str(entry.row.value("series")), []) for entry in entries}
        damaged = {entry.id: entry.row.path for entry in entries if entry.row.values["damaged"]}
        # What cannot be read may have been drawn on a series that nothing else is drawn on: then it is no case itself.
        missing = [name for name, paths in drawn.items() if not paths and name not in damaged]
        if damaged and missing and self.unlabelled == "raise":
            drawn = {name: paths or list(damaged.values())[:1] for name, paths in drawn.items() if name not in damaged}
        entries_ = []
        for entry in entries:
            if entry.id not in drawn:
                continue
            paths = drawn[entry.id] or [damaged[entry.id]] if entry.id in damaged else drawn[entry.id]
            if len(paths) > 1:
                raise UserError(
                    f"{paths[0]}: is drawn on the same series as {paths[1]}; keep one of them, or name one by a pattern"
                )
            if paths:
                row = entry.row
                values = HeaderValues([row.path], {**row.values, "drawn": str(paths[0])})
                entries_.append(replace(entry, rows=(replace(row, values=values),)))
            elif self.unlabelled == "raise":
                raise UserError(
                    f"{entry.row.path}: no SEG or RTSTRUCT below {entry.root} refers to its series; narrow "
                    "task.layout.filters, or set task.layout.unlabelled=skip"
                )
        return entries_


class HeaderValues(dict[str, Any]):
    """DICOM header values; identifying ones are read on demand."""

    def __init__(self, paths: Sequence[Path], known: Mapping[str, Any]) -> None:
        """Takes what the index knows of an image."""
        super().__init__(known)
        self.paths = paths

    def __contains__(self, name: object) -> bool:
        """Whether there is such a value."""
        return name in NAMING or super().__contains__(name)

    def __missing__(self, name: str) -> str:
        """Reads `patient` or `description` from the file."""
        if self["damaged"]:  # any of the files may be, also the first
            headers = map(salvaged_header, self.paths)
            words = (header.patient if name == "patient" else header.series_description for header in headers)
            return next(filter(None, words), "")
        return naming(self.paths[0])[name]


def referenced_series(path: Path) -> set[str]:
    """Series UIDs behind a DICOM-SEG or RTSTRUCT; none if damaged."""
    import pydicom

    tags = ["ReferencedSeriesSequence", "ReferencedFrameOfReferenceSequence"]
    with warnings.catch_warnings(), suppress(Exception):  # pydicom raises whatever its parts raise
        warnings.simplefilter("ignore")
        dataset = pydicom.dcmread(path, stop_before_pixels=True, specific_tags=tags)
        sequences = list(dataset.get("ReferencedSeriesSequence") or ())
        for frame in dataset.get("ReferencedFrameOfReferenceSequence") or ():
            for study in frame.get("RTReferencedStudySequence") or ():
                sequences += study.get("RTReferencedSeriesSequence") or ()
        return {str(item.get("SeriesInstanceUID", "")) for item in sequences} - {""}
    return set()


@dataclass
class ReferencedMask:
    """DICOM-SEG or RTSTRUCT of a `DicomTree`'s series, drawn on its grid.

    `labels` says label -> name of the segment or structure, as the task's `labels`; others are left out. Without it the
    file's own numbers.
    """

    labels: Mapping[int, str] = field(default_factory=dict)

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The object."""
        numbers = {str(name): int(label) for label, name in self.labels.items()}
        return DrawnOnSeries(Path(entry.row.text("drawn")), entry.images[0], numbers)


@dataclass(frozen=True)
class Lost(Unreadable, OneFile):
    """A truth that cannot be found, of an image that cannot be read."""

    message: str


@dataclass(frozen=True)
class DrawnOnSeries(OneFile, OnImage):
    """A DICOM-SEG or RTSTRUCT, and the image it was drawn on."""

    image: Reference[Image]
    labels: Mapping[str, int]

    def read(self) -> Mask:
        """Draws it; raises what `medimg_eval.imaging.read_mask` raises."""
        return read_mask(self.path, grid=self.geometry(), labels=dict(self.labels) or None)
