"""Motions that already lie on disk, whichever program made them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from medimg_eval.case import Prompts
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging.motions import Motion, read_motion
from medimg_eval.models.base import Regressor
from medimg_eval.models.precomputed.files import FromFiles


class PrecomputedMotions(FromFiles, Regressor):
    """A motion file for each trial, as OpenCap writes them.

    Args:
        root: the folder.
        pattern: below it, with `{subject}` and `{trial}`, the parts of a case's id; `*` stands for anything.

    Raises:
        UserError: root is missing.
        UsageError: the pattern names no trial.
    """

    preferred_batch = 16

    def __init__(self, root: str, pattern: str = "{subject}_*/OpenSimData/Kinematics/{trial}.mot") -> None:
        self.root, self.pattern = Path(root).expanduser(), pattern
        if not self.root.is_dir():
            raise UserError(f"{self.root}: no such folder; set model.root to the folder of motions")
        if "{trial}" not in pattern:
            raise UsageError(f"model.pattern is invalid: expected {{trial}} in it, got {pattern!r}")

    def regress(self, prompts: Prompts) -> Sequence[Any]:
        """Reads the motions; a trial without a file, or with several, raises CaseError."""
        return [self._read(prompt.case_id) for prompt in prompts]

    def _read(self, case: str) -> Motion:
        subject, _, trial = case.rpartition("/")
        inner = self.pattern.format(subject=subject, trial=trial)
        files = sorted(self.root.glob(inner))
        if len(files) != 1:
            raise CaseError(
                f"case {case!r}: motion is invalid: expected one file {self.root}/{inner}, got {len(files)}"
            )
        return read_motion(files[0])
