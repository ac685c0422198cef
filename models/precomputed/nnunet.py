"""What nnU-Net v2 leaves on disk: a folder of predictions, or the validation folders of its cross-validation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.base import Example
from medimg_eval.models.class_mapping import known_classes
from medimg_eval.models.precomputed.masks import Precomputed
from medimg_eval.models.segmentation import Step


class NnUnetResults(Precomputed):
    """A folder that `nnUNetv2_predict` wrote, or a trained model's folder with `fold_X/validation` in it.

    In a trained model's folder every case is found in the fold that it was validated in. Labels and the ending of
    file names are read from the `dataset.json` that nnU-Net puts into either folder.

    Args:
        root: the folder.
        pattern: name of a case in nnU-Net's files without the ending, holding `{case}`.
        folds: the folds taken of a trained model's folder; None takes all there are.
        translate: as of `Precomputed`; `from` is by default the labels of `dataset.json`. None translates by equal
            names, unless nnU-Net was trained on overlapping regions, whose integers are the dataset's own.
        postprocess: steps on the label map, see docs/models.md.

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
        described = _dataset(folder) if folder.is_dir() else {}
        ending = str(described.get("file_ending", ".nii.gz"))
        translate = dict(translate or {})
        if not translate.get("from") and (names := _label_names(described)):
            translate["from"] = names
        super().__init__(root, pattern + ending, translate, postprocess)
        self.described = bool(described)
        self.files = _validated(self.root, ending, folds)

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Checks that nnU-Net wrote the folder and that there are predictions, then the translation."""
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

    def _path(self, case_id: str, class_name: str = "") -> Path:
        if not self.files:
            return super()._path(case_id, class_name)
        name = self.pattern.replace("{case}", case_id)
        if name not in self.files:
            raise CaseError(f"{self.root}: no fold's validation folder holds {name}, the prediction for {case_id!r}")
        return self.files[name]


def _dataset(folder: Path) -> Mapping[str, Any]:
    """`dataset.json` of the folder, or of the trained model that it lies in; empty where there is none."""
    for place in (folder, *list(folder.resolve().parents)[:3]):
        path = place / "dataset.json"
        if path.is_file():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise UserError(f"{path}: is no JSON ({error})") from error
            labels = found.get("labels", {}) if isinstance(found, dict) else None
            if not isinstance(labels, dict) or not all(isinstance(number, int | list) for number in labels.values()):
                raise UserError(
                    f"{path}: expected `labels` to be name: integer, as nnU-Net v2 writes it; name the classes of an "
                    "older version with model=precomputed model.translate.from"
                )
            return dict(found)
    return {}


def _label_names(described: Mapping[str, Any]) -> dict[int, str]:
    """Integer -> name; empty for regions, whose names say what is joined, not what an integer in a file means."""
    labels = described.get("labels", {})
    if not labels or any(isinstance(value, list) for value in labels.values()):
        return {}
    # nnU-Net also trains with an `ignore` label, which is never predicted.
    return known_classes({int(value): name for name, value in labels.items() if name != "ignore"})


def _validated(root: Path, ending: str, folds: Sequence[int] | None) -> dict[str, Path]:
    """File name -> file, of all the wanted folds; empty where there is no fold."""
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
