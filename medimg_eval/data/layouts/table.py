"""Tables of images or slides: one row or several per case, with paths, split, patient and truth in columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.case import ChangedImage, Geometry, GridAsRead, Image, OneFile, Reference
from medimg_eval.data.bags import as_image, stored_bag
from medimg_eval.data.layouts.base import FolderLayout, texts
from medimg_eval.data.records import FIELD, Entry, Row, below
from medimg_eval.data.tables import Cell, Encoded, read_table
from medimg_eval.errors import CaseError, MissingDataError, UsageError, UserError
from medimg_eval.image import FEATURES, FORM, PART, SEQUENCE, SIGNAL, VALUES


@dataclass(kw_only=True)
class Table(FolderLayout):
    """A table beside, or around, the images it speaks of.

    Args:
        table: CSV, TSV, JSON, JSON lines or Parquet below the root, which may hold `*`; or split -> such a table.
        image: the column of the path below the root, or a pattern of columns such as `images/{Image Index}`, and
            `{split}` of several tables; `*` stands for a folder that the table does not name. One for each image of a
            case, or several rows with the same `id`. A column of lists gives several images, one of files inside a
            Parquet table gives those. Or part -> such a column or pattern, as of `{oct: scan, fundus: "{id}.tif"}`:
            images are told apart by their part, and one whose column is empty is missing in that case.
        signals: part -> file of samples below the root, .npy (channel, time) or .csv with a column for each channel: a
            column, or a pattern; empty where a case has none. Shown as its part, (channel, 1, time).
        sequences: part -> column or pattern of a text, DNA or protein, shown as its part by the codes of its UTF-8,
            (1, 1, code).
        values: columns of numbers, such as age, that are shown beside the images as their part `values`, (1, 1, value);
            NaN where a cell is empty. They are for models that fuse several parts.
        id: the column of the case id, or a pattern; the path of the image when empty. Rows with the same id are
            records of one case.
        split: the column of the split.
        attributes: the columns that become attributes.
        where: column -> the value, or values, of the rows that are meant.
        separator: between the fields of a text table; by its ending when empty.
        encoded: whether the column of the image holds the file itself, in base64.
        header: names of the columns, for a text table that has no header line.
    """

    table: str | Mapping[str, str]
    image: str | Sequence[str] | Mapping[str, str] = ()
    values: Sequence[str] = ()
    signals: Mapping[str, str] = field(default_factory=dict)
    sequences: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    split: str = ""
    attributes: Sequence[str] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    separator: str = ""
    header: Sequence[str] = ()
    encoded: bool = False

    def entries(self, root: Path) -> list[Entry]:
        """The cases in the order of their first rows."""
        if not self.image and not self.id:
            raise UsageError("task.layout names neither `image` nor `id`, so rows cannot be told apart")
        _files_by_name.cache_clear()
        groups: dict[tuple[str | None, str], list[Entry]] = {}
        for row, split in self.rows(root):
            entry = self._entry(root, row, split)
            groups.setdefault((None if self._one_table() else split, entry.id), []).append(entry)
        if not groups:
            tables = ", ".join(str(path) for paths in self._tables(root).values() for path in paths)
            raise UserError(f"{tables}: holds no row" + (f" where {dict(self.where)}" if self.where else ""))
        return [self._joined(group) for group in groups.values()]

    def rows(self, root: Path) -> list[tuple[Row, str | None]]:
        """The rows that are meant, each with its split."""
        rows_: list[tuple[Row, str | None]] = []
        for split, tables in self._tables(root).items():
            for path in tables:
                meant = self.rows_of(path)
                if split is not None:
                    meant = [Row(row.path, row.place, {"split": split, **row.values}) for row in meant]
                rows_ += [(row, row.text(self.split) if self.split else split) for row in meant]
        return rows_

    def rows_of(self, table: Path) -> list[Row]:
        """The rows of one table that `where` means."""
        wanted = {column: _as_text_set(value) for column, value in self.where.items()}
        rows = read_table(table, separator=self.separator, header=self.header)
        return [row for row in rows if all(row.text(key) in values for key, values in wanted.items())]

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The tables, when they say."""
        if self._one_table() and not self.split:
            return ()
        return tuple(path for paths in self._tables(root).values() for path in paths)

    def _one_table(self) -> bool:
        return isinstance(self.table, str)

    def _tables(self, root: Path) -> dict[str | None, list[Path]]:
        named: Mapping[Any, str] = {None: self.table} if isinstance(self.table, str) else self.table
        tables = {}
        for split, name in named.items():
            tables[split] = sorted(root.glob(name)) if "*" in name else [root / name]
            if not tables[split]:
                raise MissingDataError(f"{root / name}: there is no such table")
        return tables

    def _entry(self, root: Path, row: Row, split: str | None) -> Entry:
        references = tuple(self._shown(root, row))
        name = row.fill(self.id) if self.id else _relative_name(references[0], root)
        if not name:
            raise row.error(f"the case id {self.id!r} is empty")
        entry = Entry(name, root, (row,), references, split or None)
        attributes = {column: row.value(column) for column in self.attributes}
        return replace(entry, patient=self.patient_of(entry), attributes=texts(attributes))

    def image_parts(self) -> tuple[str, ...]:
        """Parts that tell images apart; none where nothing does."""
        named = tuple(map(str, self.image)) if isinstance(self.image, Mapping) else ()
        return (*named, *self.part_forms())

    def part_forms(self) -> dict[str, str]:
        """Parts that are no pictures, each with its form."""
        forms = {**dict.fromkeys(self.signals, SIGNAL), **dict.fromkeys(self.sequences, SEQUENCE)}
        return {**forms, **({VALUES: VALUES} if self.values else {})}

    def _shown(self, root: Path, row: Row) -> Iterator[Reference[Image]]:
        if isinstance(self.image, Mapping):
            for part, pattern in self.image.items():
                if _is_filled(row, pattern):
                    yield from (PartImage(image, str(part)) for image in self.images(root, row, pattern))
        else:
            for pattern in [self.image] if isinstance(self.image, str) else self.image:
                yield from self.images(root, row, pattern) if pattern else ()
        for part, pattern in self.signals.items():
            if _is_filled(row, pattern):
                yield SignalFile(below(root, row.fill(pattern)), str(part))
        for part, pattern in self.sequences.items():
            if _is_filled(row, pattern):
                yield RowSequence(row, pattern, str(part))
        if self.values:
            yield RowValues(row, tuple(map(str, self.values)))

    def images(self, root: Path, row: Row, pattern: str) -> list[Reference[Image]]:
        """Images of a row by column or pattern; UserError without."""
        columns = [match[1] for match in FIELD.finditer(pattern)] or [pattern]
        value = row.value(columns[0]) if len(columns) == 1 else None
        if isinstance(value, Cell):
            return [EmbeddedImage(value, self.modality, dict(self.options))]
        if self.encoded:
            cell = Encoded(row.path, pattern, row.place, row.text(pattern))
            return [EmbeddedImage(cell, self.modality, dict(self.options))]
        several = value if isinstance(value, list) else [None]
        paths = []
        for name_ in several:
            parts = row if name_ is None else Row(row.path, row.place, {columns[0]: name_})
            if any(not parts.text(column) for column in columns):
                raise row.error(f"column {next(c for c in columns if not parts.text(c))!r} is empty, expected an image")
            name = parts.fill(pattern)
            paths.append(_find_file(root, name, row) if "*" in pattern else below(root, name))
        if not paths:
            raise row.error(f"column {columns[0]!r} is an empty list, expected images")
        return [self.image_file(path) for path in paths]

    def _joined(self, group: Sequence[Entry]) -> Entry:
        first = group[0]
        if len(group) == 1:
            return first
        rows = tuple(row for entry in group for row in entry.rows)
        for entry in group[1:]:
            for what, stated, before in (
                ("split", entry.split, first.split),
                ("patient", entry.patient, first.patient),
            ):
                if stated != before:
                    raise entry.row.error(
                        f"puts case {first.id!r} to {what} {stated!r}, which {first.row.place} puts to {before!r}"
                    )
        every = [image for entry in group for image in entry.images]
        images = {_image_identity(image): image for image in every}
        return replace(first, rows=rows, images=tuple(images.values()))


@dataclass(frozen=True)
class PartImage(ChangedImage):
    """Image that is one kind among a case's, such as OCT."""

    image: Reference[Image]
    part: str

    def read(self) -> Image:
        """The image, with attribute `part`."""
        image = self.image.read()
        return replace(image, attributes={**image.attributes, PART: self.part})


@dataclass(frozen=True, eq=False)
class RowValues:
    """Row's numbers in place of an image, NaN where empty."""

    row: Row
    columns: tuple[str, ...]
    part: str = VALUES

    @property
    def files(self) -> tuple[Path, ...]:
        """The table."""
        return (self.row.path,)

    def read(self) -> Image:
        """Returns (1, 1, value), float64; raises CaseError where a cell is no number."""
        try:
            cells = [self.row.number(column) if self.row.text(column) else math.nan for column in self.columns]
        except UserError as error:
            raise CaseError(str(error)) from error
        attributes = {**FEATURES, PART: VALUES}
        return Image(np.array(cells)[None, None], np.eye(4), units="pixel", attributes=attributes)

    def geometry(self) -> Geometry:
        """One row of numbers."""
        return Geometry((1, len(self.columns)), np.eye(4), "pixel")


@dataclass(frozen=True)
class SignalFile(OneFile, GridAsRead):
    """Samples over time, such as an ECG, in the place of an image."""

    part: str

    def read(self) -> Image:
        """Returns (channel, 1, time), float32; CaseError for non-finite or other axes."""
        with CaseError.about(self.path, "cannot be read as samples", ValueError, OSError, EOFError):
            if self.path.suffix.lower() == ".npy":
                array = np.load(self.path, allow_pickle=False)
            else:
                array = np.genfromtxt(self.path, delimiter=",", skip_header=1, ndmin=2).T
        samples = np.atleast_2d(np.asarray(array))
        if samples.ndim != 2 or samples.dtype.kind not in "fiu" or not samples.size or not np.isfinite(samples).all():
            raise CaseError(
                f"{self.path}: expected finite samples (channel, time), got {samples.shape} of {samples.dtype}"
            )
        attributes = {PART: self.part, FORM: SIGNAL}
        return Image(samples[:, None].astype(np.float32), np.eye(4), units="pixel", attributes=attributes)


@dataclass(frozen=True, eq=False)
class RowSequence(GridAsRead):
    """Text, DNA or protein of a row, in place of an image."""

    row: Row
    pattern: str
    part: str

    @property
    def files(self) -> tuple[Path, ...]:
        """The table."""
        return (self.row.path,)

    def read(self) -> Image:
        """Returns the codes of its UTF-8, (1, 1, code), uint8."""
        codes = np.frombuffer(self.row.fill(self.pattern).encode(), np.uint8)
        return Image(codes[None, None], np.eye(4), units="pixel", attributes={PART: self.part, FORM: SEQUENCE})


@dataclass(frozen=True)
class EmbeddedImage(GridAsRead):
    """A picture inside a table."""

    cell: Cell | Encoded
    modality: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> tuple[Path, ...]:
        """The table."""
        return (self.cell.path,)

    def read(self) -> Image:
        """Decodes it; raises CaseError naming table and row."""
        from medimg_eval.imaging.pictures import decode

        data, name = self.cell.read()
        image = decode(data, f"{self.cell.path}, {self.cell.place} ({name or self.cell.column})", **self.options)
        return image if image.modality else replace(image, modality=self.modality)


def _is_filled(row: Row, pattern: str) -> bool:
    """Whether no column of a pattern is empty."""
    return all(row.text(column) for column in [match[1] for match in FIELD.finditer(pattern)] or [pattern])


def _find_file(root: Path, name: str, row: Row) -> Path:
    folder, _, last = name.rpartition("/")
    candidates = _files_by_name(root, folder).get(last, [])
    if len(candidates) != 1:
        raise row.error(f"{len(candidates)} files are called {root / name}, expected one")
    return candidates[0]


@lru_cache(maxsize=256)
def _files_by_name(root: Path, folder: str) -> dict[str, list[Path]]:
    return grouped((path.name, path) for path in root.glob(f"{folder}/*"))


def _image_identity(image: Any) -> Any:
    """Image identity; stores hold many bags per file."""
    if isinstance(image, PartImage):
        return image.part, _image_identity(image.image)
    if isinstance(image, EmbeddedImage):
        return image.cell
    return image.files, getattr(image, "keys", ()), getattr(image, "name", "")


def _as_text_set(value: Any) -> set[str]:
    return {str(item) for item in value} if isinstance(value, list | tuple) else {str(value)}


def _relative_name(image: Reference[Image], root: Path) -> str:
    if isinstance(image, EmbeddedImage):
        return f"{image.cell.path.stem}-{image.cell.place.rpartition(' ')[2]}"
    return image.files[0].as_posix().removeprefix(f"{root.as_posix()}/")


@dataclass(kw_only=True)
class Slides(Table):
    """Table of slides as in CLAM: `slide_id`, `case_id`, and truth.

    A case is a slide; with `id: case_id` it is all slides of a patient.

    Args:
        features: pattern of the file of features of its tiles, which then is the image: (1, tile, feature) in float32.
        coordinate_columns: columns of an .npy before the features (Phikon: 3).
        store: instead, a folder of features below the root, as `embed`, TRIDENT, CLAM, HEST, eva and others leave it.
        store_kind: whose layout it has; found by what lies there when empty.
        bag: what the slide is called in the store, a pattern.
        several: what parts several slides in one cell of `slide_id`, such as `;`; nothing when empty.
        magnification: that the features of a store must be of, where it says; None takes any.
        patient: the column of the patient, or a pattern: `{slide_id:.12}` of TCGA's names.
        options: passed to the reader of slides, such as `um_per_px`.
        others: see `Table`; the authors' splits are a `SplitColumns` with the key `{slide_id}`.
    """

    image: str | Sequence[str] = "slides/{slide_id}.svs"
    features: str = ""
    coordinate_columns: int = 0
    store: str = ""
    store_kind: str = ""
    bag: str = "{slide_id}"
    several: str = ""
    magnification: float | None = None
    id: str = "slide_id"
    patient: str = "case_id"
    modality: str = "SM"

    def images(self, root: Path, row: Row, pattern: str) -> list[Reference[Image]]:
        """A slide or its features; of several in a cell, each."""
        if self.several and self.several in row.text("slide_id"):
            names = [name.strip() for name in row.text("slide_id").split(self.several) if name.strip()]
            parts = [Row(row.path, row.place, {**row.values, "slide_id": name}) for name in names]
            return [image for part in parts for image in self.images(root, part, pattern)]
        if self.store:
            return [stored_bag(below(root, self.store), row.fill(self.bag), self.store_kind, self.magnification)]
        if not self.features:
            return super().images(root, row, pattern)
        return [FeatureFile(root / row.fill(self.features), self.coordinate_columns)]


@dataclass(frozen=True)
class FeatureFile(OneFile, GridAsRead):
    """Features of a slide's tiles, in the place of its pixels."""

    coordinate_columns: int = 0

    def read(self) -> Image:
        """Returns (1, tile, feature); raises CaseError naming the file."""
        from medimg_eval.imaging.slides import read_features

        return as_image(read_features(self.path, coordinate_columns=self.coordinate_columns))
