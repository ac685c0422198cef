"""Predictions that already lie on disk, whichever program made them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from medimg_eval.case import Mask, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging import read_mask
from medimg_eval.models.base import Segmenter


class Precomputed(Segmenter):
    """A folder with one file per case.

    Args:
        root: the folder.
        pattern: file name of a case, holding `{case}`; `.nii` is found beside `.nii.gz`.

    Raises:
        UserError: the folder does not exist, or the pattern holds no `{case}`.
    """

    reads_images: ClassVar[bool] = False
    file_arguments: ClassVar[tuple[str, ...]] = ("root",)

    def __init__(self, root: str, pattern: str = "{case}.nii.gz") -> None:
        self.root = Path(root).expanduser()
        self.pattern = pattern
        if not self.root.is_dir():
            raise UserError(f"{self.root}: no such folder; set model.root to the folder of predictions")
        if "{case}" not in pattern:
            raise UserError(f"expected {{case}} in model.pattern, got {pattern!r}")

    def segment(self, prompts: Prompts) -> Sequence[Mask]:
        """Reads the masks; a missing, damaged or misplaced one raises CaseError naming the file."""
        return [read_mask(self._path(prompt.case_id)) for prompt in prompts]

    def _path(self, case_id: str) -> Path:
        path = self.root / self.pattern.format(case=case_id)
        if path.is_file():
            return path
        plain = path.with_name(path.name.removesuffix(".gz"))
        if plain.is_file():
            return plain
        names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
        hint = f" (there is {close[0]!r}; set model.pattern if files are named otherwise)" if close else ""
        raise CaseError(f"{path}: no prediction for case {case_id!r}{hint}")
