"""Probabilities of every voxel: b2nd, float16 or else float32."""

from __future__ import annotations

from pathlib import Path

from medimg_eval.case import Mask, Probabilities
from medimg_eval.codecs.base import FileCodec
from medimg_eval.imaging import read_mask
from medimg_eval.imaging.volumes import SUFFIX, read_probabilities, write_probabilities


class ProbabilityMaps(FileCodec):
    """Probabilities of every voxel."""

    form = "probabilities"
    suffix = SUFFIX

    def save(self, path: Path, value: Probabilities) -> None:
        """Writes probabilities."""
        write_probabilities(path, value)

    def read(self, stored: Path) -> Probabilities | Mask:
        """Reads probabilities; a label map, of a run that stored those, stays one."""
        return read_probabilities(stored) if stored.suffix == SUFFIX else read_mask(stored)
