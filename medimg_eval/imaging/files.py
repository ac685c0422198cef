"""Files a case refers to, read only when they are needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medimg_eval.case import Geometry, Image, Mask
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
    """An image of any known format, or a box of voxels cut out of a volume.

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
    """A label map of any known format.

    Attributes:
        path: a file, or the files that make up one label map.
        options: passed to `read_mask`.
    """

    options: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> Mask:
        """Reads it; raises what `medimg_eval.imaging.read_mask` raises."""
        return read_mask(self.files, **self.options)

    def geometry(self) -> Geometry:
        """Reads the grid alone."""
        options = {key: value for key, value in self.options.items() if key != "objects"}  # no matter of headers
        return read_grid(self.files, **options)
