"""What grouping and decoding need of a DICOM file, found without parsing the whole of it.

A series is hundreds of files of which a few dozen elements matter. The scan here steps from element to element
through the first kibibytes of each file and leaves everything it does not know to pydicom.
"""

from __future__ import annotations

import math
import os
import re
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.csa import csa_numbers
from medimg_eval.imaging.dicom.headers.scanner import (
    ELEMENTS,
    IMPLICIT,
    UNDEFINED,
    WINDOW,
    CutShortError,
    OddError,
    Scan,
)
from medimg_eval.imaging.dicom.headers.scanner import (
    FACTS as VOLUME_FACTS,
)

if TYPE_CHECKING:
    import pydicom


_CODE = re.compile(r"[A-Za-z0-9_.+/\\ -]{0,256}")
"""What UIDs, codes and whole numbers are written with."""

_TILES = re.compile(rb"NumberOfImagesInMosaic\0.{77}\s{0,8}(\d{1,8})", re.DOTALL)
"""How many slices a mosaic holds, in Siemens' CSA header: 64 bytes of name, 20 of its tag, 16 before the value."""


@dataclass(frozen=True, slots=True)
class Header:
    """Pixels of a file and their place; "" or None where unstated.

    Attributes:
        path: the file.
        patient: PatientID, or PatientName without; compared, and never shown.
        series_description: never shown, since people write names there.
        position: ImagePositionPatient, mm, LPS.
        orientation: ImageOrientationPatient, six cosines, LPS.
        pixel_spacing: mm between rows, mm between columns; as written, even when zero or negative.
        slope: RescaleSlope, None without, NaN where it is no number.
        intercept: RescaleIntercept, likewise.
        modality_lut: whether stored values go through a table instead of slope and intercept.
        padding: PixelPaddingValue as a stored value, sign considered.
        padding_limit: PixelPaddingRangeLimit, likewise.
        floating: 32 or 64 where samples are floating-point numbers, 0 where they are whole.
        pixel_offset: byte at which the value of the pixel data starts; None where there are no pixels, or
            where only pydicom can find them (deflated files, big endian).
        pixel_length: bytes of pixel data; None where they are encapsulated.
        has_pixels: whether the file has pixel data at all.
        mosaic: whether the one frame holds all slices of a volume side by side, as Siemens and United Imaging write.
        facts: raw values of what sets slices at one position apart, by the names of `scanner.FACTS`; `volume_facts`
            reads them.
    """

    path: Path
    transfer_syntax: str
    sop_class: str
    patient: str = field(repr=False)
    study_uid: str
    series_uid: str
    series_number: str
    series_description: str = field(repr=False)
    frame_of_reference: str
    modality: str
    image_type: tuple[str, ...]
    instance_number: int | None
    acquisition_number: str
    acquisition_time: str
    temporal_position: str
    trigger_time: float | None
    echo_time: float | None
    inversion_time: float | None
    b_value: float | None
    frame_time: float | None
    rows: int
    columns: int
    samples: int
    planar: int
    photometric: str
    bits_allocated: int
    bits_stored: int
    high_bit: int
    signed: bool
    frames: int
    position: tuple[float, float, float] | None
    orientation: tuple[float, float, float, float, float, float] | None
    pixel_spacing: tuple[float, float] | None
    slice_thickness: float | None
    spacing_between_slices: float | None
    slope: float | None
    intercept: float | None
    modality_lut: bool
    padding: int | None
    padding_limit: int | None
    floating: int
    pixel_offset: int | None
    pixel_length: int | None
    has_pixels: bool
    mosaic: bool
    facts: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def read_header(path: Path) -> Header | None:
    """Reads a file's header; None for other than DICOM.

    Raises CaseError where the file is DICOM but damaged, or cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise CaseError(f"{path}: cannot be opened ({error.strerror})") from error
    try:
        scan = Scan(descriptor)
        start = scan.begin()
        if start is None:
            return None
        try:
            scan.run(start)
        except (OddError, RecursionError) as error:
            header = _read_oddly(path, certain=start > 0)
            if header is not None and isinstance(error, CutShortError) and not header.has_pixels:
                raise CaseError(f"{path}: is cut short within its header; write or copy it again") from error
            return header
    finally:
        os.close(descriptor)
    header = _make_header(path, scan.found, scan.floating, scan.pixels)
    return header if start > 0 or header.sop_class or header.modality or header.rows else None


def salvaged_header(path: Path) -> Header:
    """Readable part of a damaged file's header, possibly empty."""
    elements: dict[str, bytes] = {}
    with suppress(OSError, OddError, RecursionError, IndexError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            scan = Scan(descriptor)
            elements, start = scan.found, scan.begin()
            if start is not None:
                scan.run(start)
        finally:
            os.close(descriptor)
    return _make_header(path, elements, 0, None)


def required_header(path: Path) -> Header:
    """Reads a required DICOM header; CaseError for other files."""
    header = read_header(path)
    if header is None:
        raise CaseError(f"{path}: is not a DICOM file")
    return header


def header_of(dataset: Any, path: Path) -> Header:
    """Header of a pydicom dataset and file meta; `path` is for messages."""
    elements = {}
    for name, tag in (ELEMENTS | VOLUME_FACTS).items():
        group = getattr(dataset, "file_meta", None) if tag >> 16 == 2 else dataset
        if group is not None and tag in group:
            elements[name] = _bytes_of(group.get_item(tag))
    floating = 32 if "FloatPixelData" in dataset else 64 if "DoubleFloatPixelData" in dataset else 0
    return _make_header(path, elements, floating, None, has_pixels=bool(floating) or "PixelData" in dataset)


def _read_oddly(path: Path, *, certain: bool) -> Header | None:
    import pydicom

    # pydicom raises whatever its parts raise; for us each of them means that the file is damaged.
    try:
        dataset = pydicom.dcmread(path, force=True, defer_size=WINDOW)
        header = header_of(dataset, path)
    except Exception as error:
        if not certain:
            return None
        raise CaseError(f"{path}: is damaged DICOM ({type(error).__name__}); write or copy it again") from error
    if not header.sop_class and not header.modality and not header.rows:
        if certain:
            raise CaseError(f"{path}: is damaged DICOM: its header ends before it says anything; copy it again")
        return None
    return header


def _bytes_of(element: Any) -> bytes:
    """Little-endian bytes of a pydicom element, raw or converted."""
    value = element.value
    if value is None:
        return b""
    if isinstance(value, bytes):
        size = {"US": 2, "SS": 2, "FL": 4, "FD": 8}.get(element.VR, 1)
        if size == 1 or getattr(element, "is_little_endian", True):
            return value
        return b"".join(value[at : at + size][::-1] for at in range(0, len(value), size))
    if isinstance(value, int) and element.VR in ("US", "SS", "US or SS"):
        return (value & 0xFFFF).to_bytes(2, "little")
    if isinstance(value, float) and element.VR in ("FD", "FL"):
        return struct.pack("<d", value)
    many = value if isinstance(value, list | tuple) or hasattr(value, "append") else [value]
    return "\\".join(str(value) for value in many).encode("latin-1", "replace")


def _make_header(
    path: Path,
    found: Mapping[str, bytes],
    floating: int,
    pixels: tuple[int, int] | None,
    *,
    has_pixels: bool = False,
) -> Header:
    texts = _Values(found)
    signed = texts.short("signed") == 1
    position, orientation, spacing = (texts.numbers(n) for n in ("position", "orientation", "pixel_spacing"))
    allocated = texts.short("bits_allocated") or floating
    stored = texts.short("bits_stored") or allocated
    high = texts.short("high_bit")
    offset, length = pixels or (None, None)
    return Header(
        path=path,
        transfer_syntax=texts.code("transfer_syntax") or IMPLICIT,
        sop_class=texts.code("sop_class") or texts.code("media_class"),
        patient=texts.text("patient") or texts.text("patient_name"),
        study_uid=texts.code("study_uid"),
        series_uid=texts.code("series_uid"),
        series_number=texts.code("series_number"),
        series_description=texts.text("series_description"),
        frame_of_reference=texts.code("frame_of_reference"),
        modality=texts.code("modality"),
        image_type=tuple(word.strip().upper() for word in texts.code("image_type").split("\\") if word.strip()),
        instance_number=texts.whole("instance_number"),
        acquisition_number=texts.code("acquisition_number"),
        acquisition_time=texts.code("acquisition_time"),
        temporal_position=texts.code("temporal_position"),
        trigger_time=texts.number("trigger_time"),
        echo_time=texts.number("echo_time"),
        inversion_time=texts.number("inversion_time"),
        b_value=texts.b_value(),
        frame_time=texts.number("frame_time"),
        rows=texts.short("rows") or 0,
        columns=texts.short("columns") or 0,
        samples=texts.short("samples") or 1,
        planar=texts.short("planar") or 0,
        photometric=texts.code("photometric"),
        bits_allocated=allocated,
        bits_stored=stored,
        high_bit=stored - 1 if high is None else high,
        signed=signed,
        frames=max(1, texts.whole("frames") or 1),
        position=position if position is not None and len(position) == 3 else None,
        orientation=orientation if orientation is not None and len(orientation) == 6 else None,
        pixel_spacing=spacing if spacing is not None and len(spacing) == 2 else None,
        slice_thickness=texts.number("slice_thickness"),
        spacing_between_slices=texts.number("spacing_between_slices"),
        slope=texts.rescale("slope"),
        intercept=texts.rescale("intercept"),
        modality_lut=bool(found.get("modality_lut")),
        padding=texts.short("padding", signed=signed),
        padding_limit=texts.short("padding_limit", signed=signed),
        floating=floating,
        pixel_offset=offset,
        pixel_length=None if length == UNDEFINED else length,
        has_pixels=has_pixels or pixels is not None,
        mosaic=texts.mosaic(),
        facts={name: found[name] for name in VOLUME_FACTS if name in found} | _siemens_weighting(found),
    )


def _siemens_weighting(found: Mapping[str, bytes]) -> dict[str, bytes]:
    """Diffusion weighting of Siemens' image header, without elements."""
    block = found.get("header_siemens")
    if block is None or ("b_value_siemens" in found and "direction_siemens" in found):
        return {}
    facts = {
        "b_value_csa": csa_numbers(block, "B_value"),
        "direction_csa": csa_numbers(block, "DiffusionGradientDirection"),
    }
    return {name: "\\".join(map(repr, values)).encode() for name, values in facts.items() if values}


@dataclass(frozen=True, slots=True)
class _Values:
    """Raw values, decoded; unreadable ones count as unstated."""

    found: Mapping[str, bytes]

    def text(self, name: str) -> str:
        return self.found[name].decode("latin-1").strip(" \0\n") if name in self.found else ""

    def code(self, name: str) -> str:
        """Short code text; damaged lengths must not leak names."""
        text = self.text(name)
        return text if _CODE.fullmatch(text) else ""

    def short(self, name: str, *, signed: bool = False) -> int | None:
        raw = self.found.get(name, b"")
        return int.from_bytes(raw[:2], "little", signed=signed) if len(raw) >= 2 else None

    def numbers(self, name: str) -> Any:
        if name not in self.found:
            return None
        return _parse_numbers(self.found[name])

    def number(self, name: str) -> float | None:
        values = self.numbers(name)
        return values[0] if values else None

    def rescale(self, name: str) -> float | None:
        """Rescale number; NaN for invalid, which would scale wrongly."""
        value = self.number(name)
        return math.nan if value is None and self.text(name) else value

    def whole(self, name: str) -> int | None:
        value = self.number(name)
        return None if value is None else int(value)

    def b_value(self) -> float | None:
        for name in ("b_value", "b_value_philips"):
            raw = self.found.get(name, b"")
            if len(raw) in (4, 8):
                return float(struct.unpack("<d" if len(raw) == 8 else "<f", raw)[0])
        siemens, coded = self.number("b_value_siemens"), self.number("b_value_ge")
        # GE adds a thousand million to mark a value it computed.
        return siemens if siemens is not None else None if coded is None else coded % 1e9

    def mosaic(self) -> bool:
        """Whether a file is a mosaic, by image type or Siemens' elements."""
        # Enhanced files of Siemens keep the word, and hold the slices as frames.
        if self.code("modality") not in ("MR", "") or (self.whole("frames") or 1) > 1:
            return False
        types = "\\".join(self.code(name).upper() for name in ("image_type", "image_type_siemens")).split("\\")
        counted = _TILES.search(self.found.get("header_siemens", b""))
        tiles = self.short("tiles_siemens") if self.text("creator_19").startswith("SIEMENS") else None
        tiles = tiles or (int(counted[1]) if counted else 0)
        return bool({word.strip() for word in types} & {"MOSAIC", "VFRAME"}) or 1 < tiles < 1000


@lru_cache(maxsize=4096)
def _parse_numbers(raw: bytes) -> tuple[float, ...] | None:
    # Slices of a series say the same again and again, so most answers are remembered.
    try:
        values = tuple(float(word) for word in raw.strip(b" \0").split(b"\\"))
    except ValueError:
        return None
    return values if all(math.isfinite(value) for value in values) else None


FACTS = {
    "manufacturer": "Manufacturer",
    "model": "ManufacturerModelName",
    "body part": "BodyPartExamined",
    "view": "ViewPosition",
    "laterality": "ImageLaterality",
    "patient orientation": "PatientOrientation",
    "patient position": "PatientPosition",
    "slice thickness (mm)": "SliceThickness",
    "kVp": "KVP",
    "kernel": "ConvolutionKernel",
    "repetition time (ms)": "RepetitionTime",
    "echo time (ms)": "EchoTime",
    "field strength (T)": "MagneticFieldStrength",
    "frame time (ms)": "FrameTime",
    "units": "Units",
}
"""What is told of how an image was acquired, none of which names a patient -> the element it is read from."""

SIDE = "Laterality"
"""Where older objects say which side it is."""

NUMERIC = ("SliceThickness", "KVP", "RepetitionTime", "EchoTime", "MagneticFieldStrength", "FrameTime")

ACQUISITION = (*FACTS.values(), SIDE)


def facts(dataset: pydicom.Dataset) -> dict[str, str]:
    """Facts of the acquisition, by the names of `FACTS`."""
    facts = {}
    for name, element in FACTS.items():
        # A value that cannot be understood is one fact less, and no reason to refuse the image.
        with suppress(Exception):
            value = dataset.get(element)
            text = _joined_text(dataset.get(SIDE) if value is None and element == "ImageLaterality" else value)
            if element in NUMERIC:
                # pydicom hands out what is no number as it stands, and that may be a name.
                [float(word) for word in text.split("\\") if word]
            if text:
                facts[name] = text
    return facts


def _joined_text(value: Any) -> str:
    many = value if isinstance(value, list | tuple) or hasattr(value, "append") else [value]
    return "\\".join(str(value).strip() for value in many if value is not None)
