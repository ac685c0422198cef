"""Pairs of images from a table, and from the evaluation configs of Learn2Reg."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from medimg_eval.case import Array, Case, Correspondence, Geometry
from medimg_eval.data.layouts.base import existing_root, texts
from medimg_eval.data.records import Row
from medimg_eval.data.splits import digests
from medimg_eval.data.tables import read_json, read_table
from medimg_eval.errors import CaseError, MissingDataError, SplitError, UsageError, UserError, nearest
from medimg_eval.imaging import ImageFile, MaskFile
from medimg_eval.tasks.base import Layout

Space = Literal["voxel", "lps", "ras"]

FILES = ("fixed", "moving", "fixed_labels", "moving_labels", "fixed_points", "moving_points", "region")
"""Columns of a table of pairs that hold files."""

NAMED = re.compile(r"_(?P<subject>\d{4})_(?P<modality>\d{4})\.nii(?:\.gz)?$")
"""How a file of Learn2Reg names subject and modality."""


@dataclass(frozen=True)
class PairFiles:
    """Files of a pair; each but the images may be missing.

    Attributes:
        fixed: the fixed image.
        moving: the moving image.
        fixed_labels: label map of the fixed image.
        moving_labels: that of the moving image.
        fixed_points: table of numbers without names, a point a line.
        moving_points: the same points in the moving image, in the same order.
        region: label map of the fixed image, judged where it is not 0.
        space: what the points' numbers are: voxel indices of their image, or mm in the patient.
    """

    fixed: ImageFile
    moving: ImageFile
    fixed_labels: MaskFile | None = None
    moving_labels: MaskFile | None = None
    fixed_points: Path | None = None
    moving_points: Path | None = None
    region: MaskFile | None = None
    space: Space = "voxel"

    @property
    def files(self) -> tuple[Path, ...]:
        """All but the images."""
        masks = [path for mask in (self.fixed_labels, self.moving_labels, self.region) if mask for path in mask.files]
        return (*masks, *(path for path in (self.fixed_points, self.moving_points) if path))

    def geometry(self) -> Geometry:
        """The grid of the fixed image."""
        return self.fixed.geometry()

    def read(self) -> Correspondence:
        """Reads what there is; raises CaseError naming the file."""
        labels = [None if mask is None else mask.read() for mask in (self.fixed_labels, self.moving_labels)]
        points = [
            None if path is None else read_points(path, image.geometry(), self.space)
            for path, image in ((self.fixed_points, self.fixed), (self.moving_points, self.moving))
        ]
        region = None if self.region is None else self.region.read().labels != 0
        return Correspondence(labels[0], labels[1], points[0], points[1], region)


def read_points(path: Path, grid: Geometry, space: Space) -> Array:
    """Points, float64, (point, axes), in voxels; headers are skipped.

    Raises:
        CaseError: the file is missing, or a line does not hold a number for each axis.
    """
    axes = len(grid.shape)
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise CaseError(f"{path}: cannot be read as a table of points ({error})") from error
    points_ = []
    for number, line in enumerate(lines, start=1):
        cells = [cell for cell in re.split(r"[,;\s]+", line) if cell]
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            if number == 1:
                continue
            values = []
        if cells and (len(values) != axes or not np.isfinite(values).all()):
            raise CaseError(f"{path}, line {number}: expected {axes} numbers, got {line!r:.60}")
        points_ += [values] if cells else []
    points = np.array(points_, np.float64).reshape(-1, axes)
    if space == "voxel":
        return points
    ras = points * (-1, -1, 1) if space == "lps" else points
    inverse = np.linalg.inv(grid.affine)
    return ras @ inverse[:3, :3].T + inverse[:3, 3]


@dataclass(kw_only=True)
class ImagePairs(Layout):
    """Pairs of images that a table lists, a pair a row.

    Its columns `fixed` and `moving` name the images below `root`; `fixed_labels`, `moving_labels`, `fixed_points`,
    `moving_points` and `region` what is known of them, empty where it is not. `case`, `patient` and `split` are
    optional; every other column becomes an attribute.

    Args:
        root: the folder.
        table: the table below it: `.csv`, `.tsv`, `.json`, `.jsonl` or `.parquet`.
        space: what numbers in tables of points are: `voxel`, or mm in the patient as `lps` or `ras`.
        modality: DICOM code of the images, where their files say none.
    """

    root: str
    table: str = "pairs.csv"
    space: Space = "voxel"
    modality: str = ""

    def __post_init__(self) -> None:
        """Refuses a space that there is not."""
        UsageError.refuse_invalid("task.layout: space", ("voxel", "lps", "ras"), self.space)

    def cases(self, split: str) -> list[Case]:
        """The pairs of one split; of a table without splits all.

        Raises:
            SplitError: there is no such split.
            UserError: the table is missing, or names a file that is not there.
        """
        root = existing_root(self.root)
        rows = read_table(root / self.table)
        splits = {row.text("split") for row in rows if "split" in row.values}
        if splits and split not in splits:
            raise SplitError(f"{root / self.table}: no pair of split {split!r}{nearest(split, splits)}")
        return [self._case(root, row) for row in rows if not splits or row.text("split") == split]

    def split_source(self) -> Mapping[str, str]:
        """The table."""
        return digests((existing_root(self.root) / self.table,))

    def _case(self, root: Path, row: Row) -> Case:
        paths = {}
        for column in FILES:
            name = row.text(column) if column in row.values or column in FILES[:2] else ""
            if name and not (root / name).is_file():
                raise row.error(f"column {column!r} names {root / name}, which is not there")
            paths[column] = root / name if name else None
        for column in FILES[:2]:
            if paths[column] is None:
                raise row.error(f"column {column!r} is empty, expected the file of an image")
        for fixed_field, moving_field in (FILES[2:4], FILES[4:6]):
            if (paths[fixed_field] is None) != (paths[moving_field] is None):
                raise row.error(f"expected both {fixed_field!r} and {moving_field!r}, or neither")
        files = pair_files(paths, self.space, self.modality)
        name = row.text("case") if "case" in row.values else f"{stem(files.fixed)}-{stem(files.moving)}"
        patient = (row.text("patient") or None) if "patient" in row.values else None
        attributes = texts(row.values, without=(*FILES, "case", "patient", "split"))
        return Case(name, (files.fixed, files.moving), files, patient, attributes)


@dataclass(kw_only=True)
class Learn2Reg(Layout):
    """A data set of Learn2Reg beside the evaluation config that lists its pairs.

    What is known of an image lies where its own folder `images...` is called `labels...`, `masks...`, or as the metrics
    of the config say (`landmarks`, `keypoints`). Cases are called by subject and modality of the fixed and the moving
    image, as files of displacements are: `0001_0000_0001_0001`.

    Args:
        root: the folder that the paths of the config begin in.
        pairs: split -> its config, below the root or elsewhere.
        points: folder of the points, such as `keypoints`; empty for none.
        labels: whether label maps are read.
        modality: DICOM code of the images.
    """

    root: str
    pairs: Mapping[str, str] = field(default_factory=dict)
    points: str = ""
    labels: bool = False
    modality: str = ""

    def cases(self, split: str) -> list[Case]:
        """The pairs of one split.

        Raises:
            SplitError: there is no such split.
            UserError: the config or a file is missing, or a file is not called as Learn2Reg's are.
        """
        if split not in self.pairs:
            raise SplitError(f"task.layout.pairs has no split {split!r}{nearest(split, self.pairs)}")
        root = existing_root(self.root)
        path = root / self.pairs[split]
        content = read_json(path)
        if not isinstance(content, dict) or not isinstance(content.get("eval_pairs"), list):
            raise UserError(f"{path}: holds no list `eval_pairs`; name one of Learn2Reg's evaluation configs")
        masked = bool(content.get("masked_evaluation", False))
        rows = [Row(path, f"eval_pairs[{at}]", pair) for at, pair in enumerate(content["eval_pairs"])]
        return [self._case(root, row, masked) for row in rows]

    def split_source(self) -> Mapping[str, str]:
        """The configs."""
        root = existing_root(self.root)
        return digests(tuple(root / name for name in self.pairs.values()))

    def _case(self, root: Path, row: Row, masked: bool) -> Case:
        names = {which: row.text(which) for which in ("fixed", "moving")}
        subjects, modalities = {}, {}
        for which, name in names.items():
            match = NAMED.search(name)
            if match is None or "images" not in name:
                raise row.error(f"{name!r} is not called as images...NAME_0001_0000.nii.gz")
            subjects[which], modalities[which] = match["subject"], match["modality"]
        paths: dict[str, Path | None] = {which: root / name for which, name in names.items()}
        for which, name in names.items():
            if self.labels:
                paths[f"{which}_labels"] = root / name.replace("images", "labels")
            if self.points:
                folder = self.points + self._suffix(modalities)
                paths[f"{which}_points"] = root / re.sub(r"\.nii(\.gz)?$", ".csv", name.replace("images", folder))
        missing = next((path for path in paths.values() if path is not None and not path.is_file()), None)
        if missing is not None:
            raise MissingDataError(f"{missing}: is not there, though {row.path}, {row.place} needs it")
        region = root / names["fixed"].replace("images", "masks")
        paths["region"] = region if masked and region.is_file() else None  # the authors go on without a mask
        files = pair_files(paths, "voxel", self.modality)
        name = "_".join(f"{subjects[which]}_{modalities[which]}" for which in ("fixed", "moving"))
        return Case(name, (files.fixed, files.moving), files, subjects["fixed"])

    @staticmethod
    def _suffix(modalities: Mapping[str, str]) -> str:
        """Suffix of the point folder, by pair of modalities."""
        fixed, moving = modalities["fixed"], modalities["moving"]
        return "" if fixed == moving or (fixed, moving) == ("0000", "0001") else "".join(sorted((fixed, moving)))


def pair_files(paths: Mapping[str, Path | None], space: Space, modality: str) -> PairFiles:
    """Files of a pair, by the names of their columns."""
    images: dict[str, Any] = {which: ImageFile(cast("Path", paths[which]), modality=modality) for which in FILES[:2]}
    masks: dict[str, Any] = {
        which: MaskFile(path) for which in (*FILES[2:4], "region") if (path := paths.get(which)) is not None
    }
    points: dict[str, Any] = {which: paths.get(which) for which in FILES[4:6]}
    return PairFiles(**images, **masks, **points, space=space)


def stem(image: ImageFile) -> str:
    """A file's name without what it ends in."""
    return image.files[0].name.split(".")[0]
