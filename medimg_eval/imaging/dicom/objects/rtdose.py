"""RTDOSE: a dose grid in gray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.objects.frames import TO_RAS
from medimg_eval.imaging.dicom.series.grouping import DOSE


def read(path: Path) -> Image:
    """Reads a dose grid.

    It is float32, (1, i, j, k) = (1, column, row, plane), in gray, or with a note a relative dose as stored;
    `attributes` says which type of dose it is and how plans were summed. Raises CaseError where the file is no dose
    grid, states no unit, scaling or place, or its planes lie at uneven distances.
    """
    dataset = _open_dose(path, pixels=True)
    geometry, order = _dose_geometry(dataset, path)
    units = dataset.get("DoseUnits")
    if units not in ("GY", "RELATIVE"):
        raise CaseError(f"{path}: its DoseUnits is neither GY nor RELATIVE; export the absolute dose in gray")
    notes = ["a dose relative to a reference the file does not state, not in gray"] if units == "RELATIVE" else []
    if len(order) == 1 and not dataset.get("SliceThickness"):
        notes.append("the file states no thickness of its one plane; 1 mm was taken")
    scaling = float(dataset.get("DoseGridScaling") or 0)
    if not (np.isfinite(scaling) and scaling > 0):
        raise CaseError(f"{path}: states no DoseGridScaling above 0; export the dose again")
    dose = np.empty(geometry.shape, dtype=np.float32)
    frames = dataset.pixel_array.reshape(-1, int(dataset.Rows), int(dataset.Columns))
    if len(frames) != len(order):
        raise CaseError(f"{path}: holds {len(frames)} planes but places {len(order)}; export the dose again")
    for k, number in enumerate(order):
        # Scaled as float64: stored values of 32 bits have more digits than float32.
        dose[:, :, k] = (frames[number] * scaling).T
    attributes = {
        keyword: str(dataset.get(keyword))
        for keyword in ("DoseType", "DoseSummationType", "DoseUnits")
        if dataset.get(keyword)
    }
    return Image(dose[None], geometry.affine, modality="RTDOSE", notes=tuple(notes), attributes=attributes)


def grid(path: Path) -> Geometry:
    """Reads the grid alone, from the header; raises what `read` raises of it."""
    return _dose_geometry(_open_dose(path, pixels=False), path)[0]


def _open_dose(path: Path, *, pixels: bool) -> Any:
    from pydicom import dcmread

    dataset = dcmread(path, stop_before_pixels=not pixels, force=True)
    if dataset.get("SOPClassUID") != DOSE and dataset.get("Modality") != "RTDOSE":
        raise CaseError(f"{path}: is no RTDOSE; expected a dose grid, got modality {dataset.get('Modality')}")
    return dataset


def _dose_geometry(dataset: Any, path: Path) -> tuple[Geometry, Array]:
    """The grid, and the number of the frame at each plane of it."""
    missing = next(
        (
            keyword
            for keyword in ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "Rows", "Columns")
            if not dataset.get(keyword)
        ),
        None,
    )
    if missing is not None:
        raise CaseError(f"{path}: states no {missing}, so the dose has no place in the patient; export it again")
    row, column = np.asarray(dataset.ImageOrientationPatient, dtype=float).reshape(2, 3)
    between_rows, between_columns = (float(step) for step in dataset.PixelSpacing)
    normal = np.cross(row, column)
    first = np.asarray(dataset.ImagePositionPatient, dtype=float)
    heights, order, step = _dose_planes(dataset, float(first @ normal), float(normal[2]), path)
    affine = np.eye(4)
    start = first + normal * heights[0]
    affine[:3] = np.column_stack([row * between_columns, column * between_rows, normal * step, start])
    affine[:3] *= TO_RAS[:, None]
    if abs(np.linalg.det(affine[:3, :3])) < 1e-9:
        raise CaseError(f"{path}: has a spacing of zero; export the dose again")
    return Geometry((int(dataset.Columns), int(dataset.Rows), len(order)), affine), order


def _dose_planes(dataset: Any, first: float, upward: float, path: Path) -> tuple[Array, Array, float]:
    """Heights, frame indices and spacing of dose planes, ascending.

    Offsets start at 0 along the normal (the standard's form a), or are patient z coordinates of a grid whose
    planes are transverse (form b).
    """
    count = int(dataset.get("NumberOfFrames") or 1)
    offsets = dataset.get("GridFrameOffsetVector")
    if offsets is None:
        if count > 1:
            raise CaseError(f"{path}: states no GridFrameOffsetVector for its {count} planes; export the dose again")
        thickness = dataset.get("SliceThickness")
        return np.zeros(1), np.zeros(1, dtype=int), float(thickness) if thickness else 1.0
    heights = np.atleast_1d(np.asarray(offsets, dtype=float))
    if len(heights) != count:
        raise CaseError(f"{path}: places {len(heights)} of {count} planes; export the dose again")
    if heights[0] != 0:
        if abs(abs(upward) - 1) > 1e-4 or abs(heights[0] * upward - first) > 0.01:
            raise CaseError(
                f"{path}: its GridFrameOffsetVector starts at {heights[0]:g}, neither at 0 nor at the z of its first "
                "plane; export the dose again"
            )
        heights = (heights - heights[0]) * upward
    order = np.argsort(heights, kind="stable")
    steps = np.diff(heights[order])
    if not len(steps):
        return heights, order, float(dataset.get("SliceThickness") or 1.0)
    step = float((heights[order][-1] - heights[order][0]) / len(steps))
    if step <= 0 or np.abs(steps - step).max() > 0.01 * step:
        raise CaseError(
            f"{path}: its planes lie at uneven distances ({steps.min():g} to {steps.max():g} mm); "
            "export the dose on an even grid"
        )
    return heights[order], order, step
