"""Where the frames of a segmentation lie in the patient, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry
from medimg_eval.errors import CaseError
from medimg_eval.imaging.geometry import LPS_TO_RAS

TO_RAS = LPS_TO_RAS.diagonal()[:3]
"""DICOM counts towards the patient's left and back, an affine of ours towards right and front."""

TOLERANCE = 0.01
"""How far a frame may lie beside the grid it is placed on, in edges of the smallest voxel."""


@dataclass(frozen=True, eq=False)
class Frame:
    """Frame and its segment; 0 where pixels state it.

    `plane` is float64, (4, 3), RAS+ mm: a step along the columns, a step along the rows, the first pixel; `shape` is
    (columns, rows).
    """

    number: int
    segment: int
    plane: Array
    shape: tuple[int, int]


def frames_of(dataset: Any, path: Path) -> list[Frame]:
    """Where each frame lies, from the functional groups."""
    shared = dataset.get("SharedFunctionalGroupsSequence") or [{}]
    single = dataset.get("SegmentationType") == "LABELMAP"
    frames = []
    for number, own in enumerate(dataset.get("PerFrameFunctionalGroupsSequence") or []):

        def group(name: str, own: Any = own) -> Any:
            sequence = own.get(name) or shared[0].get(name)
            return sequence[0] if sequence else {}

        segment = None if single else group("SegmentIdentificationSequence").get("ReferencedSegmentNumber")
        position = group("PlanePositionSequence").get("ImagePositionPatient")
        turn = group("PlaneOrientationSequence").get("ImageOrientationPatient")
        spacing = group("PixelMeasuresSequence").get("PixelSpacing")
        if not (segment or single) or not position or not turn or not spacing:
            raise CaseError(
                f"{path}: frame {number + 1} does not say which segment it shows and where it lies in the patient; "
                "write the segmentation again with its series, or convert it to NIfTI"
            )
        row, column = np.asarray(turn, dtype=float).reshape(2, 3) * TO_RAS
        first = np.asarray(position, dtype=float) * TO_RAS
        plane = np.zeros((4, 3))
        plane[:3] = np.column_stack([row * float(spacing[1]), column * float(spacing[0]), first])
        plane[3, 2] = 1
        frames.append(Frame(number, int(segment or 0), plane, (int(dataset.Columns), int(dataset.Rows))))
    described = {0, *(int(segment.SegmentNumber) for segment in dataset.SegmentSequence)}
    stray = next((frame for frame in frames if frame.segment not in described), None)
    if stray is not None:
        raise CaseError(
            f"{path}: frame {stray.number + 1} shows segment {stray.segment}, which the file does not describe; "
            "write the segmentation again"
        )
    stated = int(dataset.get("NumberOfFrames") or 1)
    if stated != len(frames):
        raise CaseError(f"{path}: holds {stated} frames but describes {len(frames)}; write the segmentation again")
    return frames


def box(frames: Sequence[Frame], dataset: Any, path: Path) -> tuple[Geometry, list[str]]:
    """Box spanned by frames, including missing slices between."""
    planes = np.array([frame.plane for frame in frames])
    columns, rows, origins = planes[0, :3, 0], planes[0, :3, 1], planes[:, :3, 2]
    close = TOLERANCE * min(np.linalg.norm(columns), np.linalg.norm(rows))
    ends = np.ptp(planes[:, :3, :2], axis=0) * frames[0].shape
    normal = np.cross(columns, rows)
    normal /= np.linalg.norm(normal)
    heights = origins @ normal
    order = np.argsort(heights, kind="stable")
    new = np.r_[True, np.diff(heights[order]) > close]
    origins = origins[order][new]
    step, notes = _slice_step(np.diff(heights[order][new]), dataset, path)
    indices = np.rint((origins - origins[0]) @ normal / step)
    count = int(indices[-1]) + 1
    # Slices may be sheared (gantry tilt): the step is the way from the first to the last, not the normal.
    along = (origins[-1] - origins[0]) / indices[-1] if count > 1 else normal * step
    apart = np.abs(origins - origins[0] - indices[:, None] * along).max()
    spread = max(np.ptp(planes[order, :3, 2][start:stop], axis=0).max() for start, stop in _equal_runs(new))
    if max(ends.max(), apart, spread) > close:
        raise CaseError(f"{path}: its frames lie on no common grid; give the `grid` of the image they were drawn on")
    affine = np.eye(4)
    affine[:3] = np.column_stack([columns, rows, along, origins[0]])
    if count > len(origins):
        notes.append(f"{count - len(origins)} of {count} slices have no frame and are background")
    return Geometry((*frames[0].shape, count), affine), notes


def _equal_runs(new: Array) -> list[tuple[int, int]]:
    starts = np.flatnonzero(new)
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(new)], strict=True))


def _slice_step(distances: Array, dataset: Any, path: Path) -> tuple[float, list[str]]:
    """The distance between slices, of which every distance between frames is a multiple."""
    stated: dict[str, float] = {}
    for groups in (dataset.get("SharedFunctionalGroupsSequence"), dataset.PerFrameFunctionalGroupsSequence):
        measures = groups[0].get("PixelMeasuresSequence") if groups else None
        for name in ("SpacingBetweenSlices", "SliceThickness"):
            if measures and measures[0].get(name):
                stated[name] = float(measures[0].get(name))
    between = stated.get("SpacingBetweenSlices")
    if not len(distances):
        step = between or stated.get("SliceThickness")
        return (step, []) if step else (1.0, ["the file states no slice distance for its one slice; 1 mm was taken"])
    for step in (between, float(distances.min())):
        if step and step > 0:
            steps = distances / step
            if np.abs(steps - np.rint(steps)).max() <= TOLERANCE and steps.min() > 0.5:
                return step, []
    raise CaseError(
        f"{path}: its frames lie at uneven distances ({distances.min():.4g} to {distances.max():.4g} mm); "
        "give the `grid` of the image they were drawn on"
    )


def placed(
    dataset: Any, frames: Sequence[Frame], out: Array, geometry: Geometry, path: Path
) -> Iterator[tuple[Array, int, Array]]:
    """Yields target part of `out`, segment and bool mask, by frame.

    Raises CaseError where the frames do not lie on the grid, voxels of a segment lie outside it, or a segment is shown
    twice at one place.
    """
    if len(geometry.shape) != 3:
        raise CaseError(f"{path}: a segmentation is placed on a volume, got a grid of shape {geometry.shape}")
    decode = _frame_decoder(dataset, path)
    first_indices: dict[tuple[int, bytes], int] = {}
    for frame in frames:
        twin = first_indices.setdefault((frame.segment, frame.plane.tobytes()), frame.number)
        if twin != frame.number:
            raise CaseError(
                f"{path}: frames {twin + 1} and {frame.number + 1} show one segment at one place; split the file "
                "if it holds several times or tiles"
            )
        part, cut = _frame_window(frame, out, geometry, path)
        for segment, inside in _frame_segments(frame, decode(frame.number).T, dataset, path):
            selected = inside[cut]
            if np.count_nonzero(selected) != np.count_nonzero(inside):
                raise CaseError(
                    f"{path}: labelled voxels lie outside the grid of shape {geometry.shape}; give the grid of the "
                    "image it was drawn on"
                )
            yield part, segment, selected


def _frame_segments(frame: Frame, pixels: Array, dataset: Any, path: Path) -> Iterator[tuple[int, Array]]:
    """The segments in one frame."""
    if frame.segment:
        fractional = dataset.get("SegmentationType") == "FRACTIONAL"
        half = int(dataset.get("MaximumFractionalValue") or 255) / 2 if fractional else 0.5
        yield frame.segment, pixels >= half
        return
    described = {int(segment.SegmentNumber) for segment in dataset.SegmentSequence}
    for value in np.unique(pixels).tolist():
        if value in (0, dataset.get("PixelPaddingValue")):
            continue
        if value not in described:
            raise CaseError(f"{path}: holds label {value}, which it does not describe; write the segmentation again")
        yield value, pixels == value


def _frame_window(frame: Frame, out: Array, geometry: Geometry, path: Path) -> tuple[Array, tuple[slice, slice]]:
    """Part of `out` covered by a frame, and that of the frame."""
    inverse = np.linalg.inv(geometry.affine)
    indices = (inverse @ frame.plane)[:3]  # of a step along columns, a step along rows, the first pixel
    exact = np.rint(indices)
    last = np.subtract(frame.shape, 1)
    off = geometry.affine[:3, :3] @ (indices - exact)
    corners = np.column_stack([off, off[:, 2:] + off[:, :2] * last, off[:, 2] + off[:, :2] @ last])
    along = [np.flatnonzero(exact[:, 0]).tolist(), np.flatnonzero(exact[:, 1]).tolist()]
    unit = [len(axes) == 1 and abs(exact[axes[0], n]) == 1 for n, axes in enumerate(along)]
    if (
        not all(unit)
        or along[0] == along[1]
        or np.linalg.norm(corners, axis=0).max() > TOLERANCE * min(geometry.spacing)
    ):
        raise CaseError(
            f"{path}: frame {frame.number + 1} does not lie on the grid of shape {geometry.shape}; give the grid of "
            "the image it was drawn on"
        )
    (a,), (b,) = along
    depth = 3 - a - b
    k = int(exact[depth, 2])
    if not 0 <= k < geometry.shape[depth]:
        nothing = (slice(0, 0), slice(0, 0))
        return np.zeros((0, 0), dtype=out.dtype), nothing
    plane = np.moveaxis(out, depth, 0)[k]
    plane = plane.T if a > b else plane
    cuts, targets = [], []
    for n, axis in enumerate((a, b)):
        sign, start = int(exact[axis, n]), int(exact[axis, 2])
        size, room = frame.shape[n], geometry.shape[axis]
        # Pixels 0 to size - 1 go to start, start + sign, ...: those inside the grid are kept.
        low, high = (-start, room - start) if sign > 0 else (start - room + 1, start + 1)
        low, high = max(low, 0), max(min(high, size), low, 0)
        cuts.append(slice(low, high))
        first, stop = start + sign * low, start + sign * high
        targets.append(slice(first, stop if stop >= 0 else None, sign) if high > low else slice(0, 0))
    return plane[tuple(targets)], (cuts[0], cuts[1])


def _frame_decoder(dataset: Any, path: Path) -> Callable[[int], Array]:
    """Decoder of single frames, (row, column), to save memory."""
    rows, columns, bits = int(dataset.Rows), int(dataset.Columns), int(dataset.BitsAllocated)
    size = rows * columns
    data = dataset.get("PixelData")
    if data is None or bits not in (1, 8, 16):
        raise CaseError(f"{path}: holds no segmentation pixels (of {bits} bits); copy it again")
    syntax = dataset.file_meta.get("TransferSyntaxUID")
    if syntax is not None and (syntax.is_encapsulated or not syntax.is_little_endian):
        from pydicom.pixels import iter_pixels

        return lambda number: next(iter(iter_pixels(dataset, indices=[number], raw=True)))
    if len(data) * 8 < size * bits * int(dataset.get("NumberOfFrames") or 1):
        raise CaseError(f"{path}: is cut short: fewer pixels than frames; copy it again")
    flat = np.frombuffer(data, dtype=np.uint8)
    if bits > 1:
        values = flat[: size * int(dataset.get("NumberOfFrames") or 1) * bits // 8].view(f"<u{bits // 8}")
        return lambda number: values[number * size : (number + 1) * size].reshape(rows, columns)

    def unpacked(number: int) -> Array:
        # Bits run on from frame to frame, whatever the bytes.
        start, stop = number * size, (number + 1) * size
        frame = np.unpackbits(flat[start // 8 : (stop + 7) // 8], bitorder="little")
        return frame[start % 8 : start % 8 + size].reshape(rows, columns)

    return unpacked
