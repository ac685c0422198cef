"""What a layout knows of a case before it is one: rows that know where they stand, and entries made of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from medimg_eval.case import Geometry, Image, Reference
from medimg_eval.errors import CaseError, UserError, nearest

T = TypeVar("T")

FIELD = re.compile(r"\{([^{}~]+?)(?::\.(\d+)|~((?:[^{}]|\{\d+(?:,\d*)?\})+))?\}")
r"""A field of a pattern: `{name}`, its first 12 characters `{name:.12}`, or what a regular expression finds in it (its
first group if there is one) `{name~patient\d+}`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a table, and where it stands.

    The place is such as `line 4`, `row 7` or `train[3]`, empty for a record that no table holds; values are text in a
    CSV table, any JSON value elsewhere.
    """

    path: Path
    place: str
    values: Mapping[str, Any]

    def error(self, message: str) -> UserError:
        """An error whose message starts with the file and the place."""
        return UserError(f"{self.path}, {self.place}: {message}" if self.place else f"{self.path}: {message}")

    def value(self, column: str) -> Any:
        """Column value by name or position `#1`; UserError without."""
        if column in self.values:
            return self.values[column]
        if re.fullmatch(r"#[1-9]\d*", column) and int(column[1:]) <= len(self.values):
            return list(self.values.values())[int(column[1:]) - 1]
        raise self.error(f"there is no column {column!r}{nearest(column, self.values)}")

    def text(self, column: str) -> str:
        """Column text, stripped; empty for missing values or NaN."""
        value = self.values[column] if column in self.values else self.value(column)
        if isinstance(value, str):
            return value.strip()
        return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)

    def number(self, column: str) -> float:
        """Column number; UserError where invalid."""
        try:
            return float(self.value(column))
        except (TypeError, ValueError, OverflowError):
            raise self.error(f"column {column!r} holds {self.value(column)!r:.60}, expected a number") from None

    def fill(self, pattern: str) -> str:
        """Fills a pattern's fields; without fields it names a column.

        Raises UserError where there is no such column, or an expression finds nothing in it.
        """
        return self.filled(pattern, self.text)

    def filled(self, pattern: str, text: Callable[[str], str]) -> str:
        """Like `fill`, with values from elsewhere."""
        if "{" not in pattern:
            return text(pattern)

        def one(field: re.Match[str]) -> str:
            value = text(field[1])
            if not field[3]:
                return value[: int(field[2])] if field[2] else value
            match = re.search(field[3], value)
            if match is None:
                raise self.error(f"{value!r} does not fit {field[0]!r}")
            return match[1] if match.re.groups else match[0]

        return FIELD.sub(one, pattern)


@dataclass(frozen=True)
class Entry:
    """A case in the making.

    Its id is unique within its split; the records that speak of it are at least one. The split is where the layout's
    own files put it, None where they do not say; attributes are for subgroup tables.
    """

    id: str
    root: Path
    rows: tuple[Row, ...]
    images: tuple[Reference[Image], ...] = ()
    split: str | None = None
    patient: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def row(self) -> Row:
        """The first record."""
        return self.rows[0]

    @property
    def image(self) -> Reference[Image] | None:
        """The first image, if there is one."""
        return self.images[0] if self.images else None

    def image_below(self, what: str) -> Reference[Image]:
        """The first image, on which something lies; raises UserError where there is none."""
        if not self.images:
            raise self.row.error(f"{what} need the image they lie in")
        return self.images[0]

    @property
    def alike(self) -> list[Row]:
        """The records that have the first one's columns: of COCO's, the image's alone."""
        return [row for row in self.rows if row.values.keys() == self.row.values.keys()]

    def agreed(self, read: Callable[[Row], T]) -> T:
        """Value of all records; UserError names both lines that differ."""
        value = read(self.row)
        for row in self.rows[1:]:
            read_value = read(row)
            if repr(read_value) != repr(value):  # NaN equals nothing
                raise row.error(
                    f"says {read_value!r:.60} of case {self.id!r}, of which {self.row.place} says {value!r:.60}"
                )
        return value

    def fill(self, pattern: str) -> str:
        """Fills a pattern from the first record and derived names.

        Derived names are `case`, `split`, `patient`, and the image's `name` and `stem`.

        Raises UserError for a field that is none of these.
        """
        return self.row.filled(pattern, partial(self._text, row=self.row))

    def path(self, pattern: str) -> Path:
        """The file that a filled pattern names, below the root.

        Raises UserError where a field is unknown, or empty in this record, or the case's records name different files.
        """
        filled = self.fill(pattern)
        if len(self.rows) > 1:
            replace(self, rows=tuple(self.alike)).agreed(lambda row: row.filled(pattern, partial(self._text, row=row)))
        if not filled:
            raise self.row.error(f"{pattern!r} is empty, expected a file name")
        return below(self.root, filled)

    def _text(self, name: str, *, row: Row) -> str:
        own = {"case": self.id, "split": self.split or "", "patient": self.patient or ""}
        if name in row.values:
            return row.text(name)
        if name in ("name", "stem") and self.images:
            path = self.images[0].files[0]
            return path.name if name == "name" else stem(path)
        return own[name] if name in own else row.text(name)


def below(root: Path, name: str) -> Path:
    r"""File named by a table, with `/` or Windows' `\`."""
    path = root / name
    return root / name.replace("\\", "/") if "\\" in name and not path.exists() else path


def stem(path: Path) -> str:
    """The name of a file without its endings, `.nii.gz` being one."""
    name = path.name[:-3] if path.name.endswith(".gz") else path.name
    return name[: -len(Path(name).suffix)] if Path(name).suffix else name


class Target(Protocol):
    """Location of a case's truth; one adapter per notation."""

    def reference(self, entry: Entry) -> Reference[Any]:
        """Where the truth of one case will be read from.

        Raises UserError, naming file and line, where a record cannot be understood.
        """


class Unreadable:
    """Placeholder for a truth that raises CaseError with its message."""

    message: str

    def read(self) -> Any:
        """Raises CaseError with the message."""
        raise CaseError(self.message)

    def geometry(self) -> Geometry:
        """Raises CaseError with the message."""
        raise CaseError(self.message)


class OnImage:
    """Truth that lies on the grid of an image, its `image`."""

    image: Reference[Image] | None
    if TYPE_CHECKING:

        @property
        def files(self) -> tuple[Path, ...]:
            """Files that it is read from."""

    def geometry(self) -> Geometry:
        """The grid of the image; raises CaseError where it belongs to none."""
        return grid_of(self.image, self.files)


@dataclass(frozen=True, eq=False)
class Given(OnImage, Generic[T]):
    """Truth read with its table, on the grid of its image."""

    value: T
    files: tuple[Path, ...]
    image: Reference[Image] | None = None

    def read(self) -> T:
        """Returns the value."""
        return self.value


@dataclass(frozen=True)
class StatedGrid:
    """Grid of a missing image, as a table states it.

    Voxels along each spatial axis, and mm from each to the next; None counts in pixels.
    """

    shape: tuple[int, ...]
    spacing: float | None = None
    files: tuple[Path, ...] = ()

    def read(self) -> Image:
        """Raises CaseError: there is no image."""
        raise CaseError("the image of this case is not there; only its size was stated")

    def geometry(self) -> Geometry:
        """The grid, with its first voxel at 0 mm."""
        affine = np.diag([*[self.spacing or 1.0] * 3, 1.0])
        return Geometry(self.shape, affine, units="pixel" if self.spacing is None else "mm")


def given(value: T, entry: Entry) -> Given[T]:
    """The reference to a value that was read from an entry's records."""
    tables = tuple(dict.fromkeys(row.path for row in entry.rows))
    return Given(value, tables, entry.image)


def grid_of(image: Reference[Image] | None, files: Sequence[Path]) -> Geometry:
    """The grid of an image that a truth is about."""
    if image is None:
        raise CaseError(f"{files[0]}: belongs to no image, so it has no grid")
    return image.geometry()
