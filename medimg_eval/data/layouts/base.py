"""What all layouts share: the root, the split, the patients that must not lie in two of them, the target."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medimg_eval.case import Case
from medimg_eval.data.records import Entry, Target
from medimg_eval.data.resized import CroppedImage, CroppedMask, ResizedImage, ResizedMask, size_of
from medimg_eval.data.splits import ALL, FOLD, Divided, Splits, assign, digests, joined, refuse_overlap, tuned
from medimg_eval.errors import MissingDataError, SplitError, UserError, nearest
from medimg_eval.imaging import ImageFile
from medimg_eval.system import uncollected
from medimg_eval.tasks.base import Layout


@dataclass(kw_only=True)
class FolderLayout(Layout, ABC):
    r"""A dataset below one folder.

    Args:
        target: how the truth is written down.
        splits: the authors' file of splits, where the layout's own files do not say; folds drawn from a seed; or names.
        folds: split -> the fold, or list of folds, of the authors' files that it is made of, such as
            `{train: [1, 2, 3, 4], test: 0}`; without it a split is what they call one.
        patient: the column that names the patient, or a pattern such as `{slide_id:.12}` or `{Path~patient\d+}`; a
            mistake when it is empty in some record.
        allow_overlap: why patients may lie in more than one split; without it that is refused.
        tuning: a split that one patient in ten is taken out of, drawn from a fixed seed, to make a split `tune` for
            choosing among checkpoints, where the authors have none but the one they report on.
        only: a regular expression that is found in the ids of the cases that are meant, such as `amos_0[56]`.
        size: rows and columns that pictures and their masks are brought to before anybody sees them, for benchmarks
            that score resized pictures: images by linear interpolation, masks by the nearest pixel.
        crop: rows and columns about the middle that are kept of pictures and masks, before `size`.
        modality: DICOM code of the images, where their files say none.
        options: passed to the reader of the images.
    """

    root: str
    target: Target | None = None
    splits: Splits | Divided | None = None
    folds: Mapping[str, Any] = field(default_factory=dict)
    patient: str = ""
    allow_overlap: str = ""
    tuning: str = ""
    only: str = ""
    size: Sequence[int] = ()
    crop: Sequence[int] = ()
    modality: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @abstractmethod
    def entries(self, root: Path) -> list[Entry]:
        """The cases of all splits the layout knows of, in a fixed order.

        Raises UserError, naming file and line, where a file is missing or not understood.
        """

    def completed(self, entry: Entry) -> Entry:
        """Completes a wanted case with facts costly to find."""
        return entry

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """Files assigning cases to splits, when `splits` does not."""
        return ()

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """Layout's own form of truth, where `target` is unset; UserError without."""
        raise UserError("task.layout.target says how the truth is written down, and is not set")

    def each_fold(self) -> Mapping[int, FolderLayout]:
        """Fold number -> layout, where `splits.fold` is `all`; else none.

        Raises:
            UserError: the splits know of no folds.
        """
        if self.splits is None or getattr(self.splits, "fold", None) != ALL:
            return {}
        numbers = self.splits.fold_numbers(self.folder())
        if not numbers:
            raise UserError(
                f"{self._named(self.folder())}: knows of no folds; in names of files write {FOLD} for the number, or "
                "draw folds by task.layout.splits={_target_: medimg_eval.data.splits.SplitFolds}"
            )
        return {number: replace(self, splits=replace(self.splits, fold=number)) for number in numbers}  # type: ignore[type-var]

    def cases(self, split: str) -> list[Case]:
        """The cases of one split.

        Where nothing says which case belongs to which split, all of them serve any.

        Raises:
            SplitError: there is no such split.
            UserError: the root or a file is missing, a line is not understood, or a patient lies in two splits.
        """
        with uncollected():
            return self._cases(self.folder(), split)

    def _cases(self, root: Path, split: str) -> list[Case]:
        entries = self.entries(root)
        if self.splits is not None:
            entries = assign(entries, self.splits, root)
        if self.folds:
            entries = joined(entries, self.folds, root)
        if self.tuning:
            entries = tuned(entries, self.tuning)
        target = self.truth(root, entries) if self.target is None else self.target
        names = {entry.split for entry in entries if entry.split is not None}
        if names or self.splits is not None:
            if split not in names:
                raise SplitError(f"{self._named(root)}: no case of split {split!r}{nearest(split, names)}")
            if not self.allow_overlap:
                refuse_overlap(entries, root)
            entries = [entry for entry in entries if entry.split == split]
        entries = [self.completed(entry) for entry in entries if re.search(self.only, entry.id)]
        return [self._resized(self._case(entry, target)) for entry in entries]

    def _case(self, entry: Entry, target: Target) -> Case:
        return Case(entry.id, entry.images, target.reference(entry), entry.patient, entry.attributes)

    def _resized(self, case: Case) -> Case:
        if self.crop:
            part = size_of(self.crop, "crop")
            images = tuple(CroppedImage(image, part) for image in case.images)
            case = replace(case, images=images, target=CroppedMask(case.target, part))
        if not self.size:
            return case
        size = size_of(self.size)
        return replace(
            case,
            images=tuple(ResizedImage(image, size) for image in case.images),
            target=ResizedMask(case.target, size),
        )

    def split_source(self) -> dict[str, str]:
        """Path -> SHA-256 of files that define splits."""
        root = self.folder()
        return digests(self.split_files(root) if self.splits is None else self.splits.files(root))

    def folder(self) -> Path:
        """The root; raises UserError when there is no such folder."""
        return existing_root(self.root)

    def image_file(self, path: Path | tuple[Path, ...], **options: Any) -> ImageFile:
        """An image with the layout's modality and options."""
        return ImageFile(path, modality=self.modality, options={**self.options, **options})

    def patient_of(self, entry: Entry) -> str | None:
        """Patient by `patient`; UserError where the record lacks it."""
        if not self.patient:
            return entry.patient
        text = entry.fill(self.patient)
        if not text:
            raise entry.row.error(f"patient {self.patient!r} is empty")
        return text

    def with_patient(self, entry: Entry) -> Entry:
        """A case in the making with its patient; raises as `patient_of`."""
        return replace(entry, patient=self.patient_of(entry))

    def _named(self, root: Path) -> str:
        files = self.split_files(root) if self.splits is None else self.splits.files(root)
        return str(files[0]) if len(files) == 1 else str(root)


def existing_root(given: str | Path) -> Path:
    """The folder of a dataset; raises MissingDataError when there is no such folder."""
    root = Path(given).expanduser()
    if not root.is_dir():
        raise MissingDataError(f"{root}: no such folder; set task.layout.root to where the dataset lies")
    return root


def texts(row_values: Mapping[str, Any], *, without: Sequence[str] = ()) -> dict[str, str]:
    """The plain values of a record as attributes."""
    return {
        name: "" if value is None else str(value)
        for name, value in row_values.items()
        if name not in without and (value is None or isinstance(value, str | int | float | bool))
    }
