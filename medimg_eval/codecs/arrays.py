"""Images as bare numbers, such as reconstructions: .npy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from medimg_eval.case import Array
from medimg_eval.codecs.base import FileCodec
from medimg_eval.errors import CaseError
from medimg_eval.system import whole


class Arrays(FileCodec):
    """Arrays of numbers."""

    form = "array"
    suffix = ".npy"

    def save(self, path: Path, value: Array) -> None:
        """Writes an array."""
        with whole(path) as partial:
            np.save(partial, value, allow_pickle=False)

    def read(self, stored: Path) -> Array:
        """Reads an array; CaseError names invalid or truncated files."""
        try:
            with stored.open("rb") as stream:
                return np.lib.format.read_array(stream, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise CaseError(
                f"{stored}: cannot be read as a stored image ({error}); delete it, and run test again"
            ) from error
