"""Features instead of images, one vector for each row of a table: in its columns, or in the rows of one array."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Findings, Geometry, Image, OneFile, Reference
from medimg_eval.data.bags import ForeignBag
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.table import Table
from medimg_eval.data.records import Entry, Given, Row, Target
from medimg_eval.data.tables import read_json
from medimg_eval.data.targets.findings import POLICIES
from medimg_eval.errors import CaseError, MissingDataError, UsageError, UserError
from medimg_eval.image import FEATURES


@dataclass(kw_only=True)
class FeatureVectors(Table):
    """Table of cases with features in columns or an array's rows.

    The image of a case is its vector, (1, 1, feature). Bags of tiles, a file each, are those of `Slides`.

    Args:
        features: columns of the table, of which any may be a pattern such as `mean *`; or the one file of an array
            (row, feature) below the root: .npy, .h5 or .pt, or a pattern of columns such as `{split}.npy`.
        row: with an array, the column of the row's number, from 0; the order of the table when empty.
        others: see `Table`.
    """

    features: str | Sequence[str]
    row: str = ""
    id: str = "id"

    def images(self, root: Path, row: Row, pattern: str) -> list[Reference[Image]]:
        """Raises UsageError: features stand in the place of images."""
        raise UsageError("task.layout.image is of no use beside task.layout.features; leave it out")

    def entries(self, root: Path) -> list[Any]:
        """Cases in row order; UserError for a repeated id."""
        from dataclasses import replace

        entries = super().entries(root)
        counted: dict[Path, int] = {}
        entries_ = []
        for entry in entries:
            if len(entry.rows) > 1:
                raise entry.rows[1].error(f"case {entry.id!r} has a row before; expected one row for each case")
            vector = self._vector(root, entry.row, counted)
            entries_.append(replace(entry, images=(vector,)))
        return entries_

    def _vector(self, root: Path, row: Row, counted: dict[Path, int]) -> Reference[Image]:
        if not isinstance(self.features, str):
            return CellVector(row, _select_columns(tuple(self.features), tuple(row.values)))
        path = root / (row.fill(self.features) if "{" in self.features else self.features)
        row_number = counted.get(path, 0)
        counted[path] = row_number + 1
        if self.row:
            number = row.number(self.row)
            if not number.is_integer() or number < 0:
                raise row.error(f"column {self.row!r} holds {number:g}, expected the number of a row from 0")
            row_number = int(number)
        return RowVector(path, row_number)


@dataclass(frozen=True, eq=False)
class CellVector:
    """A vector in the columns of a table's row."""

    row: Row
    columns: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The table."""
        return (self.row.path,)

    def read(self) -> Image:
        """Returns (1, 1, feature), float64; CaseError for non-finite cells."""
        try:
            values = np.array([self.row.number(column) for column in self.columns])
        except UserError as error:
            raise CaseError(str(error)) from error
        return _as_image(values, f"{self.row.path}, {self.row.place}")

    def geometry(self) -> Geometry:
        """One tile, and features."""
        return Geometry((1, len(self.columns)), np.eye(4), "pixel")


@dataclass(frozen=True)
class RowVector(OneFile):
    """A vector in a row of an array."""

    place: int

    def read(self) -> Image:
        """Returns (1, 1, feature); CaseError for missing or non-finite rows."""
        array = matrix_of(self.path)
        if self.place >= len(array):
            raise CaseError(f"{self.path}: has {len(array)} rows, and row {self.place} is asked for, counted from 0")
        return _as_image(np.asarray(array[self.place]), f"{self.path}, row {self.place}")

    def geometry(self) -> Geometry:
        """One tile, and features."""
        return Geometry((1, matrix_of(self.path).shape[1]), np.eye(4), "pixel")


def matrix_of(path: Path) -> Array:
    """Cached array (row, feature) of a file; .npy is memory-mapped.

    Raises:
        CaseError: it is missing, damaged, or of another shape.
    """
    try:
        changed = path.stat()
    except OSError as error:
        raise CaseError(f"{path}: no such file") from error
    return _cached_matrix(path, changed.st_mtime_ns, changed.st_size)


@lru_cache(maxsize=8)
def _cached_matrix(path: Path, changed: int, size: int) -> Array:
    from medimg_eval.imaging.slides import read_features

    if path.suffix != ".npy":
        return read_features(path).features
    with CaseError.about(path, "cannot be read as .npy", ValueError, OSError, EOFError):
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise CaseError(f"{path}: expected numbers (row, feature), got {array.shape} of {array.dtype}")
    return array


@lru_cache(maxsize=8)
def _select_columns(wanted: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    columns: list[str] = []
    for pattern in wanted:
        some = [pattern] if pattern in known else fnmatch.filter(known, pattern)
        if not some:
            UsageError.refuse_unknown("task.layout.features names a column", known, pattern)
        columns += some
    return tuple(dict.fromkeys(columns))


def _as_image(values: Array, where: str) -> Image:
    values_ = np.array(values, np.float64 if values.dtype == np.float64 else np.float32)
    if not np.isfinite(values_).all():
        raise CaseError(f"{where}: has NaN or infinite features")
    return Image(values_[None, None], np.eye(4), units="pixel", attributes=dict(FEATURES))


@dataclass(kw_only=True)
class RateFindings(FolderLayout):
    """Features and yes-no labels as RATE-Evals stores them.

    Below the root lies `embeddings/SPLIT/ACCESSION.npz`. Labels are a JSON file: accession -> `qa_results` or `answers`
    -> category -> questions with answers, in any of the three forms that RATE and its evaluation write.

    Args:
        labels: the JSON file below the root.
        blank: what a question becomes that has no answer in a scan: as policies of `ClassColumns`.
        uncertain: what the answers uncertain, unclear and equivocal become.
        strict: whether other answers, and scans without labels, are mistakes; else both are no, as in RATE-Evals.
        others: see `FolderLayout`.
    """

    labels: str = "final_results.json"
    blank: str = "zeros"
    uncertain: str = "ignore"
    strict: bool = True

    def entries(self, root: Path) -> list[Entry]:
        """The scans with features, by split and name."""
        paths = sorted(root.glob("embeddings/*/*.npz"))
        if not paths:
            raise MissingDataError(f"{root}: there is no embeddings/SPLIT/ACCESSION.npz")
        entries = []
        for path in paths:
            name, split = path.stem, path.parent.name
            row = Row(root / self.labels, name, {"accession": name, "split": split})
            image = ForeignBag(root, f"{split}/{name}" if self._several(root) else name, "rate_evals")
            entries.append(self.with_patient(Entry(name, root, (row,), (image,), split)))
        return entries

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The labels: folders say which scan belongs to which split."""
        return (root / self.labels,)

    def class_names(self) -> list[str]:
        """The questions, sorted; raises MissingDataError without the labels."""
        answers = rate_answers(Path(self.root).expanduser() / self.labels)
        return sorted({question for held in answers.values() for question in held})

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The answers of each scan."""
        return RateAnswers(root / self.labels, self.class_names(), self)

    def _several(self, root: Path) -> bool:
        return len({path.parent for path in root.glob("embeddings/*/*.npz")}) > 1


@dataclass(frozen=True)
class RateAnswers:
    """Answers of a scan as findings.

    Attributes:
        file: of the labels.
        questions: of all scans.
        layout: says what answers become.
    """

    file: Path
    questions: Sequence[str]
    layout: RateFindings

    def reference(self, entry: Entry) -> Reference[Findings]:
        """Reference to findings; UserError for unreadable scans or answers."""
        held = rate_answers(self.file).get(entry.id)
        if held is None and self.layout.strict:
            raise entry.row.error(
                f"there are no labels of scan {entry.id!r}; add them, or set layout.strict=false for no in all"
            )
        values = {question: self._value(entry, question, (held or {}).get(question)) for question in self.questions}
        return Given(Findings(values), (self.file,), entry.image)

    def _value(self, entry: Entry, question: str, answer: Any) -> float:
        text = "" if answer is None or answer != answer else str(answer).strip().lower()  # noqa: PLR0124 - NaN
        if not text:
            return POLICIES[self.layout.blank]
        if text in ("yes", "no"):
            return float(text == "yes")
        if not self.layout.strict:
            return 0.0
        if text in UNSURE:
            return POLICIES[self.layout.uncertain]
        raise entry.row.error(f"question {question!r} has the answer {answer!r}, expected Yes, No or one of {UNSURE}")


UNSURE = ("uncertain", "unclear", "equivocal")


def rate_answers(file: Path) -> Mapping[str, Mapping[str, Any]]:
    """Answers of RATE's labels: accession -> question -> answer.

    Raises:
        MissingDataError: there is no such file.
        UserError: it is none of the forms; RATE-Evals finds no labels in such a file, and says nothing.
    """
    if not file.is_file():
        raise MissingDataError(f"{file}: no such file; set task.layout.labels to the labels that RATE wrote")
    return _rate_answers(file, file.stat().st_mtime_ns)


@lru_cache(4)
def _rate_answers(file: Path, changed: int) -> Mapping[str, Mapping[str, Any]]:
    content = read_json(file)
    if not isinstance(content, Mapping) or not content:
        raise UserError(f"{file}: expected accession -> labels, got {type(content).__name__}")
    return {str(name): dict(_answers_of(file, str(name), held)) for name, held in content.items()}


def _answers_of(file: Path, name: str, held: Any) -> Iterator[tuple[str, Any]]:
    """Questions with answers of one scan, whichever way they are written."""
    categories = held.get("qa_results", held.get("answers")) if isinstance(held, Mapping) else None
    if not isinstance(categories, Mapping):
        raise UserError(f"{file}, {name}: expected `qa_results` or `answers` with categories")
    for category, questions in categories.items():
        listed = [questions] if isinstance(questions, Mapping) else questions
        if not isinstance(listed, list) or not all(isinstance(item, Mapping) for item in listed):
            raise UserError(f"{file}, {name}, {category}: expected questions with answers, got {listed!r:.60}")
        for item in listed:
            if item.keys() >= {"question", "answer"}:
                yield str(item["question"]), item["answer"]
            else:
                yield from ((str(question), answer) for question, answer in item.items())
