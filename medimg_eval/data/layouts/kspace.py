"""Folders of MRI raw data: one HDF5 file a scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.volumes import find
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.errors import CaseError, UsageError, UserError, nearest
from medimg_eval.imaging.kspace import PRESETS, KeyMap, kspace_shape, read_kspace, rss

Slices = tuple[int, int]
"""(start, stop) along the first axis."""


@dataclass(kw_only=True)
class KSpaceScans(FolderLayout):
    """Scans with their samples, and as truth the image that the file holds, or else the root of the sum of squares.

    The image of a case is its samples: complex, (coil, *the other axes in their order), their names in the attribute
    `axes`.

    Args:
        file: pattern of the files below the root, holding `{case}`, such as `multicoil_val/{case}.h5`.
        keys: a name of `medimg_eval.imaging.kspace.PRESETS`, or the fields of a `KeyMap`.
        slices: (start, stop) along the first axis; all when None.
        others: see `FolderLayout`.
    """

    file: str
    keys: str | Mapping[str, Any]
    slices: Sequence[int] | None = None
    modality: str = "MR"

    def entries(self, root: Path) -> list[Entry]:
        """The files that fit the pattern, sorted."""
        keys, slices = self._keys(), _ends(self.slices)
        made = []
        for path, said in find(root, self.file):
            image = Samples(path, keys, slices, self.modality)
            entry = Entry(said["case"], root, (Row(path, "", said),), (image,), said.get("split"))
            made.append(replace(entry, patient=self.patient_of(entry)))
        if not made:
            raise UserError(f"{root / self.file}: there is no such file")
        return made

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The image to be reconstructed."""
        return _Reconstructions(self._keys(), _ends(self.slices))

    def _keys(self) -> KeyMap:
        if isinstance(self.keys, str):
            if self.keys not in PRESETS:
                raise UsageError(f"there is no key map {self.keys!r}{nearest(self.keys, PRESETS)}")
            return PRESETS[self.keys]
        known = [one.name for one in fields(KeyMap)]
        lost = next((name for name in self.keys if name not in known), None)
        if lost is not None or not {"kspace", "axes"} <= self.keys.keys():
            wrong = "needs 'kspace' and 'axes'" if lost is None else f"has no field {lost!r}{nearest(lost, known)}"
            raise UsageError(f"a key map {wrong}")
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in self.keys.items()
        }
        return KeyMap(**given)


def _ends(slices: Sequence[int] | None) -> Slices | None:
    if slices is None:
        return None
    if len(slices) != 2 or not 0 <= slices[0] < slices[1]:
        raise UsageError(f"expected slices as start and stop, such as [50, 206], got {list(slices)}")
    return int(slices[0]), int(slices[1])


@dataclass(frozen=True)
class Samples:
    """The samples of one scan."""

    path: Path
    keys: KeyMap
    slices: Slices | None = None
    modality: str = "MR"

    @property
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)

    def read(self) -> Image:
        """Returns complex samples, (coil, *the other axes); raises CaseError naming the file."""
        data = read_kspace(self.path, self.keys, slices=self.slices)
        said = {"axes": " ".join(self._rest()), "centred": str(data.centred).lower(), **data.attributes}
        array = np.moveaxis(data.samples, self._coil(), 0) if "coil" in data.axes else data.samples[None]
        return Image(array, np.eye(4), modality=self.modality, units="pixel", attributes=said)

    def geometry(self) -> Geometry:
        """Lengths of the axes but the coil's, from the header."""
        shape = dict(zip(self.keys.axes, kspace_shape(self.path, self.keys), strict=True))
        if self.slices is not None:
            shape[self.keys.axes[0]] = self.slices[1] - self.slices[0]
        return Geometry(tuple(shape[name] for name in self._rest()), np.eye(4), "pixel")

    def _coil(self) -> int:
        return self.keys.axes.index("coil")

    def _rest(self) -> list[str]:
        return [name for name in self.keys.axes if name != "coil"]


@dataclass
class _Reconstructions:
    """The image of each scan."""

    keys: KeyMap
    slices: Slices | None

    def reference(self, entry: Entry) -> Reference[Image]:
        return Reconstruction(entry.row.path, self.keys, self.slices)


@dataclass(frozen=True)
class Reconstruction:
    """The image that a file holds for its samples, or the root of the sum of squares over the coils."""

    path: Path
    keys: KeyMap
    slices: Slices | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)

    def read(self) -> Image:
        """Returns (1, *axes as stored); raises CaseError naming the file.

        Of an under-sampled scan without an image nothing can be made, and that is an error.
        """
        data = read_kspace(self.path, self.keys, slices=self.slices)
        if data.target is None and data.mask is not None:
            raise CaseError(f"{self.path}: is under-sampled and holds no image to reconstruct; it cannot be judged")
        array: Array = rss(data) if data.target is None else data.target
        made = "root of the sum of squares" if data.target is None else "as stored"
        return Image(array[None], np.eye(4), modality="MR", units="pixel", attributes={"made": made})

    def geometry(self) -> Geometry:
        """The grid, for which the file is read."""
        return self.read().geometry
