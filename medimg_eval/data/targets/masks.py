"""Label maps and images from files: one file, one per structure or object, runs of pixels in a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, Boxes, Geometry, Image, Mask, OneFile, Reference
from medimg_eval.data.records import Entry, OnImage, Target, grid_of
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import ImageFile, MaskFile, read_mask, unknown_values


@dataclass
class MaskTarget:
    """A label map in a file of its own.

    Args:
        path: pattern below the root, such as `masks/{stem}.png`, or the column that holds the file.
        values: what a pixel holds -> label.
        others: what becomes of other values but 0, where `values` is given: `raise`, or `background`.
        options: passed to the reader, such as `threshold: 128` for pictures that JPEG has blurred.
    """

    path: str
    values: Mapping[int, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    others: Literal["raise", "background"] = "raise"

    def __post_init__(self) -> None:
        """Refuses labels that are none, before anything is read."""
        self.values = {int(value): int(label) for value, label in self.values.items()}
        if self.others not in ("raise", "background"):
            raise UsageError(f"other values become 'raise' or 'background', not {self.others!r}")

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The file."""
        path = entry.path(self.path)
        if not self.values:
            return MaskFile(path, self.options)
        return RecodedMask(MaskFile(path, self.options), self.values, refuse=self.others == "raise")


@dataclass(frozen=True)
class RecodedMask:
    """A label map whose pixels stand for other labels."""

    file: MaskFile
    values: Mapping[int, int]
    refuse: bool = True

    @property
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return self.file.files

    def read(self) -> Mask:
        """Reads and recodes it; raises CaseError for a value that stands for nothing."""
        mask = self.file.read()
        unknown = unknown_values(mask.labels, {0, *self.values})
        if unknown and self.refuse:
            raise CaseError(
                f"{self.files[0]}: holds the values {unknown[:5]}, which stand for no label; "
                f"the target knows 0 and {sorted(self.values)}; name them all, or set others=background"
            )
        labels = np.zeros(mask.labels.shape, np.min_scalar_type(max(self.values.values(), default=0)))
        for value, label in self.values.items():
            labels[mask.labels == value] = label
        numbers = None if mask.instances is None else mask.instances * (labels > 0)
        return Mask(labels, mask.affine, mask.names, mask.notes, mask.units, numbers)

    def geometry(self) -> Geometry:
        """Reads the grid alone."""
        return self.file.geometry()


@dataclass
class StructureFiles:
    """One binary file per structure, merged into a label map.

    Args:
        path: pattern below the root with `{structure}`, such as `{case}/segmentations/{structure}.nii.gz`.
        structures: label -> structure, as the task's `labels`; where two overlap the later one wins.
        absent: `error` when a file is missing, or `empty` where the data leave absent structures out.
    """

    path: str
    structures: Mapping[int, str]
    absent: Literal["error", "empty"] = "error"

    def __post_init__(self) -> None:
        """Refuses a pattern without a place for the structure."""
        self.structures = {int(label): str(name) for label, name in self.structures.items()}
        if "{structure}" not in self.path or not self.structures or min(self.structures) < 1:
            raise UsageError(
                f"expected {{structure}} in the pattern {self.path!r}, and labels of 1 and above for structures"
            )

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The files that are there."""
        paths = {label: entry.path(self.path.replace("{structure}", name)) for label, name in self.structures.items()}
        if self.absent == "empty":
            paths = {label: path for label, path in paths.items() if path.exists()}
            if not paths:
                raise entry.row.error(f"case {entry.id!r}: there is no file of the pattern {self.path!r}")
        return MergedMask(paths, {label: self.structures[label] for label in paths})


@dataclass(frozen=True)
class MergedMask:
    """Binary label maps on one grid, merged in order."""

    paths: Mapping[int, Path]
    names: Mapping[int, str]

    @property
    def files(self) -> tuple[Path, ...]:
        """The structures' files."""
        return tuple(self.paths.values())

    def read(self) -> Mask:
        """Merges masks; CaseError unless binary and on one grid."""
        grid = self.geometry()
        merged = np.zeros(grid.shape, np.min_scalar_type(max(self.paths)))
        overlap = 0
        for label, (path, mask) in zip(self.paths, _on_grid(self.files, grid, "structures"), strict=True):
            if len(np.unique(mask.labels[mask.labels != 0])) > 1:
                raise CaseError(f"{path}: holds several labels, expected one structure per file")
            inside = mask.labels != 0
            overlap += int(np.count_nonzero(merged[inside]))
            merged[inside] = label
        notes = (f"{overlap} voxels belong to two structures; the later one has them",) if overlap else ()
        return Mask(merged, grid.affine, self.names, notes, grid.units)

    def geometry(self) -> Geometry:
        """The grid of the first file."""
        return MaskFile(self.files[0]).geometry()


@dataclass
class RunLength:
    """Run-length masks of a table, merged by image.

    Args:
        column: the column of runs: start, length, start, length, ...
        form: `absolute` counts starts from the image's first pixel, which is 1, as Kaggle does; `relative` counts
            them from the end of the run before, as SIIM-ACR does, the first pixel being 0.
        order: `columns` goes down the columns of the image one by one, `rows` along its rows.
        none: what the column holds where there is no mask.
        shape: rows and columns of the mask; the image's when None.
        label: the label of the pixels in a run.
    """

    column: str
    form: Literal["absolute", "relative"]
    order: Literal["columns", "rows"] = "columns"
    none: Sequence[str] = ("-1", "")
    shape: tuple[int, int] | None = None
    label: int = 1

    def reference(self, entry: Entry) -> Reference[Mask]:
        """All runs; UserError names the line of invalid ones."""
        runs = []
        for row in entry.rows:
            text = row.text(self.column)
            if text in self.none:
                continue
            try:
                numbers = np.array(text.split(), dtype=np.int64)
            except (ValueError, OverflowError):
                raise row.error(f"column {self.column!r} holds {text!r:.40}, expected whole numbers") from None
            if len(numbers) % 2:
                raise row.error(
                    f"column {self.column!r} holds {len(numbers)} numbers, expected pairs of start and length"
                )
            starts, lengths = numbers[::2], numbers[1::2]
            before = np.cumsum(starts) + np.cumsum(lengths) - lengths
            starts = before if self.form == "relative" else starts - 1
            if (lengths < 0).any() or (starts < 0).any() or (np.diff(starts) < 0).any():
                raise row.error(f"column {self.column!r}: runs go backwards; is their form {self.form!r}?")
            runs.append(Runs(row.path, row.place, tuple(starts.tolist()), tuple(lengths.tolist())))
        image = entry.image_below("runs")
        shape = None if self.shape is None else (int(self.shape[0]), int(self.shape[1]))
        return RunMask(entry.row.path, tuple(runs), image, shape, self.order == "columns", self.label)


@dataclass(frozen=True)
class Runs:
    """Runs of pixels, counted from 0, and the record that holds them."""

    path: Path
    place: str
    starts: tuple[int, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class RunMask(OneFile):
    """A mask drawn from runs on the grid of its image."""

    runs: tuple[Runs, ...]
    image: Reference[Image]
    shape: tuple[int, int] | None
    by_columns: bool
    label: int

    def read(self) -> Mask:
        """Draws it; raises CaseError when a run ends outside the image."""
        grid = self.geometry()
        labels = np.zeros(grid.shape, np.min_scalar_type(self.label))
        for run in self.runs:
            ends = np.add(run.starts, run.lengths)
            if len(ends) and int(ends.max()) > labels.size:
                raise CaseError(
                    f"{run.path}, {run.place}: a run ends at pixel {int(ends.max())} of an image of {labels.size} "
                    "pixels; check the form of the runs and the shape"
                )
            labels[decode_runs(run.starts, run.lengths, labels.shape, by_columns=self.by_columns)] = self.label
        return Mask(labels, grid.affine, units=grid.units)

    def geometry(self) -> Geometry:
        """The grid of the image, or of the stated shape in pixels."""
        if self.shape is not None:
            return Geometry(self.shape, np.eye(4), "pixel")
        return grid_of(self.image, self.files)


@dataclass
class FilledBoxes:
    """Label map of filled boxes, as BenchX's RSNA opacities.

    `labels` says label -> class of the boxes, as the task's `labels`; where two overlap the later box wins.
    """

    boxes: Target
    labels: Mapping[int, str]

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The boxes, filled in when read."""
        image = entry.image_below("boxes")
        numbers = {str(name): int(label) for label, name in self.labels.items()}
        return FilledMask(self.boxes.reference(entry), image, numbers)


@dataclass(frozen=True)
class FilledMask(OnImage):
    """Boxes filled in on the grid of their picture."""

    boxes: Reference[Boxes]
    image: Reference[Image]
    labels: Mapping[str, int]

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the boxes are read from."""
        return self.boxes.files

    def read(self) -> Mask:
        """Fills pixels with centres in boxes; CaseError for unlabelled classes."""
        grid, boxes = self.geometry(), self.boxes.read()
        if len(grid.shape) != 2:
            raise CaseError(f"{self.image.files[0]}: expected a picture to fill boxes in, got the shape {grid.shape}")
        filled = np.zeros(grid.shape, np.min_scalar_type(max(self.labels.values(), default=0)))
        for corners, name in zip(boxes.corners, boxes.names, strict=True):
            CaseError.refuse_unknown(f"{self.files[0]}: a box is called", self.labels, name)
            # Corners are the centres of the first and last pixel; a box ends half a pixel beyond them.
            top, left, bottom, right = (max(0, math.ceil(end)) for end in np.add(corners, (-0.5, -0.5, 0.5, 0.5)))
            filled[top:bottom, left:right] = self.labels[name]
        return Mask(filled, grid.affine, {label: name for name, label in self.labels.items()}, units=grid.units)


@dataclass
class ImageTarget:
    """An image that a model should make: a reconstruction, or another modality.

    The path is a pattern below the root, or the column that holds the file; the modality a DICOM code, where the file
    says none; options are passed to the reader.
    """

    path: str
    modality: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def reference(self, entry: Entry) -> Reference[Image]:
        """The file."""
        return ImageFile(entry.path(self.path), modality=self.modality, options=self.options)


def decode_runs(starts: Sequence[int], lengths: Sequence[int], shape: tuple[int, ...], *, by_columns: bool) -> Array:
    """Decodes runs (first pixel from 0, length): bool, (row, column).

    No run ends beyond the last pixel. Pixels are counted along rows, or down the columns one by one.
    """
    flat = np.zeros(shape[0] * shape[1], bool)
    for start, length in zip(starts, lengths, strict=True):
        flat[start : start + length] = True
    return flat.reshape(shape[::-1]).T if by_columns else flat.reshape(shape)


@dataclass
class MaskParts:
    """File per object; their union is label 1, numbered.

    The path is a pattern below the root of the files, whose name is `*.png` or the like: `{case}/masks/*.png`.
    """

    path: str

    def __post_init__(self) -> None:
        """Refuses a pattern of one file."""
        if "*" not in self.path.rpartition("/")[2]:
            raise UsageError(f"expected * in the file's name of the pattern {self.path!r}; one file is a MaskTarget")

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The files that are there, sorted; raises UserError when there is none."""
        folder, _, name = self.path.rpartition("/")
        path = entry.path(folder) if folder else entry.root
        files = tuple(sorted(path for path in path.glob(name) if not path.name.startswith(".")))
        if not files:
            raise entry.row.error(f"case {entry.id!r}: there is no file {path}/{name}")
        return JoinedMask(files)


@dataclass(frozen=True)
class JoinedMask:
    """Union of binary masks; the last object owns each pixel."""

    files: tuple[Path, ...]

    def read(self) -> Mask:
        """Joins them; raises CaseError when one lies on another grid."""
        grid = self.geometry()
        numbers = np.zeros(grid.shape, np.min_scalar_type(len(self.files)))
        for number, (_, mask) in enumerate(_on_grid(self.files, grid, "the objects"), start=1):
            numbers[mask.labels != 0] = number
        return Mask((numbers > 0).astype(np.uint8), grid.affine, units=grid.units, instances=numbers)

    def geometry(self) -> Geometry:
        """The grid of the first file."""
        return MaskFile(self.files[0]).geometry()


def _on_grid(files: Sequence[Path], grid: Geometry, parts: str) -> Iterator[tuple[Path, Mask]]:
    """Reads masks; CaseError unless on the first's grid."""
    for path in files:
        mask = read_mask(path)
        difference = grid.difference(mask.geometry)
        if difference:
            raise CaseError(f"{path}: {difference} of {files[0]}; {parts} of one case share a grid")
        yield path, mask
