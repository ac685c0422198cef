"""A stack of slices, one file each, to a volume: the order of the slices, their grid, and what is doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from medimg_eval.case import Array, Geometry
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import Header
from medimg_eval.imaging.dicom.pixels.samples import stored_frames
from medimg_eval.imaging.dicom.series.grouping import SAME_PLACE, normal_of
from medimg_eval.imaging.dicom.series.mosaics import Mosaic, mosaic_of
from medimg_eval.imaging.geometry import LPS_TO_RAS

Gaps = Literal["raise", "resample", "largest-run"]

TILT = 0.1
"""Degrees of gantry tilt from which it is noted."""


MOVED = 0.1
"""Millimetres that volumes of one image may lie apart."""

MADE_UP = 20
"""So many slices may be made of one: beyond, it is a position that is wrong."""


class UnevenSlices(CaseError):  # noqa: N818 - read as a sentence where it is caught
    """Uneven slice steps: a missing slice, or so acquired."""


@dataclass(frozen=True, eq=False)
class Stack:
    """Ordered slices, their grid (column, row, slice), and doubts.

    `weights`, float64, (slices, 2), hold for each slice of the grid the index of the slice before it and how far
    towards the next one it lies; None where slices are used as they are. Of several `volumes`, headers are those of one
    after the other; of mosaics each is a volume.
    """

    headers: tuple[Header, ...]
    geometry: Geometry
    notes: tuple[str, ...]
    weights: Array | None = None
    volumes: int = 1
    mosaic: Mosaic | None = None


def arrange(headers: Sequence[Header], gaps: Gaps = "raise") -> Stack:
    """Sorts and positions slices of one orientation, size and spacing.

    Uneven steps are refused (`raise`), interpolated linearly onto the median step (`resample`), or only the
    `largest-run` of even steps is kept.

    Raises:
        UnevenSlices: the steps differ by more than 1 % of their median and 1 um.
        CaseError: no position, no usable spacing, two different slices at one position, or slices that do not lie
            on a line.
    """
    if gaps not in ("raise", "resample", "largest-run"):
        raise CaseError(f"gaps={gaps} is not known; expected raise, resample or largest-run")
    spacing, cosines = _slice_plane(headers)
    notes: list[str] = []
    ordered, positions_ = _sort_slices(headers, notes)
    if len(ordered) == 1:
        step = _lone_step(ordered[0], notes) * normal_of(ordered[0])
        return Stack(ordered, _stack_geometry(ordered, spacing, cosines, step, 1), tuple(notes))
    weights = None
    steps = np.diff(positions_)
    middle = float(np.median(steps))
    if steps.max() - steps.min() > 0.01 * middle + SAME_PLACE:
        if gaps == "raise":
            raise _uneven_error(ordered, positions_)
        if gaps == "largest-run":
            ordered, positions_ = _largest_run(ordered, positions_, notes)
        else:
            weights = _resampling_plan(ordered, positions_, middle, notes)
    positions = np.array([header.position for header in ordered])
    along = (positions[-1] - positions[0]) / (positions_[-1] - positions_[0])
    _check_line(ordered, positions, positions_, along, min(spacing))
    if weights is None:
        count, step = len(ordered), (positions[-1] - positions[0]) / (len(ordered) - 1)
    else:
        count, step = len(weights), along * middle
    _note_doubts(ordered, step, notes)
    return Stack(ordered, _stack_geometry(ordered, spacing, cosines, step, count), tuple(notes), weights)


def arrange_volumes(volumes: Sequence[Sequence[Header]], gaps: Gaps = "raise") -> Stack:
    """Sorts volumes' slices at the first volume's positions.

    Raises what `arrange` raises, and CaseError where a volume lies elsewhere by more than 0.1 mm, or a mosaic does not
    say how its slices lie.
    """
    if volumes[0][0].mosaic:
        return _arrange_mosaics([volume[0] for volume in volumes])
    first = arrange(volumes[0], gaps)
    if len(volumes) == 1:
        return first
    ordered = [_by_place(volume) for volume in volumes]
    wanted = {id(header) for header in first.headers}
    selected = [index for index, header in enumerate(ordered[0]) if id(header) in wanted]
    headers = tuple(volume[index] for volume in ordered for index in selected)
    for volume in ordered[1:]:
        _require_beside(ordered[0], volume)
    return replace(first, headers=headers, volumes=len(volumes))


def _by_place(headers: Sequence[Header]) -> list[Header]:
    heights = np.array([header.position for header in headers]) @ normal_of(headers[0])
    return [headers[index] for index in np.argsort(heights, kind="stable")]


def _require_beside(some: Sequence[Header], others: Sequence[Header]) -> None:
    """Refuses a volume that lies elsewhere: one affine cannot say where both are."""
    positions, wanted = (np.array([header.position for header in volume], np.float64) for volume in (others, some))
    apart = np.linalg.norm(positions - wanted, axis=1)
    worst = int(apart.argmax())
    if apart[worst] > MOVED:
        raise CaseError(
            f"{others[worst].path}: ImagePositionPatient lies {apart[worst]:.3g} mm from that of the first volume, in "
            f"{some[worst].path}; volumes of one image lie at one place, so read them one by one with series=UID/NUMBER"
        )


def _arrange_mosaics(headers: Sequence[Header]) -> Stack:
    mosaic = mosaic_of(headers[0])
    spacing, cosines = _slice_plane([replace(headers[0], position=tuple(mosaic.first))])
    stated = [header for header in headers if header.position is not None]
    if stated:
        _require_beside([stated[0]] * len(stated), stated)
    if mosaic.step @ np.cross(*cosines) < 0:  # slices are returned along the normal, as those of a series
        mosaic = mosaic.turned()
    affine = np.eye(4)
    affine[:3, :3] = np.column_stack([cosines[0] * spacing[1], cosines[1] * spacing[0], mosaic.step])
    affine[:3, 3] = mosaic.first
    geometry = Geometry((*mosaic.shape, mosaic.count), LPS_TO_RAS @ affine)
    return Stack(tuple(headers), geometry, mosaic.notes, volumes=len(headers), mosaic=mosaic)


def _slice_plane(headers: Sequence[Header]) -> tuple[tuple[float, float], Array]:
    """Pixel spacing (between rows, between columns) and the two cosines, float64, (2, 3)."""
    for header in headers:
        if header.position is None or header.orientation is None:
            raise CaseError(
                f"{header.path}: has no ImagePositionPatient and ImageOrientationPatient, so its slices cannot be put "
                "in order; take the series as the scanner wrote it"
            )
        if header.modality_lut:
            raise CaseError(
                f"{header.path}: its values go through a modality lookup table, which is applied to pictures only; "
                "export the series with RescaleSlope and RescaleIntercept"
            )
    head = headers[0]
    if head.rows < 1 or head.columns < 1:
        raise CaseError(f"{head.path}: states {head.rows} rows and {head.columns} columns; mend its header")
    if head.pixel_spacing is None or min(head.pixel_spacing) <= 0:
        spacing_text = (
            "missing" if head.pixel_spacing is None else f"{head.pixel_spacing[0]:g} x {head.pixel_spacing[1]:g} mm"
        )
        raise CaseError(f"{head.path}: PixelSpacing is {spacing_text}; expected two positive numbers, mend the header")
    cosines = np.array(head.orientation, dtype=np.float64).reshape(2, 3)
    lengths = np.linalg.norm(cosines, axis=1)
    if np.abs(lengths - 1).max() > 0.01 or abs(float(cosines[0] @ cosines[1])) > 0.01:
        raise CaseError(
            f"{head.path}: ImageOrientationPatient is not two unit vectors at right angles; mend the header"
        )
    return head.pixel_spacing, cosines / lengths[:, None]


def _sort_slices(headers: Sequence[Header], notes: list[str]) -> tuple[tuple[Header, ...], Array]:
    """The slices along the normal, each position once, and their distances along it."""
    positions = np.array([header.position for header in headers])
    heights = positions @ normal_of(headers[0])
    order = sorted(range(len(headers)), key=lambda index: (heights[index], headers[index].path))
    kept_order: list[int] = []
    dropped = 0
    for index in order:
        if kept_order and heights[index] - heights[kept_order[-1]] <= SAME_PLACE:
            _require_same(headers[kept_order[-1]], headers[index])
            dropped += 1
        else:
            kept_order.append(index)
    if dropped:
        notes.append(f"{dropped} slices were there twice, with the same pixels, and are used once")
    return tuple(headers[index] for index in kept_order), heights[kept_order]


def _require_same(one: Header, other: Header) -> None:
    rescales = [(header.slope, header.intercept) for header in (one, other)]
    if rescales[0] != rescales[1] or not np.array_equal(stored_frames(one.path, one), stored_frames(other.path, other)):
        raise CaseError(
            f"{one.path} and {other.path}: lie at the same position with different pixels; move the files of the "
            "image you do not mean out of the folder"
        )


def _lone_step(header: Header, notes: list[str]) -> float:
    for name, value in (
        ("SliceThickness", header.slice_thickness),
        ("SpacingBetweenSlices", header.spacing_between_slices),
    ):
        if value is not None and value > 0:
            notes.append(f"there is one slice, so its step is taken from {name}")
            return value
    notes.append("there is one slice, of unknown thickness: its step is set to 1 mm")
    return 1.0


def _uneven_error(ordered: Sequence[Header], places: Array) -> UnevenSlices:
    steps = np.diff(places)
    middle = float(np.median(steps))
    normal = normal_of(ordered[0])
    where = "z" if abs(normal[2]) > 0.999 else "position along the normal"
    shown_places = places * np.sign(normal[2]) if where == "z" else places
    ratio = steps / middle
    is_multiple = np.abs(ratio - np.rint(ratio)) <= 0.02
    odd = np.flatnonzero(np.abs(steps - middle) > 0.01 * middle + SAME_PLACE)
    gaps = []
    for index in odd[:5]:
        ends = "between {0}={1:.6g} and {0}={2:.6g} mm".format(where, *sorted(shown_places[index : index + 2]))
        missing_count = round(ratio[index]) - 1
        gaps.append(
            f"{missing_count} {'slice seems' if missing_count == 1 else 'slices seem'} missing {ends}"
            if is_multiple.all() and missing_count > 0
            else f"the step is {steps[index]:.4g} mm {ends}"
        )
    further = f", and {len(odd) - 5} more" if len(odd) > 5 else ""
    first = int(odd[0]) if len(odd) else 0
    return UnevenSlices(
        f"{ordered[first].path}: the steps between slices differ ({steps.min():.4g} to {steps.max():.4g} mm, median "
        f"{middle:.4g}): {'; '.join(gaps)}{further}; find the missing files, or read with gaps=resample (interpolates "
        "linearly onto the median step) or gaps=largest-run (keeps the longest even part)"
    )


def _largest_run(ordered: tuple[Header, ...], places: Array, notes: list[str]) -> tuple[tuple[Header, ...], Array]:
    steps = np.diff(places)
    best, first = (0, 0), 0
    for index in range(len(steps)):
        while np.ptp(steps[first : index + 1]) > 0.01 * np.median(steps[first : index + 1]) + SAME_PLACE:
            first += 1
        best = max(best, (index + 2 - first, -first))
    start, stop = -best[1], best[0] - best[1]
    notes.append(
        f"the steps between slices differ; {stop - start} of {len(ordered)} slices, the longest run of even steps, "
        "were kept"
    )
    return ordered[start:stop], places[start:stop]


def _resampling_plan(ordered: Sequence[Header], places: Array, step: float, notes: list[str]) -> Array:
    count = int((places[-1] - places[0]) / step + 1e-3) + 1
    if count > MADE_UP * len(places):
        raise CaseError(
            f"{ordered[0].path}: filling the gaps would make {count} slices of {len(places)}; mend the positions, or "
            "read with gaps=largest-run"
        )
    wanted = places[0] + step * np.arange(count)
    before = np.clip(np.searchsorted(places, wanted, side="right") - 1, 0, len(places) - 2)
    after = np.clip((wanted - places[before]) / np.diff(places)[before], 0, 1)
    notes.append(
        f"the steps between slices differ; {len(places)} slices were interpolated linearly to {len(wanted)}, "
        f"{step:.6g} mm apart"
    )
    return np.stack([before, after], axis=1)


def _check_line(ordered: Sequence[Header], positions: Array, places: Array, along: Array, spacing: float) -> None:
    """Refuses slices that are shifted within their plane: no affine can say so."""
    aside = np.linalg.norm(positions - positions[0] - np.outer(places - places[0], along), axis=1)
    worst = int(aside.argmax())
    if aside[worst] > 0.1 * spacing + SAME_PLACE:
        raise CaseError(
            f"{ordered[worst].path}: lies {aside[worst]:.3g} mm beside the line through the first and last slice; no "
            "affine describes such a stack, so move the slices of one straight part into a folder of their own"
        )


def _note_doubts(ordered: Sequence[Header], step: Array, notes: list[str]) -> None:
    straight = abs(float(normal_of(ordered[0]) @ step)) / float(np.linalg.norm(step))
    tilt = float(np.degrees(np.arccos(min(1.0, straight))))
    if tilt > TILT:
        notes.append(
            f"slices are sheared by {tilt:.1f} degrees (gantry tilt); the affine keeps that, but tools that expect "
            "right angles do not"
        )
    apart = float(np.linalg.norm(step)) * straight
    stated, thickness = ordered[0].spacing_between_slices or 0.0, ordered[0].slice_thickness or 0.0
    if stated > 0 and abs(apart - stated) > 0.02 * stated + SAME_PLACE:
        notes.append(f"slices lie {apart:.4g} mm apart, and SpacingBetweenSlices says {stated:.4g}: positions decide")
    elif apart > 2 * thickness > 0:
        notes.append(
            f"slices of {thickness:.4g} mm lie {apart:.4g} mm apart: what is between was not scanned, or is missing"
        )
    if len({header.frame_of_reference for header in ordered}) > 1:
        notes.append("the slices name several frames of reference; they are taken as one")


def _stack_geometry(
    ordered: Sequence[Header], spacing: tuple[float, float], cosines: Array, step: Array, slices: int
) -> Geometry:
    head = ordered[0]
    affine = np.eye(4)
    affine[:3, 0] = cosines[0] * spacing[1]
    affine[:3, 1] = cosines[1] * spacing[0]
    affine[:3, 2] = step
    affine[:3, 3] = head.position
    return Geometry((head.columns, head.rows, slices), LPS_TO_RAS @ affine)
