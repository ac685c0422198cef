"""DICOM-SEG: binary, fractional and label-map segmentations as label maps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Mask
from medimg_eval.errors import CaseError, import_optional
from medimg_eval.imaging.dicom.objects.frames import box, frames_of, placed
from medimg_eval.imaging.dicom.series.grouping import SEGMENTATIONS
from medimg_eval.imaging.voxel_data import check_memory


@dataclass(frozen=True, eq=False)
class Segments:
    """The segments of one file, each by itself, for segmentations whose segments overlap.

    `names` and `arrays`, bool (i, j, k) on the geometry, are by segment number; `notes` say what was mended or assumed.
    """

    geometry: Geometry
    names: Mapping[int, str]
    arrays: Mapping[int, Array]
    notes: tuple[str, ...] = ()


def read_mask(path: Path, *, grid: Geometry | None = None, labels: Mapping[str, int] | None = None) -> Mask:
    """Reads DICOM-SEG as label map (i, j, k), smallest unsigned dtype.

    (i, j, k) = (column, row, slice).

    That of a slide, in tiles, becomes a map of its whole plane, (row, column); a grid only says how large that is.

    Frames are placed on the image's grid, so slices that the file leaves out as empty are background; without it the
    mask is the box that the frames span. Labels are the integers that `labels` gives to the names of the segments
    wanted, without it their numbers.

    Raises:
        CaseError: the file is no segmentation in patient space, wanted segments overlap, there is no such
            segment, or the frames do not lie on the grid.
    """
    dataset = _open_segmentation(path, pixels=True)
    names = _segment_names(dataset)
    values = _label_values(names, labels, path)
    if _is_tiled(dataset):
        return _read_tiled(dataset, path, grid, values, names)
    frames = frames_of(dataset, path)
    geometry, notes = box(frames, dataset, path) if grid is None else (grid, [])
    frames = [frame for frame in frames if frame.segment in values or not frame.segment]
    out = np.zeros(geometry.shape, dtype=np.min_scalar_type(max(values.values(), default=0)))
    placements = placed(dataset, frames, out, geometry, path)
    parts = ((part, values[segment], inside) for part, segment, inside in placements if segment in values)
    called = paint(parts, [(value, names[number]) for number, value in values.items()], "segments", path)
    return Mask(out, geometry.affine, called, (*notes, *_list_doubts(dataset)))


def paint(
    parts: Iterable[tuple[Array, int, Array]], names: Iterable[tuple[int, str]], what: str, path: Path
) -> dict[int, str]:
    """Paints labels into map parts; returns their names.

    Each where it is inside.

    Raises CaseError where labels overlap.
    """
    overlaps: set[tuple[int, int]] = set()
    for part, value, inside in parts:
        overlaps |= {(int(value_), value) for value_ in np.unique(part[inside]) if value_ not in (0, value)}
        part[inside] = value
    called: dict[int, str] = {}
    for value, name in names:
        called[value] = f"{called[value]} + {name}" if value in called else name
    if overlaps:
        pairs = ", ".join(f"{called[label]!r} and {called[other_label]!r}" for label, other_label in sorted(overlaps))
        raise CaseError(
            f"{path}: {what} overlap, which a label map cannot hold ({pairs}); choose {what} that do not with "
            f"labels={{NAME: INTEGER}}, or read each by itself with medimg_eval.imaging.dicom.read_{what}"
        )
    return called


def read_segments(path: str | Path, *, grid: Geometry | None = None) -> Segments:
    """Reads every segment of a DICOM-SEG by itself; arguments and errors as `read_mask`."""
    path = Path(path)
    dataset = _open_segmentation(path, pixels=True)
    names = _segment_names(dataset)
    if _is_tiled(dataset):
        plane = _plane_of(dataset, path)
        arrays = {number: _segment_plane(dataset, path, number) for number in names}
        return Segments(plane, names, arrays, tuple(_list_doubts(dataset)))
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
    return Segments(geometry, names, arrays, (*notes, *_list_doubts(dataset)))


def grid(path: Path) -> Geometry:
    """Reads the grid of the frames' box; raises as `read_mask`."""
    dataset = _open_segmentation(path, pixels=False)
    if _is_tiled(dataset):
        return _plane_of(dataset, path)
    return box(frames_of(dataset, path), dataset, path)[0]


def _is_tiled(dataset: Any) -> bool:
    """Whether frames are tiles of one plane, as of slides."""
    return bool(dataset.get("TotalPixelMatrixRows")) and bool(dataset.get("TotalPixelMatrixColumns"))


def _plane_of(dataset: Any, path: Path) -> Geometry:
    """Grid of the tiled plane, (row, column); `pixel` without credible size."""
    shape = (int(dataset.TotalPixelMatrixRows), int(dataset.TotalPixelMatrixColumns))
    check_memory(path, shape[0] * shape[1])
    shared = (dataset.get("SharedFunctionalGroupsSequence") or [{}])[0]
    measures = shared.get("PixelMeasuresSequence")
    steps = [float(step) for step in (measures[0].get("PixelSpacing") or ())] if measures else []
    if len(steps) != 2 or not all(math.isfinite(step) and step > 0 for step in steps):
        return Geometry(shape, np.eye(4), "pixel")
    return Geometry(shape, np.diag([*steps, 1.0, 1.0]), "mm")


def _read_tiled(
    dataset: Any, path: Path, grid: Geometry | None, values: Mapping[int, int], names: Mapping[int, str]
) -> Mask:
    plane = _plane_of(dataset, path)
    if grid is not None and grid.shape != plane.shape:
        raise CaseError(
            f"{path}: is drawn in tiles on a plane of {plane.shape}, and the image has {grid.shape} pixels; read the "
            "image at the level it was drawn on"
        )
    out = np.zeros(plane.shape, dtype=np.min_scalar_type(max(values.values(), default=0)))
    parts = ((out, values[number], _segment_plane(dataset, path, number)) for number in values)
    called = paint(parts, [(value, names[number]) for number, value in values.items()], "segments", path)
    return Mask(out, plane.affine, called, tuple(_list_doubts(dataset)), plane.units)


def _segment_plane(dataset: Any, path: Path, number: int) -> Array:
    """Segment on the whole plane, (row, column); fractional from half."""
    highdicom = import_optional("highdicom")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they quote values
            opened = highdicom.seg.Segmentation.from_dataset(dataset, copy=False)
            plane: Array = opened.get_total_pixel_matrix(segment_numbers=[number])[..., 0]
    except Exception as error:
        raise CaseError(
            f"{path}: its tiles cannot be put together ({type(error).__name__}); write the segmentation again"
        ) from error
    return plane >= (0.5 if dataset.get("SegmentationType") == "FRACTIONAL" else 1)


def _open_segmentation(path: Path, *, pixels: bool) -> Any:
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


def _segment_names(dataset: Any) -> dict[int, str]:
    """Segment number -> name, without a label map's background."""
    return {
        int(segment.SegmentNumber): str(segment.get("SegmentLabel") or f"segment {segment.SegmentNumber}")
        for segment in dataset.SegmentSequence
        if int(segment.SegmentNumber) != 0
    }


def _label_values(names: Mapping[int, str], labels: Mapping[str, int] | None, path: Path) -> dict[int, int]:
    """Segment number -> integer in the mask, of the segments wanted."""
    if labels is None:
        return {number: number for number in names}
    CaseError.refuse_unknown(f"{path}: has no segment", names.values(), *labels)
    wrong = next((name for name, value in labels.items() if value < 1), None)
    if wrong is not None:
        raise CaseError(f"{path}: segment {wrong!r} was given label {labels[wrong]}; labels start at 1")
    return {number: labels[name] for number, name in names.items() if name in labels}


def _list_doubts(dataset: Any) -> list[str]:
    if dataset.get("SegmentationType") == "FRACTIONAL":
        return ["a fractional segmentation: voxels of at least half the largest value are inside"]
    return []
