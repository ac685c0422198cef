"""Volumes in one file: NIfTI."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
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


def read(paths: Sequence[Path], *, region: Region | None = None) -> Image:
    """Reads a volume with its stored dtype, (1, *spatial), or (channel, *spatial) for 4-D files.

    Args:
        paths: the one file.
        region: a box to cut out.

    Raises:
        CaseError: the file is missing, cut short, or of no known format.
    """
    (path,) = paths
    image = _open(path)
    try:
        if region is None:
            array = np.asanyarray(image.dataobj)
        else:
            array = np.asanyarray(image.dataobj[tuple(slice(*ends) for ends in region)])
    except (HeaderDataError, OSError, EOFError, zlib.error, ValueError) as error:
        raise CaseError(f"{path}: is cut short or damaged ({error}); write or copy it again") from error
    if array.ndim == 4:
        array = np.moveaxis(array, 3, 0)
    elif array.ndim in (2, 3):
        array = array[None]
    else:
        raise CaseError(f"{path}: expected a 2-D, 3-D or 4-D volume, got shape {array.shape}")
    return Image(array, _shifted(image.affine, region))


def grid(paths: Sequence[Path], *, region: Region | None = None) -> Geometry:
    """Reads the grid alone, from the header."""
    (path,) = paths
    image = _open(path)
    shape = tuple(image.shape[:3]) if region is None else tuple(stop - start for start, stop in region)
    return Geometry(shape, _shifted(image.affine, region))


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


def _shifted(affine: Array, region: Region | None) -> Array:
    affine = np.array(affine, dtype=np.float64)
    if region is not None:
        affine[:3, 3] += affine[:3, :3] @ [start for start, _ in region]
    return affine
