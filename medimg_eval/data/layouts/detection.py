"""COCO and YOLO: boxes and outlines of objects in pictures, and boxes in volumes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, Boxes, Geometry, Image, Mask, Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.folders import ENDINGS
from medimg_eval.data.records import Entry, OnImage, Row, StatedGrid, Target, given
from medimg_eval.data.tables import read_json, read_lines, read_text
from medimg_eval.data.targets.masks import decode_runs
from medimg_eval.data.targets.places import corners_from_edges
from medimg_eval.errors import CaseError, UserError, nearest
from medimg_eval.metrics.run_lengths import areas_of_runs, coco_counts, coco_runs

UNSURE = "unsure"
"""What findings are called of which the reader was less confident than is asked for."""


@dataclass(kw_only=True)
class Coco(FolderLayout):
    """COCO's JSON: images, annotations and categories.

    Args:
        annotations: the file below the root, or split -> such a file.
        images: pattern of the images below the root, such as `images/{file_name}`; it may hold `{split}`. "" does
            without them where answers are there already, and takes their sizes from the file.
        attributes: keys of an image's record that become attributes, such as `scanner`.
        truth_kind: `boxes`; `objects`: boxes with their masks, drawn as pycocotools draws them, which may overlap; or
            `masks`: a label map of the categories' ids, of outlines and runs, whose objects are numbered; where two
            overlap the later one wins.
    """

    annotations: str | Mapping[str, str]
    images: str = "images/{file_name}"
    truth_kind: Literal["boxes", "objects", "masks"] = "boxes"
    attributes: Sequence[str] = ()

    def entries(self, root: Path) -> list[Entry]:
        """Images in file order, each followed by its annotations."""
        named: Mapping[Any, str] = {None: self.annotations} if isinstance(self.annotations, str) else self.annotations
        return [entry for split, name in named.items() for entry in self._read(root, root / name, split)]

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The files, when there is one for each split."""
        return () if isinstance(self.annotations, str) else tuple(root / name for name in self.annotations.values())

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """Boxes, boxes with masks, or masks."""
        return CocoMasks() if self.truth_kind == "masks" else CocoBoxes(with_masks=self.truth_kind == "objects")

    def class_of(self, category: Row) -> str:
        """Name of a category."""
        return category.text("name")

    def _read(self, root: Path, path: Path, split: str | None) -> list[Entry]:
        content = read_json(path)
        parts = {}
        for part in ("images", "annotations", "categories"):
            items = content.get(part) if isinstance(content, dict) else None
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise UserError(f"{path}: expected a list of objects {part!r}")
            parts[part] = [Row(path, f"item {number} of {part!r}", item) for number, item in enumerate(items, start=1)]
        names = {key: self.class_of(row) for key, row in _by_id(parts["categories"]).items()}
        images = _by_id(parts["images"])
        objects: dict[Any, list[Row]] = defaultdict(list)
        for row in parts["annotations"]:
            if not isinstance(row.value("image_id"), int | str) or row.value("image_id") not in images:
                raise row.error(f"names image {row.value('image_id')!r}, which 'images' does not hold")
            if not isinstance(row.value("category_id"), int | str) or row.value("category_id") not in names:
                raise row.error(f"names category {row.value('category_id')!r}{nearest('', map(str, names))}")
            own = Row(path, row.place, {**row.values, "category": names[row.value("category_id")]})
            objects[row.value("image_id")].append(own)
        return [self._entry(root, row, split, objects[key]) for key, row in images.items()]

    def _entry(self, root: Path, row: Row, split: str | None, objects: Sequence[Row]) -> Entry:
        attributes = {name: row.text(name) for name in self.attributes}
        entry = Entry(row.text("file_name"), root, (row, *objects), split=split, attributes=attributes)
        if not self.images:
            height, width = row.number("height"), row.number("width")
            return self.with_patient(replace(entry, images=(StatedGrid((int(height), int(width))),)))
        return self.with_patient(replace(entry, images=(self.image_file(entry.path(self.images)),)))


def _by_id(rows: Sequence[Row]) -> dict[Any, Row]:
    by_id: dict[Any, Row] = {}
    for row in rows:
        if not isinstance(row.value("id"), int | str):
            raise row.error(f"has the id {row.value('id')!r:.60}, expected a number or a text")
        if by_id.setdefault(row.value("id"), row) is not row:
            raise row.error(f"has the id {row.value('id')!r}, as {by_id[row.value('id')].place} has")
    return by_id


@dataclass
class CocoBoxes:
    """Boxes of an image's annotations, with areas, crowds and ignored flags.

    Args:
        with_masks: whether the masks are read, too.
    """

    with_masks: bool = False

    def reference(self, entry: Entry) -> Reference[Boxes]:
        """The boxes; raises UserError naming the annotation that has none."""
        edges = []
        for row in entry.rows[1:]:
            box = row.value("bbox")
            if not isinstance(box, list) or len(box) != 4 or not all(isinstance(number, int | float) for number in box):
                raise row.error(f"'bbox' is {box!r:.60}, expected x, y, width and height")
            if not (np.isfinite(box).all() and box[2] > 0 and box[3] > 0):
                raise row.error(f"'bbox' {box} has no area")
            edges.append([box[0], box[1], box[0] + box[2], box[1] + box[3]])
        corners, rows = corners_from_edges(np.array(edges)), entry.rows[1:]
        names = tuple(row.text("category") for row in rows)
        crowds, ignored = (np.array([_read_flag(row, key) for row in rows], bool) for key in ("iscrowd", "ignore"))
        boxes = Boxes(corners, names, areas=_stated_areas(rows, corners), crowds=crowds, ignored=ignored)
        return ObjectsOfImage(boxes, entry.rows, entry.images[0]) if self.with_masks else given(boxes, entry)


def _read_flag(row: Row, key: str) -> bool:
    value = row.values.get(key, 0)
    if value not in (0, 1):
        raise row.error(f"{key!r} is {value!r:.60}, expected 0 or 1")
    return bool(value)


def _stated_areas(rows: Sequence[Row], corners: Array) -> Array:
    """Returns each annotation's stated area, else its box's."""
    boxes = (corners[:, 2:] - corners[:, :2] + 1).prod(axis=1)
    areas = np.array([row.values.get("area", box) for row, box in zip(rows, boxes, strict=True)], object)
    for row, area in zip(rows, areas, strict=True):
        if not isinstance(area, int | float) or not 0 <= area < np.inf:
            raise row.error(f"'area' is {area!r:.60}, expected pixels of at least 0")
    return areas.astype(np.float64)


@dataclass(frozen=True, eq=False)
class ObjectsOfImage(OnImage):
    """Boxes with lazily drawn masks; the first record is the image's."""

    boxes: Boxes
    rows: tuple[Row, ...]
    image: Reference[Image]

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of annotations."""
        return (self.rows[0].path,)

    def read(self) -> Boxes:
        """Draws them; raises CaseError naming the annotation that is not understood."""
        height, width = self.geometry().shape
        masks = []
        for row in self.rows[1:]:
            with CaseError.about(f"{row.path}, {row.place}", "'segmentation' is not understood", TypeError, ValueError):
                masks.append(coco_runs(row.value("segmentation"), (height, width)))
        stated = [row.values.get("area") for row in self.rows[1:]]
        drawn = areas_of_runs(masks).tolist()
        areas = np.array(
            [drawn_area if area is None else area for area, drawn_area in zip(stated, drawn, strict=True)], float
        )
        return replace(self.boxes, masks=tuple(masks), areas=areas)


@dataclass
class CocoMasks:
    """Outlines and runs of an image, drawn as category ids."""

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The annotations, drawn when read."""
        for row in entry.rows[1:]:
            if int(row.value("category_id")) < 1:
                raise row.error("its category has the id 0, which is background in a label map")
        return DrawnMask(entry.rows, entry.images[0])


@dataclass(frozen=True)
class DrawnMask:
    """A label map drawn from COCO annotations; the first record is the image's."""

    rows: tuple[Row, ...]
    image: Reference[Image]

    @property
    def files(self) -> tuple[Path, ...]:
        """The file of annotations."""
        return (self.rows[0].path,)

    def read(self) -> Mask:
        """Draws it; raises CaseError naming the annotation that is not understood."""
        grid = self.geometry()
        labels, numbers = np.zeros((2, *grid.shape), np.int64)
        for number, row in enumerate(self.rows[1:], start=1):
            inside = _decode_mask(row, (grid.shape[0], grid.shape[1]))
            labels[inside], numbers[inside] = int(row.value("category_id")), number
        names = {int(row.value("category_id")): row.text("category") for row in self.rows[1:]}
        smallest = labels.astype(np.min_scalar_type(int(labels.max(initial=0))))
        return Mask(smallest, grid.affine, names, units=grid.units, instances=numbers)

    def geometry(self) -> Geometry:
        """Grid of the image; CaseError for another size."""
        grid = self.image.geometry()
        row = self.rows[0]
        stated = (row.values.get("height", grid.shape[0]), row.values.get("width", grid.shape[1]))
        if stated != grid.shape:
            raise CaseError(
                f"{self.image.files[0]}: has {grid.shape} rows and columns, {row.path}, {row.place}, states {stated}"
            )
        return grid


def _decode_mask(row: Row, shape: tuple[int, int]) -> Any:
    from medimg_eval.imaging.dicom import fill

    drawn = row.value("segmentation")
    try:
        if isinstance(drawn, list):
            # Several outlines are parts of one object. They count from the edge of the first pixel, x before y.
            outlines = [np.asarray(corners, dtype=np.float64).reshape(-1, 2)[:, ::-1] - 0.5 for corners in drawn]
            parts = [fill([outline], shape) for outline in outlines]
            return np.any(parts, axis=0) if parts else np.zeros(shape, bool)
        counts = drawn["counts"]
        numbers = coco_counts(counts) if isinstance(counts, str) else [int(count) for count in counts]
        size = tuple(drawn["size"])
    except (KeyError, TypeError, ValueError) as error:
        raise CaseError(f"{row.path}, {row.place}: 'segmentation' is not understood ({error})") from error
    if size != shape or sum(numbers) != shape[0] * shape[1] or min(numbers, default=0) < 0:
        raise CaseError(
            f"{row.path}, {row.place}: runs of {sum(numbers)} pixels, of a mask of {size}, do not fill {shape}"
        )
    ends = np.cumsum(numbers)
    # Runs begin with background, and go down the columns.
    return decode_runs(ends[:-1:2].tolist(), numbers[1::2], shape, by_columns=True)


@dataclass(kw_only=True)
class Yolo(FolderLayout):
    """Ultralytics' layout: `data.yaml`, images, and box files below `labels`.

    A picture without a text file holds no object, as Ultralytics reads it. The YAML `data` below the root names classes
    (`names`), and for `train`, `val` and `test` a folder of images, or several.
    """

    data: str = "data.yaml"

    def entries(self, root: Path) -> list[Entry]:
        """The pictures of each split, sorted by name."""
        content, _ = self._data(root)
        entries = []
        for split in ("train", "val", "test"):
            if content.get(split):
                for written in content[split] if isinstance(content[split], list) else [content[split]]:
                    folder = self._folder(root, content, split, str(written))
                    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in ENDINGS]
                    entries += [
                        self._entry(root, folder, path, split) for path in paths if not path.name.startswith(".")
                    ]
        if not entries:
            raise UserError(
                f"{root / self.data}: names no folder of images that holds any; expected train, val or test"
            )
        return entries

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The YAML."""
        return (root / self.data,)

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The boxes in the text files."""
        return YoloBoxes(self._data(root)[1])

    def _data(self, root: Path) -> tuple[Mapping[str, Any], list[str]]:
        import yaml

        path = root / self.data
        try:
            content = yaml.safe_load(read_text(path))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            raise UserError(f"{path}, line {mark.line + 1 if mark else 1}: is no YAML") from error
        names = content.get("names") if isinstance(content, dict) else None
        if isinstance(names, dict):
            names = [names.get(number) for number in range(len(names))]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UserError(f"{path}: expected 'names', a list of classes or an object of them by number from 0")
        return content, names

    def _folder(self, root: Path, content: Mapping[str, Any], split: str, written: str) -> Path:
        # Roboflow writes ../train/images for a folder that lies beside the YAML.
        tried = [(root / self.data).parent / name for name in (written, written.removeprefix("../"))]
        tried += [root / str(content["path"]) / written] if content.get("path") else []
        folder = next((folder for folder in tried if folder.is_dir()), None)
        if folder is None:
            raise UserError(f"{root / self.data}: {split!r} names {written!r}, but there is no folder {tried[0]}")
        if not _label_folder(folder).is_dir():
            raise UserError(f"{_label_folder(folder)}: no such folder; the boxes of {folder} are expected there")
        return folder

    def _entry(self, root: Path, folder: Path, path: Path, split: str) -> Entry:
        inner = path.relative_to(folder)
        row = Row(_label_folder(folder) / inner.with_suffix(".txt"), "", {"file": path.name})
        return self.with_patient(Entry(inner.with_suffix("").as_posix(), root, (row,), (self.image_file(path),), split))


def _label_folder(images: Path) -> Path:
    """The folder of text files: the last `images` of the path becomes `labels`."""
    parts = list(images.parts)
    if "images" not in parts:
        return images
    last = len(parts) - 1 - parts[::-1].index("images")
    return Path(*parts[:last], "labels", *parts[last + 1 :])


@dataclass
class YoloBoxes:
    """The boxes of one picture in its text file."""

    names: Sequence[str]

    def reference(self, entry: Entry) -> Reference[Boxes]:
        """The boxes; raises UserError naming the line that is not understood."""
        path = entry.row.path
        boxes = [self._box(row) for row in read_lines(path)] if path.is_file() else []
        numbers = np.array([box for _, box in boxes]).reshape(-1, 4)
        return RelativeBoxes(numbers, tuple(name for name, _ in boxes), path, entry.images[0])

    def _box(self, row: Row) -> tuple[str, list[float]]:
        fields = row.text("line").split()
        if len(fields) != 5:
            raise row.error(f"expected a class and four numbers, found {len(fields)} fields")
        try:
            number, box = int(fields[0]), [float(field) for field in fields[1:]]
        except ValueError:
            raise row.error(f"expected a class and four numbers, found {row.text('line')!r:.60}") from None
        if not 0 <= number < len(self.names):
            raise row.error(f"there is no class {number}; data.yaml names {len(self.names)} from 0")
        if not all(0 <= number <= 1 for number in box) or min(box[2:]) <= 0:
            raise row.error(f"expected parts of the picture between 0 and 1, found {box}")
        return self.names[number], box


@dataclass(frozen=True, eq=False)
class RelativeBoxes(OnImage):
    """Boxes as parts of the picture: centre x, centre y, width, height."""

    numbers: Any
    names: tuple[str, ...]
    path: Path
    image: Reference[Image]

    @property
    def files(self) -> tuple[Path, ...]:
        """The text file, or the picture where there is none."""
        return (self.path,) if self.path.is_file() else self.image.files

    def read(self) -> Boxes:
        """Returns corners in pixels of the picture."""
        rows, columns = self.geometry().shape
        centre_x, centre_y, width, height = self.numbers.T * np.array([[columns], [rows], [columns], [rows]])
        edges = [centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2]
        return Boxes(corners_from_edges(np.stack(edges, axis=1)), self.names)


@dataclass(kw_only=True)
class CocoVolumes(Coco):
    """COCO JSON of volumes: boxes x, y, z, and sizes in voxels.

    x, y, z are the first voxel, along the axes as the volume is stored.

    Args:
        id: the key of an image that names the case.
        shape: the key of its voxels along each axis.
        by: the key of a category that is the class: `name`, or `supercategory`.
        least_confidence: annotations of a lower `confidence` are called `unsure`; name that in `task.excluded`.
    """

    id: str = "scan_id"
    shape: str = "matrix_shape"
    by: str = "name"
    least_confidence: float = 0.0

    def class_of(self, category: Row) -> str:
        """The category's name, or that of its supercategory."""
        return category.text(self.by)

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The boxes."""
        return VolumeBoxes(self.least_confidence)

    def _entry(self, root: Path, row: Row, split: str | None, objects: Sequence[Row]) -> Entry:
        shape = row.value(self.shape)
        if not isinstance(shape, list) or len(shape) != 3 or not all(isinstance(n, int) and n > 0 for n in shape):
            raise row.error(f"{self.shape!r} is invalid: expected three whole numbers of voxels, got {shape!r:.60}")
        attributes = {name: row.text(name) for name in self.attributes}
        grid = StatedGrid(tuple(shape))
        entry = Entry(row.text(self.id), root, (row, *objects), (grid,), split, None, attributes)
        return self.with_patient(entry)


@dataclass
class VolumeBoxes:
    """Boxes of a volume's annotations; negative sizes are turned round.

    What lies outside of the volume is cut off.

    Args:
        least_confidence: of the reader; below it a finding is called `unsure`.
    """

    least_confidence: float = 0.0

    def reference(self, entry: Entry) -> Reference[Boxes]:
        """The boxes; raises UserError naming the annotation that has none."""
        corners, names, shape = [], [], entry.images[0].geometry().shape
        for row in entry.rows[1:]:
            box = row.value("bbox")
            if not isinstance(box, list) or len(box) != 6 or not all(isinstance(number, int | float) for number in box):
                raise row.error(f"'bbox' is invalid: expected x, y, z and three sizes, got {box!r:.60}")
            first, size = np.array(box[:3], dtype=np.float64), np.array(box[3:], dtype=np.float64)
            ends = np.clip(np.sort([first, first + size], axis=0), 0, shape)
            if not np.isfinite(box).all() or (ends[1] <= ends[0]).any():
                raise row.error(f"'bbox' is invalid: expected a size within {shape} voxels, got {box}")
            corners.append([*ends[0], *(ends[1] - 1)])
            unsure = self.least_confidence > 0 and row.number("confidence") < self.least_confidence
            names.append(UNSURE if unsure else row.text("category"))
        return given(Boxes(np.array(corners, dtype=np.float64).reshape(-1, 6), tuple(names)), entry)
