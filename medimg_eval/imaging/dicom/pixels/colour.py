"""Stored colours to RGB, channels first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import Header

if TYPE_CHECKING:
    import pydicom

JPEG = ("1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.51", "1.2.840.10008.1.2.4.57", "1.2.840.10008.1.2.4.70")
"""Transfer syntaxes whose streams may say themselves how their colours are coded."""

HEAD = 65536
"""Bytes of a JPEG stream looked at: markers lie before the first scan."""


def rgb(path: Path, frames: Array, dataset: pydicom.Dataset, header: Header, notes: list[str]) -> Array:
    """Converts frames of any colour model to RGB: (3, frame, row, column).

    Frames are (frame, row, column) indices of the dataset's palette, or (frame, row, column, sample). The notes gain a
    sentence where the JPEG stream contradicts the header, which it is then believed over. Raises CaseError for a
    palette that cannot be read, or a colour model that is not known.
    """
    model = header.photometric.upper()
    if model == "PALETTE COLOR":
        return _paint_palette(path, frames, dataset)
    if frames.ndim == 4 and frames.shape[-1] == 3:
        coded = _coded_colours(header) if header.transfer_syntax in JPEG else None
        if coded is not None and (coded == "RGB") != (model == "RGB") and model in ("RGB", "YBR_FULL", "YBR_FULL_422"):
            notes.append(f"the header says {model}, its JPEG stream {coded}: the stream was believed")
            model = coded
        if model in ("RGB", "YBR_ICT", "YBR_RCT"):
            return np.moveaxis(frames, -1, 0)  # decoders of JPEG 2000 undo its colour transform themselves
        if model in ("YBR_FULL", "YBR_FULL_422") and frames.dtype == np.uint8:
            from pydicom.pixels.processing import convert_color_space

            converted = convert_color_space(frames.copy(), "YBR_FULL", "RGB", per_frame=True)
            return np.moveaxis(converted, -1, 0)
    raise CaseError(
        f"{path}: its colours are {model} in {header.samples} samples of {frames.dtype}; expected MONOCHROME1, "
        "MONOCHROME2, PALETTE COLOR, RGB, YBR_FULL, YBR_FULL_422, YBR_ICT or YBR_RCT; convert it to RGB"
    )


def _paint_palette(path: Path, frames: Array, dataset: pydicom.Dataset) -> Array:
    from pydicom.pixels.processing import apply_color_lut

    try:
        painted = apply_color_lut(frames, dataset)
    except (ValueError, KeyError, IndexError, AttributeError, NotImplementedError) as error:
        raise CaseError(
            f"{path}: has a colour palette that is missing or cannot be read ({type(error).__name__}); "
            "write it again as RGB"
        ) from error
    return np.moveaxis(painted[..., :3], -1, 0)


def _coded_colours(header: Header) -> str | None:
    """Colour coding a JPEG stream states: RGB or YBR_FULL; else None."""
    if header.pixel_offset is None:
        return None
    with header.path.open("rb") as stream:
        stream.seek(header.pixel_offset)
        table = stream.read(8)
        stream.seek(int.from_bytes(table[4:], "little"), 1)
        data = stream.read(HEAD)[8:]
    components, adobe, jfif = b"", -1, False
    at = 2
    while data[at : at + 1] == b"\xff" and data[at + 1] != 0xDA:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        if marker in (0xC0, 0xC1, 0xC2, 0xC3):
            components = body[6::3]
        elif marker == 0xE0 and body.startswith(b"JFIF"):
            jfif = True
        elif marker == 0xEE and body.startswith(b"Adobe") and len(body) >= 12:
            adobe = body[11]
        at += 2 + length
    if components.upper() == b"RGB" or adobe == 0:
        return "RGB"
    return "YBR_FULL" if adobe == 1 or jfif else None
