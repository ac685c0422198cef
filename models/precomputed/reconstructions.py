"""Reconstructions that were made elsewhere, from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from medimg_eval.case import Array, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging.arrays import Bundle
from medimg_eval.models.base import Reconstructor


class GivenReconstructions(Reconstructor):
    """A folder with one file per scan, whichever program made them.

    Args:
        root: the folder.
        pattern: the file of a case in it, holding `{case}`: HDF5, as fastMRI and MC-MRRec have it, .npz or .npy.
        key: of the array in the file; not of .npy.
        fft: how the program scaled its inverse FFT: `ortho`, or `backward`, numpy's default, whose images are smaller
            by the root of the number of pixels of a slice, as in submissions to MC-MRRec.
    """

    reads_images: ClassVar[bool] = False
    file_arguments: ClassVar[tuple[str, ...]] = ("root",)

    def __init__(
        self,
        root: str,
        pattern: str = "{case}.h5",
        key: str = "reconstruction",
        fft: Literal["ortho", "backward"] = "ortho",
    ) -> None:
        self.root, self.pattern, self.key, self.fft = Path(root).expanduser(), pattern, key, fft
        if fft not in ("ortho", "backward"):
            raise UserError(f"expected model.fft to be ortho or backward, got {fft!r}")
        if not self.root.is_dir():
            raise UserError(f"{self.root}: no such folder; set model.root to the folder of reconstructions")
        if "{case}" not in pattern:
            raise UserError(f"expected {{case}} in model.pattern, got {pattern!r}")

    def reconstruct(self, prompts: Prompts) -> Sequence[Any]:
        """Returns the stored images; raises CaseError naming a file that is not there."""
        return [self._read(prompt.case_id) for prompt in prompts]

    def _read(self, case: str) -> Array:
        path = self.root / self.pattern.replace("{case}", case)
        if not path.is_file():
            raise CaseError(f"case {case!r}: {path}: no such file; set model.pattern to how the files are called")
        image = Bundle(path).array("array" if path.suffix == ".npy" else self.key)
        if self.fft == "ortho":
            return image
        scaled: Array = image * np.sqrt(np.prod(image.shape[-2:]))
        return scaled
