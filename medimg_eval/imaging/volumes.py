"""Volumes: NIfTI, Analyze, MetaImage, NRRD, b2nd, and what else nibabel reads; masks and images back to NIfTI."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging import itk, nifti
from medimg_eval.imaging.affines import check_affine, clip_box, shifted
from medimg_eval.imaging.payload import check_memory, head

Region = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""A box of voxels: (start, stop) along each axis."""

ANALYZE = "Analyze stores no orientation: the first axis is taken to run to the left, and the origin is a guess"

VLMETA = "medimg_eval.affine"
"""Where a b2nd file may carry its affine: 16 numbers, row by row."""


def read(paths: Sequence[Path], *, region: Region | None = None) -> Image:
    """Reads a volume with its stored dtype, (1, *spatial), or (channel, *spatial) of several volumes or components.

    A slope or intercept that changes values turns them into float32 where no two stored values fall together in it,
    else into float64. A plain `.nii` is mapped into memory: voxels are read when they are touched, and written to a
    private copy. Everything that had to be guessed, converted or chosen is in the image's notes.

    Args:
        paths: the one file; of a pair (.hdr and .img, .mhd and .raw, .nhdr and .raw) either the header or both.
        region: a box to cut out.

    Raises:
        CaseError: the file is missing, cut short, damaged, of no known format, without a usable affine, or larger
            than this machine's memory; or the region does not lie in it.
    """
    path = _header_of(paths)
    start = _start(path)
    if nifti.is_nifti(start):
        return nifti.read(path, start, region)
    if _is_itk(path, start):
        return itk.read(path, region)
    if start[2:9] == b"b2frame":
        return _read_b2nd(path, region)
    return _read_nibabel(path, region)


def grid(paths: Sequence[Path], *, region: Region | None = None) -> Geometry:
    """Reads the grid alone, from the header; see `read`."""
    path = _header_of(paths)
    start = _start(path)
    if nifti.is_nifti(start):
        return nifti.grid(path, start, region)
    if _is_itk(path, start):
        return itk.grid(path, region)
    if start[2:9] == b"b2frame":
        stored, affine, _ = _open_b2nd(path)
        shape = tuple(stored.shape[1:] if stored.ndim == 4 else stored.shape)
    else:
        with _nibabel(path) as (image, _):
            shape, affine = tuple(image.shape[:3]), image.affine
    box = clip_box(path, shape, region)
    return Geometry(shape if box is None else tuple(stop - start for start, stop in box), shifted(affine, box))


def write_mask(path: Path, mask: Mask) -> None:
    """Writes a label map as `.nii.gz`; the file appears whole or not at all.

    Args:
        path: where to; its folder exists.
        mask: integer labels, (*spatial), and their affine in RAS+ mm.
    """
    # NIfTI has no bool and nibabel refuses int64, so labels travel in the smallest type that holds them.
    high = int(mask.labels.max()) if mask.labels.size else 0
    _write(path, mask.labels.astype(np.min_scalar_type(high)), mask.affine)


def write_image(path: Path, image: Image) -> None:
    """Writes an image as `.nii.gz` in its dtype; the file appears whole or not at all.

    Args:
        path: where to; its folder exists.
        image: (channel, *spatial); several channels come last on disk, as NIfTI has it.

    Raises:
        CaseError: NIfTI has no such dtype, such as bool or float16.
    """
    array = image.array[0] if len(image.array) == 1 else np.moveaxis(image.array, 0, -1)
    if array.ndim == 3 and image.array.ndim == 3 and len(image.array) > 1:
        array = array[:, :, None]  # channels are the fourth axis, of pictures too
    if array.dtype.kind == "b" or array.dtype == np.float16:
        raise CaseError(f"{path}: NIfTI cannot store {array.dtype}; convert it to uint8 or float32")
    _write(path, array, image.affine)


def _write(path: Path, array: Array, affine: Array) -> None:
    import nibabel as nib
    from nibabel.openers import Opener

    image = nib.Nifti1Image(array, affine, dtype=array.dtype)
    image.header.set_xyzt_units("mm")
    # Label maps shrink to a few per cent at the fastest level; the default level costs ten times the time.
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with Opener(str(partial), "wb", compresslevel=1) as stream:
            image.to_stream(stream)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _header_of(paths: Sequence[Path]) -> Path:
    """Returns the file to start from, out of one file or the two of a pair."""
    headers = [
        path for path in paths if path.name.lower().endswith((".hdr", ".hdr.gz", ".mhd", ".nhdr", ".head", ".par"))
    ]
    if len(paths) > 2 or (len(paths) == 2 and len(headers) != 1):
        raise CaseError(f"{paths[0]}: expected one volume, got {len(paths)} files; name one of them")
    path = headers[0] if headers else paths[0]
    if path.name.lower().endswith((".img", ".img.gz")):
        for old, new in ((".img", ".hdr"), (".IMG", ".HDR")):
            for name in (path.name.replace(old, new), path.name.replace(old, new).removesuffix(".gz")):
                if name != path.name and path.with_name(name).is_file():
                    return path.with_name(name)
        raise CaseError(f"{path}: its header is missing; expected {path.name.split('.')[0]}.hdr beside it")
    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    return path


def _start(path: Path) -> bytes:
    start = head(path, nifti.HEADER)
    if not start:
        raise CaseError(f"{path}: is empty; write or copy it again")
    return start


def _is_itk(path: Path, start: bytes) -> bool:
    return start.startswith(itk.NRRD) or path.suffix.lower() in (".mha", ".mhd")


def _open_b2nd(path: Path) -> tuple[Any, Array, bool]:
    """Returns the stored array, its affine, and whether the file stated it."""
    import blosc2

    try:
        stored = blosc2.open(str(path), mode="r")
        given = stored.schunk.vlmeta.get(VLMETA)
    except (RuntimeError, ValueError, OSError) as error:
        raise CaseError(f"{path}: is cut short or damaged ({error}); write or copy it again") from error
    if not isinstance(stored, blosc2.NDArray) or not 2 <= stored.ndim <= 4:
        raise CaseError(f"{path}: expected an array of (channel, *spatial), or of two or three spatial axes")
    affine = np.eye(4) if given is None else np.reshape(np.array(given, np.float64), (4, 4))
    check_affine(path, affine)
    return stored, affine, given is not None


def _read_b2nd(path: Path, region: Region | None) -> Image:
    stored, affine, placed = _open_b2nd(path)
    check_memory(path, stored.nbytes)
    box = clip_box(path, tuple(stored.shape[1:] if stored.ndim == 4 else stored.shape), region)
    cut = () if box is None else tuple(slice(*ends) for ends in box)
    try:
        array = stored[(slice(None), *cut)] if stored.ndim == 4 else stored[cut or ...][None]
    except (RuntimeError, ValueError) as error:
        raise CaseError(f"{path}: is cut short or damaged ({error}); write or copy it again") from error
    notes = () if placed else ("the file states neither voxel size nor orientation: distances are in voxels",)
    return Image(array, shifted(affine, box), units="mm" if placed else "pixel", notes=notes)


@contextmanager
def _nibabel(path: Path) -> Iterator[tuple[Any, list[str]]]:
    """Opens Analyze, MGH and nibabel's rarer formats; closes what nibabel leaves open."""
    import nibabel as nib
    from nibabel.filebasedimages import ImageFileError
    from nibabel.minc1 import MincError
    from nibabel.parrec import PARRECError
    from nibabel.spatialimages import HeaderDataError, ImageDataError, SpatialImage

    image = None
    try:
        image = nib.load(path)
        if not isinstance(image, SpatialImage) or not 2 <= len(image.shape) <= 4 or image.affine is None:
            raise CaseError(f"{path}: holds no volume of two to four axes ({type(image).__name__})")
        check_affine(path, np.asarray(image.affine, np.float64))
        guess = isinstance(image, nib.AnalyzeImage) and not isinstance(image, nib.Nifti1Pair)
        yield image, [ANALYZE] if guess else []
    except (OSError, EOFError, ValueError) as error:
        raise CaseError(f"{path}: is cut short or damaged ({error}); write or copy it again") from error
    except (ImageFileError, HeaderDataError, ImageDataError, PARRECError, MincError) as error:
        raise CaseError(f"{path}: cannot be read as a volume ({error}); write or copy it again") from error
    finally:
        opened = getattr(getattr(image, "dataobj", None), "file_like", None)
        if opened is not None and hasattr(opened, "close"):
            opened.close()  # Philips' .REC


def _read_nibabel(path: Path, region: Region | None) -> Image:
    with _nibabel(path) as (image, notes):
        check_memory(path, math.prod(image.shape) * image.get_data_dtype().itemsize)
        box = clip_box(path, tuple(image.shape[:3]), region)
        array = np.asarray(image.dataobj if box is None else image.dataobj[tuple(slice(*ends) for ends in box)])
        affine = shifted(image.affine, box)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return Image(np.moveaxis(array, 3, 0) if array.ndim == 4 else array[None], affine, notes=tuple(notes))
