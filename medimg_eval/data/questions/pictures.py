"""Where the pictures of a record lie: files, members of archives, cells, slices of volumes, frames of videos."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medimg_eval.case import Geometry, Image, Reference
from medimg_eval.data.questions.archives import CellPicture, ZipPicture
from medimg_eval.data.questions.cells import Cell, ParquetCell, TextCell
from medimg_eval.data.questions.options import form_of
from medimg_eval.data.questions.records import Record, as_text, bracketed, names_in, said_nothing
from medimg_eval.data.questions.stacks import StackPicture, stack_of
from medimg_eval.data.questions.streamed import POINTER
from medimg_eval.data.records import below
from medimg_eval.data.resized import ShrunkPicture
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.imaging import ImageFile

FORMS = {
    "path": {"strip", "below"},
    "zip": {"member", "strip"},
    "base64": {"pointer"},
    "bytes": set(),
    "volume": {"slices", "window", "clip", "plane", "strip", "axes", "stored"},
    "video": {"frames", "seconds", "strip"},
}
"""The ways to say where pictures lie: the key that tells them apart -> the keys that go with it."""

Picture = Reference[Image]


@dataclass(frozen=True)
class FilePicture(ImageFile):
    """Picture file; `said_by` is the record that names it."""

    said_by: str = ""

    def read(self) -> Image:
        """Reads it; raises CaseError naming the file and the record."""
        with self._naming():
            return super().read()

    def geometry(self) -> Geometry:
        """Reads the grid alone; raises CaseError naming the file and the record."""
        with self._naming():
            return super().geometry()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except CaseError as error:
            raise CaseError(f"{error} (named by {self.said_by})") from error


@dataclass(frozen=True)
class Pictures:
    """Finds a record's pictures by `specs`, in their order.

    The modality is a DICOM code, where files say none; `reading` is passed to the reader of images; `max_side` are
    pixels that the longer side is brought down to, 0 to leave pictures as they are.
    """

    root: Path
    specs: tuple[Mapping[str, Any], ...]
    modality: str = ""
    reading: dict[str, Any] = field(default_factory=dict)
    max_side: int = 0

    def of(self, record: Record) -> tuple[Picture, ...]:
        """The pictures of one record; what a record leaves empty is left out."""
        pictures = [picture for spec in self.specs for picture in self._of_spec(spec, record)]
        return (
            tuple(ShrunkPicture(picture, self.max_side) for picture in pictures) if self.max_side else tuple(pictures)
        )

    def _of_spec(self, spec: Mapping[str, Any], record: Record) -> Iterator[Picture]:
        form = form_of(spec, FORMS, "images")
        for item in filled_items(record, pattern_of(spec)):
            if isinstance(item, Cell):
                yield CellPicture(item, self.modality, self.reading)
            elif form == "base64":
                cell = TextCell(record.path, pattern_of(spec), record.place, item)
                yield CellPicture(cell, self.modality, self.reading)
            elif form in ("volume", "video"):
                stack = stack_of(self._file(spec, item), spec, self.modality)
                yield from (StackPicture(stack, index) for index in range(stack.count))
            elif form == "zip" and (
                (archive := self.root / self._archive(spec, record)).is_file() or not self._file(spec, item).is_file()
            ):
                yield ZipPicture(archive, _strip_markers(item, spec), record.place, self.modality, self.reading)
            else:
                said_by = f"{record.path.name}, {record.place}"
                yield FilePicture(self._file(spec, item), None, self.modality, self.reading, said_by)

    @staticmethod
    def _archive(spec: Mapping[str, Any], record: Record) -> str:
        return record.fill(spec["zip"]) if "{" in spec["zip"] else str(spec["zip"])

    def _file(self, spec: Mapping[str, Any], name: str) -> Path:
        folder = self.root / spec["below"] if "below" in spec else self.root
        return below(folder, _strip_markers(name, spec))


def _strip_markers(name: str, spec: Mapping[str, Any]) -> str:
    if "strip" not in spec:
        return name
    prefixes = spec["strip"]
    for prefix in [prefixes] if isinstance(prefixes, str) else prefixes:
        name = name.removeprefix(prefix)
    return name


def places_of(pictures: Sequence[Picture]) -> str:
    """Picture locations in words, equal for the same pictures."""
    return "; ".join(dict.fromkeys(_place_of(picture) for picture in pictures))


def _place_of(picture: Picture) -> str:
    if isinstance(picture, ShrunkPicture):
        return _place_of(picture.stored)
    if isinstance(picture, ZipPicture):
        return picture.member
    if isinstance(picture, CellPicture):
        cell = picture.cell
        item = f", {cell.item}" if isinstance(cell, ParquetCell) and cell.item is not None else ""
        return f"{cell.path.name}, {cell.place}, {cell.column}{item}"
    return "/".join(picture.files[0].parts[-3:])


def content_of(picture: Picture) -> str:
    """Digest prefix of a cell's picture, or location; CaseError if empty."""
    if isinstance(picture, ShrunkPicture):
        return content_of(picture.stored)
    if isinstance(picture, CellPicture):
        return hashlib.sha256(picture.cell.read()).hexdigest()[:16]
    return _place_of(picture)


def specs_of(images: Any) -> tuple[Mapping[str, Any], ...]:
    """Picture specs of a config; UsageError for unknown keys."""
    several = images if isinstance(images, list | tuple) else [images] if images else []
    specs: list[Mapping[str, Any]] = [{"path": image} if isinstance(image, str) else image for image in several]
    for spec in specs:
        form = form_of(spec, FORMS, "images")
        unknown = next((key for key in spec if key != form and key not in FORMS[form]), None)
        if unknown is not None:
            raise UsageError(f"task.layout.images of {form!r} has no key {unknown!r}{nearest(unknown, FORMS[form])}")
        if form == "zip" and "member" not in spec:
            raise UsageError("task.layout.images: `zip` names the archive, and `member`, the name within, is not set")
    return tuple(specs)


def pattern_of(spec: Mapping[str, Any]) -> str:
    """The pattern, or column, that differs from record to record."""
    form = form_of(spec, FORMS, "images")
    return str(spec["member"] if form == "zip" else spec[form])


def cell_columns(specs: Sequence[Mapping[str, Any]]) -> set[str]:
    """The columns that hold pictures themselves."""
    names = [name for spec in specs if "base64" in spec or "bytes" in spec for name in names_in(pattern_of(spec))]
    return {name.partition(".")[0] for name in names} | set(names)


def filled_items(record: Record, pattern: str) -> Iterator[Cell | str]:
    """Items of a pattern, one per record or list item.

    Raises CaseError where two fields are lists, or an expression finds nothing.
    """
    values = {name: bracketed(record.value(name)) for name in names_in(pattern)}
    if any(said_nothing(value) for value in values.values()):
        return
    lists = [name for name, value in values.items() if isinstance(value, list | tuple)]
    if len(lists) > 1:
        raise record.error(f"columns {lists[0]!r} and {lists[1]!r} of {pattern!r} are both lists")
    for item_ in values[lists[0]] if lists else [None]:
        if lists and said_nothing(item_):
            continue
        # Some authors write each picture of a list as an object that holds its name alone.
        named = next(iter(item_.values())) if isinstance(item_, Mapping) and len(item_) == 1 else item_
        item = {**values, lists[0]: named} if lists else values
        cell = next((value for value in item.values() if isinstance(value, Cell)), None)
        if cell is not None:
            yield cell
        else:
            yield record.filled(pattern, lambda name, item=item: as_text(item[name]))  # type: ignore[misc]


def pointed(records: Sequence[Record], specs: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Gives records whose cell names another record that one's image.

    Records are all of the files, before any is left out; specs with a `pointer`, the column that the short cells name,
    say where it may be so.
    """
    pointed_records = list(records)
    for spec in specs:
        if "pointer" not in spec:
            continue
        column, key = pattern_of(spec), spec["pointer"]
        targets = {
            (record.path, record.text(key)): record.find(column)
            for record in pointed_records
            if not _is_short(record.find(column))
        }
        for index, record in enumerate(pointed_records):
            value = record.find(column)
            if record.fault or not _is_short(value) or said_nothing(value):
                continue
            target = targets.get((record.path, as_text(value)))
            if target is not None:
                pointed_records[index] = record.with_values(**{column: target})
            else:
                complaint = f"the image {as_text(value)!r} is no image, and names no record that holds one in {key!r}"
                pointed_records[index] = replace(record, fault=complaint)
    return pointed_records


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int | float) and len(str(value)) <= POINTER
