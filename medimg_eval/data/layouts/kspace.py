"""Folders of MRI raw data: one HDF5 file a scan."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Mask, Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.folders import find
from medimg_eval.data.layouts.synthesis import stored_files
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.data.tables import read_table
from medimg_eval.data.targets import MaskTarget
from medimg_eval.errors import CaseError, MissingDataError, UsageError, UserError, nearest
from medimg_eval.imaging import MaskFile
from medimg_eval.imaging.kspace import PRESETS, KeyMap, kspace_shape, read_dataset, read_kspace, rss, target_shape

Slices = tuple[int, int]
"""(start, stop) along the first axis."""


@dataclass(kw_only=True)
class KSpaceScans(FolderLayout):
    """K-space scans with stored or root-sum-of-squares images as truth.

    The image of a case is its samples: complex, (coil, *axes), their names in the attribute `axes`. Echoes come first,
    then axes in image space, then frequencies, so that the last two axes are those of a slice.

    Args:
        file: pattern of the files below the root, holding `{case}`, such as `multicoil_val/{case}.h5`; other fields,
            such as `{coils}-channel/{case}.h5`, become attributes.
        keys: a name of `medimg_eval.imaging.kspace.PRESETS`, or the fields of a `KeyMap`.
        slices: (start, stop) along the first axis; all when None.
        mask: what of full samples is shown: the key of a sampling mask in each file, such as `masks/poisson_6.0x`, or a
            pattern of .npy files below the root that are named by the size of a slice, such as
            `masks/R5_{rows}x{columns}.npy`. Of several masks, (mask, row, column), each scan has one of its own, drawn
            by its name. A mask that is smaller than a slice lies in its middle.
        square: the truth is cut to as many rows as it has columns, as fastMRI judges it.
        tissues: pattern of the label maps of the truth, below the root; of `slices` their slices.
        segmentation: the folder of a segmentation run on these scans, whose masks are judged by T2 beside the truth's.
        table: optional CSV below the root with a row for each scan.
        id: the column of the table that names the scan, or a pattern.
        columns: attribute -> the column of the table that holds it.
    """

    file: str
    keys: str | Mapping[str, Any]
    slices: Sequence[int] | None = None
    mask: str = ""
    square: bool = False
    tissues: str = ""
    segmentation: str = ""
    table: str = ""
    id: str = "case"
    columns: Mapping[str, str] = field(default_factory=dict)
    modality: str = "MR"

    def entries(self, root: Path) -> list[Entry]:
        """The files that fit the pattern, sorted."""
        keys, slices = self._keys(), _slice_ends(self.slices)
        rows = {row.fill(self.id): row for row in read_table(root / self.table)} if self.table else None
        entries = []
        for path, values in find(root, self.file):
            mask = str(root / self.mask) if self.mask.endswith(".npy") else self.mask
            image = Samples(path, keys, slices, self.modality, mask)
            own = {name: value for name, value in values.items() if name not in ("case", "split")}
            row = Row(path, "", values)
            if rows is not None:
                if values["case"] not in rows:
                    raise UserError(f"{root / self.table}: names no scan {values['case']!r} in {self.id!r}")
                row = replace(rows[values["case"]], values={**rows[values["case"]].values, **values})
                own |= {name: row.text(column) for name, column in self.columns.items()}
            entry = Entry(values["case"], root, (row,), (image,), values.get("split"), attributes=own)
            entries.append(self.with_patient(entry))
        if not entries:
            raise MissingDataError(f"{root / self.file}: there is no such file")
        return entries

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The image to be reconstructed."""
        tissues = MaskTarget(self.tissues) if self.tissues else None
        masks = stored_files(Path(self.segmentation).expanduser()) if self.segmentation else None
        if masks is not None and not any(entry.id in masks for entry in entries):
            raise UserError(f"{self.segmentation}: has no mask of the scans; name the folder of a segmentation run")
        return _Reconstructions(self._keys(), _slice_ends(self.slices), self.square, tissues, masks)

    def _keys(self) -> KeyMap:
        if isinstance(self.keys, str):
            UsageError.refuse_invalid("key map", PRESETS, self.keys)
            return PRESETS[self.keys]
        names = [field.name for field in fields(KeyMap)]
        unknown = next((name for name in self.keys if name not in names), None)
        if unknown is not None or not {"kspace", "axes"} <= self.keys.keys():
            wrong = (
                "needs 'kspace' and 'axes'" if unknown is None else f"has no field {unknown!r}{nearest(unknown, names)}"
            )
            raise UsageError(f"a key map {wrong}")
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in self.keys.items()
        }
        return KeyMap(**settings)


def _slice_ends(slices: Sequence[int] | None) -> Slices | None:
    if slices is None:
        return None
    if len(slices) != 2 or not 0 <= slices[0] < slices[1]:
        raise UsageError(f"expected slices as start and stop, such as [50, 206], got {list(slices)}")
    return int(slices[0]), int(slices[1])


@dataclass(frozen=True)
class Samples:
    """The samples of one scan, of `slices` along the first axis.

    The mask is as of `KSpaceScans`, the pattern of files with its folder; "" for all samples.
    """

    path: Path
    keys: KeyMap
    slices: Slices | None = None
    modality: str = "MR"
    mask: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, and that of the mask."""
        if not self.mask.endswith(".npy"):
            return (self.path,)
        try:
            return (self.path, self._masks(self.geometry().shape[-2:]))
        except CaseError:  # said when it is read
            return (self.path,)

    def read(self) -> Image:
        """Returns complex samples, (coil, *the other axes); raises CaseError naming the file."""
        data = read_kspace(self.path, self.keys, slices=self.slices)
        names = self._names()
        attributes = {"axes": " ".join(names), "centred": str(data.centred).lower(), **data.attributes}
        array = data.samples if "coil" in data.axes else data.samples[None]
        stored = data.axes if "coil" in data.axes else ("coil", *data.axes)
        array = array.transpose([stored.index(name) for name in ("coil", *names)])
        if self.mask:
            mask = self._mask(array.shape[-2:])
            array = array * (mask if data.centred else np.fft.ifftshift(mask)).astype(np.float32)
        return Image(array, np.eye(4), modality=self.modality, units="pixel", attributes=attributes)

    def geometry(self) -> Geometry:
        """Lengths of the axes but the coil's, from the header."""
        shape = dict(zip(self.keys.axes, kspace_shape(self.path, self.keys), strict=True))
        if self.slices is not None:
            shape[self.keys.axes[0]] = self.slices[1] - self.slices[0]
        return Geometry(tuple(shape[name] for name in self._names()), np.eye(4), "pixel")

    def _names(self) -> list[str]:
        """The axes but the coil's: echoes, axes in image space, frequencies."""
        return sorted((name for name in self.keys.axes if name != "coil"), key=_axis_rank)

    def _masks(self, shape: tuple[int, ...]) -> Path:
        rows, columns = shape
        return Path(self.mask.replace("{rows}", str(rows)).replace("{columns}", str(columns)))

    def _mask(self, shape: tuple[int, ...]) -> Array:
        """Which places of a slice are measured, bool, (row, column)."""
        if self.mask.endswith(".npy"):
            path = self._masks(shape)
            with CaseError.about(path, "cannot be read as sampling masks", OSError, ValueError, EOFError):
                stored = np.load(path, allow_pickle=False)
        else:
            path, stored = self.path, np.asarray(read_dataset(self.path, self.mask))
        if stored.dtype.kind not in "biuf" or not np.isin(stored, (0, 1)).all():
            raise CaseError(f"{path}: a sampling mask holds 0 and 1, this one {stored.dtype} with other values")
        if path != self.path and stored.ndim == 3:
            stored = stored[zlib.crc32(self.path.stem.encode()) % len(stored)]
        mask = stored.squeeze().astype(bool)
        if mask.ndim != 2 or any(own > full for own, full in zip(mask.shape, shape, strict=True)):
            raise CaseError(f"{path}: a sampling mask of shape {stored.shape} does not fit slices of {shape}")
        before = [(full - own) // 2 for own, full in zip(mask.shape, shape, strict=True)]
        wide = np.zeros(shape, bool)
        wide[before[0] : before[0] + mask.shape[0], before[1] : before[1] + mask.shape[1]] = mask
        return wide


@dataclass
class _Reconstructions:
    """The image of each scan."""

    keys: KeyMap
    slices: Slices | None
    square: bool = False
    labels: MaskTarget | None = None
    masks: Mapping[str, Path] | None = None

    def reference(self, entry: Entry) -> Reference[Image]:
        path = entry.images[0].files[0]
        labels = None if self.labels is None else self.labels.reference(entry)
        predicted = None
        if self.masks is not None:  # a scan that the run failed on has no file, and fails here, too
            predicted = MaskFile((self.masks.get(entry.id, Path(f"{entry.id} (no mask was stored)")),))
        return Reconstruction(path, self.keys, self.slices, self.square, labels, predicted)


@dataclass(frozen=True)
class Reconstruction:
    """Stored reconstruction of samples, or root sum of squares over coils.

    `slices` are along the first axis; `square` says whether it is cut to as many rows as columns; `labels` which tissue
    lies where, of all slices, and `predicted` the same of a segmentation run.
    """

    path: Path
    keys: KeyMap
    slices: Slices | None = None
    square: bool = False
    labels: Reference[Mask] | None = None
    predicted: Reference[Mask] | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, and those of the tissues."""
        return (self.path, *(path for mask in (self.labels, self.predicted) if mask is not None for path in mask.files))

    def read(self) -> Image:
        """Returns (1, *axes), with echoes first; raises CaseError naming the file.

        An under-sampled scan without an image is an error, for nothing can be made of it.
        """
        data = read_kspace(self.path, self.keys, slices=self.slices)
        if data.target is None and data.mask is not None:
            raise CaseError(f"{self.path}: is under-sampled and holds no image to reconstruct; it cannot be judged")
        array: Array = rss(data) if data.target is None else data.target
        array = array.transpose(self._order(array.ndim))
        array = array[..., 0] if array.ndim == len(self._rest()) + 1 and array.shape[-1] == 1 else array
        if self.square:
            rows = min(array.shape[-2:])
            first = (array.shape[-2] - rows) // 2
            array = array[..., first : first + rows, :]
        origin = "root of the sum of squares" if data.target is None else "as stored"
        return Image(array[None], np.eye(4), modality="MR", units="pixel", attributes={"made": origin})

    def tissues(self) -> Mask:
        """Reads which tissue lies where; raises CaseError where nothing says it."""
        if self.labels is None:
            raise CaseError(f"{self.path}: no map of tissues belongs to it; name one by task.layout.tissues")
        return self._cut(self.labels.read())

    def predicted_tissues(self) -> Mask | None:
        """Reads the mask of a segmentation run, if one is judged; raises CaseError."""
        return None if self.predicted is None else self._cut(self.predicted.read())

    def _cut(self, mask: Mask) -> Mask:
        return mask if self.slices is None else replace(mask, labels=mask.labels[slice(*self.slices)], instances=None)

    def geometry(self) -> Geometry:
        """The grid, from the header."""
        sampled = dict(zip(self.keys.axes, kspace_shape(self.path, self.keys), strict=True))
        stored = target_shape(self.path, self.keys) or tuple(sampled[name] for name in self._rest())
        if self.slices is not None:
            stored = (self.slices[1] - self.slices[0], *stored[1:])
        shape = [stored[axis] for axis in self._order(len(stored))]
        if len(shape) == len(self._rest()) + 1 and shape[-1] == 1:
            shape.pop()
        if self.square:
            shape[-2] = min(shape[-2:])
        return Geometry(tuple(shape), np.eye(4), "pixel")

    def _rest(self) -> list[str]:
        return [name for name in self.keys.axes if name != "coil"]

    def _order(self, axes: int) -> list[int]:
        """Axes ordered as the samples', further ones behind."""
        names = [*self._rest(), *("" for _ in range(axes - len(self._rest())))]
        return sorted(range(axes), key=lambda place: _axis_rank(names[place]))


def _axis_rank(axis: str) -> tuple[bool, bool, bool]:
    """Sort key: echoes, image-space axes, frequencies, unnamed axes."""
    return not axis, axis.startswith("k"), axis != "echo"
