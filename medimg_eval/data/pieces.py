"""What of a case an encoder is shown: tiles of its slides, slices of its volumes, its pictures. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.case import Array, Case, Failure, Image, Reference
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.imaging import ImageFile, identify, reorient
from medimg_eval.imaging.slides import Patches, Slide, Tiles, read_patches, read_tiles, tile_grid
from medimg_eval.store import digest
from medimg_eval.system import file_digest, threads, walk

VERSION = 1
"""Part of the keys of pieces: raised when what is shown of them changes."""

BLOCK = 7
"""Edge in tiles of the squares that are read one after the other."""

CHUNK = 128
"""Tiles, slices or pictures that a reading process hands over at once."""


@dataclass(frozen=True)
class TilePlan:
    """Which tiles of a slide are shown.

    Attributes:
        size: pixels along a side.
        um_per_px: micrometres of a pixel; None for level-0 pixels.
        overlap: pixels that neighbours share.
        tissue: whether tiles without tissue are left out.
        minimum_tissue: share of a tile's area that must be tissue then, 0 to 1.
        limit: tiles of a slide at most, drawn evenly over it, the same each time; None for all.
    """

    size: int = 256
    um_per_px: float | None = 0.5
    overlap: int = 0
    tissue: bool = True
    minimum_tissue: float = 0.5
    limit: int | None = None


@dataclass(frozen=True)
class SlicePlan:
    """Shown slices of a volume, grey, from the feet, anterior up.

    Attributes:
        every: of so many neighbouring slices one, the first of them.
        window: centre and width of the values that grey levels span; None for all values of the volume.
    """

    every: int = 1
    window: Sequence[float] | None = None


@dataclass(frozen=True)
class ShownPlan:
    """Plan of the tiles of slides and slices of volumes to show."""

    tiles: TilePlan = field(default_factory=TilePlan)
    slices: SlicePlan = field(default_factory=SlicePlan)

    @classmethod
    def of(cls, tiles: Mapping[str, Any] | None = None, slices: Mapping[str, Any] | None = None) -> ShownPlan:
        """Plan of a config; UsageError for unknown keys or invalid numbers."""
        for group, kind, plan_config in (("tiles", TilePlan, tiles), ("slices", SlicePlan, slices)):
            UsageError.refuse_unknown(
                f"{group} has no key", [field.name for field in fields(kind)], *(plan_config or {})
            )
        plan = cls(TilePlan(**(tiles or {})), SlicePlan(**(slices or {})))
        size, overlap = plan.tiles.size, plan.tiles.overlap
        if not (isinstance(size, int) and size > 0 and 0 <= overlap < size):
            raise UsageError(
                f"tiles.size={size}, tiles.overlap={overlap}: expected a size above 0 and a smaller overlap"
            )
        if plan.slices.every < 1 or (plan.slices.window is not None and len(plan.slices.window) != 2):
            raise UsageError("slices: expected every from 1 on, and a window [centre, width]")
        return plan


class Piece(NamedTuple):
    """One image of a case.

    Attributes:
        key: of its content, and of what is shown of it.
        case: id of the first case that it belongs to.
        kind: `slide`, `patches`, `volume` or `picture`.
        image: where it is read from.
    """

    key: str
    case: str
    kind: str
    image: Reference[Image]


class Chunk(NamedTuple):
    """Part of a piece that is read at once.

    Attributes:
        piece: the piece.
        tiles: some neighbouring ones of a slide; None of what is read whole.
        start: the number of the first of them.
        last: whether nothing of the piece comes after.
    """

    piece: Piece
    tiles: Tiles | None = None
    start: int = 0
    last: bool = True


Pieces = dict[str, list[Piece | Failure]]


def pieces_of(cases: Sequence[Case], plan: ShownPlan, *, volumes_whole: bool = False) -> Pieces:
    """Case id -> its images' pieces in order, or a failure.

    Files are hashed, large ones by samples. Volumes are not cut into slices for encoders that take them whole.
    """
    paths = list(dict.fromkeys(path for case in cases for image in case.images for path in image.files))
    with ThreadPoolExecutor(max(1, threads(len(paths)))) as pool:
        contents = dict(zip(paths, pool.map(_folder_digest, paths), strict=True))
    pieces: Pieces = {}
    for case in cases:
        pieces[case.id] = [_make_piece(case, image, contents, plan, whole=volumes_whole) for image in case.images]
    return pieces


def _make_piece(
    case: Case, image: Reference[Image], known: Mapping[Path, str], plan: ShownPlan, *, whole: bool
) -> Piece | Failure:
    try:
        kind = _image_kind(image)
    except UserError as error:
        return Failure(case.id, "read", str(error))
    shown_as: Any = {"slide": asdict(plan.tiles), "volume": "whole" if whole else asdict(plan.slices)}.get(kind)
    made_of = [VERSION, kind, [known[path] for path in image.files], _reference_settings(image), shown_as]
    if not image.files:
        made_of.append(repr(image))
    return Piece(digest(made_of, 40), case.id, kind, image)


def _image_kind(image: Reference[Image]) -> str:
    path = image.files[0] if image.files else Path()
    if isinstance(image, ImageFile):
        if path.suffix.lower() in (".h5", ".hdf5") and _holds_patches(path):
            return "patches"
        if image.region is None and "level" not in image.options and identify(path) == "slide":
            return "slide"
    return "volume" if len(image.geometry().shape) == 3 else "picture"


def _holds_patches(path: Path) -> bool:
    try:
        return len(read_patches(path)) > 0
    except CaseError:
        return False


def _folder_digest(path: Path) -> str:
    if not path.is_dir():
        return file_digest(path)
    return digest([(name, file_digest(path / name)) for name, _ in sorted(walk(path))], 40)


def _reference_settings(thing: Any) -> Any:
    """Settings of a reference beside where its files lie."""
    if is_dataclass(thing) and not isinstance(thing, type):
        return {
            type(thing).__name__: {
                field.name: _reference_settings(getattr(thing, field.name)) for field in fields(thing)
            }
        }
    if isinstance(thing, Mapping):
        return {str(key): _reference_settings(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [_reference_settings(item) for item in thing]
    return None if isinstance(thing, os.PathLike) or (isinstance(thing, str) and os.sep in thing) else thing


def planned(plan: ShownPlan, piece: Piece) -> list[Chunk] | Failure:
    """Reading chunks of a piece: neighbouring tiles of slides, else all.

    None at all of a slide without tissue.
    """
    if piece.kind not in ("slide", "patches"):
        return [Chunk(piece)]
    try:
        tiles = _plan_tiles(plan, piece)
    except UserError as error:
        return Failure(piece.case, "read", str(error))
    except Exception as error:  # noqa: BLE001 - one damaged slide must not end the work
        return Failure(piece.case, "read", f"{piece.image.files[0]}: {type(error).__name__}: {error}")
    if piece.kind == "slide":
        tiles = _select_tiles(tiles, _in_blocks(tiles))
    count = len(tiles)
    return [
        Chunk(piece, _select_tiles(tiles, slice(start, start + CHUNK)), start, start + CHUNK >= count)
        for start in range(0, count, CHUNK)
    ]


def _in_blocks(tiles: Tiles) -> Array:
    """Tile order by squares, so shared stored tiles decode once."""
    step = [max(1.0, BLOCK * edge * (tiles.size - tiles.overlap) / tiles.size) for edge in tiles.edge]
    rows, columns = (tiles.coordinates[:, axis] // step[axis] for axis in (0, 1))
    order: Array = np.lexsort((np.arange(len(tiles)), columns, rows))
    return order


def _select_tiles(tiles: Tiles, which: Any) -> Tiles:
    return replace(tiles, coordinates=tiles.coordinates[which])


def _plan_tiles(plan: ShownPlan, piece: Piece) -> Tiles:
    if piece.kind == "patches":
        patches = read_patches(piece.image.files[0])
        coordinates = patches.coordinates
        coordinates = np.full((len(patches), 2), -1) if coordinates is None else coordinates
        return Tiles(coordinates, (float(patches.size[0]), float(patches.size[1])), patches.size[0], None)
    wanted = plan.tiles
    with _open_slide(piece.image) as slide:
        tiles = tile_grid(
            slide,
            size=wanted.size,
            um_per_px=wanted.um_per_px,
            overlap=wanted.overlap,
            tissue=wanted.tissue,
            minimum_tissue=wanted.minimum_tissue,
        )
    if wanted.limit is None or len(tiles) <= wanted.limit:
        return tiles
    indices = np.linspace(0, len(tiles) - 1, wanted.limit).round().astype(int)
    return _select_tiles(tiles, indices)


def _open_slide(image: Reference[Image]) -> Slide:
    options = getattr(image, "options", {})
    size = options.get("level0_um_per_px")
    return _cached_slide(image.files[0], None if size is None else float(size), os.getpid())


@lru_cache(2)
def _cached_slide(path: Path, um_per_px: float | None, process: int) -> Slide:
    del process  # a handle belongs to the process that opened it
    return Slide(path, um_per_px)


def read_chunk(plan: ShownPlan, chunk: Chunk) -> list[Image] | Array | Failure:
    """A chunk's pixels, uint8 (tile, channel, row, column), or its images.

    A Failure where it cannot be read.
    """
    piece = chunk.piece
    try:
        if chunk.tiles is not None:
            if piece.kind == "patches":
                return _cached_patches(piece.image.files[0]).read(chunk.start, chunk.start + len(chunk.tiles))
            return read_tiles(_open_slide(piece.image), chunk.tiles)
        image = piece.image.read()
        return _volume_slices(image, plan.slices) if piece.kind == "volume" else [image]
    except UserError as error:
        return Failure(piece.case, "read", str(error))
    except Exception as error:  # noqa: BLE001 - one unreadable image must not end the work
        return Failure(piece.case, "read", f"{', '.join(map(str, piece.image.files))}: {type(error).__name__}: {error}")


def read_whole(plan: ShownPlan, chunk: Chunk) -> list[Image] | Array | Failure:
    """Volumes as encoders that take them whole are shown them."""
    if chunk.piece.kind != "volume":
        return read_chunk(plan, chunk)
    try:
        return [chunk.piece.image.read()]
    except UserError as error:
        return Failure(chunk.piece.case, "read", str(error))


@lru_cache(2)
def _cached_patches(path: Path) -> Patches:
    return read_patches(path)


def _volume_slices(image: Image, plan: SlicePlan) -> Array:
    """First-channel slices, uint8, (slice, 1, row, column), back and left."""
    array = np.asarray(reorient(image, "LPS").array)
    if array.ndim != 4:
        raise CaseError(f"an image of shape {array.shape} is no volume of one time; name its frames in task.layout")
    volume = array[0, :, :, :: plan.every].astype(np.float32)
    if plan.window is not None:
        centre, width = map(float, plan.window)
        low, high = centre - width / 2, centre + width / 2
    else:
        low, high = float(volume.min()), float(volume.max())
    grey = np.zeros(volume.shape, np.uint8)
    if high > low:
        grey = np.rint((np.clip(volume, low, high) - low) * (255 / (high - low))).astype(np.uint8)
    return np.ascontiguousarray(grey.transpose(2, 1, 0)[:, None])


def unique(pieces: Iterable[Piece | Failure]) -> list[Piece]:
    """The pieces of different content, in order."""
    return list({piece.key: piece for piece in pieces if isinstance(piece, Piece)}.values())
