"""Many slices in one file: enhanced CT, MR and PET, and series converted to them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.case import Array, Geometry, Image
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import Header, facts, required_header
from medimg_eval.imaging.dicom.headers.suv import factor as suv_factor
from medimg_eval.imaging.dicom.objects import projection as pictures
from medimg_eval.imaging.dicom.pixels import colour
from medimg_eval.imaging.dicom.pixels.samples import MONOCHROME1, is_encapsulated, stored_frames
from medimg_eval.imaging.dicom.series.geometry import Gaps, Stack, UnevenSlices, arrange
from medimg_eval.imaging.dicom.series.grouping import SAME_PLACE, facing, normal_of
from medimg_eval.imaging.dicom.series.loading import load, resample, rescales

if TYPE_CHECKING:
    import pydicom

SAME = 1e-4
"""What cosines and spacings of one stack may differ by."""

SEPARATORS = {
    "temporal position": ("FrameContentSequence", "TemporalPositionIndex"),
    "b-value": ("MRDiffusionSequence", "DiffusionBValue"),
    "echo time": ("MREchoSequence", "EffectiveEchoTime"),
    "trigger delay": ("CardiacSynchronizationSequence", "NominalCardiacTriggerDelayTime"),
    "MR frame type": ("MRImageFrameTypeSequence", "FrameType"),
    "CT frame type": ("CTImageFrameTypeSequence", "FrameType"),
    "PET frame type": ("PETFrameTypeSequence", "FrameType"),
    "acquisition": ("FrameContentSequence", "FrameAcquisitionNumber"),
}
"""What may set stacks at the same positions apart, likeliest first -> the functional group and its element."""

PLACES = ("ImagePositionPatient", "InStackPositionNumber", "StackID")
"""Dimensions that say where a frame lies, not what it shows."""


@dataclass(frozen=True)
class _Frame:
    """One frame: its place, as the header of a slice numbered from 0, and what it shows."""

    header: Header
    keys: Mapping[str, str]


@dataclass(frozen=True)
class _Part:
    """Frames that make up one volume, and what sets them apart."""

    frames: tuple[_Frame, ...]
    label: str = ""


def read(
    path: Path,
    header: Header | None = None,
    *,
    stack: int | None = None,
    gaps: Gaps = "raise",
    suv: bool = False,
) -> Image:
    """Reads a multi-frame file as a volume, (channel, column, row, slice).

    Frames are sorted by the projection of their position on the normal, whatever order they are stored in, and checked
    as the files of a series are. Each has its own slope and intercept. Frames without a place in the patient are read
    as a clip, and that is noted. The dtype is the stored one where there is no rescale, int16 where the slope is 1 and
    the values fit, float32 otherwise. Options are those of `medimg_eval.imaging.dicom.reading.read`.

    Raises:
        CaseError: several stacks, two frames at one place, or frames that contradict the header.
        UnevenSlices: the steps between slices differ.
    """
    header = header or required_header(path)
    dataset = pictures.metadata(path)
    frames = _frames(header, dataset)
    if not frames:
        if suv:
            raise CaseError(
                f"{path}: its frames state no place in the patient; SUV is for PET volumes, read it plainly"
            )
        image = pictures.read(path, header)
        return replace(image, notes=(*image.notes, "frames state no place in the patient and are in stored order"))
    part, notes = _chosen(frames, stack)
    if _repeats(part.frames):
        part = _without_twins(part, stored_frames(path, header), notes)
    arranged = _arranged(part, gaps)
    if header.photometric.upper() == "MONOCHROME1":
        notes.append(MONOCHROME1)
    factor = suv_factor(dataset) if suv else None
    if _is_addressable(header):
        array, valid, more = load(arranged.headers, None if factor is None else np.full(len(arranged.headers), factor))
        notes += more
    else:
        array, valid = _decoded(arranged, dataset, header, notes)
        array = array if factor is None else array.astype(np.float32) * np.float32(factor)
    if arranged.weights is not None:
        array, valid = resample(array, valid, arranged.weights)
    return Image(
        array,
        arranged.geometry.affine,
        modality=header.modality,
        notes=(*notes, *arranged.notes),
        attributes=facts(dataset),
        valid=valid,
    )


def grid(
    path: Path,
    header: Header | None = None,
    *,
    stack: int | None = None,
    gaps: Gaps = "raise",
    suv: bool = False,
) -> Geometry:
    """Reads the grid alone; takes the options of `read`, and raises what it raises of the geometry."""
    header = header or required_header(path)
    frames = _frames(header, pictures.metadata(path))
    if not frames:
        return pictures.grid(path, header)
    part, notes = _chosen(frames, stack)
    if _repeats(part.frames):
        part = _without_twins(part, stored_frames(path, header), notes)
    return _arranged(part, gaps).geometry


# --- what each frame says --------------------------------------------------------------------------------------


def _frames(header: Header, dataset: pydicom.Dataset) -> list[_Frame]:
    """The frames, in stored order; none when no frame states a place."""
    shared = (dataset.get("SharedFunctionalGroupsSequence") or [{}])[0]
    own = dataset.get("PerFrameFunctionalGroupsSequence") or []
    if not any("PlanePositionSequence" in groups for groups in (shared, *own)):
        return []
    if len(own) != header.frames:
        raise CaseError(
            f"{header.path}: has {header.frames} frames and describes {len(own)} of them in its functional groups; "
            "write or copy it again"
        )
    dimensions = _dimensions(dataset)
    return [_frame(header, index, groups, shared, dimensions) for index, groups in enumerate(own)]


def _frame(header: Header, index: int, own: Any, shared: Any, dimensions: Sequence[str | None]) -> _Frame:
    def value(sequence: str, element: str) -> Any:
        found = own.get(sequence) or shared.get(sequence)
        return found[0].get(element) if found else None

    def number(sequence: str, element: str) -> float | None:
        found = value(sequence, element)
        return None if found is None or found == "" else float(found)

    position, orientation, spacing = (
        _numbers(value(sequence, element), count)
        for sequence, element, count in (
            ("PlanePositionSequence", "ImagePositionPatient", 3),
            ("PlaneOrientationSequence", "ImageOrientationPatient", 6),
            ("PixelMeasuresSequence", "PixelSpacing", 2),
        )
    )
    if position is None or orientation is None or spacing is None:
        raise CaseError(
            f"{header.path}: frame {index + 1} lacks ImagePositionPatient, ImageOrientationPatient or PixelSpacing, "
            "which others have; mend its functional groups"
        )
    keys = {name: _text(value(*where)) for name, where in SEPARATORS.items()}
    places = value("FrameContentSequence", "DimensionIndexValues")
    places = [places] if isinstance(places, int) else places or ()
    keys |= {name: _text(place) for name, place in zip(dimensions, places, strict=False) if name is not None}
    slope = number("PixelValueTransformationSequence", "RescaleSlope")
    if slope == 0:
        raise CaseError(f"{header.path}: RescaleSlope of frame {index + 1} is 0, which leaves no image; mend it")
    length = header.rows * header.columns * header.bits_allocated // 8
    addressed = _is_addressable(header)
    place = replace(
        header,
        pixel_offset=(header.pixel_offset or 0) + index * length if addressed else header.pixel_offset,
        pixel_length=length if addressed else header.pixel_length,
        position=position,
        orientation=orientation,
        pixel_spacing=spacing,
        frames=1,
        instance_number=index,
        slice_thickness=number("PixelMeasuresSequence", "SliceThickness"),
        spacing_between_slices=number("PixelMeasuresSequence", "SpacingBetweenSlices"),
        slope=slope,
        intercept=number("PixelValueTransformationSequence", "RescaleIntercept"),
    )
    return _Frame(place, {"stack": _text(value("FrameContentSequence", "StackID")), **keys})


def _dimensions(dataset: pydicom.Dataset) -> list[str | None]:
    """The names of the dimensions frames are indexed by; None for those that say where they lie."""
    from pydicom.datadict import keyword_for_tag

    names: list[str | None] = []
    for item in dataset.get("DimensionIndexSequence") or ():
        pointer = item.get("DimensionIndexPointer")
        name = keyword_for_tag(pointer) if pointer is not None else ""
        names.append(None if name in PLACES else f"index of {name or 'a private dimension'}")
    return names


def _numbers(value: Any, count: int) -> Any:
    """A tuple of `count` finite numbers, or None."""
    if value is None or isinstance(value, str) or not hasattr(value, "__len__") or len(value) != count:
        return None
    numbers = tuple(float(one) for one in value)
    return numbers if np.isfinite(numbers).all() else None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str | int) else "\\".join(str(one) for one in value)


# --- which frames belong together -------------------------------------------------------------------------------


def _chosen(frames: Sequence[_Frame], stack: int | None) -> tuple[_Part, list[str]]:
    """The stack that is meant, and a note where others were left out."""
    parts = _parts(frames)
    path = frames[0].header.path
    listing = "; ".join(f"{number}) {_line(part)}" for number, part in enumerate(parts[:12], 1))
    listing += f"; and {len(parts) - 12} more" if len(parts) > 12 else ""
    if stack is not None:
        if not 1 <= stack <= len(parts):
            raise CaseError(f"{path}: has no stack {stack}; it holds {listing}")
        return parts[stack - 1], [] if len(parts) == 1 else [
            f"stack {stack} of {len(parts)}: {_line(parts[stack - 1])}"
        ]
    meant = parts if len(parts) == 1 else [part for part in parts if len(part.frames) > 1]
    if len(meant) != 1:
        raise CaseError(f"{path}: holds {len(parts)} stacks of frames, say which with stack=NUMBER: {listing}")
    left = len(frames) - len(meant[0].frames)
    return meant[0], [f"{left} single frames of other orientations or sizes were left out"] if left else []


def _line(part: _Part) -> str:
    way = facing(part.frames[0].header)
    return ", ".join([f"{len(part.frames)} {way} frames", *([part.label] if part.label else [])])


def _parts(frames: Sequence[_Frame]) -> list[_Part]:
    planes: list[list[_Frame]] = []
    for frame in frames:
        plane = next((plane for plane in planes if _parallel(frame.header, plane[0].header)), None)
        if plane is None:
            planes.append([frame])
        else:
            plane.append(frame)
    return [part for plane in planes for part in _split(_Part(tuple(plane)))]


def _parallel(one: Header, other: Header) -> bool:
    plane, others = (np.array([*(head.orientation or ()), *(head.pixel_spacing or ())]) for head in (one, other))
    return bool(np.allclose(plane, others, rtol=SAME, atol=SAME))


def _split(part: _Part) -> list[_Part]:
    """Splits frames that repeat positions by what sets whole stacks apart, one thing after the other."""
    if not _repeats(part.frames):
        by_stack = _by(part, "stack")
        # Slabs that lie apart are stacks of their own; slabs that join are one.
        return by_stack if len(by_stack) > 1 and not _is_even(part) else [part]
    names = [name for name in part.frames[0].keys if len({frame.keys.get(name) for frame in part.frames}) > 1]
    options = [_by(part, name) for name in names]
    for pieces in options:
        if _cover(pieces, part):
            return [smaller for piece in pieces for smaller in _split(piece)]
    for pieces in options:
        # A scan that was stopped early leaves its last stack short.
        if 2 * len(pieces) <= len(part.frames) and not any(_repeats(piece.frames) for piece in pieces):
            return pieces
    return [part]


def _by(part: _Part, name: str) -> list[_Part]:
    pieces = grouped((frame.keys.get(name, ""), frame) for frame in part.frames)
    label = f"{part.label}, " if part.label else ""
    return [_Part(tuple(frames), f"{label}{name} {value or 'not stated'}") for value, frames in pieces.items()]


def _heights(frames: Sequence[_Frame]) -> Array:
    return np.array([frame.header.position for frame in frames]) @ normal_of(frames[0].header)


def _distinct(frames: Sequence[_Frame]) -> Array:
    """The positions along the normal, each once, ascending."""
    heights = np.sort(_heights(frames))
    return heights[np.r_[True, np.diff(heights) > SAME_PLACE]]


def _repeats(frames: Sequence[_Frame]) -> bool:
    return len(_distinct(frames)) < len(frames)


def _cover(pieces: Sequence[_Part], part: _Part) -> bool:
    """Whether each piece holds every position of the whole."""
    whole = _distinct(part.frames)
    found = [_distinct(piece.frames) for piece in pieces]
    return all(len(own) == len(whole) and np.abs(own - whole).max() <= 2 * SAME_PLACE for own in found)


def _is_even(part: _Part) -> bool:
    try:
        _arranged(part, "raise")
    except UnevenSlices:
        return False
    return True


def _without_twins(part: _Part, stored: Array, notes: list[str]) -> _Part:
    """Drops frames that lie where another with the same pixels lies; refuses those with other pixels."""
    heights = _heights(part.frames)
    order = np.argsort(heights, kind="stable").tolist()
    kept = order[:1]
    for before, index in itertools.pairwise(order):
        if heights[index] - heights[before] > SAME_PLACE:
            kept.append(index)
            continue
        one, other = (part.frames[place].header for place in (kept[-1], index))
        numbers = (int(one.instance_number or 0), int(other.instance_number or 0))
        same = (one.slope, one.intercept) == (other.slope, other.intercept)
        if not same or not np.array_equal(stored[numbers[0]], stored[numbers[1]]):
            raise CaseError(
                f"{one.path}: frames {numbers[0] + 1} and {numbers[1] + 1} lie at the same position with different "
                "pixels, and nothing tells which belong together; split the file"
            )
    if len(kept) < len(order):
        notes.append(f"{len(order) - len(kept)} frames were there twice, with the same pixels, and are used once")
    return _Part(tuple(part.frames[index] for index in kept), part.label)


def _arranged(part: _Part, gaps: Gaps) -> Stack:
    return arrange([frame.header for frame in part.frames], gaps)


# --- values -----------------------------------------------------------------------------------------------------


def _is_addressable(header: Header) -> bool:
    """Whether each frame is a run of bytes in the file, so that it is read to where it belongs without a copy."""
    grey = header.samples == 1 and header.photometric.upper() != "PALETTE COLOR"
    return grey and header.bits_allocated >= 8 and header.pixel_offset is not None and not is_encapsulated(header)


def _decoded(arranged: Stack, dataset: pydicom.Dataset, header: Header, notes: list[str]) -> tuple[Array, Array | None]:
    """The volume, (channel, column, row, slice), and where it is not padding."""
    stored = stored_frames(header.path, header)
    order = [int(head.instance_number or 0) for head in arranged.headers]
    frames = stored if order == list(range(len(stored))) else stored[order]
    if header.samples > 1 or header.photometric.upper() == "PALETTE COLOR":
        return colour.rgb(header.path, frames, dataset, header, notes).transpose(0, 3, 2, 1), None
    valid = pictures.not_padding(frames, header)
    volume = _rescaled(frames, arranged.headers)
    return volume.transpose(2, 1, 0)[None], None if valid is None else valid.transpose(2, 1, 0)


def _rescaled(frames: Array, headers: Sequence[Header]) -> Array:
    """Applies each frame's slope and intercept."""
    slopes, intercepts = rescales(headers)
    if (slopes == 1).all() and not intercepts.any():
        return frames
    whole = (slopes == 1).all() and (intercepts == np.rint(intercepts)).all() and frames.dtype.kind in "iu"
    if whole and frames.itemsize <= 2:
        limits = np.iinfo(np.int16)
        low, high = int(frames.min()) + intercepts.min(), int(frames.max()) + intercepts.max()
        if limits.min <= low and high <= limits.max:
            # Sums wrap around within 16 bits, and end where they should since the result fits.
            shift = intercepts.astype(np.int64).astype(np.int16)[:, None, None]
            return frames.astype(np.int16) + shift
    shape = (len(headers), 1, 1)
    return frames * slopes.astype(np.float32).reshape(shape) + intercepts.astype(np.float32).reshape(shape)
