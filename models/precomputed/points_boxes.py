"""Points, boxes and measurements that already lie on disk, whichever program made them."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from medimg_eval.case import Array, Boxes, Geometry, Points, Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.models.base import Detector, Example
from medimg_eval.models.precomputed.files import FromRecords, Line, ResultFiles, named_columns

log = logging.getLogger(__name__)

Form = Literal["points", "corners", "sizes"]
Space = Literal["voxel", "lps", "ras", "verse", "verse_miccai"]

MICCAI_AXES = ("I", "P", "L")
"""Where X, Y and Z of VerSe's MICCAI release point: down, back and left."""


class PrecomputedPlaces(FromRecords, Detector):
    """Stored points or boxes: one table, as LUNA16's, or files by case.

    A case that the table does not name has no candidates: its answer is empty, and no failure. A case without a file
    of its own is one. Cases that the task does not have are not looked at.

    Args:
        root: the table (`.csv`, `.tsv`), or a folder with a file per case.
        columns: x and y or x, y and z of points; of boxes first those of one corner, then as many of the opposite one
            (`corners`) or of the sizes (`sizes`).
        space: `voxel` (x counts columns, y rows, z slices, of volumes the axes as they are stored: of points from 0 at
            the first one's centre, of boxes from 0 at its edge, so that a box of one voxel has a size of 1); `lps` or
            `ras`: mm in the patient; `verse` or `verse_miccai`: VerSe's centroids, see docs/definitions/landmarks.md.
        form: `points`, or how boxes are given: `corners` or `sizes`.
        pattern: the file of a case in the folder, `.csv`, `.tsv` or `.json` (a list of objects, keys as columns).
        case: the column that names the case, in a table for all.
        label: the column of the class or of the point's name.
        named: the name of every one, for files without such a column; without both it is the task's only label.
        score: the column of the confidence; empty where there is none, as of landmarks. Without it a place of empty
            or NaN coordinates was not found, and is left out; with it that is a mistake.

    Raises:
        UserError: root is missing, or the table is not understood or lacks a column.
        UsageError: settings that do not go together.
    """

    def __init__(
        self,
        root: str,
        columns: Sequence[str],
        space: Space,
        *,
        form: Form = "points",
        pattern: str = "{case}.csv",
        case: str = "case",
        label: str = "",
        named: str = "",
        score: str = "",
    ) -> None:
        if space not in get_args(Space):
            raise UsageError(
                f"model.space: places lie in {', '.join(get_args(Space))} (lps, ras: mm), not in {space!r}"
            )
        UsageError.refuse_invalid("model.form", get_args(Form), form)
        if label and named:
            raise UsageError(f"expected either model.label, a column, or model.named, got {label!r} and {named!r}")
        self.columns = [columns] if isinstance(columns, str) else [str(column) for column in columns]
        self.axes = len(self.columns) // (1 if form == "points" else 2)
        if len(self.columns) not in ((2, 3) if form == "points" else (4, 6)):
            raise UsageError(
                f"model.columns: expected 2 or 3 for a point, 4 or 6 for a box, got {self.columns} for {form}"
            )
        if space != "voxel" and self.axes != 3:
            raise UsageError(f"model.columns: expected x, y and z in {space!r}, got {self.columns}")
        if space.startswith("verse") and form != "points":
            raise UsageError(f"model.space={space} is of points, not of {form}")
        self.space, self.form, self.label, self.named, self.score = space, form, label, named, score
        needed = dict.fromkeys(self.columns, "columns") | {
            column: setting for setting, column in (("label", label), ("score", score)) if column
        }
        self.files = ResultFiles(root, pattern, case, needed)

    @property
    def reads_images(self) -> bool:  # type: ignore[override]
        """Whether places must be put onto the image's grid."""
        return self.space != "voxel"

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Refuses places without names where the task has several."""
        if not (self.label or self.named) and len(labels) != 1:
            raise UserError(
                f"the task has {len(labels)} labels; set model.label to the column of names, or model.named to one name"
            )

    def detect(self, prompts: Prompts) -> Sequence[Points | Boxes]:
        """Reads points or boxes; CaseError names files of invalid ones."""
        return [self._read(prompt) for prompt in prompts]

    def _read(self, prompt: Prompt) -> Points | Boxes:
        path, lines = self.files.lines(prompt.case_id)
        if lines is None:
            log.info("%s: has no row of case %s, so nothing was found there", path, prompt.case_id)
            lines = []
        grid = prompt.image.geometry if self.reads_images else None
        if grid is not None and grid.units == "pixel":
            raise CaseError(f"case {prompt.case_id!r}: states no physical size, so mm cannot be placed; give voxels")
        direction: Sequence[str] | None = None
        if self.space.startswith("verse"):
            direction, lines = self._direction(path, lines)
        numbered = [(line, numbers) for line in lines if (numbers := self._numbers(line)) is not None]
        xyz = np.array([numbers for _, numbers in numbered], dtype=np.float64).reshape(-1, len(self.columns))
        only = self.named or next(iter(prompt.labels.values()), "")
        names = tuple(line.text(self.label) if self.label else only for line, _ in numbered)
        scores = np.array([self._confidence(line) for line, _ in numbered]) if self.score else None
        if self.form != "points":
            return Boxes(self._corners(xyz, grid, numbered, path), names, scores)
        if direction is not None and grid is not None:
            return Points(_voxels_along(xyz, direction, grid, in_mm=self.space == "verse_miccai"), names, scores=scores)
        return Points(self._placed(xyz, grid), names, scores=scores)

    def _numbers(self, line: Line) -> list[float] | None:
        numbers = [line.number(column) for column in self.columns]
        missing = [column for column, number in zip(self.columns, numbers, strict=True) if math.isnan(number)]
        if not missing:
            return numbers
        if not self.score and len(missing) == len(numbers):
            return None
        raise CaseError(f"{line.place}: column {missing[0]!r} is empty or NaN, expected a number; leave the row out")

    def _confidence(self, line: Line) -> float:
        score = line.number(self.score)
        if math.isnan(score):
            raise CaseError(f"{line.place}: column {self.score!r} is empty or NaN, expected a confidence")
        return score

    def _placed(self, xyz: Array, grid: Geometry | None) -> Array:
        """Returns voxel indices, (place, axis)."""
        if grid is None:
            # A picture's axes are row and column, a volume's are column, row and slice.
            return xyz[:, ::-1] if self.axes == 2 else xyz
        inverse = np.linalg.inv(grid.affine)
        ras = xyz * (-1, -1, 1) if self.space == "lps" else xyz
        return ras @ inverse[:3, :3].T + inverse[:3, 3]

    def _corners(self, numbers: Array, grid: Geometry | None, found: Sequence[tuple[Line, Any]], path: Path) -> Array:
        """Returns the first and the last voxel inside, (box, 2 * axis)."""
        first, opposite = numbers[:, : self.axes], numbers[:, self.axes :]
        if self.form == "sizes":
            opposite = first + opposite
        flat = np.flatnonzero((opposite <= first).any(axis=1))
        if flat.size:
            line, held = found[flat[0]]
            raise CaseError(f"{line.place}: the box {held} is empty as {self.form}; see model.form")
        if grid is not None and (np.count_nonzero(np.abs(grid.affine[:3, :3]) > 1e-3 * min(grid.spacing), 0) > 1).any():
            raise CaseError(f"{path}: boxes in mm have no place in an image whose axes are oblique; give voxels")
        ends = np.stack([self._placed(first, grid), self._placed(opposite, grid)])
        # Edges are counted from the first voxel's edge, mm are turned to what counts from its centre.
        shift = 0.5 if grid is None else 0.0
        low, high = ends.min(axis=0) + 0.5 - shift, ends.max(axis=0) - 0.5 - shift
        middle = (low + high) / 2  # of a box that is thinner than a voxel
        return np.concatenate([np.minimum(low, middle), np.maximum(high, middle)], axis=1)

    def _direction(self, path: Path, lines: list[Line]) -> tuple[Sequence[str], list[Line]]:
        """Returns where X, Y and Z of VerSe's centroids point, and the centroids."""
        stated = lines[0].values.get("direction") if lines else None
        if self.space == "verse_miccai":
            if stated is not None:
                raise CaseError(f"{path}: names a 'direction', so it counts voxels; set model.space=verse")
            return MICCAI_AXES, lines
        if stated is None:
            raise CaseError(f"{path}: names no 'direction' first; set model.space=verse_miccai if it counts mm")
        pairs = ({"L", "R"}, {"A", "P"}, {"S", "I"})
        if len(stated) != 3 or not all(sum(axis in pair for axis in stated) == 1 for pair in pairs):
            raise CaseError(f"{path}: the direction {stated!r:.60} is not understood, expected three such as P, I, R")
        return list(stated), lines[1:]


class PrecomputedNumbers(FromRecords, Detector):
    """Stored measurements: one table, or a file per case.

    An empty or NaN cell is a measurement that was not made. A case without a row fails.

    Args:
        root: the table (`.csv`, `.tsv`), or a folder with a file per case.
        columns: the measurements' columns, or measurement -> column; None takes the task's names for columns.
        pattern: the file of a case in the folder, `.csv`, `.tsv` or `.json` (an object of numbers).
        case: the column that names the case, in a table for all.

    Raises:
        UserError: root is missing, or the table is not understood or lacks a column.
        UsageError: columns is no list or mapping.
    """

    def __init__(
        self,
        root: str,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        *,
        pattern: str = "{case}.json",
        case: str = "case",
    ) -> None:
        self.columns = named_columns(columns, "measurement")
        self.files = ResultFiles(root, pattern, case, dict.fromkeys(self.columns.values(), "columns"))

    def detect(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Reads measurements; CaseError names the file of invalid ones."""
        return [self._read(prompt) for prompt in prompts]

    def complete(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Measurements without a gap; CaseError names a missing one."""
        rows = self.detect(prompts)
        for prompt, numbers in zip(prompts, rows, strict=True):
            missing = next((name for name, value in numbers.items() if math.isnan(value)), None)
            if missing is not None:
                raise CaseError(f"{self.files.root}: case {prompt.case_id!r} has no number for {missing!r}")
        return rows

    def line(self, prompt: Prompt) -> Line:
        """A case's record; CaseError names the file of none or several."""
        path, lines = self.files.lines(prompt.case_id)
        if lines is None:
            raise CaseError(f"{path}: has no row of case {prompt.case_id!r}{self.files.like(prompt.case_id)}")
        if len(lines) != 1:
            raise CaseError(
                f"{path}: has {len(lines)} records of case {prompt.case_id!r}, expected one; keep one of them"
            )
        return lines[0]

    def _read(self, prompt: Prompt) -> dict[str, float]:
        line, columns = self.line(prompt), self.columns or {name: name for name in prompt.labels.values()}
        return {name: line.number(column) for name, column in columns.items()}


def _voxels_along(xyz: Array, direction: Sequence[str], grid: Geometry, *, in_mm: bool) -> Array:
    """Converts coordinates along named axes to voxel indices."""
    from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform

    turn = ornt_transform(axcodes2ornt(tuple(direction)), io_orientation(grid.affine)).astype(int)
    positions = np.empty_like(xyz)
    for source, (axis, sign) in enumerate(turn):
        along = xyz[:, source] / (grid.spacing[axis] if in_mm else 1.0)
        positions[:, axis] = along if sign > 0 else grid.shape[axis] - 1 - along
    return positions
