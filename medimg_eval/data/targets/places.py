"""Boxes and points from tables and from files beside the images, such as VerSe's centroids."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, Boxes, Image, OneFile, Points, Reference
from medimg_eval.data.records import Entry, Given, OnImage, Row, given
from medimg_eval.errors import CaseError, UsageError

Form = Literal["corners", "sizes"]

NAMES: Mapping[Form, Sequence[Sequence[str]]] = {
    "sizes": (("x", "y", "width", "height"), ("x", "y", "w", "h"), ("xmin", "ymin", "width", "height")),
    "corners": (("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"), ("x1", "y1", "x2", "y2")),
}
"""The keys of a box that is an object, in the order of its form."""

NOTHING = ("", "nan", "none")
"""What tables write where there is no number."""


def corners_from_edges(edges: Array) -> Array:
    """Turns edges of boxes in pixels into corners by our convention.

    Edges are float, (box, 4): left, top, right, bottom, where 0 is the edge of the first pixel, so that a box of one
    pixel has right = left + 1. Corners are float64, (box, 4): row, column, row, column of the first and last pixel
    inside.
    """
    left, top, right, bottom = np.asarray(edges, dtype=np.float64).reshape(-1, 4).T
    return np.stack([top, left, bottom - 1, right - 1], axis=1)


@dataclass
class BoxColumns:
    """Boxes in table rows; a row without numbers means none.

    Args:
        columns: x, y and then width, height (`sizes`) or x, y of the opposite corner (`corners`); or the one column
            that holds all four, as a list or an object of numbers.
        form: `sizes` or `corners`.
        label: the column of the class.
        name: the class of every box, for tables without a column of classes.
        last_inside: True when the opposite corner names the last pixel inside, not the edge behind it.
    """

    columns: Sequence[str]
    form: Form
    label: str = ""
    name: str = ""
    last_inside: bool = False

    def __post_init__(self) -> None:
        """Refuses columns and classes that do not add up."""
        if isinstance(self.columns, str) or len(self.columns) not in (1, 4):
            raise UsageError(f"expected four columns for a box, or one that holds all four, got {self.columns!r}")
        if bool(self.label) == bool(self.name):
            raise UsageError("a box needs either `label`, the column of its class, or `name`, the class of all boxes")
        if self.form not in ("corners", "sizes"):
            raise UsageError(f"boxes are given as 'corners' or as 'sizes', not as {self.form!r}")

    def reference(self, entry: Entry) -> Given[Boxes]:
        """The boxes of all records."""
        boxes = [(row, numbers) for row in entry.rows if (numbers := self._numbers(row)) is not None]
        edges = np.array([self._edges(row, numbers) for row, numbers in boxes]).reshape(-1, 4)
        names = tuple(row.text(self.label) if self.label else self.name for row, _ in boxes)
        return given(Boxes(corners_from_edges(edges), names), entry)

    def _numbers(self, row: Row) -> list[float] | None:
        if len(self.columns) == 1:
            return self._literal(row)
        held = [row.text(column) for column in self.columns]
        if all(text.lower() in NOTHING for text in held):
            return None
        return [row.number(column) for column in self.columns]

    def _literal(self, row: Row) -> list[float] | None:
        (column,) = self.columns
        value = row.value(column)
        if isinstance(value, str):
            if value.strip().lower() in (*NOTHING, "[]", "{}"):
                return None
            try:
                value = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError):
                raise row.error(f"column {column!r} holds {value!r:.60}, expected four numbers") from None
        if not value or not row.text(column):
            return None
        numbers = self._ordered(row, value) if isinstance(value, dict) else value
        if not isinstance(numbers, list | tuple) or len(numbers) != 4:
            raise row.error(f"column {column!r} holds {value!r:.60}, expected four numbers")
        try:
            return [float(number) for number in numbers]
        except (TypeError, ValueError):
            raise row.error(f"column {column!r} holds {value!r:.60}, expected four numbers") from None

    def _ordered(self, row: Row, value: Mapping[str, Any]) -> list[Any]:
        """Numbers of an object in the form's order."""
        if sorted(value) not in [sorted(names) for names in NAMES[self.form]]:
            raise row.error(f"the box {value!r:.80} is not given as {self.form}; its keys are expected to be those")
        return [value[name] for names in NAMES[self.form] if sorted(names) == sorted(value) for name in names]

    def _edges(self, row: Row, numbers: list[float]) -> list[float]:
        x, y, right, bottom = numbers
        if self.form == "sizes":
            right, bottom = x + right, y + bottom
        elif self.last_inside:
            right, bottom = right + 1, bottom + 1
        if not (np.isfinite([x, y, right, bottom]).all() and right > x and bottom > y):
            raise row.error(
                f"the box {numbers} has no area as {self.form}; expected the opposite corner right and below"
            )
        return [x, y, right, bottom]


Space = Literal["voxel", "lps", "ras"]


@dataclass
class PointColumns:
    """Points in table rows; a row without numbers means none.

    Args:
        columns: x and y, or x, y and z.
        space: `voxel` (x counts columns, y rows, z slices, from 0 at the first one's centre), or `lps` or `ras`: mm in
            the patient, as LUNA16 gives them (`lps`).
        label: the column of the points' names.
        name: the name of every point, for tables without such a column.
        value: the column of a measurement that belongs to each point, such as a diameter.
        sizes: the columns of widths along x, y and z, of points in mm: each is the centre of a box then.
    """

    columns: Sequence[str]
    space: Space
    label: str = ""
    name: str = ""
    value: str = ""
    sizes: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuses columns and names that do not add up."""
        if self.sizes and (len(self.sizes) != len(self.columns) or self.space == "voxel"):
            raise UsageError(f"expected `sizes` to name three columns, of points in 'lps' or 'ras', got {self.sizes!r}")
        if isinstance(self.columns, str) or len(self.columns) not in (2, 3):
            raise UsageError(f"expected two or three columns for a point, got {self.columns!r}")
        if self.space not in ("voxel", "lps", "ras") or (self.space != "voxel" and len(self.columns) != 3):
            raise UsageError(f"points lie in 'voxel', or with three columns in 'lps' or 'ras', not in {self.space!r}")
        if bool(self.label) == bool(self.name):
            raise UsageError("a point needs either `label`, the column of its name, or `name`, the name of all points")

    def reference(self, entry: Entry) -> Reference[Points] | Reference[Boxes]:
        """The points of all records, or the boxes about them."""
        rows = [row for row in entry.rows if any(row.text(column).lower() not in NOTHING for column in self.columns)]
        xyz = np.array([[row.number(column) for column in self.columns] for row in rows], dtype=np.float64)
        wrong = next((row for row, point in zip(rows, xyz, strict=True) if not np.isfinite(point).all()), None)
        if wrong is not None:
            raise wrong.error(f"a point of {', '.join(self.columns)} is not finite; leave all of them empty for none")
        xyz = xyz.reshape(-1, len(self.columns))
        names = tuple(row.text(self.label) if self.label else self.name for row in rows)
        values = np.array([row.number(self.value) for row in rows]) if self.value else None
        if self.space == "voxel":
            # A picture's axes are row and column, a volume's are column, row and slice.
            return given(Points(xyz[:, ::-1] if len(self.columns) == 2 else xyz, names, values), entry)
        image = entry.image_below("points in mm")
        ras = xyz * (-1, -1, 1) if self.space == "lps" else xyz
        if self.sizes:
            sizes = np.array([[row.number(column) for column in self.sizes] for row in rows]).reshape(-1, 3)
            return WorldBoxes(entry.row.path, Points(ras, names), sizes, image)
        return WorldPoints(entry.row.path, Points(ras, names, values), image)


@dataclass(frozen=True, eq=False)
class WorldBoxes(OneFile, OnImage):
    """Boxes by centre and size in mm, put onto the grid of their image when read."""

    centres: Points
    sizes: Array
    image: Reference[Image]

    def read(self) -> Boxes:
        """Returns the least boxes of the image's voxels about them."""
        inverse = np.linalg.inv(self.geometry().affine)
        middles = self.centres.positions @ inverse[:3, :3].T + inverse[:3, 3]
        halves = self.sizes / 2 @ np.abs(inverse[:3, :3]).T
        return Boxes(np.hstack([middles - halves + 0.5, middles + halves - 0.5]), self.centres.names)


@dataclass(frozen=True, eq=False)
class WorldPoints(OneFile, OnImage):
    """Points in RAS+ mm, put onto the grid of their image when read."""

    points: Points
    image: Reference[Image]

    def read(self) -> Points:
        """Returns positions in voxels of the image."""
        inverse = np.linalg.inv(self.geometry().affine)
        positions = self.points.positions @ inverse[:3, :3].T + inverse[:3, 3]
        return Points(positions, self.points.names, self.points.values)


@dataclass
class LandmarkMat:
    """Landmarks in MATLAB files, as the AASCE scoliosis challenge.

    Args:
        path: pattern below the root, such as `labels/{split}/{name}.mat`.
        key: the variable, (point, 2): x and y from 0.
        per_group: points that belong together (the corners of a vertebra): names are `1.1`, `1.2`, ...
    """

    path: str
    key: str = "p2"
    per_group: int = 4

    def reference(self, entry: Entry) -> Reference[Points]:
        """The file."""
        return MatPoints(entry.path(self.path), self.key, self.per_group, entry.image)


@dataclass(frozen=True)
class MatPoints(OneFile, OnImage):
    """Landmarks of a picture in a MATLAB file."""

    key: str
    per_group: int
    image: Reference[Image] | None

    def read(self) -> Points:
        """Returns (row, column) positions; CaseError unless (point, 2) numbers."""
        content = read_mat(self.path)
        xy = np.asarray(content.get(self.key, ()))
        if xy.ndim != 2 or xy.shape[1] != 2 or xy.dtype.kind not in "iuf":
            held = ", ".join(sorted(key for key in content if not key.startswith("__")))
            raise CaseError(
                f"{self.path}: expected numbers (point, 2) in {self.key!r}, found {xy.shape}; it holds {held}"
            )
        names = tuple(f"{i // self.per_group + 1}.{i % self.per_group + 1}" for i in range(len(xy)))
        return Points(np.asarray(xy[:, ::-1], dtype=np.float64), names)


def read_mat(path: Path) -> dict[str, Any]:
    """The variables of a MATLAB file; raises CaseError when it is none."""
    from scipy.io import loadmat

    with CaseError.about(path, "cannot be read as a MATLAB file", OSError, ValueError, TypeError, NotImplementedError):
        content: dict[str, Any] = loadmat(path)
    return content
