"""Folders of volumes, paired by patterns."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from medimg_eval.data.layouts.base import FolderLayout, texts
from medimg_eval.data.records import FIELD, Entry, Row, Target
from medimg_eval.data.tables import read_table
from medimg_eval.data.targets import MaskTarget
from medimg_eval.errors import MissingDataError, UsageError, UserError


@dataclass(kw_only=True)
class Volumes(FolderLayout):
    """A folder of volumes and label maps of any format, paired by case id.

    Args:
        image: pattern below `root` holding `{case}`, such as `imagesTs/{case}_0000.nii.gz`, or one for each image of a
            case (channels, modalities). Fields of other names stand for folders (`{folder}/{case}.nii.gz`); the pattern
            that cases are found by has to hold them.
        mask: pattern of the label map; `target` instead where the truth is of another kind.
        table: optional CSV below `root` with a column `case`, optionally `patient` and `split`; every other column
            becomes an attribute. Without it every file that matches `mask`, or else the first image, is a case.
        others: see `FolderLayout`.
    """

    image: str | Sequence[str] = ""
    mask: str = ""
    table: str = ""

    def __post_init__(self) -> None:
        """Refuses a truth that is named twice."""
        if self.mask and self.target is not None:
            raise UsageError("task.layout names the truth twice, by `mask` and by `target`; leave one out")

    def entries(self, root: Path) -> list[Entry]:
        """The table's cases in its order, or those found, sorted by id."""
        images, found_by = self._patterns()
        entries = self._listed(root, root / self.table) if self.table else self._found(root, found_by)
        shown = [
            replace(entry, images=tuple(self.image_file(entry.path(pattern)) for pattern in images))
            for entry in entries
        ]
        return [replace(entry, patient=self.patient_of(entry)) for entry in shown]

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The table."""
        return (root / self.table,) if self.table else ()

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The label map that `mask` names."""
        return MaskTarget(self.mask) if self.mask else super().truth(root, entries)

    def _patterns(self) -> tuple[list[str], str]:
        images = [self.image] if isinstance(self.image, str) else list(self.image)
        found_by = self.mask or images[0]
        known = {match[1] for match in FIELD.finditer(found_by)} | {"split"}
        for pattern in [*images, *([self.mask] if self.mask else [])]:
            held = {match[1] for match in FIELD.finditer(pattern)}
            if "case" not in held or (not self.table and held - known):
                raise UserError(
                    f"expected {{case}}, and at most the fields of {found_by!r}, in task.layout's pattern {pattern!r}"
                )
        return images, found_by

    def _listed(self, root: Path, table: Path) -> list[Entry]:
        rows = read_table(table)
        if rows:
            rows[0].value("case")
        own = ("case", "patient", "split")
        return [
            Entry(
                row.text("case"),
                root,
                (row,),
                split=row.text("split") if "split" in row.values else None,
                patient=(row.text("patient") or None) if "patient" in row.values else None,
                attributes=texts(row.values, without=own),
            )
            for row in rows
        ]

    def _found(self, root: Path, pattern: str) -> list[Entry]:
        found = find(root, pattern)
        if not found:
            raise MissingDataError(f"{root / pattern}: there is no such file")
        return [Entry(fields["case"], root, (Row(root, "", fields),), split=fields.get("split")) for _, fields in found]


def find(root: Path, pattern: str) -> list[tuple[Path, dict[str, str]]]:
    """The files below a folder that fit a pattern, each with what its fields stand for.

    They are sorted by split, case and path. A field that comes twice has one value: a case's folder often repeats its
    name. What is hidden, or lies in a hidden folder, does not count.
    """
    named: set[str] = set()
    pattern = PurePosixPath(pattern).as_posix()  # without `./` and doubled slashes

    def group(match: re.Match[str]) -> str:
        name = match[1]
        if name in named:
            return f"(?P={name})"
        named.add(name)
        return f"(?P<{name}>{'.+' if name == 'case' else '[^/]+?'})"

    def pieces(text: Callable[[str], str], field: Callable[[re.Match[str]], str]) -> str:
        # Escaping first would hide the fields, so the text between them is escaped piece by piece.
        made, end = [], 0
        for match in FIELD.finditer(pattern):
            made += [text(pattern[end : match.start()]), field(match)]
            end = match.end()
        return "".join([*made, text(pattern[end:])])

    regular = re.compile(pieces(re.escape, group))
    held = []
    for path in root.glob(pieces(glob.escape, lambda _: "*")):
        inner = path.relative_to(root)
        fitting = regular.fullmatch(inner.as_posix())
        # Archives made on a Mac hold a hidden `._` companion of every file, notebooks leave hidden copies.
        if fitting and not any(part.startswith(".") or part == "__MACOSX" for part in inner.parts):
            held.append((path, fitting.groupdict()))
    return sorted(held, key=lambda one: (one[1].get("split", ""), one[1].get("case", ""), one[0]))
