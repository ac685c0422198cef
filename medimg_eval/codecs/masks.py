"""Label maps, with or without numbered objects: NIfTI with the case's geometry."""

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


NUMBERED = ".objects.nii.gz"
"""How files of numbered objects end."""

OBJECTS = 1_000_000
"""What labels are multiplied by in files of numbered objects: 2000003 is object 3 of label 2."""


class InstanceMasks(FileCodec):
    """Label maps whose objects are numbered."""

    form = "numbered objects"
    suffix = NUMBERED

    def save(self, path: Path, value: Mask) -> None:
        """Writes labels and numbers."""
        write_mask(path, value, objects=OBJECTS)

    def read(self, stored: Path) -> Mask:
        """Reads labels and numbers."""
        return read_mask(stored, objects=OBJECTS)
