"""TIFF pictures: their pages, and what their samples mean."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.library_logs import kept_log

MAX_PIXELS = 178_956_970
"""Pixels above which a picture is refused: Pillow's own limit against decompression bombs."""

MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""What a TIFF file starts with."""

ORIENTATION = 274
"""The tag, in EXIF and TIFF alike."""

_MINISWHITE, _MINISBLACK, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6  # PhotometricInterpretation


@dataclass
class Stored:
    """A decoded picture: upright, (row, column) or (row, column, channel), without alpha."""

    array: Array
    format: str
    decoder: str
    lossy: bool = False
    notes: list[str] = field(default_factory=list)


def too_large(name: str) -> str:
    """Says that a picture is refused for its size."""
    return (
        f"{name}: has more than {MAX_PIXELS:,} pixels, which may be a decompression bomb; cut it into smaller pictures"
    )


def check_size(array: Array, size: tuple[int, int], name: str) -> None:
    """Raises CaseError where a decoder, (row, column, ...), gave other than the rows and columns of the header."""
    if array.shape[:2] != size or not array.size:
        raise CaseError(
            f"{name}: is damaged: its header says {size[0]} x {size[1]} rows and columns, {array.shape[0]} x "
            f"{array.shape[1]} were found; write or copy it again"
        )


def page_of(tiff: Any, name: str, page: int | None) -> Any:
    """Returns the page asked for of an open file; raises CaseError where that is not clear."""
    # Reduced copies and transparency masks are pages of the file, but no pages of the document.
    pages = [one for one in tiff.pages if not (one.is_reduced or one.is_mask)] or list(tiff.pages)
    if tiff.series[0].size > len(pages) * tiff.series[0].keyframe.size:
        raise CaseError(f"{name}: holds a stack of images behind one page; save it as one TIFF per image")
    if page is None and len(pages) > 1:
        raise CaseError(f"{name}: has {len(pages)} pages; say which one to read with page=0 to page={len(pages) - 1}")
    if page is not None and not 0 <= page < len(pages):
        raise CaseError(f"{name}: has {len(pages)} pages, counted from 0, so there is no page={page}")
    one = pages[page or 0]
    if one.imagewidth * one.imagelength > MAX_PIXELS:
        raise CaseError(too_large(name))
    return one


def tag(page: Any, code: int, otherwise: int) -> int:
    """Returns the value of a tag, or `otherwise`."""
    found = page.tags.get(code)
    return otherwise if found is None else int(found.value)


def load_tiff(source: Path | bytes, name: str, page: int | None, labels: bool) -> tuple[Stored, int, bool]:
    """Returns the picture, its orientation tag, and whether its last channel is alpha."""
    import tifffile

    opened = io.BytesIO(source) if isinstance(source, bytes) else source
    with kept_log("tifffile") as notes, tifffile.TiffFile(opened) as tiff:
        one = page_of(tiff, name, page)
        if one.axes not in ("YX", "YXS", "SYX"):
            raise CaseError(
                f"{name}: expected rows, columns and channels, got axes {one.axes}; save it as a plain TIFF"
            )
        stored_bytes = list(one.databytecounts)
        if len(stored_bytes) != math.prod(one.chunked) or 0 in stored_bytes:
            # tifffile would go on with zeros where they are missing.
            raise CaseError(f"{name}: is damaged: some of its strips or tiles are missing; write or copy it again")
        array = one.asarray()
        array = np.moveaxis(array, 0, -1) if one.axes == "SYX" else array
        check_size(array, (one.imagelength, one.imagewidth), name)
    lossy = "JPEG" in str(getattr(one.compression, "name", one.compression))
    stored = Stored(array, "TIFF", f"tifffile {tifffile.__version__}", lossy, notes)
    _interpret(stored, one, name, labels)
    return stored, tag(one, ORIENTATION, 1), array.ndim == 3 and any(extra in (1, 2) for extra in one.extrasamples)


def _interpret(stored: Stored, page: Any, name: str, labels: bool) -> None:
    """Turns the stored samples of a TIFF into grey or RGB."""
    photometric, bits = int(page.photometric), page.bitspersample
    if photometric == _PALETTE and not labels:
        table = np.asarray(page.colormap)
        # Some writers store a table of 8 bits in its 16-bit entries.
        stored.array = (table if table.max() < 256 else table >> 8).astype(np.uint8)[:, stored.array].transpose(1, 2, 0)
    elif photometric == _CMYK:
        from PIL import Image as Pillow

        if stored.array.dtype != np.uint8 or stored.array.shape[-1] != 4:
            raise CaseError(f"{name}: is CMYK of {stored.array.dtype} {stored.array.shape}; convert it to RGB")
        stored.array = np.array(Pillow.fromarray(stored.array, "CMYK").convert("RGB"))
        stored.notes.append("its CMYK inks were turned into RGB without a colour profile")
    elif photometric not in (_MINISWHITE, _MINISBLACK, _RGB, _PALETTE) and not (photometric == _YCBCR and stored.lossy):
        raise CaseError(
            f"{name}: its colours are stored as {getattr(page.photometric, 'name', photometric)}; convert it to RGB"
        )
    if photometric == _MINISWHITE:
        if stored.array.dtype.kind not in "ub":
            raise CaseError(f"{name}: stores white as the lowest {stored.array.dtype}; convert it to black as lowest")
        top = stored.array.dtype.type(2**bits - 1 if stored.array.dtype.kind == "u" else True)
        stored.array = top ^ stored.array
        stored.notes.append("stores white as 0; was inverted")
    if stored.array.dtype.kind == "b":
        stored.array = stored.array.astype(np.uint8) * np.uint8(1 if labels else 255)
    elif photometric in (_MINISWHITE, _MINISBLACK) and bits in (2, 4) and not labels:
        stored.array = stored.array * np.uint8(255 // (2**bits - 1))
