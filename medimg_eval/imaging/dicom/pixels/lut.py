"""From stored grey values to what they stand for, and from there to what a reader is shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError

if TYPE_CHECKING:
    import pydicom

Range = tuple[float, float]
"""The least and the greatest value that could be stored, in the units of the values."""


_WHOLE = tuple(np.dtype(name) for name in ("i2", "u2", "i4", "u4", "i8"))


def stored_range(dataset: pydicom.Dataset) -> Range:
    """Smallest and largest stored values, by BitsStored and sign."""
    bits = int(dataset.get("BitsStored") or dataset.get("BitsAllocated") or 16)
    return (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if dataset.get("PixelRepresentation") else (0.0, 2.0**bits - 1)


def rescaled(stored: Array, span: Range, slope: float, intercept: float) -> tuple[Array, Range]:
    """Applies slope (not zero) and intercept to stored values and their possible range.

    Returns:
        Whole numbers where slope is 1 and intercept whole (the stored dtype where the range fits in it, else
        the smallest that holds it), float32 otherwise; and the range they may take.
    """
    low, high = sorted((span[0] * slope + intercept, span[1] * slope + intercept))
    if stored.dtype.kind in "iub" and slope == 1 and intercept == int(intercept):
        if intercept == 0:
            return stored, span
        dtype = next(dtype for dtype in (stored.dtype, *_WHOLE) if _can_hold(dtype, low, high))
        # Sums wrap around within the dtype, and end where they should since the result fits.
        with np.errstate(over="ignore"):
            return stored.astype(dtype) + np.array(int(intercept)).astype(dtype), (low, high)
    return stored.astype(np.float32) * np.float32(slope) + np.float32(intercept), (low, high)


def _can_hold(dtype: np.dtype[Any], low: float, high: float) -> bool:
    return bool(np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max)


def looked_up(path: Path, values: Array, item: pydicom.Dataset, dataset: pydicom.Dataset) -> tuple[Array, Range]:
    """Maps values by a modality or VOI LUT item.

    Returns:
        uint8 or uint16, and the range its bits leave room for. Values outside the table take its ends.
    """
    descriptor = [int(value) for value in item.get("LUTDescriptor") or ()]
    if len(descriptor) != 3 or item.get("LUTData") is None:
        raise CaseError(f"{path}: has a lookup table without LUTDescriptor or LUTData; write the file again")
    count, first, bits = descriptor[0] % 65536 or 65536, descriptor[1], descriptor[2] % 65536
    table = _table_entries(item.LUTData, count, bits, dataset)
    if not 0 < bits <= 16 or len(table) < count:
        raise CaseError(f"{path}: has a lookup table of {len(table)} entries of {bits} bits, expected {count}")
    if first > 32767 and values.min() < 0:
        first -= 65536  # a negative start that was written as an unsigned number
    index = np.rint(values).astype(np.int64) - first
    return table[np.clip(index, 0, count - 1)], (0.0, 2.0**bits - 1)


def _table_entries(data: Any, count: int, bits: int, dataset: pydicom.Dataset) -> Array:
    """The entries of a table, however they were packed."""
    little = getattr(dataset, "original_encoding", (None, True))[1] is not False
    if isinstance(data, bytes):
        if bits <= 8 and len(data) < 2 * count:
            return np.frombuffer(data, np.uint8)[:count]
        table = np.frombuffer(data[: len(data) // 2 * 2], "<u2" if little else ">u2").astype(np.uint16)
    else:
        table = np.atleast_1d(np.array(data, np.int64)).astype(np.uint16)
    if bits <= 8 and len(table) < count:
        # Two entries to a word, the first in the low byte.
        table = table.astype("<u2").view(np.uint8)
    return table[:count].astype(np.uint8 if bits <= 8 else np.uint16)


def shown(path: Path, values: Array, span: Range, dataset: pydicom.Dataset) -> tuple[Array, str]:
    """Display values and range after VOI, with notes.

    The VOI LUT decides, else the first window, else the range. Values are float32, 0 (black) to 1 (white) before any
    inversion.
    """
    tables = dataset.get("VOILUTSequence")
    if tables:
        levels, (_, top) = looked_up(path, values, tables[0], dataset)
        return levels.astype(np.float32) / np.float32(top), "grey values are shown through the file's VOI LUT"
    center, width = _first_number(dataset.get("WindowCenter")), _first_number(dataset.get("WindowWidth"))
    if center is None or width is None:
        scaled = (values.astype(np.float32) - span[0]) / (span[1] - span[0])
        return scaled.astype(np.float32), "the file has no VOI LUT or window: grey values are scaled by their range"
    shape = str(dataset.get("VOILUTFunction") or "LINEAR").strip().upper()
    if shape not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        raise CaseError(f"{path}: VOILUTFunction is {shape}, expected LINEAR, LINEAR_EXACT or SIGMOID; read it plainly")
    if width < 1 if shape == "LINEAR" else width <= 0:
        raise CaseError(f"{path}: WindowWidth is {width:g}, too small for {shape}; read it without voi")
    note = f"grey values are shown through the file's window ({shape}, centre {center:g}, width {width:g})"
    return windowed(values, center, width, shape), note


def windowed(values: Array, center: float, width: float, shape: str = "LINEAR") -> Array:
    """Maps values to 0 to 1 through a window (PS3.3 C.11.2.1.2); float32.

    Centre and width are in their units; the width is at least 1 for `LINEAR`, above 0 for `LINEAR_EXACT` and `SIGMOID`.
    """
    numbers = values.astype(np.float64)
    if shape == "SIGMOID":
        with np.errstate(over="ignore"):
            return (1.0 / (1.0 + np.exp(-4.0 * (numbers - center) / width))).astype(np.float32)
    if shape == "LINEAR":
        center, width = center - 0.5, width - 1.0
    if width == 0:
        return (numbers > center).astype(np.float32)
    return np.clip((numbers - center) / width + 0.5, 0.0, 1.0).astype(np.float32)


def _first_number(value: Any) -> float | None:
    """The first of the numbers of an element, None where there is none."""
    if value is None or value == "":
        return None
    many = value if isinstance(value, list | tuple) or hasattr(value, "append") else [value]
    return float(many[0]) if len(many) else None
