"""OME-TIFF: stacks in depth, time and channel, with the size of their voxels."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, ChannelAxis, Geometry, Image, Units
from medimg_eval.errors import CaseError
from medimg_eval.imaging.library_logs import kept_log
from medimg_eval.imaging.voxel_data import check_memory

LENGTHS = {"nm": 1e-6, "µm": 1e-3, "um": 1e-3, "mm": 1.0, "cm": 10.0, "m": 1000.0, "Å": 1e-7}
"""Units of OME -> mm."""

SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

_AXES = "TCZYXS"


@dataclass(frozen=True, eq=False)
class _Stack:
    """First OME series: size along `_AXES`, grid and voxel reader."""

    sizes: dict[str, int]
    grid: Geometry
    times: ChannelAxis | None
    read: Callable[[], Array]
    notes: tuple[str, ...]


def read(path: Path) -> Image | None:
    """Reads a stack (channel, column, row, slice), or (channel, row, column); else None.

    Moments are channels, too. Sizes are those of the OME header, in mm, with axes along columns, rows and depth;
    without them units are `pixel`.

    Raises:
        CaseError: several channels at several moments, or pixels that are cut short or damaged.
    """
    with kept_log("tifffile") as log_lines, _open_tiff(path) as tiff:
        stack = _read_stack(path, tiff)
        if stack is None:
            return None
        array = stack.read()
    return Image(
        array,
        stack.grid.affine,
        units=stack.grid.units,
        notes=(*stack.notes, *log_lines),
        attributes={"format": "OME-TIFF"},
        channels=stack.times,
    )


def grid(path: Path) -> Geometry | None:
    """Reads the grid alone, from the header; as `read`."""
    with kept_log("tifffile"), _open_tiff(path) as tiff:
        stack = _read_stack(path, tiff)
        return None if stack is None else stack.grid


def _open_tiff(path: Path) -> Any:
    import tifffile

    # Planes in other files, which the header may name, are not read.
    return tifffile.TiffFile(path, _multifile=False)


def _read_stack(path: Path, tiff: Any) -> _Stack | None:
    if not tiff.is_ome or not tiff.series:
        return None
    series = tiff.series[0]
    sizes = dict.fromkeys(_AXES, 1) | dict(zip(series.axes, series.shape, strict=True))
    if set(series.axes) - set(_AXES) or sizes["T"] * sizes["C"] * sizes["Z"] == 1:
        return None
    if sizes["T"] > 1 and sizes["C"] * sizes["S"] > 1:
        raise CaseError(
            f"{path}: holds {sizes['C'] * sizes['S']} channels at {sizes['T']} moments, and an image has one such "
            "axis; read a plane with page=NUMBER, or save one channel alone"
        )
    pages = list(series.pages)
    if any(page is None for page in pages) or math.prod(series.shape) != sum(page.size for page in pages):
        raise CaseError(f"{path}: some of its planes are missing, or lie in other files; write or copy it again")
    end = path.stat().st_size
    for page in pages:
        ends = [start + count for start, count in zip(page.dataoffsets, page.databytecounts, strict=True)]
        if not ends or max(ends) > end or 0 in page.databytecounts:
            raise CaseError(f"{path}: is cut short within its planes; write or copy it again")
    check_memory(path, math.prod(series.shape) * series.dtype.itemsize)
    attributes = _pixel_attributes(tiff.ome_metadata or "")
    affine, units, notes = _stack_affine(sizes, attributes)
    volume = sizes["Z"] > 1
    shape = (sizes["X"], sizes["Y"], sizes["Z"]) if volume else (sizes["Y"], sizes["X"])

    def voxels() -> Array:
        stored: Array = series.asarray()
        order = [series.axes.index(letter) for letter in _AXES if letter in series.axes]
        array: Array = stored.transpose(order).reshape([sizes[letter] for letter in _AXES])
        array = array.transpose(0, 1, 5, 4, 3, 2) if volume else array.transpose(0, 1, 5, 2, 3, 4)
        array = array.reshape(-1, *(array.shape[3:] if volume else array.shape[4:]))
        return np.asarray(array, array.dtype.newbyteorder("="))

    times = _time_axis(attributes, sizes["T"]) if sizes["T"] > 1 else None
    return _Stack(sizes, Geometry(shape, affine, units), times, voxels, notes)


def _pixel_attributes(text: str) -> dict[str, str]:
    """Attributes of the first Pixels element, without XML entities."""
    match = re.search(r"<(?:\w+:)?Pixels\s([^>]*)>", text)
    pairs = re.findall(r"(\w+)\s*=\s*\"([^\"]*)\"", match[1]) if match else []
    return {name: html.unescape(value) for name, value in pairs}


def _stack_affine(sizes: dict[str, int], said: dict[str, str]) -> tuple[Array, Units, tuple[str, ...]]:
    letters = "XYZ" if sizes["Z"] > 1 else "YX"
    steps = [_read_length(said, f"PhysicalSize{letter}", LENGTHS, "µm") for letter in letters]
    if any(step is None for step in steps):
        return np.eye(4), "pixel", ()
    notes = ("the file states no orientation: its axes are taken to run right, anterior and superior",)
    affine = np.diag([*(step or 1.0 for step in steps), *([1.0] * (4 - len(steps)))])
    return affine, "mm", notes if sizes["Z"] > 1 else ()


def _time_axis(said: dict[str, str], count: int) -> ChannelAxis:
    step = _read_length(said, "TimeIncrement", SECONDS, "s")
    return ChannelAxis("time", np.arange(count) * (math.nan if step is None else step), "s")


def _read_length(said: dict[str, str], name: str, units: dict[str, float], usual: str) -> float | None:
    """Positive length or time in mm or s; None otherwise."""
    try:
        value = float(said.get(name, ""))
    except ValueError:
        return None
    factor = units.get(said.get(f"{name}Unit", usual))
    return value * factor if factor is not None and math.isfinite(value) and value > 0 else None
