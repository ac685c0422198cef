"""The images of a finished reconstruction run as cases of another task: what is a reconstruction worth downstream?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from medimg_eval.case import Case, Geometry, Image, Reference
from medimg_eval.codecs import Arrays
from medimg_eval.data.layouts.synthesis import manifest_of, stored_files
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.tasks.base import Layout, split_source

IMAGE = "image"
"""The attribute that tells where images come from: the model that reconstructed them."""


@dataclass(kw_only=True)
class Reconstructed(Layout):
    """Cases of another layout with stored reconstructions as images.

    Truth, patients and attributes are the layout's, and the attribute `image` is the model's name. A reconstruction
    takes the grid of the image that it replaces, shape and place; of complex numbers it is the magnitude. A case that
    the run failed to reconstruct is a case that cannot be read: it fails, and counts as that.

    Args:
        run: the folder of the reconstruction run.
        layout: whose cases they are.
        case: the id of the reconstruction that belongs to a case; fields are `{case}`, `{patient}` and any attribute.
        echo: of reconstructions with several echoes, which one is shown, from 1 on.
    """

    run: str
    layout: Layout
    case: str = "{case}"
    echo: int = 1

    def __post_init__(self) -> None:
        """Refuses what no file could be found by."""
        if "{" not in self.case:
            raise UsageError(f"Reconstructed: expected a field such as {{case}} in `case`, got {self.case!r}")
        if self.echo < 1:
            raise UsageError(f"Reconstructed: echoes are counted from 1 on, got echo={self.echo}")

    def cases(self, split: str) -> Sequence[Case]:
        """The layout's cases in their order.

        Raises UserError where there is no such run, it is not finished, it made something else, or nothing of the
        cases.
        """
        if not self.run:
            raise UserError("Reconstructed: set task.layout.run to the folder of a run of a reconstruction task")
        folder = Path(self.run).expanduser()
        manifest = manifest_of(folder)
        stored = _stored_files(folder)
        cases = self.layout.cases(split)
        names = [self._named(case) for case in cases]
        if not any(name in stored for name in names):
            raise UserError(
                f"{folder}: has reconstructed {', '.join(map(repr, list(stored)[:3])) or 'nothing'}, ..., and none of "
                f"the {len(cases)} cases of split {split!r}, such as {names[0] if names else ''!r}; set `case` to how "
                "they are called there"
            )
        return [
            replace(
                case,
                images=(StoredReconstruction(stored.get(name), name, case.images[0], self.echo, folder),),
                attributes={**case.attributes, IMAGE: str(manifest.get("model", ""))},
            )
            for case, name in zip(cases, names, strict=True)
        ]

    def split_source(self) -> Mapping[str, str]:
        """Files defining splits, as the layout has them."""
        return split_source(self.layout)

    def _named(self, case: Case) -> str:
        fields = {**case.attributes, "case": case.id, "patient": case.patient or ""}
        try:
            return self.case.format_map(fields)
        except (KeyError, ValueError, IndexError) as error:
            raise UsageError(
                f"Reconstructed: case {case.id!r} has nothing for {self.case!r} ({error}); it has {', '.join(fields)}"
            ) from error


@dataclass(frozen=True)
class StoredReconstruction:
    """A reconstruction that a run has stored.

    Attributes:
        path: the file; None where the run has none of this case.
        name: what the run calls the case.
        shown: the image that it replaces, which has the grid.
        echo: which of several, from 1 on.
        folder: the run's.
    """

    path: Path | None
    name: str
    shown: Reference[Image]
    echo: int
    folder: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return () if self.path is None else (self.path,)

    def read(self) -> Image:
        """Returns the magnitude, float32, (1, *spatial), on the replaced image's grid.

        Raises CaseError where the run has none, the file cannot be read, or it is no image of that shape.
        """
        if self.path is None:
            raise CaseError(f"{self.folder}: has no reconstruction of {self.name!r}; run its test again")
        array = Arrays().read(self.path)
        grid = self.shown.geometry()
        if array.ndim == len(grid.shape) + 1 and self.echo <= len(array):
            array = array[self.echo - 1]
        if array.dtype.kind not in "fc" or array.shape != grid.shape:
            raise CaseError(
                f"{self.path}: holds {array.dtype} {array.shape}, expected an image of {grid.shape}, as the case has it"
            )
        magnitude = (np.abs(array) if array.dtype.kind == "c" else array).astype(np.float32, copy=False)
        return Image(magnitude[None], grid.affine, getattr(self.shown, "modality", ""), grid.units)

    def geometry(self) -> Geometry:
        """The grid of the image that it replaces."""
        return self.shown.geometry()


def _stored_files(folder: Path) -> dict[str, Path]:
    """Case -> reconstruction file; UserError for other stored kinds."""
    files = stored_files(folder)
    odd = next((file for file in files.values() if file.suffix != ".npy"), None)
    if odd is not None:
        raise UserError(f"{odd}: is no reconstruction; name the folder of a run of a reconstruction task")
    return files
