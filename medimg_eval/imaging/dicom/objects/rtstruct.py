"""RTSTRUCT: contours, filled on the grid of the image they were drawn on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.objects.frames import TO_RAS
from medimg_eval.imaging.dicom.objects.seg import Segments, paint
from medimg_eval.imaging.dicom.series.grouping import STRUCTURES

CLOSED = ("CLOSED_PLANAR", "CLOSEDPLANAR_XOR")
"""Contours that bound a region; points and open lines bound none."""

SNAP = 6
"""Decimals of a voxel index that are kept: contours often run through voxel centres, where noise must not decide."""

CONTOUR_DATA = 0x30060050

SAME_PLANE = 0.02
"""How far apart, in slices, contours of one plane may lie."""


@dataclass(frozen=True, eq=False)
class _Region:
    """A structure: its contours as voxel indices, (point, 3) each."""

    number: int
    name: str
    contours: tuple[Array, ...]


def read_mask(path: Path, *, grid: Geometry | None = None, labels: Mapping[str, int] | None = None) -> Mask:
    """Fills RTSTRUCT contours on their image's grid, any orientation.

    A voxel is inside when its centre is inside an odd number of the structure's contours, so that contours within
    contours and keyholes are holes. A centre on an edge belongs to the region on its upper side. Contours between
    slices go to the nearest slice. Labels are of the smallest unsigned dtype: the integers that `labels` gives to the
    names of the structures wanted, without it ROI numbers.

    Raises:
        CaseError: no grid was given, the file is no structure set, wanted structures overlap, there is no
            such structure, or the contours run across the image's slices or lie outside it.
    """
    regions, notes, grid = _read_regions(path, grid)
    values = _label_values(regions, labels, path)
    out = np.zeros(grid.shape, dtype=np.min_scalar_type(max(values.values(), default=0)))
    wanted = [(values[region.number], region) for region in regions if region.number in values]
    parts = (
        (plane(out), value, inside)
        for value, region in wanted
        for plane, inside in _fill_slices(region, grid, path, notes)
    )
    called = paint(parts, [(value, region.name) for value, region in wanted], "structures", path)
    return Mask(out, grid.affine, called, tuple(notes))


def read_structures(path: str | Path, *, grid: Geometry | None = None) -> Segments:
    """Fills every structure of an RTSTRUCT by itself; arguments and errors as `read_mask`."""
    path = Path(path)
    regions, notes, grid = _read_regions(path, grid)
    arrays = {}
    for region in regions:
        arrays[region.number] = np.zeros(grid.shape, dtype=bool)
        for plane, inside in _fill_slices(region, grid, path, notes):
            plane(arrays[region.number])[inside] = True
    return Segments(grid, {region.number: region.name for region in regions}, arrays, tuple(notes))


def fill(contours: Sequence[Array], shape: tuple[int, int]) -> Array:
    """Fills polygons even-odd, on a picture of a shape.

    Contours are (point, 2) each, in pixel indices where a whole number is a pixel's centre; closed by themselves. The
    result is bool, (*shape): True where a pixel's centre lies inside an odd number of contours. Of centres on an edge
    those count that have the region at higher indices, so that neighbours share no pixel.
    """
    starts = np.concatenate([np.asarray(contour, dtype=np.float64) for contour in contours])
    ends = np.concatenate([np.roll(np.asarray(contour, dtype=np.float64), -1, axis=0) for contour in contours])
    # An edge crosses the lines x = 0, 1, ... in [low, high): the half-open span counts a shared corner once.
    low, high = np.minimum(starts[:, 0], ends[:, 0]), np.maximum(starts[:, 0], ends[:, 0])
    first = np.clip(np.ceil(low), 0, shape[0]).astype(np.int64)
    count = np.clip(np.ceil(high), 0, shape[0]).astype(np.int64) - first
    edge = np.repeat(np.arange(len(starts)), count)
    line = np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count) + first[edge]
    (x0, y0), (x1, y1) = starts[edge].T, ends[edge].T
    crossing = y0 + (line - x0) * ((y1 - y0) / (x1 - x0))
    pixel = np.clip(np.ceil(np.round(crossing, SNAP)), 0, shape[1]).astype(np.int64)
    inside: Array = np.zeros(shape, dtype=bool)
    if len(line):
        # Every crossing turns inside to outside, and back, for all pixels from there on.
        corner, far = (int(line.min()), int(pixel.min())), (int(line.max()), int(pixel.max()))
        rows, columns = far[0] - corner[0] + 1, far[1] - corner[1] + 1
        turns = np.bincount((line - corner[0]) * columns + pixel - corner[1], minlength=rows * columns)
        odd = np.cumsum(turns.reshape(rows, columns), axis=1) % 2 == 1
        # The last column is where the last crossing ends all insides.
        inside[corner[0] : far[0] + 1, corner[1] : far[1]] = odd[:, :-1]
    return inside


def _read_regions(path: Path, grid: Geometry | None) -> tuple[list[_Region], list[str], Geometry]:
    from pydicom import dcmread

    if grid is None or len(grid.shape) != 3:
        raise CaseError(
            f"{path}: holds contours and no voxels; give `grid`, the grid of the image they were drawn on, such as "
            "read_grid(FOLDER)"
        )
    dataset = dcmread(path, force=True)
    if dataset.get("SOPClassUID") != STRUCTURES and "StructureSetROISequence" not in dataset:
        raise CaseError(f"{path}: is no RTSTRUCT; expected a structure set, got modality {dataset.get('Modality')}")
    drawn = {int(roi.ReferencedROINumber): roi for roi in dataset.get("ROIContourSequence") or []}
    to_index = np.linalg.inv(grid.affine)
    regions, notes = [], []
    for roi in dataset.get("StructureSetROISequence") or []:
        number = int(roi.ROINumber)
        name = str(roi.get("ROIName") or f"structure {number}")
        contours, left_out = _closed_contours(drawn.get(number), to_index, name, path)
        if left_out:
            notes.append(f"{left_out} contours of {name!r} bound no region (points, lines) and were left out")
        if not contours:
            notes.append(f"structure {name!r} has no contours")
        regions.append(_Region(number, name, tuple(contours)))
    if not any(region.contours for region in regions):
        raise CaseError(f"{path}: holds no closed contour; export the structures again")
    return regions, notes, grid


def _closed_contours(roi: Any, to_index: Array, name: str, path: Path) -> tuple[list[Array], int]:
    """Closed contours of a structure in voxels; number of open ones."""
    contours, left_out = [], 0
    for contour in (roi.get("ContourSequence") if roi is not None else None) or []:
        data = _contour_numbers(contour)
        if len(data) % 3 or not np.isfinite(data).all():
            raise CaseError(f"{path}: a contour of {name!r} has {len(data)} numbers, not 3 per point; export it again")
        if contour.get("ContourGeometricType", "CLOSED_PLANAR") not in CLOSED or len(data) < 9:
            left_out += 1
            continue
        points = data.reshape(-1, 3) * TO_RAS
        contours.append(np.round(points @ to_index[:3, :3].T + to_index[:3, 3], SNAP))
    return contours, left_out


def _contour_numbers(contour: Any) -> Array:
    """The coordinates of one contour."""
    if CONTOUR_DATA not in contour:
        return np.empty(0)
    value = contour.get_item(CONTOUR_DATA).value
    if isinstance(value, bytes):
        # pydicom would make an object of each number, which takes twenty times as long.
        text = value.decode("ascii", "replace").strip("\0 ")
        return np.array(text.split("\\") if text else [], dtype=np.float64)
    return np.asarray(value if value is not None else [], dtype=np.float64)


def _label_values(regions: Sequence[_Region], labels: Mapping[str, int] | None, path: Path) -> dict[int, int]:
    """ROI number -> integer in the mask, of the structures wanted."""
    names = [region.name for region in regions]
    if labels is None:
        values = {region.number: region.number for region in regions}
    else:
        CaseError.refuse_unknown(f"{path}: has no structure", names, *labels)
        values = {region.number: labels[region.name] for region in regions if region.name in labels}
    wrong = next((region.name for region in regions if values.get(region.number, 1) < 1), None)
    if wrong is not None:
        raise CaseError(f"{path}: structure {wrong!r} would have a label below 1; choose with labels={{NAME: INTEGER}}")
    return values


def _fill_slices(region: _Region, grid: Geometry, path: Path, notes: list[str]) -> Iterator[tuple[Any, Array]]:
    """Yields slice selectors and inside voxels."""
    if not region.contours:
        return
    axis = _contour_axis(region, path)
    by_slice: dict[int, list[tuple[float, Array]]] = {}
    for contour in region.contours:
        height = float(contour[:, axis].mean())
        by_slice.setdefault(round(height), []).append((height, contour))
    inside = {k for k in by_slice if 0 <= k < grid.shape[axis]}
    if not inside:
        raise CaseError(f"{path}: structure {region.name!r} lies outside the image; give the grid it was drawn on")
    moved, dropped = 0.0, 0
    axes = [axis_ for axis_ in range(3) if axis_ != axis]
    for k in sorted(inside):
        # Contours of two planes may fall to one slice; filled together they would cancel out.
        height = min((abs(height - k), height) for height, _ in by_slice[k])[1]
        own = [contour[:, axes] for height_, contour in by_slice[k] if abs(height_ - height) <= SAME_PLANE]
        dropped += len(by_slice[k]) - len(own)
        moved = max(moved, abs(height - k))
        yield (
            lambda volume, k=k: np.moveaxis(volume, axis, 0)[k],
            fill(own, (grid.shape[axes[0]], grid.shape[axes[1]])),
        )
    gaps = max(inside) - min(inside) + 1 - len(inside)
    outside = len(by_slice) - len(inside)
    possible = {
        f"contours of {region.name!r} lie up to {moved:.2g} slices off the slice they went to": moved > SAME_PLANE,
        f"{dropped} contours of {region.name!r} were left out: another plane is nearer to their slice": dropped > 0,
        f"{gaps} slices between contours of {region.name!r} have none and stay empty": gaps > 0,
        f"contours of {region.name!r} on {outside} planes lie outside the image": outside > 0,
    }
    notes.extend(note for note, happened in possible.items() if happened)


def _contour_axis(region: _Region, path: Path) -> int:
    """The axis of the grid that the contours' planes are normal to."""
    extent = np.array([np.ptp(contour, axis=0) for contour in region.contours]).max(axis=0)
    axis = 2 - int(np.argmin(extent[::-1]))  # the slice axis where several fit
    if extent[axis] > 0.5:
        raise CaseError(
            f"{path}: contours of {region.name!r} run across {extent[axis]:.2g} slices of the image; give the grid "
            "of the series they were drawn on"
        )
    return axis
