"""Folders of pictures: one per class, or images beside masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.volumes import find
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.data.splits import SHOWN
from medimg_eval.data.targets import ClassName, MaskTarget
from medimg_eval.errors import UserError

ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".dcm")
"""How the names of pictures end; notes and thumbnails' indexes lie beside them."""


@dataclass(kw_only=True)
class FolderPerClass(FolderLayout):
    """Pictures in one folder per class, such as `Training/glioma/x.jpg`.

    Args:
        pattern: below the root: `{class}`, `{file}` and, where the split is a folder, `{split}`; other names for
            folders that say nothing. The case id is the path below the root.
        classes: every class, in order; those that are found when empty.
        endings: of the pictures.
        others: see `FolderLayout`.
    """

    pattern: str = "{split}/{class}/{file}"
    classes: Sequence[str] = ()
    endings: Sequence[str] = ENDINGS

    def entries(self, root: Path) -> list[Entry]:
        """The pictures, sorted by split and path."""
        made = []
        for path, fields in find(root, self.pattern):
            if path.suffix.lower() in self.endings:
                row = Row(path, "", fields)
                name = path.relative_to(root).as_posix()
                entry = Entry(name, root, (row,), (self.image_file(path),), fields.get("split"))
                made.append(replace(entry, patient=self.patient_of(entry)))
        if not made:
            raise UserError(f"{root / self.pattern}: there is no such picture; they end in {', '.join(self.endings)}")
        return made

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The class that the folder names."""
        return ClassName("class", self.classes or sorted({entry.row.text("class") for entry in entries}))


@dataclass(kw_only=True)
class PairedFolders(FolderLayout):
    """A folder of pictures and one of label maps, paired by their names without endings.

    Args:
        images: folder below the root, which may hold `{split}`.
        masks: the same of the label maps; the same folder where `mask_suffix` tells them apart.
        mask_suffix: what the name of a label map has behind the name of its image, such as `_anno`.
        endings: of the pictures.
        others: see `FolderLayout`.
    """

    images: str = "images"
    masks: str = "masks"
    mask_suffix: str = ""
    endings: Sequence[str] = ENDINGS

    def entries(self, root: Path) -> list[Entry]:
        """The pairs, sorted by split and name.

        Raises:
            UserError: an image has no label map, or a label map no image.
        """
        images, masks = (self._pictures(root, folder) for folder in (self.images, self.masks))
        if self.images == self.masks and self.mask_suffix:
            masks = {key: path for key, path in masks.items() if key[1].endswith(self.mask_suffix)}
            images = {key: path for key, path in images.items() if key not in masks}
        paired = {(split, name + self.mask_suffix): name for split, name in images}
        for one, other, what in ((paired, masks, "label map"), (masks, paired, "image")):
            lost = sorted(name for key in one if key not in other for name in [key[1]])
            if lost:
                raise UserError(f"{root}: {len(lost)} names have no {what}, the first being {lost[:SHOWN]}")
        return [
            self._entry(root, split, name, images[split, name], masks[split, name + self.mask_suffix])
            for split, name in images
        ]

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The label map of the same name."""
        return MaskTarget("mask")

    def _pictures(self, root: Path, folder: str) -> dict[tuple[str | None, str], Path]:
        found: dict[tuple[str | None, str], Path] = {}
        for path, fields in find(root, f"{folder}/{{file}}"):
            if path.suffix.lower() not in self.endings:
                continue
            key = (fields.get("split"), path.stem)
            if key in found:
                raise UserError(f"{path}: has the same name as {found[key]} but for its ending; keep one of them")
            found[key] = path
        if not found:
            raise UserError(f"{root / folder}: holds no pictures that end in {', '.join(self.endings)}")
        return found

    def _entry(self, root: Path, split: str | None, name: str, image: Path, mask: Path) -> Entry:
        row = Row(image, "", {"case": name, "file": image.name, "mask": mask.relative_to(root).as_posix()})
        entry = Entry(name, root, (row,), (self.image_file(image),), split)
        return replace(entry, patient=self.patient_of(entry))
