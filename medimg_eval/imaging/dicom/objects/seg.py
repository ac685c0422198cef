"""DICOM-SEG: binary, fractional and label-map segmentations as label maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Mask
from medimg_eval.errors import CaseError, nearest
from medimg_eval.imaging.dicom.objects.frames import box, frames_of, placed
from medimg_eval.imaging.dicom.series.grouping import SEGMENTATIONS


@dataclass(frozen=True, eq=False)
class Segments:
    """The segments of one file, each by itself, for segmentations whose segments overlap.

    Attributes:
        geometry: the grid all of them lie on.
        names: segment number -> what the file calls it.
        arrays: segment number -> bool, (i, j, k).
        notes: what was mended or assumed, in words.
    """

    geometry: Geometry
    names: Mapping[int, str]
    arrays: Mapping[int, Array]
    notes: tuple[str, ...] = ()


def read_mask(path: Path, *, grid: Geometry | None = None, labels: Mapping[str, int] | None = None) -> Mask:
    """Reads a DICOM-SEG as a label map.

    Args:
        path: the file.
        grid: the image's grid. Frames are placed on it, so slices that the file leaves out as empty are
            background. Without it the mask is the box that the frames span.
        labels: segment name -> integer, of the segments wanted. Without it the integer is the segment's number.

    Returns:
        Labels of the smallest unsigned dtype, (i, j, k) = (column, row, slice), and what they are called.

    Raises:
        CaseError: the file is no segmentation in patient space, wanted segments overlap, there is no such
            segment, or the frames do not lie on the grid.
    """
    dataset = _open(path, pixels=True)
    names = _names(dataset)
    values = _values(names, labels, path)
    frames = frames_of(dataset, path)
    geometry, notes = box(frames, dataset, path) if grid is None else (grid, [])
    frames = [frame for frame in frames if frame.segment in values or not frame.segment]
    out = np.zeros(geometry.shape, dtype=np.min_scalar_type(max(values.values(), default=0)))
    overlaps: set[tuple[int, int]] = set()
    for part, segment, inside in placed(dataset, frames, out, geometry, path):
        if segment not in values:
            continue
        value = values[segment]
        for other in np.unique(part[inside]):
            if other not in (0, value):
                overlaps.add((int(other), value))
        part[inside] = value
    called: dict[int, str] = {}
    for number, value in values.items():
        called[value] = f"{called[value]} + {names[number]}" if value in called else names[number]
    if overlaps:
        pairs = ", ".join(f"{called[one]!r} and {called[other]!r}" for one, other in sorted(overlaps))
        raise CaseError(
            f"{path}: segments overlap, which a label map cannot hold ({pairs}); choose segments that do not with "
            "labels={NAME: INTEGER}, or read each by itself with medimg_eval.imaging.dicom.read_segments"
        )
    return Mask(out, geometry.affine, called, (*notes, *_doubts(dataset)))


def read_segments(path: Path, *, grid: Geometry | None = None) -> Segments:
    """Reads every segment of a DICOM-SEG by itself; arguments and errors as `read_mask`."""
    dataset = _open(path, pixels=True)
    names = _names(dataset)
    frames = frames_of(dataset, path)
    geometry, notes = box(frames, dataset, path) if grid is None else (grid, [])
    arrays = {number: np.zeros(geometry.shape, dtype=bool) for number in names}
    scratch = np.zeros(geometry.shape, dtype=np.uint8)
    for number, array in arrays.items():
        own = [frame for frame in frames if frame.segment in (0, number)]
        for part, segment, inside in placed(dataset, own, scratch, geometry, path):
            if segment == number:
                part[inside] = 1
        array[...] = scratch
        scratch[...] = 0
    return Segments(geometry, names, arrays, (*notes, *_doubts(dataset)))


def grid(path: Path) -> Geometry:
    """Reads the grid of the box that the frames span, from the header; raises what `read_mask` raises."""
    dataset = _open(path, pixels=False)
    return box(frames_of(dataset, path), dataset, path)[0]


def _open(path: Path, *, pixels: bool) -> Any:
    from pydicom import dcmread
    from pydicom.errors import InvalidDicomError

    try:
        dataset = dcmread(path, stop_before_pixels=not pixels, force=True)
    except (OSError, InvalidDicomError) as error:
        raise CaseError(f"{path}: cannot be read as DICOM ({type(error).__name__}); copy it again") from error
    if dataset.get("SOPClassUID") not in SEGMENTATIONS and "SegmentSequence" not in dataset:
        raise CaseError(f"{path}: is no DICOM-SEG; expected a segmentation, got modality {dataset.get('Modality')}")
    if not dataset.get("SegmentSequence"):
        raise CaseError(f"{path}: describes no segment; write the segmentation again")
    return dataset


def _names(dataset: Any) -> dict[int, str]:
    """Segment number -> what the file calls it, without the background of a label map."""
    return {
        int(segment.SegmentNumber): str(segment.get("SegmentLabel") or f"segment {segment.SegmentNumber}")
        for segment in dataset.SegmentSequence
        if int(segment.SegmentNumber) != 0
    }


def _values(names: Mapping[int, str], labels: Mapping[str, int] | None, path: Path) -> dict[int, int]:
    """Segment number -> integer in the mask, of the segments wanted."""
    if labels is None:
        return {number: number for number in names}
    unknown = next((name for name in labels if name not in names.values()), None)
    if unknown is not None:
        raise CaseError(f"{path}: has no segment {unknown!r}{nearest(unknown, names.values())}")
    wrong = next((name for name, value in labels.items() if value < 1), None)
    if wrong is not None:
        raise CaseError(f"{path}: segment {wrong!r} was given label {labels[wrong]}; labels start at 1")
    return {number: labels[name] for number, name in names.items() if name in labels}


def _doubts(dataset: Any) -> list[str]:
    if dataset.get("SegmentationType") == "FRACTIONAL":
        return ["a fractional segmentation: voxels of at least half the largest value are inside"]
    return []
