"""Masks that already lie on disk: of any program, or as nnU-Net v2 leaves them."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from medimg_eval.case import Mask, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging import MaskFile, find_label_maps, read_mask, resample
from medimg_eval.models.base import Example, Segmenter
from medimg_eval.models.class_mapping import Translation, Translator, known_classes
from medimg_eval.models.precomputed.files import FromFolder, result_folder
from medimg_eval.models.segmentation import Step, postprocessed_mask


class Precomputed(FromFolder, Segmenter):
    """Folder of masks, one file per case, or per case and class.

    Args:
        pattern: the file of a case in it, holding `{case}`; `.nii` is found beside `.nii.gz`. With `{class}` there
            is one binary mask per class; the files of classes without a label of the task are not opened.
        translate: from the model's classes to the task's labels: `from` (a list in configs/class_lists,
            integer -> name, or names from 1 on), `to` (class -> label, or null to drop it; equal names match by
            themselves) and `lacks` (labels the model has no class for). None takes the integers as the task's own.
        objects: of files that number objects: `values` where each value is an object of label 1, or what labels were
            multiplied by before the number was added, such as 1000.

    Raises:
        UserError: the folder does not exist, or the pattern holds no `{case}`, or it holds `{class}` and
            `translate` does not name the classes.
    """

    def __init__(
        self,
        root: str,
        pattern: str = "{case}.nii.gz",
        translate: Mapping[str, Any] | None = None,
        postprocess: Sequence[Step] = (),
        objects: Literal["values"] | int | None = None,
    ) -> None:
        self.objects = objects
        self.root = result_folder(root, "predictions", pattern)
        self.pattern = pattern
        self.postprocess = tuple(postprocess)
        self.dropped: Counter[str] = Counter()
        """Voxels, by name, of classes that became background."""
        if "{class}" in pattern and not translate:
            raise UserError("expected model.translate.from to name the classes of the files, got none")
        self.translator = Translator(translate) if translate else None

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Checks the translation before any case."""
        if self.translator is not None:
            self.translator(labels)

    def segment(self, prompts: Prompts) -> Sequence[Mask]:
        """Reads masks; CaseError names missing, damaged or misplaced files."""
        return [self._read(prompt) for prompt in prompts]

    def _read(self, prompt: Prompt) -> Mask:
        wanted = self.translator(prompt.labels) if self.translator is not None else None
        if "{class}" in self.pattern and wanted is not None:
            mask = self._joined(prompt.case_id, wanted)
        else:
            path = self._path(prompt.case_id)
            mask = read_mask(path, objects=self.objects)
            mask = self._translated(mask, wanted, path) if wanted is not None else mask
        return postprocessed_mask(self.postprocess, mask, prompt.labels)

    def _translated(self, mask: Mask, wanted: Translation, path: Path) -> Mask:
        try:
            labels, unmapped = wanted.apply(mask.labels)
        except ValueError as error:
            raise CaseError(f"{path}: {error}; check model.translate.from") from error
        self.dropped.update(unmapped)
        note = ", ".join(f"{name} {count}" for name, count in unmapped.items())
        notes = (*mask.notes, f"voxels of classes without a label, now background: {note}") if unmapped else mask.notes
        return replace(mask, labels=labels, names={}, notes=notes)

    def _joined(self, case_id: str, wanted: Translation) -> Mask:
        """Label map from binary masks; later classes win overlaps."""
        joined: Mask | None = None
        for number, label in sorted(wanted.targets.items()):
            path = self._path(case_id, wanted.classes[number])
            mask = read_mask(path)
            if joined is None:
                joined = replace(mask, labels=np.zeros(mask.labels.shape, dtype=np.int32), names={}, instances=None)
            elif difference := joined.geometry.difference(mask.geometry):
                raise CaseError(f"{path}: {difference} of the masks of the other classes")
            joined.labels[mask.labels != 0] = label
        if joined is None:
            raise CaseError(f"case {case_id!r}: no class of the model is a label of the task")
        return joined

    def _path(self, case_id: str, class_name: str = "") -> Path:
        path = self.root / self.pattern.replace("{case}", case_id).replace("{class}", class_name)
        if path.is_file():
            return path
        plain = path.with_name(path.name.removesuffix(".gz"))
        if plain.is_file():
            return plain
        # The file of another case has nearly the same name too, and is none to offer.
        stem = case_id.rpartition("/")[2].lower() if "{case}" in Path(self.pattern).name else ""
        names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        names = [name for name in names if stem in name.lower()]
        close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
        hint = f" (there is {close[0]!r}; set model.pattern if files are named otherwise)" if close else ""
        raise CaseError(f"{path}: no prediction for case {case_id!r}{hint}")


class MaskFiles(Precomputed):
    """A folder of label maps of any format, each named as its case.

    Args:
        root: the folder, or nnU-Net's of a cross-validation: see `find_label_maps`.
        grids: a folder of label maps of the same names, to whose grids these are brought by the nearest voxel. None
            leaves them as they are, and refuses what lies on another grid than the reference.
        resampled: whether that is done to all; otherwise DICOM-SEG alone, which leaves out empty slices, is put there,
            and only where its frames are slices of the grid.

    Raises:
        UserError: a folder does not exist or is empty, or two files stand for one case.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("root", "grids")

    def __init__(self, root: str, grids: str | None = None, resampled: bool = True) -> None:
        super().__init__(root)
        self.files, self.resampled = find_label_maps(self.root), resampled
        self.grids = {} if grids is None else find_label_maps(Path(grids).expanduser())

    def _read(self, prompt: Prompt) -> Mask:
        path = self._path(prompt.case_id)
        frames = bool(self.grids) and not self.resampled and path.suffix.lower() == ".dcm"
        grid = MaskFile(self.grids[prompt.case_id]).geometry() if self.grids else None
        mask = _renumber_mask(read_mask(path, grid=grid) if frames else super()._read(prompt), prompt.labels)
        if grid is None or not self.resampled:
            return mask
        try:
            return resample(mask, grid)
        except ValueError as error:
            raise CaseError(f"{self.files[prompt.case_id]}: {error}") from error

    def _path(self, case_id: str, class_name: str = "") -> Path:
        if case_id not in self.files:
            raise CaseError(f"{self.root}: holds no label map of case {case_id!r}")
        return self.files[case_id]


def _renumber_mask(mask: Mask, labels: Mapping[int, str]) -> Mask:
    """Mask in the task's integers, by the file's class names."""
    numbers = {name: label for label, name in labels.items()}
    if not mask.names or not set(mask.names.values()) <= numbers.keys():
        return mask
    turned = np.arange(int(mask.labels.max(initial=0)) + 1)
    for label, name in mask.names.items():
        turned[label : label + 1] = numbers[name]
    return replace(mask, labels=turned[mask.labels], names=dict(labels))


class NnUnetResults(Precomputed):
    """Folder of `nnUNetv2_predict`, or a trained model's `fold_X/validation`.

    In a trained model's folder every case is found in the fold that it was validated in. Labels and the ending of
    file names are read from the `dataset.json` that nnU-Net puts into either folder.

    Args:
        pattern: name of a case in nnU-Net's files without the ending, holding `{case}`.
        folds: the folds taken of a trained model's folder; None takes all there are.
        translate: as of `Precomputed`; `from` is by default the labels of `dataset.json`. None translates by equal
            names, unless nnU-Net was trained on overlapping regions, whose integers are the dataset's own.

    Raises:
        UserError: the folder has no such fold, or a case is in two; `prepare` raises it where the folder holds no
            predictions or no `dataset.json`.
    """

    def __init__(
        self,
        root: str,
        pattern: str = "{case}",
        folds: Sequence[int] | None = None,
        translate: Mapping[str, Any] | None = None,
        postprocess: Sequence[Step] = (),
    ) -> None:
        folder = Path(root).expanduser()
        described = _read_dataset(folder) if folder.is_dir() else {}
        ending = str(described.get("file_ending", ".nii.gz"))
        translate = dict(translate or {})
        if not translate.get("from") and (names := _label_names(described)):
            translate["from"] = names
        super().__init__(root, pattern + ending, translate, postprocess)
        self.described = bool(described)
        self.files = _validation_files(self.root, ending, folds)

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Checks for nnU-Net's files and predictions, then builds the translation."""
        if not self.described:
            raise UserError(
                f"{self.root}: no dataset.json in it or above it, so nnU-Net v2 did not write it; copy the file there, "
                "or use model=precomputed"
            )
        if not (self.files or any(self.root.glob("*" + Path(self.pattern).suffix))):
            raise UserError(
                f"{self.root}: holds neither {self.pattern.replace('{case}', '*')} nor fold_X/validation; "
                "set model.root to a folder that nnUNetv2_predict wrote, or to TRAINER__PLANS__CONFIGURATION"
            )
        super().prepare(labels, example)

    def held_cases(self) -> list[str]:
        """The cases that were predicted, or validated."""
        before, after = self.pattern.split("{case}", 1)
        validated = [name.removeprefix(before).removesuffix(after) for name in self.files]
        return validated or super().held_cases()

    def _path(self, case_id: str, class_name: str = "") -> Path:
        if not self.files:
            return super()._path(case_id, class_name)
        name = self.pattern.replace("{case}", case_id)
        if name not in self.files:
            raise CaseError(f"{self.root}: no fold's validation folder holds {name}, the prediction for {case_id!r}")
        return self.files[name]


def _read_dataset(folder: Path) -> Mapping[str, Any]:
    """Folder's or trained model's `dataset.json`; empty where missing."""
    for parent in (folder, *list(folder.resolve().parents)[:3]):
        path = parent / "dataset.json"
        if path.is_file():
            with UserError.about(path, "is no JSON", ValueError):
                content = json.loads(path.read_text(encoding="utf-8"))
            labels = content.get("labels", {}) if isinstance(content, dict) else None
            if not isinstance(labels, dict) or not all(isinstance(number, int | list) for number in labels.values()):
                raise UserError(
                    f"{path}: expected `labels` to be name: integer, as nnU-Net v2 writes it; name the classes of an "
                    "older version with model=precomputed model.translate.from"
                )
            return dict(content)
    return {}


def _label_names(described: Mapping[str, Any]) -> dict[int, str]:
    """Integer -> name; empty for regions, whose integers join labels."""
    labels = described.get("labels", {})
    if not labels or any(isinstance(value, list) for value in labels.values()):
        return {}
    # nnU-Net also trains with an `ignore` label, which is never predicted.
    return known_classes({int(value): name for name, value in labels.items() if name != "ignore"})


def _validation_files(root: Path, ending: str, folds: Sequence[int] | None) -> dict[str, Path]:
    """File name -> validation file of wanted folds; empty without folds."""
    numbers = [int(path.parent.name[5:]) for path in root.glob("fold_*/validation") if path.parent.name[5:].isdigit()]
    lacking = [fold for fold in folds or [] if fold not in numbers]
    if lacking:
        raise UserError(f"{root}: there is no fold_{lacking[0]}/validation; the folds are {sorted(numbers)}")
    files: dict[str, Path] = {}
    for fold in sorted(numbers if folds is None else folds):
        for path in sorted((root / f"fold_{fold}" / "validation").glob(f"*{ending}")):
            if path.name in files:
                raise UserError(f"{path}: this case was also validated in {files[path.name].parent.parent.name}")
            files[path.name] = path
    return files
