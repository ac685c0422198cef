"""Files a case refers to, read only when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medimg_eval.case import Geometry, Image, Mask
from medimg_eval.errors import MissingDataError, UserError
from medimg_eval.imaging.reading import read, read_grid, read_mask
from medimg_eval.imaging.volumes import Region


@dataclass(frozen=True)
class _Files:
    path: str | Path | tuple[Path, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files it is read from."""
        return tuple(map(Path, self.path)) if isinstance(self.path, tuple) else (Path(self.path),)


@dataclass(frozen=True)
class ImageFile(_Files):
    """Image file of any known format, or a box of it.

    Attributes:
        path: a file, a folder, or the files that make up one image.
        region: the box, (start, stop) along each axis, of a volume; of a slide, rows and columns of level 0.
        modality: DICOM code, where the file says none.
        options: passed to `read`.
    """

    region: Region | tuple[tuple[int, int], tuple[int, int]] | None = None
    modality: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> Image:
        """Reads it; raises what `medimg_eval.imaging.read` raises."""
        image = read(self.files, **self._options())
        return image if image.modality else replace(image, modality=self.modality)

    def geometry(self) -> Geometry:
        """Reads the grid alone."""
        options = {key: value for key, value in self._options().items() if key != "nan"}  # no matter of headers
        return read_grid(self.files, **options)

    def _options(self) -> dict[str, Any]:
        return dict(self.options) | ({} if self.region is None else {"region": self.region})


@dataclass(frozen=True)
class MaskFile(_Files):
    """Label map file, or its files; `options` go to `read_mask`."""

    options: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> Mask:
        """Reads it; raises what `medimg_eval.imaging.read_mask` raises."""
        return read_mask(self.files, **self.options)

    def geometry(self) -> Geometry:
        """Reads the grid alone."""
        options = {key: value for key, value in self.options.items() if key != "objects"}  # no matter of headers
        return read_grid(self.files, **options)


VOLUMES = (".nii.gz", ".nii", ".mha", ".nrrd")
"""How names of single files that hold a volume end, the longest first."""

PICTURES = (".png", ".tif", ".tiff", ".bmp")
"""How the names of pictures end that hold label maps; JPEG blurs their edges."""

_LABEL_MAPS = (".nii.gz", ".seg.nrrd", ".nii", ".mha", ".mhd", ".nrrd", ".dcm", *PICTURES)


def find_label_maps(folder: str | Path) -> dict[str, Path]:
    """Finds the label maps of a folder by their names without endings, sorted.

    A case may also be a folder of its own that holds one DICOM file. Where there is neither, those of nnU-Net's
    cross-validation are found (`fold_0/validation`, `fold_1/validation`, ...).

    Raises:
        MissingDataError: there is no such folder, or nothing in it.
        UserError: two files stand for one case.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise MissingDataError(f"{folder}: no such folder of label maps")
    label_maps = _label_maps(folder) or _label_maps(*sorted(folder.glob("fold_*/validation")))
    if not label_maps:
        raise MissingDataError(f"{folder}: holds no label maps; their names end in {', '.join(_LABEL_MAPS)}")
    return dict(sorted(label_maps.items()))


def _label_maps(*folders: Path) -> dict[str, Path]:
    label_maps: dict[str, Path] = {}
    for path in [path for folder in folders for path in folder.iterdir() if not path.name.startswith(".")]:
        ending = next((label_map for label_map in _LABEL_MAPS if path.name.lower().endswith(label_map)), None)
        within = list(path.glob("*.dcm")) if path.is_dir() else []
        if len(within) == 1:
            name, file = path.name, within[0]
        elif ending and path.is_file():
            name, file = path.name[: -len(ending)], path
        else:
            continue
        if name in label_maps:
            raise UserError(f"{file}: stands for case {name!r}, as {label_maps[name]} does; keep one of them")
        label_maps[name] = file
    return label_maps
