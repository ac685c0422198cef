"""Volumes: NIfTI, Analyze, MetaImage, NRRD, b2nd, and what else nibabel reads; masks, images, probabilities written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, ChannelAxis, Geometry, Image, Mask, Probabilities, Units
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.geometry import Box, check_affine, clip_box, shifted
from medimg_eval.imaging.label_values import join_codes, smallest_type
from medimg_eval.imaging.library_logs import kept_log, without_values
from medimg_eval.imaging.volumes import metaimage_nrrd as itk
from medimg_eval.imaging.volumes import nifti
from medimg_eval.imaging.voxel_data import Codec, Layout, check_memory, check_own, head, is_gzip, read_voxels
from medimg_eval.system import whole

Region = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""A box of voxels: (start, stop) along each axis."""

ANALYZE = "Analyze stores no orientation: the first axis is taken to run to the left, and the origin is a guess"

MGH_HEADER = 284
"""Bytes before the voxels of an MGH file."""

VLMETA = "medimg_eval.affine"
"""Where a b2nd file may carry its affine: 16 numbers, row by row."""


def read(paths: Sequence[Path], *, region: Region | None = None) -> Image:
    """Reads a volume, (1, *spatial) or (channel, *spatial), stored dtype.

    Channels are several volumes or components.

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
    start = _read_start(path)
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
    start = _read_start(path)
    if nifti.is_nifti(start):
        return nifti.grid(path, start, region)
    if _is_itk(path, start):
        return itk.grid(path, region)
    units: Units = "mm"
    if start[2:9] == b"b2frame":
        stored, affine, placed = _open_b2nd(path)
        units = "mm" if placed else "pixel"
        shape = tuple(stored.shape[1:] if stored.ndim == 4 else stored.shape)
    else:
        with _open_nibabel(path) as (image, _):
            shape, affine = _spatial_shape(image), image.affine
    box = clip_box(path, shape, region)
    shape = shape if box is None else tuple(stop - start for start, stop in box)
    return Geometry(shape, shifted(affine, box), units)


def write_mask(path: str | Path, mask: Mask, *, objects: int | None = None) -> None:
    """Writes a label map as NIfTI, atomically.

    `.nii.gz` or `.nii`.

    The axes stay in their order: a mask of (row, column) is read back as (row, column). With `objects`, such as 1000,
    labels are multiplied by it before the numbers of `mask.instances` are added; `read_mask` takes the same. Raises
    CaseError for another suffix, labels that are no whole numbers, or more objects than fit.
    """
    path = Path(path)
    if mask.labels.dtype.kind not in "iub":
        raise CaseError(f"{path}: expected whole-number labels to write, got {mask.labels.dtype}")
    # NIfTI has no bool and nibabel refuses int64, so labels travel in the smallest type that holds them.
    labels = mask.labels
    if objects is not None and mask.instances is not None:
        labels = join_codes(labels, mask.instances, objects)
    _write_nifti(path, Image(labels.astype(smallest_type(labels), copy=False)[None], mask.affine, units=mask.units))


def write_image(path: str | Path, image: Image) -> None:
    """Writes an image as NIfTI in its dtype, atomically.

    `.nii.gz` or `.nii`.

    Several channels come last on disk, as NIfTI has it. Raises CaseError for another suffix, or a dtype NIfTI has not,
    such as bool or float16.
    """
    _write_nifti(Path(path), image)


def _write_nifti(path: Path, image: Image) -> None:
    from nibabel.openers import Opener

    if not path.name.endswith((".nii.gz", ".nii")):
        raise CaseError(f"{path}: images and masks are written as NIfTI; expected a name that ends in .nii.gz or .nii")
    try:
        stored = image.to_nibabel()
    except UsageError as error:
        raise CaseError(f"{path}: {error}") from error
    # Label maps shrink to a few per cent at the fastest level; the default level costs ten times the time.
    options = {"compresslevel": 1} if path.suffix == ".gz" else {}
    with whole(path) as partial, Opener(str(partial), "wb", **options) as stream:
        stored.to_stream(stream)


def _header_of(paths: Sequence[Path]) -> Path:
    """Returns the starting file of one or a pair."""
    headers = [
        path for path in paths if path.name.lower().endswith((".hdr", ".hdr.gz", ".mhd", ".nhdr", ".head", ".par"))
    ]
    if len(paths) > 2 or (len(paths) == 2 and len(headers) != 1):
        raise CaseError(f"{paths[0]}: expected one volume, got {len(paths)} files; name one of them")
    path = headers[0] if headers else paths[0]
    if path.name.lower().endswith((".img", ".img.gz")):
        header = header_of(path)
        if header is None:
            raise CaseError(f"{path}: its header is missing; expected {path.name.split('.')[0]}.hdr beside it")
        return header
    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    return path


def header_of(path: Path) -> Path | None:
    """Finds an `.img` file's `.hdr`; None without."""
    if path.name.lower().endswith((".img", ".img.gz")):
        for old, new in ((".img", ".hdr"), (".IMG", ".HDR")):
            for name in (path.name.replace(old, new), path.name.replace(old, new).removesuffix(".gz")):
                if name != path.name and path.with_name(name).is_file():
                    return path.with_name(name)
    return None


def format_name(path: Path) -> str:
    """Format of a volume, such as `NIfTI`; raises as `read`."""
    path = _header_of([path])
    start = _read_start(path)
    if nifti.is_nifti(start):
        return "NIfTI"
    if _is_itk(path, start):
        return "NRRD" if start.startswith(itk.NRRD) else "MetaImage"
    if start[2:9] == b"b2frame":
        return "b2nd"
    with _open_nibabel(path) as (image, _):
        return type(image).__name__.removesuffix("Image").removeprefix("Spm2").removeprefix("Spm99")


def _read_start(path: Path) -> bytes:
    start = head(path, nifti.HEADER)
    if not start:
        raise CaseError(f"{path}: is empty; write or copy it again")
    return start


def _is_itk(path: Path, start: bytes) -> bool:
    return start.startswith(itk.NRRD) or path.suffix.lower() in (".mha", ".mhd")


_B2ND_DAMAGES = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, OSError)


def _open_b2nd(path: Path) -> tuple[Any, Array, bool]:
    """Returns the stored array, its affine, and whether the file stated it."""
    import blosc2

    with CaseError.about(path, "is cut short or damaged", *_B2ND_DAMAGES, mend="write or copy it again"):
        stored = blosc2.open(str(path), mode="r")
        if not isinstance(stored, blosc2.NDArray) or not 2 <= stored.ndim <= 4:
            raise CaseError(f"{path}: expected an array of (channel, *spatial), or of two or three spatial axes")
        packed = stored.schunk.vlmeta.get(VLMETA)
        affine = np.eye(4) if packed is None else np.reshape(np.array(packed, np.float64), (4, 4))
    check_affine(path, affine)
    return stored, affine, packed is not None


def _read_b2nd(path: Path, region: Region | None) -> Image:
    stored, affine, placed = _open_b2nd(path)
    check_memory(path, stored.nbytes)
    box = clip_box(path, tuple(stored.shape[1:] if stored.ndim == 4 else stored.shape), region)
    cut = () if box is None else tuple(slice(*ends) for ends in box)
    with CaseError.about(path, "is cut short or damaged", *_B2ND_DAMAGES, mend="write or copy it again"):
        array = stored[(slice(None), *cut)] if stored.ndim == 4 else stored[cut or ...][None]
    notes = () if placed else ("the file states neither voxel size nor orientation: distances are in voxels",)
    return Image(array, shifted(affine, box), units="mm" if placed else "pixel", notes=notes)


@contextmanager
def _open_nibabel(path: Path) -> Iterator[tuple[Any, list[str]]]:
    """Opens Analyze, MGH and nibabel's rarer formats; closes what nibabel leaves open."""
    import nibabel as nib
    from nibabel.filebasedimages import ImageFileError
    from nibabel.minc1 import MincError
    from nibabel.parrec import PARRECError
    from nibabel.spatialimages import HeaderDataError, ImageDataError, SpatialImage

    image = None
    try:
        with kept_log("nibabel.global") as log_lines:
            image = nib.load(path)
        if not isinstance(image, SpatialImage) or not 2 <= len(image.shape) <= 4 or image.affine is None:
            raise CaseError(f"{path}: holds no volume of two to four axes ({type(image).__name__})")
        _check_minc(path, getattr(image.dataobj, "minc_file", None))
        check_affine(path, np.asarray(image.affine, np.float64))
        guess = isinstance(image, nib.AnalyzeImage) and not isinstance(image, nib.Nifti1Pair)
        _check_stated_steps(path, image)
        yield image, [*log_lines, *([ANALYZE] if guess else [])]
    except (ImageFileError, HeaderDataError, ImageDataError, PARRECError, MincError) as error:
        raise CaseError(f"{path}: cannot be read as a volume ({_one_line(error)}); write or copy it again") from error
    except (OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise CaseError(f"{path}: is cut short or damaged ({_one_line(error)}); write or copy it again") from error
    finally:
        opened = getattr(getattr(image, "dataobj", None), "file_like", None)
        if opened is not None and hasattr(opened, "close"):
            opened.close()  # Philips' .REC


def _check_stated_steps(path: Path, image: Any) -> None:
    """Refuses Analyze and MGH voxel sizes that nibabel alters."""
    import nibabel as nib

    if isinstance(image, nib.AnalyzeImage):
        raw: Any = type(image.header)(head(path, 348), check=False)
        steps = raw["pixdim"][1:4]
    elif isinstance(image, nib.MGHImage):
        steps = image.header["delta"]
    else:
        return
    used = [float(step) for step, size in zip(steps, image.shape, strict=False) if size > 1]
    if not all(np.isfinite(step) and step > 0 for step in used):
        steps_text = ", ".join(f"{step:g}" for step in used)
        raise CaseError(
            f"{path}: has no usable affine: the spacing is {steps_text}; expected numbers above 0, mend its header"
        )


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()).removesuffix(" - could the file be damaged?")
    if text.startswith("Cannot work out file type"):
        return "its first bytes are those of no known format"
    return without_values(text.partition(" Offending attribute")[0]) or type(error).__name__


def _read_mgh(path: Path, image: Any, box: Box | None) -> Image:
    """Reads MGH voxels, faster than nibabel, in half the memory."""
    shape = (*image.shape, 1)[:4]
    codec: Codec = "gzip" if is_gzip(path) else ""
    dtype = image.get_data_dtype().newbyteorder(">")
    layout = Layout(path, codec, 0, MGH_HEADER, dtype, (1, shape[0], shape[1], shape[2], shape[3]))
    voxels, notes = read_voxels(layout, box, None)
    array = voxels[..., 0] if shape[3] == 1 else np.moveaxis(voxels[0], 3, 0)
    return Image(array, shifted(image.affine, box), notes=tuple(notes))


def _read_nibabel(path: Path, region: Region | None) -> Image:
    from nibabel.freesurfer import MGHImage

    with _open_nibabel(path) as (image, notes):
        check_memory(path, math.prod(image.shape) * image.get_data_dtype().itemsize)
        box = clip_box(path, _spatial_shape(image), region)
        if isinstance(image, MGHImage):
            return _read_mgh(path, image, box)
        channels, cut = _channel_axis(image), [slice(*ends) for ends in box or ()]
        if channels is not None and cut:
            cut.insert(channels, slice(None))
        array = np.asarray(image.dataobj[tuple(cut)] if cut else image.dataobj)
        affine, moments = shifted(image.affine, box), _minc_times(image)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    array = array[None] if channels is None else np.moveaxis(array, channels, 0)
    return Image(array, affine, notes=tuple(notes), channels=moments)


def _minc_times(image: Any) -> ChannelAxis | None:
    """MINC time axis in seconds; None for others."""
    stored = getattr(image.dataobj, "minc_file", None)
    if stored is None or "time" not in stored._dim_names:  # noqa: SLF001
        return None
    axis = stored._dim_names.index("time")  # noqa: SLF001
    step = np.ravel(getattr(stored._dims[axis], "step", math.nan))  # noqa: SLF001
    values = (float(step[0]) if len(step) == 1 else math.nan) * np.arange(image.shape[axis])
    return ChannelAxis("time", values, "s")


def _channel_axis(image: Any) -> int | None:
    """Returns the channel axis of four: MINC's by name, else last."""
    stored = getattr(image.dataobj, "minc_file", None)
    if len(image.shape) < 4:
        return None
    return 3 if stored is None else _minc_axes(stored).index(False)


def _check_minc(path: Path, stored: Any) -> None:
    """Refuses MINC without three spatial axes or with external voxels."""
    if stored is not None and sum(_minc_axes(stored)) != 3:
        raise CaseError(f"{path}: has the axes {', '.join(stored._dim_names)}; expected three of space")  # noqa: SLF001
    if stored is not None and hasattr(stored._image, "external"):  # noqa: SLF001 - HDF5, as MINC 2 is
        check_own(path, stored._image)  # noqa: SLF001


def _minc_axes(stored: Any) -> list[bool]:
    """Returns whether each MINC axis is spatial."""
    return [name.endswith("space") for name in stored._dim_names]  # noqa: SLF001 - nibabel keeps them to itself


def _spatial_shape(image: Any) -> tuple[int, ...]:
    channels = _channel_axis(image)
    return tuple(size for axis, size in enumerate(image.shape) if axis != channels)


SUFFIX = ".b2nd"
LABELS = "medimg_eval.labels"
"""Where the file carries the label of each channel."""
UNITS = "medimg_eval.units"


def write_probabilities(path: str | Path, probabilities: Probabilities) -> None:
    """Writes probabilities losslessly in their dtype, atomically.

    `medimg_eval.imaging.read` reads what is written as an image of as many channels. Raises CaseError for another
    suffix than `.b2nd`, or values that are no floats.
    """
    import blosc2

    path = Path(path)

    if path.suffix != SUFFIX:
        raise CaseError(f"{path}: probabilities are written as b2nd; expected a name that ends in {SUFFIX}")
    if probabilities.array.dtype.kind != "f":
        raise CaseError(f"{path}: expected floats to write as probabilities, got {probabilities.array.dtype}")
    with whole(path) as partial:
        stored = blosc2.asarray(
            np.ascontiguousarray(probabilities.array),
            urlpath=str(partial),
            mode="w",
            chunks=(1, *probabilities.array.shape[1:]),
            # Mantissas are noise; what shrinks are exponents, and voxels that are sure. Harder levels gain little.
            cparams={
                "codec": blosc2.Codec.ZSTD,
                "clevel": 1,
                "filters": [blosc2.Filter.BITSHUFFLE],
                "filters_meta": [0],
                "nthreads": 1,
            },
        )
        stored.schunk.vlmeta[VLMETA] = [float(number) for number in probabilities.affine.ravel()]
        stored.schunk.vlmeta[LABELS] = [int(label) for label in probabilities.labels]
        stored.schunk.vlmeta[UNITS] = probabilities.units


def read_probabilities(path: str | Path) -> Probabilities:
    """Reads what `write_probabilities` wrote.

    Raises CaseError when that is missing, damaged, larger than memory, or no such file.
    """
    import blosc2

    path = Path(path)

    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    try:
        stored = blosc2.open(str(path), mode="r")
        metadata = stored.schunk.vlmeta
        labels, units = tuple(int(label) for label in metadata[LABELS]), metadata[UNITS]
        affine = np.reshape(np.array(metadata[VLMETA], np.float64), (4, 4))
        check_memory(path, stored.nbytes)
        array = stored[...]
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise CaseError(f"{path}: holds no probabilities, or is damaged ({error}); run test again") from error
    check_affine(path, affine)
    if len(labels) != len(array):
        raise CaseError(f"{path}: names {len(labels)} labels for {len(array)} channels; run test again")
    units_: Units = "pixel" if units == "pixel" else "mm"
    return Probabilities(array, labels, affine, units_)
