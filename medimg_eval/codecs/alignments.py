"""Transforms of registrations: .npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Alignment
from medimg_eval.codecs.base import FileCodec
from medimg_eval.errors import CaseError
from medimg_eval.system import whole


class Alignments(FileCodec):
    """Displacements and affine maps, with or without their inverse."""

    form = "alignment"
    suffix = ".npz"

    def save(self, path: Path, value: Alignment) -> None:
        """Writes the arrays."""
        held: dict[str, Any] = {"forward": value.forward}
        if value.inverse is not None:
            held["inverse"] = value.inverse
        with whole(path) as partial, partial.open("wb") as stream:
            np.savez(stream, **held)

    def read(self, stored: Path) -> Alignment:
        """Reads alignments; CaseError names invalid or truncated files."""
        with (
            CaseError.about(stored, "cannot be read as a stored transform", Exception, mend="run test again"),
            np.load(stored, allow_pickle=False) as held,
        ):
            return Alignment(held["forward"], held.get("inverse"))
