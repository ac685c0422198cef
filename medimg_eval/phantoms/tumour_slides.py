"""Small pathology phantoms, half of them without tumour, that are told apart as whole slides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from medimg_eval.case import Case, LocatedFindings, Outline
from medimg_eval.data.records import Given
from medimg_eval.errors import UserError
from medimg_eval.imaging import ImageFile, MaskFile
from medimg_eval.phantoms.cohort import (
    ATTRIBUTES,
    PATTERN,
    SLIDE_UM,
    SPLITS,
    Member,
    cohort,
    cohort_folder,
    read_rows,
    write_tables,
)
from medimg_eval.phantoms.pathology import COARSE, TEXT, write_case

KIND = "tumour_slides"

EDGE = 1024
"""Level-0 pixels along each side: 0.5 mm."""

CLASSES = ("no tumour", "tumour")

README = """These are phantoms: drawn by a program, of no patient. Small stained slides, half of them without tumour.
Numbers measured on them show that a tool works, not how well it does on patients.

"""


class _Half(Member):
    """Patient of a cohort balanced by tumour in every split."""

    @property
    def healthy(self) -> bool:
        """Whether the slide has no tumour: one of each pair."""
        return (self.number // len(PATTERN) + self.number) % 2 == 1


@dataclass
class TumourSlides:
    """Small slides with or without tumour, outlined in `LocatedFindings`.

    `root` holds `tumour_slides` (None keeps it in the cache), written on first use; `count` is that of slides over all
    splits. Of each 16, 8 are to fit on, 2 to validate on and 6 to test on, and half of each hold a tumour.
    """

    root: str | None = None
    count: int = 96
    seed: int = 0

    def cases(self, split: str) -> list[Case]:
        """Cases of `fit`, `validate` or `test`, disjoint by patient.

        Raises UserError where there is no such split, or the phantoms cannot be written.
        """
        UserError.refuse_unknown("phantoms have no split", SPLITS, split)
        folder = cohort_folder(KIND, self.root, self.count, self.seed, _fill_folder)
        has_tumour = {row["case"]: row["tumour"] == "1" for row in read_rows(folder / "findings.csv")}
        rows = [row for row in read_rows(folder / "cases.csv") if row["split"] == split]
        return [_make_case(folder, row, tumour=has_tumour[row["case"]]) for row in rows]


def _make_case(folder: Path, row: Mapping[str, str], *, tumour: bool) -> Case:
    image = ImageFile(folder / row["image"], modality="SM", options={"um_per_px": SLIDE_UM})
    mask = folder / row["mask"]
    outlines = {"tumour": Outline(MaskFile(mask), 1, COARSE)} if tumour else {}
    findings = LocatedFindings(dict(zip(CLASSES, (float(not tumour), float(tumour)), strict=True)), outlines)
    target = Given(findings, (folder / "findings.csv", mask), image)
    return Case(row["case"], (image,), target, row["patient"], {name: row[name] for name in ATTRIBUTES})


def _fill_folder(folder: Path, stamp: Mapping[str, Any]) -> None:
    members_ = cohort("slide", stamp["cases"], stamp["seed"])
    members = [_Half(**{field.name: getattr(member, field.name) for field in fields(member)}) for member in members_]
    write_tables(folder, members, [write_case(folder, member, EDGE) for member in members])
    text = TEXT.replace("Every fifth patient's slides hold", "Every second patient's slides hold")
    (folder / "README.txt").write_text(f"{README}{text}.\n", encoding="utf-8")
