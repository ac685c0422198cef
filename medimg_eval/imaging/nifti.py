"""NIfTI images and label maps, with one clear error for each way a file can be wrong."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.openers import Opener
from nibabel.spatialimages import HeaderDataError, SpatialImage

from medimg_eval.case import Array, Geometry, Image, Mask
from medimg_eval.errors import CaseError

Region = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""A box of voxels: (start, stop) along each axis."""


@dataclass(frozen=True)
class ImageFile:
    """A NIfTI volume, or a box of voxels cut out of one."""

    path: Path
    region: Region | None = None
    modality: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The one file."""
        return (self.path,)

    def read(self) -> Image:
        """Returns the image with its stored dtype, (1, *spatial), or (channel, *spatial) for 4-D files.

        Raises:
            CaseError: the file is missing, cut short, not NIfTI, or holds NaN or infinity.
        """
        array, affine = _read_array(self.path, self.region)
        if array.ndim == 4:
            array = np.moveaxis(array, 3, 0)
        elif array.ndim == 3:
            array = array[None]
        else:
            raise CaseError(f"{self.path}: expected a 3-D or 4-D volume, got shape {array.shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise CaseError(f"{self.path}: holds NaN or infinite voxels; replace them before evaluating")
        return Image(array, affine, self.modality)

    def geometry(self) -> Geometry:
        """Reads the header only."""
        return _geometry(self.path, self.region)


@dataclass(frozen=True)
class MaskFile:
    """A NIfTI label map."""

    path: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """The one file."""
        return (self.path,)

    def read(self) -> Mask:
        """Reads the label map; see `read_mask`."""
        return read_mask(self.path)

    def geometry(self) -> Geometry:
        """Reads the header only."""
        return _geometry(self.path, None)


def read_mask(path: Path) -> Mask:
    """Reads a label map of whole numbers.

    Labels stored as floating point are accepted when every voxel is a whole number (many tools write
    float32 masks); anything else is refused rather than rounded.

    Args:
        path: a `.nii` or `.nii.gz` file of three dimensions (a trailing axis of length one is dropped).

    Returns:
        Labels as the smallest integer dtype the file's values need, and the affine.

    Raises:
        CaseError: the file is missing, cut short, not NIfTI, or not a label map.
    """
    array, affine = _read_array(path, None)
    if array.ndim == 4 and array.shape[3] == 1:
        array = array[..., 0]
    if array.ndim != 3:
        raise CaseError(f"{path}: expected a 3-D label map, got shape {array.shape}")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise CaseError(f"{path}: holds NaN or infinite labels; store a label map of whole numbers")
        whole = np.rint(array)
        if not np.array_equal(whole, array):
            raise CaseError(
                f"{path}: expected whole-number labels, got values such as "
                f"{array[whole != array].flat[0]:g}; store a label map, not probabilities"
            )
        array = whole
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    return Mask(array.astype(np.result_type(np.min_scalar_type(low), np.min_scalar_type(high))), affine)


def write_mask(path: Path, mask: Mask) -> None:
    """Writes a label map as `.nii.gz`; the file appears whole or not at all.

    Args:
        path: where to; its folder exists.
        mask: integer labels, (*spatial), and their affine in RAS+ mm.
    """
    # NIfTI has no bool and nibabel refuses int64, so labels travel in the smallest type that holds them.
    high = int(mask.labels.max()) if mask.labels.size else 0
    image = nib.Nifti1Image(mask.labels.astype(np.min_scalar_type(high)), mask.affine)
    image.header.set_xyzt_units("mm")
    # Label maps shrink to a few per cent at the fastest level; the default level costs ten times the time.
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with Opener(str(partial), "wb", compresslevel=1) as stream:
            image.to_stream(stream)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _open(path: Path) -> Any:
    """Opens a NIfTI header, turning each way that can fail into one sentence."""
    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    try:
        image = nib.load(path)
    except (ImageFileError, HeaderDataError, OSError, EOFError, zlib.error, ValueError) as error:
        raise CaseError(f"{path}: cannot be read as NIfTI ({error}); write or copy the file again") from error
    if not isinstance(image, SpatialImage):
        raise CaseError(f"{path}: holds no volume ({type(image).__name__})")
    affine = image.affine
    if affine is None or not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-12:
        raise CaseError(f"{path}: has no usable affine (spacing of zero or NaN); mend its header")
    return image


def _read_array(path: Path, region: Region | None) -> tuple[Array, Array]:
    image = _open(path)
    try:
        if region is None:
            array = np.asanyarray(image.dataobj)
        else:
            array = np.asanyarray(image.dataobj[tuple(slice(*ends) for ends in region)])
    except (HeaderDataError, OSError, EOFError, zlib.error, ValueError) as error:
        raise CaseError(f"{path}: is cut short or damaged ({error}); write or copy it again") from error
    return array, _shifted(image.affine, region)


def _geometry(path: Path, region: Region | None) -> Geometry:
    image = _open(path)
    shape = tuple(image.shape[:3]) if region is None else tuple(stop - start for start, stop in region)
    return Geometry(shape, _shifted(image.affine, region))


def _shifted(affine: Array, region: Region | None) -> Array:
    affine = np.array(affine, dtype=np.float64)
    if region is not None:
        affine[:3, 3] += affine[:3, :3] @ [start for start, _ in region]
    return affine
