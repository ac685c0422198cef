"""Folders of volumes or pictures: paired by patterns or names, or one per class."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from medimg_eval.case import Reference
from medimg_eval.data.layouts.base import FolderLayout, texts
from medimg_eval.data.records import FIELD, Entry, Row, Target
from medimg_eval.data.splits import SHOWN
from medimg_eval.data.tables import read_table
from medimg_eval.data.targets import ClassName, MaskTarget
from medimg_eval.errors import MissingDataError, UsageError, UserError, shortened
from medimg_eval.imaging import find_label_maps
from medimg_eval.imaging.motions import Motion, MotionFile


@dataclass(kw_only=True)
class MaskLayout(FolderLayout):
    """Layout whose truth is a label map named by the pattern `mask`, or `target`."""

    mask: str = ""

    def __post_init__(self) -> None:
        """Refuses a truth that is named twice."""
        if self.mask and self.target is not None:
            raise UsageError("task.layout names the truth twice, by `mask` and by `target`; leave one out")

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The label map that `mask` names."""
        return MaskTarget(self.mask) if self.mask else super().truth(root, entries)


@dataclass(kw_only=True)
class Volumes(MaskLayout):
    """Folder of volumes and label maps, paired by case id.

    Args:
        image: pattern below `root` holding `{case}`, such as `imagesTs/{case}_0000.nii.gz`, or one for each image of a
            case (channels, modalities). Fields of other names stand for folders (`{folder}/{case}.nii.gz`); the pattern
            that cases are found by has to hold them.
        mask: pattern of the label map; `target` instead where the truth is of another kind.
        table: optional CSV below `root` with a column `case`, optionally `patient` and `split`; every other column
            becomes an attribute. Without it every file that matches `mask`, or else the first image, is a case.
        id: pattern of the ids of cases that are found, such as `{video}/{case}` where files of several folders have one
            name.
    """

    image: str | Sequence[str] = ""
    table: str = ""
    id: str = "{case}"

    def entries(self, root: Path) -> list[Entry]:
        """The table's cases in its order, or those found, sorted by id."""
        images, found_by = self._patterns()
        entries = self._listed(root, root / self.table) if self.table else self._found(root, found_by)
        image_files = [tuple(self.image_file(entry.path(pattern)) for pattern in images) for entry in entries]
        return [
            self.with_patient(replace(entry, images=some)) for entry, some in zip(entries, image_files, strict=True)
        ]

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The table."""
        return (root / self.table,) if self.table else ()

    def _patterns(self) -> tuple[list[str], str]:
        images = [self.image] if isinstance(self.image, str) else list(self.image)
        found_by = self.mask or images[0]
        fields = {match[1] for match in FIELD.finditer(found_by)} | {"split"}
        for pattern in [*images, *([self.mask] if self.mask else [])]:
            held = {match[1] for match in FIELD.finditer(pattern)}
            if "case" not in held or (not self.table and held - fields):
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
        matches = find(root, pattern)
        if not matches:
            raise MissingDataError(f"{root / pattern}: there is no such file")
        rows = [Row(root, "", fields) for _, fields in matches]
        return [Entry(row.filled(self.id, row.text), root, (row,), split=row.values.get("split")) for row in rows]


def find(root: Path, pattern: str) -> list[tuple[Path, dict[str, str]]]:
    """Files matching a pattern, with their fields' values.

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
        parts, end = [], 0
        for match in FIELD.finditer(pattern):
            parts += [text(pattern[end : match.start()]), field(match)]
            end = match.end()
        return "".join([*parts, text(pattern[end:])])

    regular = re.compile(pieces(re.escape, group))
    held = []
    for path in root.glob(pieces(glob.escape, lambda _: "*")):
        inner = path.relative_to(root)
        fitting = regular.fullmatch(inner.as_posix())
        # Archives made on a Mac hold a hidden `._` companion of every file, notebooks leave hidden copies.
        if fitting and not any(part.startswith(".") or part == "__MACOSX" for part in inner.parts):
            held.append((path, fitting.groupdict()))
    return sorted(held, key=lambda one: (one[1].get("split", ""), one[1].get("case", ""), one[0]))


@dataclass(kw_only=True)
class MaskFolder(FolderLayout):
    """Label maps without images, one per case, for stored predictions.

    A `table` with a column `case`, optionally `patient`, says which cases there are and in which order; every other
    column becomes an attribute. Without it each label map is one.
    """

    table: str = ""

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """The table."""
        return (Path(self.table),) if self.table else ()

    def entries(self, root: Path) -> list[Entry]:
        """The cases of the table, or those that were found, sorted by name."""
        files = find_label_maps(root)
        rows = {name: Row(path, "", {}) for name, path in files.items()}
        if self.table:
            rows = {row.text("case"): row for row in read_table(Path(self.table))}
            if missing := [name for name in rows if name not in files]:
                raise UserError(f"{self.table}: {len(missing)} cases have no label map in {root}: {shortened(missing)}")
        entries = []
        for name, row in rows.items():
            file = Row(row.path, row.place, {**row.values, "mask": files[name].relative_to(root).as_posix()})
            attributes = texts(row.values, without=("case", "patient"))
            patient = (row.text("patient") or None) if "patient" in row.values else None
            entries.append(self.with_patient(Entry(name, root, (file,), patient=patient, attributes=attributes)))
        return entries

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The label map."""
        return MaskTarget("mask")


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
    """

    pattern: str = "{split}/{class}/{file}"
    classes: Sequence[str] = ()
    endings: Sequence[str] = ENDINGS

    def entries(self, root: Path) -> list[Entry]:
        """The pictures, sorted by split and path."""
        entries = []
        for path, fields in find(root, self.pattern):
            if path.suffix.lower() in self.endings:
                row = Row(path, "", fields)
                name = path.relative_to(root).as_posix()
                entries.append(
                    self.with_patient(Entry(name, root, (row,), (self.image_file(path),), fields.get("split")))
                )
        if not entries:
            raise MissingDataError(
                f"{root / self.pattern}: there is no such picture; they end in {', '.join(self.endings)}"
            )
        return entries

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The class that the folder names."""
        return ClassName("class", self.classes or sorted({entry.row.text("class") for entry in entries}))


@dataclass(kw_only=True)
class PairedFolders(FolderLayout):
    """Folders of pictures and label maps, paired by stem.

    Args:
        images: folder below the root, which may hold `{split}`.
        masks: the same of the label maps; the same folder where `mask_suffix` tells them apart.
        mask_suffix: what the name of a label map has behind the name of its image, such as `_anno`.
        endings: of the pictures.
    """

    images: str = "images"
    masks: str = "masks"
    mask_suffix: str = ""
    endings: Sequence[str] = ENDINGS

    def entries(self, root: Path) -> list[Entry]:
        """Pairs sorted by split and name; UserError for unpaired files."""
        images, masks = (self._pictures(root, folder) for folder in (self.images, self.masks))
        if self.images == self.masks and self.mask_suffix:
            masks = {key: path for key, path in masks.items() if key[1].endswith(self.mask_suffix)}
            images = {key: path for key, path in images.items() if key not in masks}
        paired = {(split, name + self.mask_suffix): name for split, name in images}
        for present, expected, what in ((paired, masks, "label map"), (masks, paired, "image")):
            missing = sorted(name for key in present if key not in expected for name in [key[1]])
            if missing:
                raise UserError(f"{root}: {len(missing)} names have no {what}, the first being {missing[:SHOWN]}")
        return [
            self._entry(root, split, name, images[split, name], masks[split, name + self.mask_suffix])
            for split, name in images
        ]

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The label map of the same name."""
        return MaskTarget("mask")

    def _pictures(self, root: Path, folder: str) -> dict[tuple[str | None, str], Path]:
        pictures: dict[tuple[str | None, str], Path] = {}
        for path, fields in find(root, f"{folder}/{{file}}"):
            if path.suffix.lower() not in self.endings:
                continue
            key = (fields.get("split"), path.stem)
            if key in pictures:
                raise UserError(f"{path}: has the same name as {pictures[key]} but for its ending; keep one of them")
            pictures[key] = path
        if not pictures:
            raise MissingDataError(f"{root / folder}: holds no pictures that end in {', '.join(self.endings)}")
        return pictures

    def _entry(self, root: Path, split: str | None, name: str, image: Path, mask: Path) -> Entry:
        row = Row(image, "", {"case": name, "file": image.name, "mask": mask.relative_to(root).as_posix()})
        return self.with_patient(Entry(name, root, (row,), (self.image_file(image),), split))


@dataclass(kw_only=True)
class MotionFiles(FolderLayout):
    """Motion file per trial; cases are `subject/trial`, patients subjects.

    Args:
        pattern: of the true motions below the root, with `{subject}` and `{case}` for the trial.
    """

    pattern: str

    def entries(self, root: Path) -> list[Entry]:
        """The trials, by subject and name; raises UserError where there is none."""
        files = find(root, self.pattern)
        if not files:
            raise UserError(f"{root}: trials are invalid: expected files of the pattern {self.pattern!r}, got none")
        entries = []
        for path, fields in files:
            subject = fields.get("subject", "")
            row = Row(path, "", {**fields, "path": str(path)})
            name = f"{subject}/{fields['case']}" if subject else fields["case"]
            entries.append(Entry(name, root, (row,), split=fields.get("split"), patient=subject or None))
        return sorted(entries, key=lambda entry: entry.id)

    def truth(self, root: Path, entries: list[Entry]) -> Target:  # type: ignore[override]
        """The files themselves."""
        return _Motions()


class _Motions(Target):
    """Reads the file of a trial."""

    def reference(self, entry: Entry) -> Reference[Motion]:
        """The file."""
        return MotionFile(Path(entry.row.text("path")))
