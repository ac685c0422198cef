"""NIfTI-1 and NIfTI-2: `.nii`, `.nii.gz`, and pairs of `.hdr` and `.img`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Units
from medimg_eval.errors import CaseError
from medimg_eval.exchange import UNSIZED
from medimg_eval.imaging.geometry import Box, check_affine, clip_box, farthest, shifted
from medimg_eval.imaging.voxel_data import Codec, Layout, check_room, is_gzip, read_voxels

HEADER = 544
"""Bytes read of a header: the longer of the two, and what flags extensions."""

CONNECTIVITY = range(3000, 3100)
"""Intent codes of CIFTI-2, which stores surfaces and matrices rather than volumes."""

MILLIMETRES = {1: (1000.0, "metres"), 3: (0.001, "micrometres")}
"""The unit codes that are not millimetres: factor, name."""


@dataclass(frozen=True, eq=False)
class Header:
    """Content of a header, checked.

    The shape has two or three spatial axes; the affine is float64, (4, 4), voxel index to RAS+ mm; the scale is slope
    and intercept, None for stored values; units are `pixel` of what `write_mask` and `write_image` wrote without a
    size.
    """

    layout: Layout
    shape: tuple[int, ...]
    affine: Array
    scale: tuple[float, float] | None
    notes: tuple[str, ...]
    units: Units


def is_nifti(start: bytes) -> bool:
    """Whether 544 bytes are a NIfTI header, not Analyze."""
    return start[344:347] in (b"n+1", b"ni1") or start[4:7] in (b"n+2", b"ni2")


def read(path: Path, start: bytes, box: Box | None) -> Image:
    """Reads a volume; see `medimg_eval.imaging.volumes.reading.read`.

    `start` holds the first bytes of the `.nii`, `.nii.gz` or `.hdr`, inflated.
    """
    header = parse(path, start)
    box = clip_box(path, header.shape, box)
    cut = None if box is None else (*box, (0, 1))[:3]
    array, notes = read_voxels(header.layout, cut, transform(header))
    array = _channels_first(path, array, len(header.shape))
    return Image(array, shifted(header.affine, box), units=header.units, notes=(*header.notes, *notes))


def grid(path: Path, start: bytes, box: Box | None) -> Geometry:
    """Returns the grid, from the header alone; see `read`."""
    header = parse(path, start)
    check_room(header.layout)
    box = clip_box(path, header.shape, box)
    shape = header.shape if box is None else tuple(stop - start for start, stop in box)
    return Geometry(shape, shifted(header.affine, box), header.units)


def parse(path: Path, start: bytes) -> Header:
    """Takes a header apart.

    Raises CaseError, naming the field, where it is cut short or says something impossible.
    """
    raw = _raw_header(path, start)
    shape, channels = _read_shape(path, raw)
    dtype, components = _read_dtype(path, raw)
    single = raw["magic"].item()[:2] in (b"n+", b"n")
    offset = int(raw["vox_offset"]) if np.isfinite(raw["vox_offset"]) else -1
    if offset < (int(raw["sizeof_hdr"]) if single else 0):
        raise CaseError(f"{path}: says that its voxels start at byte {raw['vox_offset']}, inside the header; mend it")
    grown = (shape[0], shape[1], shape[2] if len(shape) == 3 else 1)
    voxels = path if single else _partner_file(path)
    codec: Codec = "gzip" if is_gzip(voxels) else ""
    layout = Layout(voxels, codec, 0, offset, dtype, (components, *grown, channels))
    affine, notes = _choose_affine(path, raw, shape)
    scale = None if components > 1 else _read_scale(path, raw)
    units: Units = "pixel" if raw["descrip"].item() == UNSIZED else "mm"
    return Header(layout, shape, affine, scale, tuple(notes), units)


def transform(header: Header) -> Any:
    """Returns the scaling of stored values; None for identity."""
    if header.scale is None:
        return None
    slope, inter = header.scale
    return partial(_scale_values, slope=slope, inter=inter, kind=scaled_type(header.layout.dtype, slope, inter))


def scaled_type(stored: np.dtype[Any], slope: float, inter: float) -> np.dtype[Any]:
    """Dtype of scaled values: float32 where all stay distinct, else float64.

    Integers of 8 and 16 bits and float16 fit into float32 unless the intercept is so large that float32 can
    no longer tell neighbours apart; float32 stays float32 when it is only multiplied.
    """
    if stored.kind == "c":
        return np.dtype(np.complex128)
    if stored.kind in "iu" and stored.itemsize <= 2:
        limits = np.iinfo(stored)
        largest = abs(slope) * max(abs(limits.min), limits.max) + abs(inter)
        exact = bool(largest * 2.0**-22 <= abs(slope) and largest < np.finfo(np.float32).max)
    else:
        exact = stored.kind == "f" and stored.itemsize <= 4 and inter == 0 and 1e-3 <= abs(slope) <= 1e3
    return np.dtype(np.float32 if exact else np.float64)


def _scale_values(stored: Array, *, slope: float, inter: float, kind: np.dtype[Any]) -> Array:
    values: Array = stored.astype(np.complex128 if kind.kind == "c" else np.float64)
    values *= slope
    values += inter
    return values.astype(kind, copy=False)


def _raw_header(path: Path, start: bytes) -> Any:
    from nibabel.nifti1 import Nifti1Header, Nifti1PairHeader
    from nibabel.nifti2 import Nifti2Header, Nifti2PairHeader

    if start[344:347] in (b"n+1", b"ni1"):
        kind, size = (Nifti1Header if start[344:347] == b"n+1" else Nifti1PairHeader), 348
    else:
        kind, size = (Nifti2Header if start[4:7] == b"n+2" else Nifti2PairHeader), 540
    if len(start) < size:
        raise CaseError(f"{path}: is cut short inside its header; write or copy it again")
    # Unchecked: what nibabel would mend in silence is refused or noted here.
    return kind(start[:size], check=False)


def _read_shape(path: Path, raw: Any) -> tuple[tuple[int, ...], int]:
    """Returns the spatial axes, two or three, and the number of volumes."""
    count = int(raw["dim"][0])
    if not 1 <= count <= 7 or any(int(size) < 1 for size in raw["dim"][1 : count + 1]):
        raise CaseError(
            f"{path}: says that it has {count} axes of {raw['dim'][1:8].tolist()} voxels; expected axes of at least 1"
        )
    shape = tuple(int(size) for size in raw.get_data_shape())
    while len(shape) > 4 and shape[-1] == 1:
        shape = shape[:-1]
    code = int(raw["intent_code"])
    several = [size for size in shape[3:] if size > 1]
    if code in CONNECTIVITY or len(several) > 1 or len(shape) < 2:
        what = "holds a CIFTI-2 matrix, not a volume" if code in CONNECTIVITY else f"has the shape {shape}"
        raise CaseError(f"{path}: {what}; expected two or three spatial axes, and at most one of volumes or components")
    return shape[:3], several[0] if several else 1


def _read_dtype(path: Path, raw: Any) -> tuple[np.dtype[Any], int]:
    """Returns the stored type of one number, and the numbers of one voxel."""
    from nibabel.spatialimages import HeaderDataError

    try:
        dtype = raw.get_data_dtype()
    except (HeaderDataError, KeyError) as error:
        raise CaseError(f"{path}: is of no known data type (code {int(raw['datatype'])}); mend its header") from error
    if dtype.names:
        return np.dtype(np.uint8), len(dtype.names)
    if dtype.kind not in "iufc":
        raise CaseError(
            f"{path}: stores voxels as {raw.get_value_label('datatype')}, which is not supported; convert it"
        )
    return dtype, 1


def _read_scale(path: Path, raw: Any) -> tuple[float, float] | None:
    slope, inter = float(raw["scl_slope"]), float(raw["scl_inter"])
    if slope == 0 or not np.isfinite(slope) or (slope, inter) == (1.0, 0.0):
        return None  # the standard's way to say "not scaled"
    if not np.isfinite(inter):
        raise CaseError(f"{path}: has a slope of {slope:g} and an intercept of {inter:g}; mend its header")
    return slope, inter


def _partner_file(path: Path) -> Path:
    """Finds the .img that belongs to a .hdr."""
    name = path.name
    for old, new in ((".hdr", ".img"), (".HDR", ".IMG")):
        for end in ("", ".gz"):
            candidate = path.with_name(name.replace(old, new).removesuffix(".gz") + end)
            if candidate != path and candidate.is_file():
                return candidate
    raise CaseError(f"{path}: its voxels lie in another file, which is missing; expected {path.stem}.img beside it")


def _choose_affine(path: Path, raw: Any, shape: tuple[int, ...]) -> tuple[Array, list[str]]:
    """Chooses sform, qform or neither as nibabel, noting differences."""
    notes: list[str] = []
    sform = raw.get_sform() if raw["sform_code"] > 0 else None
    qform = _read_qform(path, raw, shape, needed=sform is None) if raw["qform_code"] > 0 else None
    if sform is not None:
        affine = sform
    elif qform is not None:
        affine = qform
    else:
        steps = _voxel_sizes(path, raw, shape)
        affine = np.diag([-steps[0], *steps[1:], 1.0])
        affine[:3, 3] = -affine[:3, :3] @ (np.array((*shape, 1)[:3]) - 1) / 2
        notes.append(
            "neither sform nor qform is set: orientation and origin are a guess (the first axis is taken to run "
            "to the left, the middle of the volume to be the origin)"
        )
    affine = np.array(affine, dtype=np.float64)
    check_affine(path, affine)
    for name in ("sform", "qform"):
        code = int(raw[f"{name}_code"])
        notes += (
            [] if 0 <= code <= 5 else [f"{name}_code is {code}, which means nothing; other programs may pass it over"]
        )
    if sform is not None:
        notes += _step_doubts(raw, affine, shape)
        notes += [] if qform is None else _form_doubts(Geometry(shape, affine), np.asarray(qform, np.float64))
    factor, unit = MILLIMETRES.get(int(raw["xyzt_units"]) & 7, (1.0, ""))
    if unit:
        affine[:3] *= factor
        size = " x ".join(f"{step:.3g}" for step in Geometry(shape, affine).spacing)
        notes.append(f"lengths are stated in {unit} and were converted: a voxel measures {size} mm")
    return affine, notes


def _voxel_sizes(path: Path, raw: Any, shape: tuple[int, ...]) -> list[float]:
    """Returns voxel sizes; single-voxel axes may lack theirs."""
    steps = [float(step) for step in raw["pixdim"][1:4]]
    steps = [1.0 if not step and (*shape, 1)[axis] == 1 else step for axis, step in enumerate(steps)]
    if not all(np.isfinite(step) and step > 0 for step in steps):
        raise CaseError(
            f"{path}: has no usable affine: the spacing is {', '.join(f'{step:g}' for step in steps)}; "
            "mend pixdim in its header, or set an sform"
        )
    return steps


def _read_qform(path: Path, raw: Any, shape: tuple[int, ...], *, needed: bool) -> Array | None:
    from nibabel.spatialimages import HeaderDataError

    try:
        steps = _voxel_sizes(path, raw, shape)
        header = raw.copy()
        header["pixdim"][1:4] = steps
        header["pixdim"][0] = header["pixdim"][0] if header["pixdim"][0] in (-1, 1) else 1
        return np.asarray(header.get_qform(), np.float64)
    except (CaseError, HeaderDataError, ValueError) as error:
        if not needed:
            return None
        raise CaseError(f"{path}: has no usable affine ({error}); mend its header") from error


def _step_doubts(raw: Any, affine: Array, shape: tuple[int, ...]) -> list[str]:
    """Doubts where pixdim differs from the sform."""
    stated = np.asarray(raw["pixdim"][1 : len(shape) + 1], np.float64)
    spacing = np.array(Geometry(shape, affine).spacing)
    many = np.array(shape) > 1
    if np.allclose(stated[many], spacing[many], rtol=0.01, atol=0):
        return []
    stated_text, meant = (", ".join(f"{step:.4g}" for step in steps) for steps in (stated, spacing))
    return [f"pixdim gives a spacing of {stated_text}, and the sform one of {meant}, which was used"]


def _form_doubts(used: Geometry, qform: Array) -> list[str]:
    apart = farthest(used, Geometry(used.shape, qform))
    voxel = min(used.spacing)
    if apart <= 0.01 * voxel:
        return []
    doubt = f"sform and qform place the volume up to {apart:.3g} mm apart; the sform was used"
    if np.linalg.det(used.affine[:3, :3]) * np.linalg.det(qform[:3, :3]) < 0:
        return [
            f"{doubt}. ONE IS THE MIRROR IMAGE OF THE OTHER: left and right may be swapped; find out which is right"
        ]
    if apart > voxel:
        return [f"{doubt}. THAT IS MORE THAN A VOXEL: programs that read the qform see this volume elsewhere"]
    return [doubt]


def _channels_first(path: Path, array: Array, axes: int) -> Array:
    """Turns (component, i, j, k, channel) into (channel, *spatial), without a copy."""
    if array.shape[0] > 1 and array.shape[4] > 1:
        raise CaseError(f"{path}: holds several volumes of colours; expected one, or one value per voxel")
    array = array[..., 0] if array.shape[4] == 1 else np.moveaxis(array[0], 3, 0)
    return array[..., 0] if axes == 2 else array
