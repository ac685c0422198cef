"""Images and masks to DICOM: classical CT, MR and PET series, X-ray pictures, DICOM-SEG."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, Image, Mask
from medimg_eval.errors import UserError, import_optional
from medimg_eval.imaging.dicom.writing.modules import (
    SYNTAXES,
    WHOLE_BITS,
    Identity,
    Syntax,
    common,
    ds,
    radiograph,
    save,
    set_attributes,
    set_pixels,
    specific,
    uid,
)
from medimg_eval.imaging.geometry import LPS_TO_RAS

REPEATED = ("PatientID", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID", "StudyDate", "StudyTime")
"""What a DICOM-SEG repeats of its series."""

MAKER = {
    "manufacturer": "medimg_eval",
    "manufacturer_model_name": "medimg_eval",
    "software_versions": "1",
    "device_serial_number": "1",
}
"""What highdicom wants to know of the program that writes."""


def write_series(  # noqa: PLR0913 - each option is one property of the series
    folder: str | Path,
    image: Image,
    *,
    modality: Literal["CT", "MR", "PT"] = "CT",
    names: Literal["sequential", "shuffled"] = "sequential",
    transfer_syntax: Syntax = "explicit",
    seed: int = 0,
    patient: str = "PHANTOM",
    description: str = "",
    slope: float | Sequence[float] | None = None,
    intercept: float | None = None,
    **attributes: Any,
) -> list[Path]:
    """Writes a volume as classical series, one file per slice.

    The same input gives the same bytes.

    Args:
        folder: where to; made when missing. Each file appears whole or not at all.
        image: (1, i, j, k) = (1, column, row, slice); the first two columns of the affine are orthogonal,
            the third may be oblique to them (gantry tilt). Voxels outside `valid` are stored as padding.
        modality: CT (HU), MR, or PT (BQML).
        names: `sequential` with suffix `.dcm`, or `shuffled`: without suffix, in an order that says nothing.
        transfer_syntax: a key of `SYNTAXES`.
        seed: of the UIDs and the shuffled names.
        patient: name and id of the made-up patient.
        description: of the series.
        slope: stored value to value, one or one per slice. Without, whole numbers are stored as they are,
            and PET activities with the finest slope of each slice.
        intercept: as `slope`. Without: -1024 for CT, unless darker voxels call for signed storage; 0 else.
        attributes: further attributes of every file by DICOM keyword; they win over what is made here.

    Returns:
        The files, in the order of the slices.

    Raises:
        UserError: the image cannot be stored so; the message says why and how to mend it.
    """
    folder = Path(folder)
    UserError.refuse_invalid("modality", ("CT", "MR", "PT"), modality)
    UserError.refuse_invalid("transfer_syntax", SYNTAXES, transfer_syntax)
    UserError.refuse_invalid("names", ("sequential", "shuffled"), names)
    if image.array.ndim != 4 or image.array.shape[0] != 1:
        raise UserError(f"{folder}: a series holds one channel of a volume (1, i, j, k), got shape {image.array.shape}")
    orientation, spacing = _plane_cosines(image.affine, folder)
    stored, slopes, intercept = _quantise_image(image, modality, slope, intercept, folder)
    stored, padding = _pad_stored(stored, image.valid, folder)

    identity = Identity(image, seed, patient, modality, description)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in _uid_suffixes(stored.shape[2], names, seed)]
    for k, path in enumerate(paths):
        dataset = common(identity, modality)
        dataset.SeriesDescription = description
        dataset.SOPInstanceUID, dataset.InstanceNumber = identity.uid("instance", k), k + 1
        dataset.FrameOfReferenceUID = identity.uid("frame")
        _place_slice(dataset, image.affine, k, orientation, spacing)
        if modality != "MR" or slopes[k] != 1 or intercept != 0:
            dataset.RescaleSlope, dataset.RescaleIntercept = ds(slopes[k]), ds(intercept)
        if padding is not None:
            dataset.add_new("PixelPaddingValue", "SS" if stored.dtype.kind == "i" else "US", padding)
        specific(dataset, modality, k, len(paths))
        set_pixels(dataset, np.ascontiguousarray(stored[:, :, k].T), transfer_syntax)
        set_attributes(dataset, attributes)
        save(path, dataset, transfer_syntax)
    return paths


def write_picture(
    path: str | Path,
    image: Image,
    *,
    modality: Literal["DX", "CR"] = "DX",
    photometric: Literal["MONOCHROME2", "MONOCHROME1"] = "MONOCHROME2",
    transfer_syntax: Syntax = "explicit",
    seed: int = 0,
    patient: str = "PHANTOM",
    **attributes: Any,
) -> Path:
    """Writes a picture as X-ray for presentation, reproducibly.

    The same input gives the same bytes.

    The image is (1, row, column), whole numbers from 0 on, bright meaning dense. With units `mm` the diagonal of the
    affine is the pixel spacing. MONOCHROME1 stores the values inverted, so that a viewer shows the same picture. The
    folder is made when missing, and the file appears whole or not at all; other arguments are those of `write_series`.
    Raises UserError where the image cannot be stored so.
    """
    path = Path(path)
    UserError.refuse_invalid("modality", ("DX", "CR"), modality)
    UserError.refuse_invalid("transfer_syntax", SYNTAXES, transfer_syntax)
    UserError.refuse_invalid("photometric", ("MONOCHROME1", "MONOCHROME2"), photometric)
    if image.array.ndim != 3 or image.array.shape[0] != 1:
        raise UserError(f"{path}: an X-ray holds one channel of a picture (1, row, column), got {image.array.shape}")
    values = image.array[0]
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > 65535:
        raise UserError(f"{path}: an X-ray stores whole numbers from 0 to 65535, got {values.dtype}")
    high = int(values.max())
    bits = 8 if high < 256 else 12 if high < 4096 and transfer_syntax not in WHOLE_BITS else 16
    stored = values.astype(np.uint8 if bits == 8 else np.uint16)
    if photometric == "MONOCHROME1":
        stored = stored.dtype.type(2**bits - 1) - stored

    identity = Identity(image, seed, patient, modality, "")
    dataset = common(identity, modality)
    dataset.SOPInstanceUID = identity.uid("instance", 0)
    dataset.InstanceNumber = 1
    if image.units == "mm":
        spacing = [ds(image.affine[0, 0]), ds(image.affine[1, 1])]
        dataset.PixelSpacing = spacing
        dataset.ImagerPixelSpacing = spacing
    elif modality == "DX":
        raise UserError(f"{path}: a DX states its spacing; give units='mm', or write modality='CR'")
    radiograph(dataset, photometric)
    dataset.RescaleSlope, dataset.RescaleIntercept, dataset.RescaleType = "1", "0", "US"
    dataset.WindowCenter, dataset.WindowWidth = ds(2 ** (bits - 1)), ds(2**bits)
    set_pixels(dataset, stored, transfer_syntax, photometric, bits)
    set_attributes(dataset, attributes)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(path, dataset, transfer_syntax)
    return path


def _plane_cosines(affine: Array, folder: Path) -> tuple[Array, tuple[float, float]]:
    """LPS cosines of row and column, with their spacing."""
    columns = (LPS_TO_RAS @ affine)[:3, :2]
    steps = np.linalg.norm(columns, axis=0)
    if not np.isfinite(affine).all() or (steps < 1e-6).any() or abs(np.linalg.det(affine[:3, :3])) < 1e-9:
        raise UserError(f"{folder}: the affine has a spacing of zero or NaN; DICOM needs three steps of finite length")
    unit = columns / steps
    if abs(float(unit[:, 0] @ unit[:, 1])) > 1e-4:
        raise UserError(f"{folder}: rows and columns are not orthogonal, which DICOM cannot say; resample the image")
    return unit.T.ravel(), (float(steps[1]), float(steps[0]))


def _place_slice(dataset: Any, affine: Array, k: int, orientation: Array, spacing: tuple[float, float]) -> None:
    """Says where slice `k` lies in the patient."""
    dataset.PositionReferenceIndicator = ""
    dataset.PatientPosition = "HFS"
    dataset.ImageOrientationPatient = [ds(x) for x in orientation]
    dataset.ImagePositionPatient = [ds(x) for x in (LPS_TO_RAS @ affine @ [0, 0, k, 1])[:3]]
    dataset.PixelSpacing = [ds(x) for x in spacing]
    # Slices may be sheared: their distance is counted along their normal.
    dataset.SliceThickness = ds(abs(float((LPS_TO_RAS @ affine)[:3, 2] @ np.cross(orientation[:3], orientation[3:]))))


def _quantise_image(
    image: Image, modality: str, slope: float | Sequence[float] | None, intercept: float | None, folder: Path
) -> tuple[Array, Array, float]:
    """16-bit integers (i, j, k), slope by slice, and intercept."""
    values = image.array[0]
    if image.valid is not None and image.valid.any():
        values = np.where(image.valid, values, values[image.valid].min())  # padding is given its value later
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise UserError(f"{folder}: NaN or infinite voxels cannot be stored in DICOM; replace them")
    low = float(values.min())
    if intercept is None:
        intercept = -1024.0 if modality == "CT" and low >= -1024 else 0.0
    if slope is not None:
        slopes = np.broadcast_to(np.asarray(slope, dtype=float), values.shape[2:])
    elif modality == "PT" and values.dtype.kind == "f":
        peaks = np.abs(values).max(axis=(0, 1)).astype(float)
        slopes = np.where(peaks > 0, peaks, 1) / 32767
    else:
        slopes = np.ones(values.shape[2])
    slopes = np.array([float(ds(slope)) for slope in slopes])  # what the file will say
    integers: Array
    if values.dtype.kind in "iu" and (slopes == 1).all() and intercept == int(intercept):
        integers = values.astype(np.int64 if values.itemsize > 2 else np.int32) - int(intercept)
    else:
        exact = (values.astype(np.float64) - intercept) / slopes
        integers = np.rint(exact)
        if slope is None and modality != "PT" and not np.array_equal(integers, exact):
            raise UserError(f"{folder}: the image holds values that are not whole numbers; give `slope`, such as 0.01")
    low, high = float(integers.min()), float(integers.max())
    if low < -32768 or high > (65535 if low >= 0 else 32767):
        raise UserError(f"{folder}: values would be stored as {low:g} to {high:g}, beyond 16 bits; give a larger slope")
    return integers.astype(np.uint16 if low >= 0 and modality != "PT" else np.int16), slopes, intercept


def _pad_stored(stored: Array, valid: Array | None, folder: Path) -> tuple[Array, int | None]:
    """Puts a value below all others where the scanner padded."""
    if valid is None or valid.all():
        return stored, None
    low = int(stored[valid].min()) if valid.any() else 0
    padding = 0 if stored.dtype.kind == "u" and low > 0 else low - 1
    if padding < 0:
        if padding < -32768 or stored.max() > 32767:
            raise UserError(f"{folder}: no stored value is left for padding; give another intercept or slope")
        stored = stored.astype(np.int16)
    return np.where(valid, stored, stored.dtype.type(padding)), padding


def _uid_suffixes(depth: int, names: str, seed: int) -> list[str]:
    if names == "sequential":
        return [f"{k + 1:04d}.dcm" for k in range(depth)]
    # A digest sorts at random, and differs between seeds.
    return [hashlib.sha256(f"{seed}/{k}".encode()).hexdigest()[:16] for k in range(depth)]


def write_segmentation(
    path: str | Path,
    mask: Mask,
    source: Sequence[str | Path],
    *,
    names: Mapping[int, str],
    kind: Literal["BINARY", "LABELMAP"] = "BINARY",
    algorithm: str = "",
    seed: int = 0,
) -> Path:
    """Writes a label map as DICOM-SEG referring to its series.

    The segmentation belongs to the patient and the study of that series and repeats their identifying
    attributes, as an archive needs them.

    Args:
        path: where to; its folder is made when missing. The file appears whole or not at all.
        mask: labels (i, j, k) on the grid of the series, and their affine.
        source: the files of the series, in any order, one per slice.
        names: what each label means. BINARY numbers its segments 1, 2, ... in the order of the labels, so
            labels with gaps are found again by name.
        kind: of the segmentation.
        algorithm: name of the model that made it; "" for one that was drawn by hand.
        seed: of the UIDs.

    Raises:
        UserError: highdicom is not installed, a label has no name, the mask lies on another grid than the
            series, or the series lacks an attribute a DICOM-SEG has to repeat.
    """
    path = Path(path)
    hd = import_optional("highdicom")
    segments = _segment_numbers(mask, names, kind, path)
    if kind == "BINARY" and mask.labels.shape[0] * mask.labels.shape[1] < 8:
        # highdicom (0.28) packs each such frame into a byte of its own, where bits should run on.
        raise UserError(f"{path}: highdicom misplaces the bits of frames below 8 pixels; write kind='LABELMAP'")
    slices = _source_headers(mask, source)
    numbers = np.zeros(max(*segments, int(mask.labels.max())) + 1, dtype=np.min_scalar_type(max(segments.values())))
    numbers[list(segments)] = list(segments.values())
    pixels = numbers[mask.labels].transpose(2, 1, 0)
    digest = hashlib.sha256(pixels.tobytes()).hexdigest()
    if algorithm:  # masks of two series, or by two models, may be alike
        digest = hashlib.sha256(f"{digest}/{slices[0].SeriesInstanceUID}/{algorithm}".encode()).hexdigest()
    # highdicom warns of names without a caret and prints them: it is not shown any.
    name = slices[0].get("PatientName", "")
    for header in slices:
        header.PatientName = ""
        for keyword in REPEATED:  # which a SEG must have, be it empty, and real slices may lack
            if keyword not in header:
                setattr(header, keyword, "")
    segmentation = hd.seg.Segmentation(
        source_images=slices,
        pixel_array=pixels,
        segmentation_type=kind,
        segment_descriptions=[_describe_segment(number, names[label], algorithm) for label, number in segments.items()],
        series_instance_uid=uid(f"{seed}/{digest}/segmentation/series"),
        series_number=100,
        series_description=f"Segmentation by {algorithm}"[:64] if algorithm else None,
        sop_instance_uid=uid(f"{seed}/{digest}/segmentation/instance"),
        instance_number=1,
        **MAKER,
        omit_empty_frames=bool(pixels.any()),  # without any frame there would be no place
    )
    segmentation.PatientName = name
    path.parent.mkdir(parents=True, exist_ok=True)
    save(path, segmentation)
    return path


def _segment_numbers(mask: Mask, names: Mapping[int, str], kind: str, path: Path) -> dict[int, int]:
    """Label -> segment number; those of binary segmentations count from 1."""
    labels = sorted(label for label in names if label != 0)
    unnamed = sorted({int(label) for label in np.unique(mask.labels)} - {0, *labels})
    if unnamed or not labels:
        raise UserError(f"{path}: labels {unnamed or 'of the mask'} have no name; give `names` for each label")
    if labels[0] < 0 or labels[-1] > 65535:
        raise UserError(
            f"{path}: label {labels[0] if labels[0] < 0 else labels[-1]} is outside 1 to 65535; renumber it"
        )
    return {label: label if kind == "LABELMAP" else n for n, label in enumerate(labels, start=1)}


def _describe_segment(number: int, name: str, algorithm: str) -> Any:
    from pydicom.sr.codedict import codes
    from pydicom.sr.coding import Code

    hd = import_optional("highdicom")
    types = hd.seg.SegmentAlgorithmTypeValues
    arguments: dict[str, Any] = {"algorithm_type": types.MANUAL}
    if algorithm:
        family = codes.DCM.ArtificialIntelligence
        identified = hd.AlgorithmIdentificationSequence(name=algorithm[:64], family=family, version="1")
        arguments = {"algorithm_type": types.AUTOMATIC, "algorithm_identification": identified}
    return hd.seg.SegmentDescription(
        segment_number=number,
        segment_label=name[:64],
        segmented_property_category=Code("91723000", "SCT", "Anatomical structure"),
        segmented_property_type=_code_of(name) or Code("85756007", "SCT", "Tissue"),
        **arguments,
    )


def _code_of(name: str) -> Any:
    """SNOMED CT code of a known structure, such as `liver`; else None."""
    from pydicom.sr.codedict import codes

    return getattr(codes.SCT, "".join(word.capitalize() for word in re.split(r"[^A-Za-z]+", name)), None)


def _source_headers(mask: Mask, source: Sequence[str | Path]) -> list[Any]:
    """Headers of the series, one per slice of the mask, in its order."""
    from pydicom import dcmread

    headers: dict[int, Any] = {}
    to_index = np.linalg.inv(mask.affine)
    for path in map(Path, source):
        header = dcmread(path, stop_before_pixels=True)
        needed = ("SOPClassUID", "SOPInstanceUID", "SeriesInstanceUID", "StudyInstanceUID", "FrameOfReferenceUID")
        missing = next((keyword for keyword in needed if not header.get(keyword)), None)
        if missing is not None:
            raise UserError(
                f"{path}: states no {missing}, which a DICOM-SEG has to repeat; fill it in, or write the mask as NIfTI"
            )
        if header.get("NumberOfFrames", 1) != 1 or "ImagePositionPatient" not in header:
            what = "holds several frames" if header.get("NumberOfFrames", 1) != 1 else "states no place in the patient"
            raise UserError(f"{path}: {what}, and a DICOM-SEG is written on slices; use the mask as NIfTI")
        shape = (header.Columns, header.Rows)
        corners = np.array([(0, 0), (shape[0] - 1, 0), (0, shape[1] - 1)])
        row, column = np.reshape(np.asarray(header.ImageOrientationPatient, dtype=float), (2, 3))
        between_rows, between_columns = (float(step) for step in header.PixelSpacing)
        corner_positions = np.asarray(header.ImagePositionPatient, dtype=float) + np.outer(
            corners[:, 0] * between_columns, row
        )
        corner_positions += np.outer(corners[:, 1] * between_rows, column)
        voxels = (to_index @ LPS_TO_RAS @ np.vstack([corner_positions.T, np.ones(3)]))[:3].T
        k = round(float(voxels[0, 2]))
        wanted = np.column_stack([corners, np.full(3, k)])
        if shape != mask.labels.shape[:2] or np.abs(voxels - wanted).max() > 0.01 or k in headers:
            raise UserError(
                f"{path}: is no slice of the mask's grid, or a second one; give the mask on the series' grid"
            )
        headers[k] = header
    if sorted(headers) != list(range(mask.labels.shape[2])):
        raise UserError(
            f"{Path(source[0]).parent if source else 'source'}: expected one file for each of the mask's "
            f"{mask.labels.shape[2]} slices, found {len(headers)}; give the files of the whole series"
        )
    return [headers[k] for k in sorted(headers)]
