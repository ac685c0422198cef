"""DICOM stills and clips that have no place in the patient: X-ray, mammography, ultrasound, endoscopy, captures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import Header, facts, required_header
from medimg_eval.imaging.dicom.pixels import colour
from medimg_eval.imaging.dicom.pixels import lut as lookup
from medimg_eval.imaging.dicom.pixels import samples as pixels

if TYPE_CHECKING:
    import pydicom

Units = Literal["mm", "pixel"]

MEASURED = ("CT", "MR", "PT", "NM")
"""Modalities whose values are measurements even in a single frame: never inverted."""

CENTIMETRES = 3
"""PhysicalUnitsXDirection of an ultrasound region that shows tissue."""


def read(path: Path, header: Header | None = None, *, voi: bool = False) -> Image:
    """Reads a still, (channel, row, column), or a clip, (channel, frame, row, column).

    Grey values go through RescaleSlope and RescaleIntercept or the modality LUT; whole numbers stay whole
    where that is exact. MONOCHROME1, where 0 is white, is inverted by the range that could be stored, and
    that is noted; CT, MR, PET and NM values are measurements and stay. Palettes and YBR become RGB, three
    channels. Overlays are left off. Where the scanner padded, `valid` is False.

    With `voi`, grey values go through the VOI LUT, else the first window: float32, 0 (black) to 1 (white). Raises
    CaseError where the file has no pixels, or of a kind that is not known; the message names it.
    """
    header = header or required_header(path)
    dataset = metadata(path)
    _check_size(header)
    notes: list[str] = []
    steps, units = _pixel_steps(dataset, notes)
    frames = pixels.stored_frames(path, header)
    valid = None
    if header.samples == 1 and header.photometric.upper() in ("MONOCHROME1", "MONOCHROME2", ""):
        valid = not_padding(frames, header)
        array = _rescale_grey(frames, dataset, header, notes, voi=voi)[None]
    else:
        array = colour.rgb(path, frames, dataset, header, notes)
    if array.shape[1] == 1:
        array, valid = array[:, 0], None if valid is None else valid[0]
    _note_doubts(dataset, notes)
    return Image(
        array,
        _step_affine(steps, array.ndim - 1),
        modality=header.modality,
        units=units,
        notes=tuple(notes),
        attributes=facts(dataset),
        valid=valid,
    )


def grid(path: Path, header: Header | None = None, *, voi: bool = False) -> Geometry:
    """Reads the grid alone, from the header; takes the options of `read`."""
    header = header or required_header(path)
    dataset = metadata(path)
    _check_size(header)
    steps, units = _pixel_steps(dataset, [])
    plane = (header.rows, header.columns)
    shape = plane if header.frames == 1 else (header.frames, *plane)
    return Geometry(shape, _step_affine(steps, len(shape)), units)


def metadata(path: Path) -> pydicom.Dataset:
    """Reads all but the pixels."""
    import pydicom

    return pydicom.dcmread(path, force=True, stop_before_pixels=True)


def _check_size(header: Header) -> None:
    if header.rows < 1 or header.columns < 1:
        raise CaseError(f"{header.path}: holds no picture (Rows or Columns is missing or zero); name an image file")


def _step_affine(steps: tuple[float, float], axes: int) -> Array:
    """A diagonal of the steps; the frames of a clip are one apart."""
    diagonal = [*steps, 1.0, 1.0] if axes == 2 else [1.0, *steps, 1.0]
    return np.diag(np.array(diagonal))


# --- how large a pixel is -------------------------------------------------------------------------------------


def _pixel_steps(dataset: pydicom.Dataset, notes: list[str]) -> tuple[tuple[float, float], Units]:
    """The distance between rows and between columns, in mm or in pixels."""
    spacing, detector = _positive_pair(dataset, "PixelSpacing"), _positive_pair(dataset, "ImagerPixelSpacing")
    if spacing is None:
        spacing = _shared_spacing(dataset)
    if spacing is not None and spacing != detector:
        return spacing, "mm"
    if detector is not None:
        text = "pixel spacing is that of the detector; magnification is not corrected"
        factor = dataset.get("EstimatedRadiographicMagnificationFactor")
        notes.append(text + (f" (the file estimates a factor of {float(factor):g})" if factor else ""))
        return detector, "mm"
    film = _positive_pair(dataset, "NominalScannedPixelSpacing")
    if film is not None:
        notes.append("pixel spacing is that of the scanned film")
        return film, "mm"
    tissue = _ultrasound_steps(dataset, notes)
    if tissue is not None:
        return tissue, "mm"
    aspect = dataset.get("PixelAspectRatio")
    if aspect is not None and len(aspect) == 2 and int(aspect[0]) != int(aspect[1]):
        notes.append(f"pixels are not square: their height to width is {aspect[0]}:{aspect[1]}, of unknown size")
    return (1.0, 1.0), "pixel"


def _positive_pair(dataset: pydicom.Dataset, name: str) -> tuple[float, float] | None:
    """Two positive numbers, or None where the file states none."""
    value = dataset.get(name)
    if value is None or isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
        return None
    rows, columns = float(value[0]), float(value[1])
    usable = rows > 0 and columns > 0 and np.isfinite([rows, columns]).all()
    return (rows, columns) if usable else None


def _shared_spacing(dataset: pydicom.Dataset) -> tuple[float, float] | None:
    for group in dataset.get("SharedFunctionalGroupsSequence") or ():
        for measures in group.get("PixelMeasuresSequence") or ():
            return _positive_pair(measures, "PixelSpacing")
    return None


def _ultrasound_steps(dataset: pydicom.Dataset, notes: list[str]) -> tuple[float, float] | None:
    """Ultrasound calibration in mm, where all regions share a scale."""
    regions = dataset.get("SequenceOfUltrasoundRegions") or ()
    scales = set()
    for region in regions:
        units = (region.get("PhysicalUnitsYDirection"), region.get("PhysicalUnitsXDirection"))
        delta = [abs(float(region.get(f"PhysicalDelta{axis}") or 0)) for axis in "YX"]
        is_calibrated = units == (CENTIMETRES, CENTIMETRES) and min(delta) > 0
        scales.add((float(f"{delta[0] * 10:.6g}"), float(f"{delta[1] * 10:.6g}")) if is_calibrated else None)
    if len(scales) == 1:
        return scales.pop()
    if scales:
        notes.append("its ultrasound regions have different scales, so the size of a pixel is left open")
    return None


# --- values ---------------------------------------------------------------------------------------------------


def not_padding(frames: Array, header: Header) -> Array | None:
    """False at padding; None where there is none."""
    if header.padding is None:
        return None
    ends = sorted((header.padding, header.padding if header.padding_limit is None else header.padding_limit))
    valid: Array = (frames < ends[0]) | (frames > ends[1])
    return None if valid.all() else valid


def _rescale_grey(frames: Array, dataset: pydicom.Dataset, header: Header, notes: list[str], *, voi: bool) -> Array:
    path = header.path
    span = lookup.stored_range(dataset)
    tables = dataset.get("ModalityLUTSequence")
    if tables:
        values, span = lookup.looked_up(path, frames, tables[0], dataset)
        notes.append("grey values went through the file's modality LUT")
    else:
        slope, intercept = (dataset.get(name) for name in ("RescaleSlope", "RescaleIntercept"))
        if slope is not None and float(slope) == 0:
            raise CaseError(f"{path}: RescaleSlope is zero, which leaves no picture; mend its header")
        values, span = lookup.rescaled(
            frames, span, 1.0 if slope is None else float(slope), 0.0 if intercept is None else float(intercept)
        )
    if voi:
        values, note = lookup.shown(path, values, span, dataset)
        notes.append(note)
        span = (0.0, 1.0)
    if header.photometric.upper() == "MONOCHROME1":
        if header.modality in MEASURED:
            notes.append(pixels.MONOCHROME1)
        else:
            values = inverted(values, span)
            notes.append("MONOCHROME1: inverted, so that high values are white")
    return values


def inverted(values: Array, span: tuple[float, float]) -> Array:
    """Inverts greys between dtype limits, preserving dtype."""
    # Whole differences wrap around within the dtype, and end where they should since the result fits.
    total = np.array(span[0] + span[1]).astype(np.int64 if values.dtype.kind in "iu" else np.float64)
    return total.astype(values.dtype) - values


def _note_doubts(dataset: pydicom.Dataset, notes: list[str]) -> None:
    """Notes what the pixels do not say."""
    if any((group, 0x0040) in dataset for group in range(0x6000, 0x6020, 2)):
        notes.append("overlays of the file are left off")
    if str(dataset.get("BurnedInAnnotation") or "").strip().upper() == "YES":
        notes.append("the file says that text is burned into the picture")
    if dataset.get("SamplesPerPixel", 1) == 1 and dataset.get("PixelPresentation") in ("COLOR", "MIXED"):
        notes.append("the file's supplemental palette is left off")
