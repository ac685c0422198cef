"""What every DICOM object we write has to hold (PS3.3: attributes of type 1 and 2), and its way to disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, Image
from medimg_eval.errors import UserError
from medimg_eval.system import whole

Syntax = Literal["explicit", "implicit", "big", "deflated", "rle", "jpeg-ls", "jpeg-lossless", "jpeg2000", "htj2k"]

SYNTAXES: Mapping[str, str] = {
    "explicit": "1.2.840.10008.1.2.1",
    "implicit": "1.2.840.10008.1.2",
    "big": "1.2.840.10008.1.2.2",
    "deflated": "1.2.840.10008.1.2.1.99",
    "rle": "1.2.840.10008.1.2.5",
    "jpeg-ls": "1.2.840.10008.1.2.4.80",
    "jpeg-lossless": "1.2.840.10008.1.2.4.70",
    "jpeg2000": "1.2.840.10008.1.2.4.90",
    "htj2k": "1.2.840.10008.1.2.4.201",
}
"""Transfer syntaxes that keep every value, by the name `write_series` takes."""

WHOLE_BITS = ("jpeg-ls", "htj2k")
"""Those whose encoder states the precision of the array's dtype, 8 or 16 bits."""

CLASSES: Mapping[str, str] = {
    "CT": "1.2.840.10008.5.1.4.1.1.2",
    "MR": "1.2.840.10008.5.1.4.1.1.4",
    "PT": "1.2.840.10008.5.1.4.1.1.128",
    "DX": "1.2.840.10008.5.1.4.1.1.1.1",
    "CR": "1.2.840.10008.5.1.4.1.1.1",
}
"""SOP class by modality."""

COMMON: Mapping[str, Any] = {
    "SpecificCharacterSet": "ISO_IR 192",
    "PatientBirthDate": "",
    "PatientSex": "O",
    "PatientIdentityRemoved": "YES",
    "DeidentificationMethod": "nobody: made by a program",
    "LongitudinalTemporalInformationModified": "MODIFIED",
    "StudyDate": "20000101",
    "StudyTime": "000000",
    "ReferringPhysicianName": "",
    "StudyID": "1",
    "AccessionNumber": "",
    "SeriesNumber": 1,
    "SeriesDate": "20000101",
    "SeriesTime": "000000",
    "AcquisitionDate": "20000101",
    "AcquisitionTime": "000000",
    "ContentDate": "20000101",
    "ContentTime": "000000",
    "Manufacturer": "medimg_eval",
    "BurnedInAnnotation": "NO",
    "LossyImageCompression": "00",
}

SPECIFIC: Mapping[str, Mapping[str, Any]] = {
    "CT": {
        "ImageType": ["ORIGINAL", "PRIMARY", "AXIAL"],
        "KVP": "120",
        "AcquisitionNumber": 1,
        "RescaleType": "HU",
    },
    "MR": {
        "ImageType": ["ORIGINAL", "PRIMARY", "M"],
        "ScanningSequence": "SE",
        "SequenceVariant": "NONE",
        "ScanOptions": "",
        "MRAcquisitionType": "2D",
        "RepetitionTime": "500",
        "EchoTime": "15",
        "EchoTrainLength": 1,
        "MagneticFieldStrength": "1.5",
    },
    "PT": {
        "ImageType": ["ORIGINAL", "PRIMARY"],
        "Units": "BQML",
        "CountsSource": "EMISSION",
        "SeriesType": ["WHOLE BODY", "IMAGE"],
        "CorrectedImage": ["DECY", "ATTN", "SCAT"],
        "DecayCorrection": "START",
        "CollimatorType": "NONE",
        "DecayFactor": "1",
        "FrameReferenceTime": "0",
        "ActualFrameDuration": "120000",
        "PatientWeight": "75",
        "PatientSize": "1.75",
        "PatientOrientationCodeSequence": [],
        "PatientGantryRelationshipCodeSequence": [],
    },
}

FLUORINE: Mapping[str, Any] = {
    "RadiopharmaceuticalStartTime": "230000",
    "RadiopharmaceuticalStartDateTime": "19991231230000",
    "RadionuclideTotalDose": "370000000",
    "RadionuclideHalfLife": "6586.2",
    "RadionuclidePositronFraction": "0.97",
    "Radiopharmaceutical": "Fluorodeoxyglucose",
    "RadionuclideCodeSequence": [],
}
"""What was injected into the phantom, an hour before its scan."""


class Identity:
    """UIDs derived from content, equal for equal images."""

    def __init__(self, image: Image, seed: int, patient: str, modality: str, description: str) -> None:
        self.patient = patient
        pixels = hashlib.sha256(np.ascontiguousarray(image.array).tobytes() + image.affine.tobytes()).hexdigest()
        self._study = f"{seed}/{patient}"
        self._series = f"{self._study}/{modality}/{description}/{pixels}"

    def uid(self, what: Literal["study", "frame", "series", "instance"], number: int = 0) -> str:
        """UID of study, frame of reference, series or instance."""
        return uid(f"{self._study if what in ('study', 'frame') else self._series}/{what}/{number}")


def uid(text: str) -> str:
    """A UID that follows from `text`."""
    return f"2.25.{int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], 'big')}"


def ds(value: float) -> str:
    """A decimal string of at most 16 characters, as precise as they allow."""
    from pydicom.valuerep import format_number_as_ds

    return str(format_number_as_ds(float(value) + 0.0))  # -0.0 reads oddly


def common(identity: Identity, modality: str) -> Any:
    """A pydicom Dataset with what all images share: patient, study, series, equipment."""
    from pydicom import Dataset

    dataset = Dataset()
    set_attributes(dataset, COMMON)
    dataset.SOPClassUID = CLASSES[modality]
    dataset.Modality = modality
    dataset.PatientName = dataset.PatientID = identity.patient
    dataset.StudyInstanceUID = identity.uid("study")
    dataset.SeriesInstanceUID = identity.uid("series")
    return dataset


def specific(dataset: Any, modality: str, k: int, depth: int) -> None:
    """Adds modality attributes of CT, MR or PET slice `k`.

    `depth` is the series' number of slices; place and pixels are left to the caller.
    """
    set_attributes(dataset, SPECIFIC[modality])
    if modality == "PT":
        from pydicom import Dataset

        injected = Dataset()
        set_attributes(injected, FLUORINE)
        dataset.RadiopharmaceuticalInformationSequence = [injected]
        dataset.NumberOfSlices = depth
        dataset.ImageIndex = k + 1


def radiograph(dataset: Any, photometric: str) -> None:
    """Adds attributes of a DX or CR presentation image.

    Besides pixels.
    """
    set_attributes(dataset, {"ImageType": ["ORIGINAL", "PRIMARY"], "BodyPartExamined": "CHEST", "ViewPosition": "PA"})
    dataset.PatientOrientation = ["L", "F"]
    dataset.PresentationIntentType = "FOR PRESENTATION"
    dataset.ImageLaterality = "U"
    dataset.AnatomicRegionSequence = []
    dataset.AcquisitionContextSequence = []
    dataset.DetectorType = ""
    dataset.PixelIntensityRelationship = "LOG"
    dataset.PixelIntensityRelationshipSign = -1 if photometric == "MONOCHROME2" else 1
    dataset.PresentationLUTShape = "IDENTITY" if photometric == "MONOCHROME2" else "INVERSE"


def set_attributes(dataset: Any, attributes: Mapping[str, Any]) -> None:
    """Sets attributes by DICOM keyword; raises UserError where there is no such keyword."""
    from pydicom.datadict import tag_for_keyword

    for keyword, value in attributes.items():
        if tag_for_keyword(keyword) is None:
            raise UserError(
                f"{keyword}: no such DICOM keyword; expected one such as PatientWeight or SeriesDescription"
            )
        setattr(dataset, keyword, value)


def set_pixels(
    dataset: Any, pixels: Array, syntax: Syntax, photometric: str = "MONOCHROME2", bits: int | None = None
) -> None:
    """Encodes (row, column) whole numbers, uint8, uint16 or int16, into a pydicom dataset.

    `bits` are those stored; without, the fewest of 8, 12 and 16 that hold the values.
    """
    signed = pixels.dtype.kind == "i"
    if bits is None:
        bits = 8 * pixels.itemsize if signed or pixels.max(initial=0) > 4095 else 12
    if syntax in WHOLE_BITS:
        bits = 8 * pixels.itemsize
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = photometric
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.BitsAllocated = 8 * pixels.itemsize
    dataset.BitsStored = bits
    dataset.HighBit = bits - 1
    dataset.PixelRepresentation = int(signed)
    if syntax in ("explicit", "implicit", "big", "deflated"):
        data = pixels.astype(pixels.dtype.newbyteorder(">" if syntax == "big" else "<")).tobytes()
        # Words of big endian files are swapped, bytes are not.
        bytewise = pixels.itemsize == 1 and syntax != "implicit"
        dataset.add_new("PixelData", "OB" if bytewise else "OW", data + b"\0" * (len(data) % 2))
    else:
        from pydicom.encaps import encapsulate

        dataset.add_new("PixelData", "OB", encapsulate([_encode_frame(pixels, syntax, bits)]))
        dataset["PixelData"].is_undefined_length = True


def _encode_frame(pixels: Array, syntax: Syntax, bits: int) -> bytes:
    import imagecodecs

    if syntax == "jpeg2000":
        return bytes(imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="j2k", reversible=True, bitspersample=bits))
    if syntax == "htj2k":
        return bytes(imagecodecs.htj2k_encode(pixels, reversible=True))
    if syntax == "rle":
        return _run_lengths(pixels, bits)
    raw = pixels.view(f"u{pixels.itemsize}")  # these know no sign: the bits are kept, the reader knows them
    if syntax == "jpeg-ls":
        return bytes(imagecodecs.jpegls_encode(raw))
    return bytes(imagecodecs.jpeg_encode(raw, lossless=True, predictor=1, bitspersample=bits))


def _run_lengths(pixels: Array, bits: int) -> bytes:
    from pydicom.pixels.encoders import RLELosslessEncoder

    encoded = RLELosslessEncoder.encode(
        pixels,
        rows=pixels.shape[0],
        columns=pixels.shape[1],
        samples_per_pixel=1,
        bits_allocated=8 * pixels.itemsize,
        bits_stored=bits,
        pixel_representation=int(pixels.dtype.kind == "i"),
        photometric_interpretation="MONOCHROME2",
        number_of_frames=1,
    )
    return bytes(encoded)


def save(path: Path, dataset: Any, syntax: Syntax = "explicit") -> None:
    """Writes a Dataset with encoded pixel data, atomically."""
    from pydicom import dcmwrite
    from pydicom.dataset import FileMetaDataset

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    meta.TransferSyntaxUID = SYNTAXES[syntax]
    meta.ImplementationClassUID = uid("medimg_eval")
    meta.ImplementationVersionName = "MEDIMG_EVAL"
    dataset.file_meta = meta
    stream = BytesIO()
    dcmwrite(stream, dataset, implicit_vr=syntax == "implicit", little_endian=syntax != "big", enforce_file_format=True)
    with whole(path) as partial:
        partial.write_bytes(stream.getvalue())
