"""Steps of sessions as they are done, so that a session that was interrupted goes on after its last one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.image import Image
from medimg_eval.system import whole

Step = Mapping[str, Any]
Entry = tuple[str, Step]
"""The id of a case, and a step of the session about it."""


class StepJournal:
    """Keeps steps by case, and the images that tools gave by their content.

    Args:
        known: steps of an earlier start, by the owner's id.
        write: keeps entries of (owner's id, step) for good; they are lost with the process without one.
        folder: that images are written to; they are kept in memory without one.
        owner: the id under which steps of a case are kept; the case's own by default.
    """

    def __init__(
        self,
        known: Mapping[str, Sequence[Step]] | None = None,
        write: Callable[[Iterable[Entry]], None] | None = None,
        folder: Path | None = None,
        owner: Callable[[str], str] = str,
    ) -> None:
        self._steps = {name: list(steps) for name, steps in (known or {}).items()}
        self._write, self._folder, self._owner = write, folder, owner
        self._images: dict[str, Image] = {}

    def steps(self, case_id: str) -> list[Step]:
        """The steps of a session so far, in order."""
        return list(self._steps.get(self._owner(case_id), ()))

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds steps; a kill loses none of them once this returns."""
        owned = [(self._owner(case_id), step) for case_id, step in entries]
        if self._write is not None and owned:
            self._write(owned)
        for owner, step in owned:
            self._steps.setdefault(owner, []).append(step)

    def keep_image(self, image: Image) -> str:
        """Keeps an image, once for equal ones; returns its name."""
        array = np.ascontiguousarray(image.array)
        about = repr((array.dtype.str, array.shape, np.asarray(image.affine).tolist(), image.units))
        name = f"{hashlib.sha256(about.encode() + array.tobytes()).hexdigest()[:32]}.npz"
        if self._folder is None:
            self._images[name] = image
            return name
        path = self._folder / name
        if not path.is_file():
            self._folder.mkdir(parents=True, exist_ok=True)
            with whole(path) as partial:
                np.savez(partial, array=array, affine=image.affine, units=np.array(image.units))
        return name

    def image(self, name: str) -> Image:
        """An image by its name."""
        if self._folder is None or name in self._images:
            return self._images[name]
        return read_kept_image(self._folder / name)


def read_kept_image(path: Path) -> Image:
    """Reads an image that a journal wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        units: Any = str(arrays["units"])
        return Image(arrays["array"], arrays["affine"], units=units)
