"""Phantoms as the cases of a segmentation task, written on first use."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from medimg_eval.case import Case, Image, Mask, Reference
from medimg_eval.data.layouts.frames import FramePicture
from medimg_eval.errors import UserError, nearest
from medimg_eval.imaging import ImageFile, MaskFile
from medimg_eval.phantoms.cohort import KINDS, VERSION, write_phantoms
from medimg_eval.system import user_cache

SPLITS = ("fit", "validate", "test")

SLIDE_UM = 2.0
"""Micrometres per pixel that slides are read at, those of their masks."""

ATTRIBUTES = ("sex", "age_group", "site", "scanner")

Row = Mapping[str, str]


@dataclass
class Phantom:
    """Phantoms of one kind.

    Args:
        kind: `ct`, `mr`, `xray`, `endoscopy` or `pathology`.
        root: folder that holds the kind's own folder, as `python -m medimg_eval phantom out=ROOT` makes it;
            None keeps them in the cache (`MEDIMG_EVAL_CACHE`, or ~/.cache/medimg_eval). Written on first use.
        cases: how many are made, over all splits; of `endoscopy`, how many clips.
        seed: of the cohort.
    """

    kind: str
    root: str | None = None
    count: int = 16
    seed: int = 0

    def cases(self, split: str) -> list[Case]:
        """The cases of `fit`, `validate` or `test`; no patient lies in two of them.

        Raises:
            UserError: there is no such kind or split, or the phantoms cannot be written.
        """
        if split not in SPLITS:
            raise UserError(f"phantoms have no split {split!r}{nearest(split, SPLITS)}")
        folder = self._folder()
        write_phantoms(self.kind, folder, cases=self.count, seed=self.seed)
        with (folder / "cases.csv").open(newline="", encoding="utf-8") as stream:
            rows = [row for row in csv.DictReader(stream) if row["split"] == split]
        return [case for row in rows for case in _MAKERS[self.kind](folder, row)]

    def _folder(self) -> Path:
        if self.kind not in KINDS:
            raise UserError(f"there is no phantom {self.kind!r}{nearest(self.kind, KINDS)}")
        if self.root is not None:
            return Path(self.root).expanduser() / self.kind
        return user_cache() / "phantoms" / f"{self.kind}-v{VERSION}-{self.count}-{self.seed}"


def _case(row: Row, image: Reference[Image], target: Reference[Mask], case: str = "") -> Case:
    attributes = {name: row[name] for name in ATTRIBUTES}
    return Case(case or row["case"], (image,), target, row["patient"], attributes)


def _volume(modality: str, folder: Path, row: Row) -> Iterator[Case]:
    yield _case(row, ImageFile(folder / row["image"], modality=modality), MaskFile(folder / row["mask"]))


def _picture(folder: Path, row: Row) -> Iterator[Case]:
    image = ImageFile(folder / row["image"], modality="DX")
    yield _case(row, image, MaskFile(folder / row["mask"]))


def _slide(folder: Path, row: Row) -> Iterator[Case]:
    image = ImageFile(folder / row["image"], modality="SM", options={"um_per_px": SLIDE_UM})
    yield _case(row, image, MaskFile(folder / row["mask"]))


def _frames(folder: Path, row: Row) -> Iterator[Case]:
    """The labelled frames that show a polyp."""
    from medimg_eval.phantoms.endoscopy import mask_file

    with (folder / row["frames"]).open(newline="", encoding="utf-8") as stream:
        shown = [int(r["frame"]) for r in csv.DictReader(stream) if (r["labelled"], r["polyp"]) == ("1", "1")]
    for index in shown:
        image = FramePicture(folder / row["image"], index, modality="ES")
        target = MaskFile(folder / mask_file(row["case"], index))
        yield _case(row, image, target, f"{row['case']}-{index:03d}")


_MAKERS: Mapping[str, Callable[[Path, Row], Iterator[Case]]] = {
    "ct": partial(_volume, "CT"),
    "mr": partial(_volume, "MR"),
    "xray": _picture,
    "endoscopy": _frames,
    "pathology": _slide,
}
