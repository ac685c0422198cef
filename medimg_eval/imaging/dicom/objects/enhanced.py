"""Many slices in one file: enhanced CT, MR and PET, and series converted to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.case import Array, Geometry, Image
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import Header, facts, required_header
from medimg_eval.imaging.dicom.headers.suv import factor as suv_factor
from medimg_eval.imaging.dicom.headers.volume_facts import VolumeFacts, seconds, unit
from medimg_eval.imaging.dicom.objects import projection as pictures
from medimg_eval.imaging.dicom.pixels import colour
from medimg_eval.imaging.dicom.pixels.samples import MONOCHROME1, is_encapsulated, stored_frames
from medimg_eval.imaging.dicom.series.dynamics import Slice, Volumes, volumes_of
from medimg_eval.imaging.dicom.series.geometry import Gaps, Stack, UnevenSlices, arrange, arrange_volumes
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
    """Enhanced frame: position, content and volume facts."""

    header: Header
    keys: Mapping[str, str]
    facts: VolumeFacts


@dataclass(frozen=True, eq=False)
class _Part:
    """Frames of one image, its volumes, and distinguishing facts."""

    found: Volumes
    label: str = ""

    @property
    def headers(self) -> tuple[Header, ...]:
        """Headers of all frames, volume after volume."""
        return tuple(header for volume in self.found.volumes for header in volume)


def read(
    path: Path,
    header: Header | None = None,
    *,
    stack: int | None = None,
    gaps: Gaps = "raise",
    suv: bool = False,
    beside: Sequence[Header] = (),
) -> Image:
    """Reads an enhanced file as (channel, column, row, slice).

    Frames are sorted by the projection of their position on the normal, whatever order they are stored in, and checked
    as the files of a series are. Each has its own slope and intercept. Frames without a place in the patient are read
    as a clip, and that is noted. The dtype is the stored one where there is no rescale, int16 where the slope is 1 and
    the values fit, float32 otherwise. Options are those of `medimg_eval.imaging.dicom.reading.read`; `beside` are
    further files of the image, where there is one for each volume or each part of one.

    Raises:
        CaseError: several stacks, two frames at one place, or frames that contradict the header.
        UnevenSlices: the steps between slices differ.
    """
    header = header or required_header(path)
    files = {header.path: (header, pictures.metadata(header.path)) for header in (header, *beside)}
    frames = _frames_of(list(files.values()))
    dataset = files[header.path][1]
    if not frames:
        if suv:
            raise CaseError(
                f"{path}: its frames state no place in the patient; SUV is for PET volumes, read it plainly"
            )
        image = pictures.read(path, header)
        return replace(image, notes=(*image.notes, "frames state no place in the patient and are in stored order"))
    part, notes = _choose_stack(frames, stack)
    arranged = _arrange_part(part, gaps, files, notes)
    if header.photometric.upper() == "MONOCHROME1":
        notes.append(MONOCHROME1)
    factor = suv_factor(dataset) if suv else None
    if all(_is_addressable(header) for header, _ in files.values()):
        factors = None if factor is None else np.full(len(arranged.headers), factor)
        array, valid, notes_ = load(arranged.headers, factors, arranged.volumes)
        notes += notes_
    else:
        array, valid = _decode_volumes(arranged, files, header, notes)
        array = array if factor is None else array.astype(np.float32) * np.float32(factor)
    if arranged.weights is not None:
        array, valid = resample(array, valid, arranged.weights)
    return Image(
        array,
        arranged.geometry.affine,
        modality=header.modality,
        notes=(*notes, *part.found.notes, *arranged.notes),
        attributes=facts(dataset),
        valid=valid,
        channels=part.found.axis,
    )


def grid(
    path: Path,
    header: Header | None = None,
    *,
    stack: int | None = None,
    gaps: Gaps = "raise",
    suv: bool = False,
    beside: Sequence[Header] = (),
) -> Geometry:
    """Reads the grid alone, with options and errors of `read`."""
    header = header or required_header(path)
    files = {header.path: (header, pictures.metadata(header.path)) for header in (header, *beside)}
    frames = _frames_of(list(files.values()))
    if not frames:
        return pictures.grid(path, header)
    part, notes = _choose_stack(frames, stack)
    return _arrange_part(part, gaps, files, notes).geometry


_Files = Mapping[Path, "tuple[Header, pydicom.Dataset]"]


# --- what each frame says --------------------------------------------------------------------------------------


def _frames_of(files: Sequence[tuple[Header, pydicom.Dataset]]) -> list[_Frame]:
    """The frames of all files, in the order of the files' numbers."""
    ordered = sorted(files, key=lambda file: (file[0].instance_number or 0, file[0].path))
    frames = [_read_frames(header, dataset) for header, dataset in ordered]
    empty = next((ordered[at][0] for at, frames in enumerate(frames) if not frames), None)
    if empty is not None and len(files) > 1:
        raise CaseError(f"{empty.path}: its frames state no place in the patient, and those of files beside it do")
    # Frames are numbered on from file to file.
    starts = np.cumsum([0, *(len(frames) for frames in frames)])
    return [
        replace(frame, facts=replace(frame.facts, number=int(start) + (frame.facts.number or 0)))
        for start, frames in zip(starts, frames, strict=False)
        for frame in frames
    ]


def _read_frames(header: Header, dataset: pydicom.Dataset) -> list[_Frame]:
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
    dimensions = _dimension_names(dataset)
    gated = str(dataset.get("CardiacSynchronizationTechnique") or "NONE").upper() != "NONE"
    of_all = _Groups(shared)
    return [
        _read_frame(header, index, _Groups(groups, of_all).value, dimensions, gated=gated)
        for index, groups in enumerate(own)
    ]


class _Groups:
    """Functional groups of a frame, falling back to shared ones."""

    def __init__(self, groups: Any, behind: _Groups | None = None) -> None:
        self._groups, self._behind = groups, behind
        self._items: dict[str, Any] = {}
        self._values: dict[tuple[str, str], Any] = {}

    def value(self, sequence: str, element: str) -> Any:
        """Returns an element of a sequence's first item; None without."""
        if sequence not in self._items:
            group = _value_in(self._groups, sequence)
            self._items[sequence] = group[0] if group else None
        item = self._items[sequence]
        if item is None:
            return self._behind.value(sequence, element) if self._behind else None
        if (sequence, element) not in self._values:
            self._values[sequence, element] = _value_in(item, element)
        return self._values[sequence, element]


def _value_in(dataset: Any, keyword: str) -> Any:
    tag = _tag_of(keyword)
    return dataset[tag].value if tag in dataset else None


@cache  # to look a keyword up takes longer than the element, and thousands of frames ask for the same
def _tag_of(keyword: str) -> Any:
    from pydicom.datadict import tag_for_keyword
    from pydicom.tag import Tag

    number = tag_for_keyword(keyword)
    assert number is not None, keyword  # noqa: S101 - we wrote it
    return Tag(number)


def _read_frame(
    header: Header, index: int, value: Callable[[str, str], Any], dimensions: Sequence[str | None], *, gated: bool
) -> _Frame:
    def number(sequence: str, element: str) -> float | None:
        value_ = value(sequence, element)
        return None if value_ is None or value_ == "" else float(value_)

    position, orientation, spacing = (
        _finite_numbers(value(sequence, element), count)
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
    keys = {name: _as_text(value(*where)) for name, where in SEPARATORS.items()}
    indices = value("FrameContentSequence", "DimensionIndexValues")
    indices = [indices] if isinstance(indices, int) else indices or ()
    keys |= {name: _as_text(index) for name, index in zip(dimensions, indices, strict=False) if name is not None}
    slope = number("PixelValueTransformationSequence", "RescaleSlope")
    if slope == 0:
        raise CaseError(f"{header.path}: RescaleSlope of frame {index + 1} is 0, which leaves no image; mend it")
    length = header.rows * header.columns * header.bits_allocated // 8
    addressed = _is_addressable(header)
    header_ = replace(
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
    named = {name: keys[name] for name in keys if name.startswith("index of ")}
    return _Frame(
        header_,
        {"stack": _as_text(value("FrameContentSequence", "StackID")), **keys},
        _volume_facts(header, index, value, named, gated=gated),
    )


def _volume_facts(
    header: Header, index: int, value: Callable[[str, str], Any], dimensions: Mapping[str, str], *, gated: bool
) -> VolumeFacts:
    def number(sequence: str, element: str) -> float | None:
        value_ = value(sequence, element)
        return float(value_) if isinstance(value_, int | float) and np.isfinite(value_) else None

    types = [_as_text(value(f"{kind}FrameTypeSequence", "FrameType")) for kind in ("MRImage", "CTImage", "PET")]
    component = _as_text(value("MRImageFrameTypeSequence", "ComplexImageComponent"))
    way = _as_text(value("MRDiffusionSequence", "DiffusionDirectionality")).upper()
    gradient = value("MRDiffusionSequence", "DiffusionGradientDirectionSequence")
    direction = gradient[0].get("DiffusionGradientOrientation") if gradient else None
    moment = _as_text(value("FrameContentSequence", "FrameAcquisitionDateTime"))
    inversion = value("MRModifierSequence", "InversionTimes")
    repetition = number("MRTimingAndRelatedParametersSequence", "RepetitionTime")
    trigger = number("CardiacSynchronizationSequence", "NominalCardiacTriggerDelayTime")
    return VolumeFacts(
        kind=" ".join(word for word in (*types, component, "isotropic" if way == "ISOTROPIC" else "") if word),
        b_value=number("MRDiffusionSequence", "DiffusionBValue"),
        direction=unit(_finite_numbers(direction, 3)) if way != "NONE" else None,
        echo_time=number("MREchoSequence", "EffectiveEchoTime"),
        inversion_time=float(inversion) if isinstance(inversion, int | float) else None,
        flip_angle=number("MRTimingAndRelatedParametersSequence", "FlipAngle"),
        trigger_time=trigger if gated else None,
        temporal=_as_text(value("FrameContentSequence", "TemporalPositionIndex")),
        acquisition=_as_text(value("FrameContentSequence", "FrameAcquisitionNumber")),
        acquired=seconds(moment[:8], moment[8:]),
        repetition_time=None if not repetition or repetition < 0 else repetition / 1000,
        number=index,
        index=tuple((name, int(dimension)) for name, dimension in dimensions.items() if dimension.isdecimal()),
    )


def _dimension_names(dataset: pydicom.Dataset) -> list[str | None]:
    """Dimension index names; None for positional ones."""
    from pydicom.datadict import keyword_for_tag

    names: list[str | None] = []
    for item in dataset.get("DimensionIndexSequence") or ():
        pointer = item.get("DimensionIndexPointer")
        name = keyword_for_tag(pointer) if pointer is not None else ""
        names.append(None if name in PLACES else f"index of {name or 'a private dimension'}")
    return names


def _finite_numbers(value: Any, count: int) -> Any:
    """A tuple of `count` finite numbers, or None."""
    if value is None or isinstance(value, str) or not hasattr(value, "__len__") or len(value) != count:
        return None
    numbers = tuple(float(number) for number in value)
    return numbers if np.isfinite(numbers).all() else None


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, str | int) else "\\".join(str(part) for part in value)


# --- which frames belong together -------------------------------------------------------------------------------


def _choose_stack(frames: Sequence[_Frame], stack: int | None) -> tuple[_Part, list[str]]:
    """The stack that is meant, and a note where others were left out."""
    parts = _split_planes(frames)
    path = frames[0].header.path
    if len(parts) == 1 and len(parts[0].found.volumes) > 1 and stack is not None:
        parts = _single_volumes(parts[0])
    listing = "; ".join(f"{number}) {_describe_part(part)}" for number, part in enumerate(parts[:12], 1))
    listing += f"; and {len(parts) - 12} more" if len(parts) > 12 else ""
    if stack is not None:
        if not 1 <= stack <= len(parts):
            raise CaseError(f"{path}: has no stack {stack}; it holds {listing}")
        return parts[stack - 1], [] if len(parts) == 1 else [
            f"stack {stack} of {len(parts)}: {_describe_part(parts[stack - 1])}"
        ]
    meant = parts if len(parts) == 1 else [part for part in parts if len(part.headers) > 1]
    if len(meant) != 1:
        raise CaseError(f"{path}: holds {len(parts)} stacks of frames, say which with stack=NUMBER: {listing}")
    remaining = len(frames) - len(meant[0].headers)
    return meant[0], [f"{remaining} single frames of other orientations or sizes were left out"] if remaining else []


def _single_volumes(part: _Part) -> list[_Part]:
    """The volumes of a part, each by itself."""
    axis = part.found.axis
    labels = [f"{axis.kind} {value:g} {axis.unit}" for value in axis.values] if axis is not None else []
    return [_Part(Volumes((volume,)), label) for volume, label in zip(part.found.volumes, labels, strict=True)]


def _describe_part(part: _Part) -> str:
    way = facing(part.headers[0])
    axis = part.found.axis
    many = f"{len(part.found.volumes)} volumes ({axis.kind}) of " if axis is not None else ""
    return ", ".join([f"{many}{len(part.found.volumes[0])} {way} frames", *([part.label] if part.label else [])])


def _split_planes(frames: Sequence[_Frame]) -> list[_Part]:
    planes: list[list[_Frame]] = []
    for frame in frames:
        plane = next((plane for plane in planes if _are_parallel(frame.header, plane[0].header)), None)
        if plane is None:
            planes.append([frame])
        else:
            plane.append(frame)
    return [part for plane in planes for part in _split_volumes(plane)]


def _are_parallel(one: Header, other: Header) -> bool:
    plane, second_plane = (np.array([*(head.orientation or ()), *(head.pixel_spacing or ())]) for head in (one, other))
    return bool(np.allclose(plane, second_plane, rtol=SAME, atol=SAME))


def _split_volumes(frames: Sequence[_Frame]) -> list[_Part]:
    """Splits frames with repeated positions into volumes or stacks."""
    by_stack = _group_by(frames, "stack")
    if not _repeats_positions(frames):
        # Slabs that lie apart are stacks of their own; slabs that join are one.
        return (
            _label_pieces(by_stack) if len(by_stack) > 1 and not _is_even(frames) else _label_pieces({"": list(frames)})
        )
    if len(by_stack) > 1 and _cover_positions(list(by_stack.values()), frames):
        return [_Part(part.found, f"{label}, {part.label}".rstrip(", ")) for label, piece in by_stack.items()
                for part in _split_volumes(piece)]  # fmt: skip
    volumes = volumes_of([Slice(frame.header, frame.facts) for frame in frames], _frame_heights(frames))
    if not volumes[0].trouble:
        return [_Part(volume, volume.value) for volume in volumes]
    names = [name for name in frames[0].keys if len({frame.keys.get(name) for frame in frames}) > 1]
    for pieces in (_group_by(frames, name) for name in names):
        # A scan that was stopped early leaves its last stack short.
        if 2 * len(pieces) <= len(frames) and not any(_repeats_positions(piece) for piece in pieces.values()):
            return _label_pieces(pieces)
    return [_Part(volume, volume.value) for volume in volumes]


def _label_pieces(pieces: Mapping[str, Sequence[_Frame]]) -> list[_Part]:
    return [_Part(Volumes((tuple(frame.header for frame in piece),)), label) for label, piece in pieces.items()]


def _group_by(frames: Sequence[_Frame], name: str) -> dict[str, list[_Frame]]:
    pieces = grouped((frame.keys.get(name, ""), frame) for frame in frames)
    return {f"{name} {value or 'not stated'}": piece for value, piece in pieces.items()}


def _frame_heights(frames: Sequence[_Frame]) -> Array:
    return np.array([frame.header.position for frame in frames]) @ normal_of(frames[0].header)


def _distinct_heights(frames: Sequence[_Frame]) -> Array:
    """The positions along the normal, each once, ascending."""
    heights = np.sort(_frame_heights(frames))
    return heights[np.r_[True, np.diff(heights) > SAME_PLACE]]


def _repeats_positions(frames: Sequence[_Frame]) -> bool:
    return len(_distinct_heights(frames)) < len(frames)


def _cover_positions(pieces: Sequence[Sequence[_Frame]], frames: Sequence[_Frame]) -> bool:
    """Whether each piece holds every position of the whole."""
    heights = _distinct_heights(frames)
    piece_heights = [_distinct_heights(piece) for piece in pieces]
    return all(len(own) == len(heights) and np.abs(own - heights).max() <= 2 * SAME_PLACE for own in piece_heights)


def _is_even(frames: Sequence[_Frame]) -> bool:
    try:
        arrange([frame.header for frame in frames])
    except UnevenSlices:
        return False
    return True


def _without_twins(part: _Part, files: _Files, notes: list[str]) -> _Part:
    """Drops duplicate frames with equal pixels; refuses unequal ones."""
    headers = part.headers
    stored = {path: stored_frames(path, header) for path, (header, _) in files.items()}
    heights = np.array([header.position for header in headers]) @ normal_of(headers[0])
    order = np.argsort(heights, kind="stable").tolist()
    kept_order = order[:1]
    for before, index in itertools.pairwise(order):
        if heights[index] - heights[before] > SAME_PLACE:
            kept_order.append(index)
            continue
        former, current = headers[kept_order[-1]], headers[index]
        numbers = (int(former.instance_number or 0), int(current.instance_number or 0))
        is_same_scale = (former.slope, former.intercept) == (current.slope, current.intercept)
        if not is_same_scale or not np.array_equal(stored[former.path][numbers[0]], stored[current.path][numbers[1]]):
            raise CaseError(
                f"{former.path}: frames {numbers[0] + 1} and {numbers[1] + 1} lie at the same position with different "
                f"pixels. {part.found.trouble}"
            )
    if len(kept_order) < len(order):
        notes.append(f"{len(order) - len(kept_order)} frames were there twice, with the same pixels, and are used once")
    return _Part(Volumes((tuple(headers[index] for index in kept_order),)), part.label)


def _arrange_part(part: _Part, gaps: Gaps, files: _Files, notes: list[str]) -> Stack:
    part = _without_twins(part, files, notes) if part.found.trouble else part
    return arrange_volumes(part.found.volumes, gaps)


# --- values -----------------------------------------------------------------------------------------------------


def _is_addressable(header: Header) -> bool:
    """Whether frames are plain byte runs, readable without copies."""
    grey = header.samples == 1 and header.photometric.upper() != "PALETTE COLOR"
    return grey and header.bits_allocated >= 8 and header.pixel_offset is not None and not is_encapsulated(header)


def _decode_volumes(arranged: Stack, files: _Files, header: Header, notes: list[str]) -> tuple[Array, Array | None]:
    """The volumes, (channel, column, row, slice), and where they are not padding."""
    order = [int(head.instance_number or 0) for head in arranged.headers]
    stored = {path: stored_frames(path, header) for path, (header, _) in files.items()}
    if len(stored) > 1:
        frames = np.stack([stored[head.path][at] for head, at in zip(arranged.headers, order, strict=True)])
    else:
        frames = stored[header.path]
        frames = frames if order == list(range(len(frames))) else frames[order]
    if header.samples > 1 or header.photometric.upper() == "PALETTE COLOR":
        if arranged.volumes > 1:
            raise CaseError(f"{header.path}: holds {arranged.volumes} volumes in colour; read one of them with stack=1")
        return colour.rgb(header.path, frames, files[header.path][1], header, notes).transpose(0, 3, 2, 1), None
    valid = pictures.not_padding(frames, header)
    shape = (arranged.volumes, -1, header.rows, header.columns)
    volumes = _rescale_frames(frames, arranged.headers).reshape(shape).transpose(0, 3, 2, 1)
    return volumes, None if valid is None else np.logical_and.reduce(valid.reshape(shape)).transpose(2, 1, 0)


def _rescale_frames(frames: Array, headers: Sequence[Header]) -> Array:
    """Applies each frame's slope and intercept."""
    slopes, intercepts = rescales(headers)
    if (slopes == 1).all() and not intercepts.any():
        return frames
    stays_integer = (slopes == 1).all() and (intercepts == np.rint(intercepts)).all() and frames.dtype.kind in "iu"
    if stays_integer and frames.itemsize <= 2:
        limits = np.iinfo(np.int16)
        low, high = int(frames.min()) + intercepts.min(), int(frames.max()) + intercepts.max()
        if limits.min <= low and high <= limits.max:
            # Sums wrap around within 16 bits, and end where they should since the result fits.
            shift = intercepts.astype(np.int64).astype(np.int16)[:, None, None]
            return frames.astype(np.int16) + shift
    shape = (len(headers), 1, 1)
    return frames * slopes.astype(np.float32).reshape(shape) + intercepts.astype(np.float32).reshape(shape)
