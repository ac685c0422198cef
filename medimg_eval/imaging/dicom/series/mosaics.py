"""Mosaics: all slices of a volume side by side in one frame, as Siemens (MOSAIC) and United Imaging (VFRAME) write."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.csa import csa_numbers
from medimg_eval.imaging.dicom.headers.header import Header
from medimg_eval.imaging.dicom.pixels.samples import stored_frames

MOST = 4096
"""Slices that a mosaic may hold; more are a damaged header."""

HEAD = 4 << 20
"""Bytes of a file that its header may take, where Siemens' own protocol is looked for."""

_PROTOCOL = re.compile(rb"### ASCCONV BEGIN.{0,4000000}?### ASCCONV END", re.DOTALL)
_CONVERT = "convert its folder to NIfTI with dcm2niix where it was exported, and name that file"


@dataclass(frozen=True, eq=False)
class Mosaic:
    """How the tiles of a mosaic lie.

    Attributes:
        count: slices, the first tiles in the order of reading.
        across: tiles side by side; down: tiles one below the other.
        shape: columns and rows of a tile.
        first: centre of the first voxel of the first slice, mm, LPS: float64, (3,).
        step: from one slice to the next, mm, LPS: float64, (3,).
        notes: what was guessed.
        backwards: whether the last tile is the first slice.
    """

    count: int
    across: int
    down: int
    shape: tuple[int, int]
    first: Array
    step: Array
    notes: tuple[str, ...] = ()
    backwards: bool = False

    def turned(self) -> Mosaic:
        """Mosaic with its slices counted from the other end."""
        last = self.first + self.step * (self.count - 1)
        return replace(self, first=last, step=-self.step, backwards=not self.backwards)

    def cut(self, frame: Array, out: Array) -> None:
        """Copies a frame's tiles to (slice, row, column).

        The frame is (rows, columns).
        """
        columns, rows = self.shape
        out = out[::-1] if self.backwards else out
        tiles = frame.reshape(self.down, rows, self.across, columns)
        for row in range(self.down):
            start = row * self.across
            stop = min(start + self.across, self.count)
            out[start:stop] = tiles[row].transpose(1, 0, 2)[: max(stop - start, 0)]


def mosaic_of(header: Header) -> Mosaic:
    """Works out how the slices of a mosaic lie.

    Raises CaseError where the header lacks what that needs; the message names the element.
    """
    maker = header.facts.get("manufacturer", b"").decode("latin-1").strip(" \0").upper()
    if maker == "UIH" or "VFRAME" in header.image_type:
        return _united_imaging(header)
    return _siemens_mosaic(header)


# --- Siemens --------------------------------------------------------------------------------------------------


def _siemens_mosaic(header: Header) -> Mosaic:
    notes: list[str] = []
    head = _read_head(header)
    tags = {name: csa_numbers(head, name) for name in ("NumberOfImagesInMosaic", "SliceNormalVector")}
    protocol = _protocol_facts(head)
    count = _slice_count(header, tags, protocol, notes)
    across = math.ceil(math.sqrt(count))
    columns, rows = header.columns // across, header.rows // across
    if columns * across != header.columns or rows * across != header.rows or not columns or not rows:
        raise CaseError(
            f"{header.path}: is a mosaic of {header.rows} x {header.columns}, which {across} x {across} tiles for "
            f"{count} slices do not fill; {_CONVERT}"
        )
    if header.position is None or header.orientation is None or header.pixel_spacing is None:
        raise CaseError(
            f"{header.path}: is a mosaic without ImagePositionPatient (0020,0032), ImageOrientationPatient (0020,0037) "
            f"or PixelSpacing (0028,0030), so its slices have no place; {_CONVERT}"
        )
    rowwise, columnwise = np.reshape(header.orientation, (2, 3))
    down, right = header.pixel_spacing
    # The position is that of the mosaic, as if it were one large slice about the same centre.
    first = (
        np.array(header.position)
        + rowwise * right * (header.columns - columns) / 2
        + columnwise * down * (header.rows - rows) / 2
    )
    normal = _slice_normal(header, tags, protocol, np.cross(rowwise, columnwise))
    return Mosaic(count, across, across, (columns, rows), first, normal * _slice_distance(header, notes), tuple(notes))


def _slice_count(
    header: Header, tags: Mapping[str, tuple[float, ...]], protocol: Mapping[str, str], notes: list[str]
) -> int:
    raw = header.facts.get("tiles_siemens", b"")
    stated = int.from_bytes(raw, "little") if len(raw) == 2 else 0
    stated = stated or int((*tags["NumberOfImagesInMosaic"], 0)[0])
    stated = stated or int(_parse_whole(protocol.get("sSliceArray.lSize")) or 0)
    if 1 <= stated <= MOST:
        return stated
    matrix = struct.unpack("<4H", header.facts["acquisition_matrix"]) if _has_matrix(header) else ()
    sides = [side for side in matrix if side]
    if len(sides) == 2 and header.columns % sides[0] == 0 and header.columns // sides[0] > 1:
        across = header.columns // sides[0]
        if header.rows % across == 0:
            columns, rows = header.columns // across, header.rows // across
            frame = stored_frames(header.path, header)[0]
            tiles = frame.reshape(across, rows, across, columns).any(axis=(1, 3)).ravel()
            tile_count = int(np.flatnonzero(tiles)[-1]) + 1 if tiles.any() else 0
            if tile_count > (across - 1) ** 2:
                notes.append(
                    f"the count of slices is not stated; {tile_count} tiles hold something, and are taken for them"
                )
                return tile_count
    raise CaseError(
        f"{header.path}: is a mosaic that does not say how many slices it holds: NumberOfImagesInMosaic (0019,100A), "
        f"and Siemens' headers (0029,1010) and (0029,1020), are missing; {_CONVERT}"
    )


def _has_matrix(header: Header) -> bool:
    return len(header.facts.get("acquisition_matrix", b"")) == 8


def _slice_normal(
    header: Header, tags: Mapping[str, tuple[float, ...]], protocol: Mapping[str, str], across: Array
) -> Array:
    """Normal from first to last tile, by CSA header or protocol."""
    stated = tags["SliceNormalVector"]
    sign = 0.0
    if len(stated) == 3 and abs(float(np.dot(stated, across))) > 0.9:
        sign = math.copysign(1.0, float(np.dot(stated, across)))
    positions = [
        [
            _parse_decimal(protocol.get(f"sSliceArray.asSlice[{number}].sPosition.d{axis}"))
            for axis in ("Sag", "Cor", "Tra")
        ]
        for number in (0, 1)
    ]
    way = float(np.subtract(positions[1], positions[0]) @ across)
    if not sign and abs(way) > 1e-3:
        axis = ("Sag", "Cor", "Tra")[int(np.abs(across).argmax())]
        turned = (
            _parse_whole(protocol.get(f"sSliceArray.ucImageNumb{axis}")) == 1
        )  # slices are counted from the other end
        sign = math.copysign(1.0, way) * (-1 if turned else 1)
    if sign:
        along: Array = across * sign
        return along
    raise CaseError(
        f"{header.path}: is a mosaic that does not say in which order its slices lie: SliceNormalVector of Siemens' "
        f"image header (0029,1010), and the protocol (0029,1020), are missing; {_CONVERT}"
    )


def _slice_distance(header: Header, notes: list[str]) -> float:
    if header.spacing_between_slices is not None and header.spacing_between_slices > 0:
        return header.spacing_between_slices
    if header.slice_thickness is not None and header.slice_thickness > 0:
        notes.append("SpacingBetweenSlices is missing, so the step between slices is taken from SliceThickness")
        return header.slice_thickness
    raise CaseError(
        f"{header.path}: is a mosaic without SpacingBetweenSlices (0018,0088) and SliceThickness (0018,0050); "
        f"{_CONVERT}"
    )


def _read_head(header: Header) -> bytes:
    with header.path.open("rb") as stream:
        return stream.read(min(header.pixel_offset or HEAD, HEAD))


def _protocol_facts(head: bytes) -> dict[str, str]:
    """Facts of the slices in the protocol of the scan."""
    match = _PROTOCOL.search(head)
    if match is None:
        return {}
    lines = re.findall(rb"^(sSliceArray\.[\w.\[\]]{1,80})[ \t]*=[ \t]*(\S{1,40})", match[0], re.MULTILINE)
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in lines}


def _parse_whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None


def _parse_decimal(text: str | None) -> float:
    """Number in a protocol; 0 where it is not stated."""
    try:
        number = float(text or 0)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0


# --- United Imaging -------------------------------------------------------------------------------------------


def _united_imaging(header: Header) -> Mosaic:
    """Grid of United Imaging, by each slice's own element."""
    positions = _slice_positions(header.path)
    count = len(positions)
    if not 1 < count <= MOST:
        raise CaseError(
            f"{header.path}: is a grid of slices whose places (0065,1051) are missing, so nothing says where they lie; "
            f"{_CONVERT}"
        )
    across = math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    columns, rows = header.columns // across, header.rows // down
    if columns * across != header.columns or rows * down != header.rows:
        raise CaseError(
            f"{header.path}: is a grid of {header.rows} x {header.columns}, which {down} x {across} tiles for {count} "
            f"slices do not fill; {_CONVERT}"
        )
    step = (positions[-1] - positions[0]) / (count - 1)
    deviation = np.abs(positions - positions[0] - np.outer(np.arange(count), step)).max()
    if deviation > 0.1 * float(np.linalg.norm(step)):
        raise CaseError(f"{header.path}: its slices (0065,1051) do not lie on a line at even steps; {_CONVERT}")
    return Mosaic(count, across, down, (columns, rows), positions[0], step)


def _slice_positions(path: Path) -> Array:
    import pydicom

    try:
        dataset = pydicom.dcmread(path, stop_before_pixels=True, force=True)
        items: Sequence[Any] = dataset[0x0065, 0x1051].value
        rows = [[float(number) for number in item.ImagePositionPatient] for item in items]
    except Exception:  # noqa: BLE001 - damaged, or not there
        return np.empty((0, 3))
    positions = np.array(rows, dtype=np.float64).reshape(-1, 3) if rows else np.empty((0, 3))
    return positions if np.isfinite(positions).all() else np.empty((0, 3))
