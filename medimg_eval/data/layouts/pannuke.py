"""PanNuke: three folds of 256 x 256 pictures, each an array, with an array of numbered nuclei beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medimg_eval.case import Geometry, Mask, OneFile, Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging.arrays import Bundle


@dataclass(kw_only=True)
class PanNuke(FolderLayout):
    """PanNuke's published arrays, with attribute `tissue`.

    Args:
        parts: split -> folders below the root, where `{part}` of the patterns below lies.
        images: pattern of the pictures, (picture, row, column, 3).
        masks: pattern of the masks, (picture, row, column, class): the numbers of the nuclei of each class, and last
            the background, which is not read.
        types: pattern of the tissues, (picture,).
        others: see `FolderLayout`. Patients are not named, so pictures are drawn one by one.
    """

    parts: Mapping[str, str]
    images: str = "{part}/images.npy"
    masks: str = "{part}/masks.npy"
    types: str = "{part}/types.npy"

    def entries(self, root: Path) -> list[Entry]:
        """The pictures of every part, in the order of the files."""
        return [entry for split, part in self.parts.items() for entry in self._part(root, split, part)]

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The arrays of tissues, of which each part has one."""
        return tuple(root / self.types.replace("{part}", part) for part in self.parts.values())

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The numbered nuclei."""
        return _Nuclei()

    def _part(self, root: Path, split: str, part: str) -> list[Entry]:
        images, masks, types = (root / name.replace("{part}", part) for name in (self.images, self.masks, self.types))
        shapes = [Bundle(path).header("array").shape for path in (images, masks)]
        tissues = Bundle(types).array("array").reshape(-1)
        if not len(shapes[0]) == len(shapes[1]) == 4 or shapes[0][:3] != shapes[1][:3] or len(tissues) != shapes[0][0]:
            raise UserError(
                f"{masks}: has the shape {shapes[1]}, beside {shapes[0]} of {images.name} and {len(tissues)} tissues"
            )
        entries = []
        for index, tissue in enumerate(tissues.tolist()):
            row = Row(masks, f"picture {index}", {"index": index, "tissue": str(tissue)})
            image = self.image_file(images, key="array", index=index)
            entry = Entry(f"{split}-{index:04d}", root, (row,), (image,), split, attributes={"tissue": str(tissue)})
            entries.append(self.with_patient(entry))
        return entries


@dataclass
class _Nuclei:
    """One picture of the array of masks."""

    def reference(self, entry: Entry) -> Reference[Mask]:
        return NumberedChannels(entry.row.path, int(entry.row.text("index")))


@dataclass(frozen=True, eq=False)
class NumberedChannels(OneFile):
    """Item of (item, row, column, class) with objects numbered by class."""

    index: int

    def read(self) -> Mask:
        """Returns labels from 1 by class; later classes win pixels.

        Raises CaseError for numbers below 0, or that are not whole.
        """
        stored = np.asarray(Bundle(self.path).array("array")[self.index, ..., :-1])
        if not np.array_equal(stored, np.rint(stored)) or stored.min(initial=0) < 0:
            raise CaseError(f"{self.path}: item {self.index} holds values that number no objects")
        labels, numbers = np.zeros((2, *stored.shape[:2]), np.int64)
        for label, channel in enumerate(np.moveaxis(stored.astype(np.int64), -1, 0), start=1):
            inside = channel > 0
            # Classes may count anew, so that a number alone does not tell two nuclei apart.
            numbers[inside] = channel[inside] + int(numbers.max(initial=0))
            labels[inside] = label
        return Mask(labels.astype(np.uint8), np.eye(4), units="pixel", instances=numbers)

    def geometry(self) -> Geometry:
        """Rows and columns."""
        shape = Bundle(self.path).header("array").shape
        return Geometry(shape[1:3], np.eye(4), "pixel")
