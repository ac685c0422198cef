"""Label maps: NIfTI with the case's geometry."""

from __future__ import annotations

from pathlib import Path

from medimg_eval.case import Mask
from medimg_eval.codecs.base import FileCodec
from medimg_eval.imaging import read_mask, write_mask
from medimg_eval.imaging.volumes import SUFFIX, read_probabilities


class Masks(FileCodec):
    """Label maps; of stored probabilities the most probable labels."""

    form = "label map"
    also = frozenset({"probabilities"})
    suffix = ".nii.gz"

    def save(self, path: Path, value: Mask) -> None:
        """Writes a label map."""
        write_mask(path, value)

    def read(self, stored: Path) -> Mask:
        """Reads a label map."""
        return read_probabilities(stored).most_probable() if stored.suffix == SUFFIX else read_mask(stored)
