"""nnU-Net's raw folders, version 1 and 2, and MSD's lists of data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medimg_eval.data.layouts.base import FolderLayout, texts
from medimg_eval.data.records import Entry, Row, Target, stem
from medimg_eval.data.splits import SplitJson, assign
from medimg_eval.data.tables import read_json
from medimg_eval.data.targets import MaskTarget
from medimg_eval.errors import MissingDataError, UsageError, UserError, nearest

PARTS = {"train": ("imagesTr", "labelsTr"), "test": ("imagesTs", "labelsTs")}
"""Split -> the folders of its images and of its label maps."""


@dataclass(kw_only=True)
class NnUNet(FolderLayout):
    """Folder with nnU-Net's `dataset.json`, version 2 or MSD's 1.

    The splits are `train` and, where `labelsTs` is there, `test`; with a fold, `train` is divided into `train` and
    `val`.

    Args:
        fold: which fold of `splits_file` divides the training cases; None leaves them together.
        splits_file: nnU-Net's list of folds, below the root or at an absolute path: it lies among the preprocessed
            data.
        region: a region that version 2's labels join, such as `whole tumor`; the target is 1 inside it. Needed only for
            one of several labels; a task asks for single labels by their numbers.
    """

    fold: int | None = None
    splits_file: str = "splits_final.json"
    region: str = ""

    def entries(self, root: Path) -> list[Entry]:
        """Training cases, then test cases, sorted by id."""
        path, content = self._dataset(root)
        entries: list[Entry] = []
        for split, (images, labels) in PARTS.items():
            if split == "train" or (root / labels).is_dir():
                listed = content.get("training") if split == "train" else None
                folders, ending = (root / images, root / labels), self._ending(content)
                names = self._listed(path, listed) if listed else self._found(*folders, ending)
                entries += [self._entry(root, split, name, (images, labels), (path, content)) for name in sorted(names)]
        if self.fold is None:
            return entries
        train = [entry for entry in entries if entry.split == "train"]
        divided = assign(train, SplitJson(self.splits_file, self.fold), root)
        return divided + [entry for entry in entries if entry.split != "train"]

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The list of folds, or `dataset.json`."""
        return (root / ("dataset.json" if self.fold is None else self.splits_file),)

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The label map, or a region of it."""
        if not self.region:
            return MaskTarget("mask")
        path, content = self._dataset(root)
        regions, labels = _read_regions(path, content)
        UserError.refuse_unknown(f"{path}: has no region", regions, self.region)
        inside = regions[self.region]
        return MaskTarget("mask", {label: int(label in inside) for label in labels if label})

    def labels(self) -> dict[int, str]:
        """The single labels that `dataset.json` names, without background, as a task states them."""
        path, content = self._dataset(self.folder())
        regions, _ = _read_regions(path, content)
        return {inside[0]: name for name, inside in regions.items() if len(inside) == 1 and inside[0] != 0}

    def _dataset(self, root: Path) -> tuple[Path, Mapping[str, Any]]:
        path = root / "dataset.json"
        content = read_json(path)
        keys = ("labels", "file_ending", "channel_names", "training", "modality")
        if not isinstance(content, dict) or "labels" not in content:
            held = content if isinstance(content, dict) else ()
            raise UserError(f"{path}: expected nnU-Net's 'labels'{nearest('labels', held)}; the keys are {keys}")
        if "channel_names" not in content and "modality" not in content:
            raise UserError(f"{path}: expected 'channel_names' (version 2) or 'modality' (version 1), found neither")
        return path, content

    def _ending(self, content: Mapping[str, Any]) -> str:
        return str(content.get("file_ending", ".nii.gz"))

    def _listed(self, path: Path, listed: Any) -> list[str]:
        names = []
        for number, item in enumerate(listed, start=1):
            row = Row(path, f"item {number} of 'training'", {})
            if not isinstance(item, dict) or "label" not in item:
                raise row.error(f"expected an object with 'image' and 'label', found {item!r:.60}")
            names.append(stem(Path(str(item["label"]))))
        return names

    def _found(self, images: Path, labels: Path, ending: str) -> list[str]:
        for folder, what in ((labels, "label maps"), (images, "images")):
            if not folder.is_dir():
                raise MissingDataError(f"{folder}: no such folder; nnU-Net keeps the {what} there")
        named, case_names = (
            [path.name.removesuffix(ending) for path in folder.iterdir() if path.name.endswith(ending)]
            for folder in (labels, images)
        )
        # A channel's file ends in its number, MSD's file of all channels does not.
        held = set(named)
        cases = {name: re.sub(r"_\d{4}$", "", name) for name in case_names if not name.startswith(".")}
        bare = sorted(name for name, case in cases.items() if not {name, case} & held)
        if bare:
            raise UserError(
                f"{images}: {len(bare)} images have no label map in {labels}, the first being {bare[0] + ending!r}"
            )
        return [name for name in named if not name.startswith(".")]

    def _entry(
        self, root: Path, split: str, name: str, folders: tuple[str, str], dataset: tuple[Path, Mapping[str, Any]]
    ) -> Entry:
        path, content = dataset
        ending = self._ending(content)
        channels = sorted(content.get("channel_names") or content["modality"], key=int)
        files = [root / folders[0] / f"{name}_{int(channel):04d}{ending}" for channel in channels]
        single_file = root / folders[0] / f"{name}{ending}"
        # MSD keeps all channels in one 4-D file without a number.
        images = [single_file] if single_file.exists() and not files[0].exists() else files
        row = Row(path, "", {"case": name, "mask": f"{folders[1]}/{name}{ending}"})
        return self.with_patient(Entry(name, root, (row,), tuple(self.image_file(image) for image in images), split))


def _read_regions(path: Path, content: Mapping[str, Any]) -> tuple[dict[str, tuple[int, ...]], list[int]]:
    """Labels by the names of `dataset.json`, and every label."""
    regions = {}
    for key, value in content["labels"].items():
        # Version 1 goes from number to name, version 2 from name to number or numbers.
        name, numbers = (str(value), key) if str(key).lstrip("-").isdigit() else (str(key), value)
        listed = numbers if isinstance(numbers, list | tuple) else [numbers]
        try:
            regions[name] = tuple(int(number) for number in listed)
        except (TypeError, ValueError):
            raise UserError(f"{path}: label {key!r} is {value!r}, expected numbers") from None
    return regions, sorted({label for inside in regions.values() for label in inside})


@dataclass(kw_only=True)
class MsdDatalist(FolderLayout):
    """JSON lists of images and label maps, as MSD and MONAI.

    Its lists (`training`, `validation`, `testing`, `test`) are the splits. With a fold, the training items of that
    fold are `validation`, and the others `training`.

    Args:
        datalist: the file, below the root.
        fold: the fold to validate on; None leaves the lists as they are.
        image: the key of the path below the root, or of a list of them; an item that is a text is such a path.
        label: the key of the label map; items without it need a `target`.
    """

    datalist: str = "dataset.json"
    fold: int | None = None
    image: str = "image"
    label: str = "label"

    def entries(self, root: Path) -> list[Entry]:
        """The items of every list, in their order."""
        path = root / self.datalist
        content = read_json(path)
        if not isinstance(content, dict):
            raise UserError(f"{path}: expected an object of lists, found {type(content).__name__}")
        lists = {
            name: items for name, items in content.items() if name in ("training", "validation", "testing", "test")
        }
        if not lists:
            raise UserError(f"{path}: expected a list 'training'{nearest('training', content)}")
        if self.fold is not None and "validation" in lists:
            raise UsageError(f"{path}: holds a list 'validation', so there is no fold to choose")
        return [
            self._entry(
                root,
                Row(path, f"item {number} of {split!r}", _split_item(path, split, number, item, self.image)),
                split,
            )
            for split, items in lists.items()
            for number, item in enumerate(items, start=1)
            if not isinstance(item, str) or self.target is not None
        ]

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The list."""
        return (root / self.datalist,)

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The label map."""
        return MaskTarget(self.label)

    def _entry(self, root: Path, row: Row, split: str) -> Entry:
        value = row.value(self.image)
        listed: Sequence[Any] = value if isinstance(value, list) else [value]
        if not listed or not all(isinstance(path, str) and path for path in listed):
            raise row.error(f"{self.image!r} is {value!r:.60}, expected a path or a list of paths")
        if self.fold is not None and split == "training":
            split = "validation" if row.number("fold") == self.fold else "training"
        images = tuple(self.image_file(root / path) for path in listed)
        attributes = texts(row.values, without=(self.image, self.label, "fold"))
        entry = Entry(listed[0].removeprefix("./"), root, (row,), images, split, attributes=attributes)
        return self.with_patient(entry)


def _split_item(path: Path, split: str, place: int, item: Any, image: str) -> Mapping[str, Any]:
    if isinstance(item, str):
        return {image: item}
    if not isinstance(item, dict):
        raise UserError(f"{path}, item {place} of {split!r}: expected an object or a path, found {item!r:.60}")
    return item
