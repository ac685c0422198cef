"""Where the tissue of a slide lies, and the tiles that cover it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Mask, Units
from medimg_eval.errors import CaseError
from medimg_eval.imaging.slides.slide import Slide
from medimg_eval.system import whole

DARKEST = 40
"""Brightest channel, 0 to 255, below which a pixel is a black border or black ink: stained tissue is lighter."""

SATURATION = (0.05, 0.2)
"""Between which Otsu's threshold is kept: a slide of glass alone, or of tissue alone, has no valley to find."""

SMALLEST_MM2, LARGEST_HOLE_MM2 = 0.01, 0.05
"""Tissue smaller than this is dust; holes up to this are filled."""

SMOOTHING = 5
"""Edge in mask pixels of the neighbourhood whose majority decides."""


@dataclass(frozen=True, eq=False)
class Tiles:
    """Square tiles of one slide.

    Attributes:
        coordinates: int64, (tile, 2), row and column of each tile's first pixel, in level-0 pixels.
        edge: rows and columns of a tile, in level-0 pixels; need not be whole.
        size: pixels along a side once it is read.
        um_per_px: of those pixels; None where it is not known.
        overlap: pixels that neighbours share.
    """

    coordinates: Array
    edge: tuple[float, float]
    size: int
    um_per_px: float | None
    overlap: int = 0

    def __len__(self) -> int:
        return len(self.coordinates)


def tile_grid(
    slide: Slide,
    *,
    size: int = 256,
    um_per_px: float | None = 0.5,
    overlap: int = 0,
    tissue: Mask | bool = False,
    minimum_tissue: float = 0.5,
) -> Tiles:
    """Lays tiles over a slide.

    The first tile starts at the slide's first pixel, the others `size - overlap` of their pixels further, rounded to a
    level-0 pixel. There are as many as it takes for every pixel of the slide to lie in a tile, so the last row and
    column may hang over the border, where reading gives the background's colour. Row by row, left to right.

    Args:
        slide: the slide.
        size: pixels along a side.
        um_per_px: of those pixels; None for level-0 pixels.
        overlap: pixels that neighbours share.
        tissue: keeps tiles with tissue: True finds it with `tissue_mask`; a mask covers the whole slide.
        minimum_tissue: share of a tile's area that must be tissue, 0 to 1; what hangs over the border has none.

    Raises:
        CaseError: the slide states no micrometres per pixel, or the mask is of another shape than the slide.
        ValueError: the size or overlap makes no grid.
    """
    if not 0 <= overlap < size:
        raise ValueError(f"expected an overlap from 0 to below the size {size}, got {overlap}")
    scale = slide.scale(um_per_px)
    edge = (size * scale[0], size * scale[1])
    starts = [_starts(side, one, one * (size - overlap) / size) for side, one in zip(slide.size, edge, strict=True)]
    coordinates = np.stack(np.meshgrid(*starts, indexing="ij"), axis=-1).reshape(-1, 2)
    if tissue is not False:
        found = tissue_mask(slide) if tissue is True else tissue
        share = _tissue_share(slide, found, coordinates, edge)
        coordinates = coordinates[share >= minimum_tissue] if minimum_tissue > 0 else coordinates[share > 0]
    return Tiles(coordinates, edge, size, um_per_px, overlap)


def read_tiles(slide: Slide, tiles: Tiles, indices: Iterable[int] | None = None) -> Array:
    """Reads tiles, uint8, (tile, 3, size, size); all of them unless `indices` says which.

    Raises:
        CaseError: the slide is damaged.
    """
    which = range(len(tiles)) if indices is None else list(indices)
    out = np.empty((len(which), 3, tiles.size, tiles.size), np.uint8)
    downsample = (tiles.edge[0] / tiles.size, tiles.edge[1] / tiles.size)
    for index, tile in enumerate(which):
        row, column = (int(one) for one in tiles.coordinates[tile])
        out[index] = np.moveaxis(slide.read_region(row, column, tiles.size, downsample=downsample), 2, 0)
    return out


def tissue_mask(slide: Slide, *, um_per_px: float = 8.0, ink: bool = True) -> Mask:
    """Finds tissue by its colour: saturated, not black, smoothed, without dust and with small holes filled.

    The threshold on saturation is Otsu's, kept within `SATURATION`. Blue and green ink is left out, and bright red ink.

    Args:
        slide: the slide.
        um_per_px: of the mask's pixels; where the slide states no size of pixel, its longer side has 2,048 of them.
        ink: leaves pen marks out; False for strong blue and green stains (alcian blue, trichrome).

    Returns:
        Labels of uint8, (row, column) over the whole slide, 1 is tissue; affine of steps in mm (ones without a size).

    Raises:
        CaseError: the slide is damaged.
    """
    own = slide.um_per_px
    rows, columns = slide.size
    scale = slide.scale(um_per_px) if own is not None else (max(max(rows, columns) / 2048, 1),) * 2
    shape = (max(1, round(rows / scale[0])), max(1, round(columns / scale[1])))
    step = (rows / shape[0], columns / shape[1])
    pixels = slide.read_region(0, 0, shape, downsample=step)
    # A pixel of unknown size counts as one of the size asked for.
    sizes = (um_per_px, um_per_px) if own is None else (own[0] * step[0], own[1] * step[1])
    labels = _clean(_coloured(pixels, ink=ink), sizes[0] * sizes[1] / 1e6)
    steps = (1.0, 1.0) if own is None else (sizes[0] / 1000, sizes[1] / 1000)
    units: Units = "pixel" if own is None else "mm"
    return Mask(labels.astype(np.uint8), np.diag([*steps, 1.0, 1.0]), {1: "tissue"}, units=units)


def otsu(counts: Array) -> int:
    """The bin of a histogram at whose end two classes differ most (Otsu 1979); 0 of one class, or none."""
    from skimage.filters import threshold_otsu

    return int(threshold_otsu(hist=counts)) if np.count_nonzero(counts) > 1 else 0


def write_tiles(path: str | Path, tiles: Tiles) -> None:
    """Writes tile coordinates as HDF5, as TRIDENT lays them out (`coords` is x, y); it appears whole or not at all."""
    import h5py

    path = Path(path)

    attributes: dict[str, Any] = {
        "patch_size": tiles.size,
        "patch_size_level0": round(tiles.edge[1]),
        "overlap": tiles.overlap,
        "edge_level0": np.array(tiles.edge),
    }
    if tiles.um_per_px is not None:
        attributes["um_per_px"] = tiles.um_per_px
    with whole(path) as partial, h5py.File(partial, "w") as file:
        stored = file.create_dataset("coords", data=tiles.coordinates[:, ::-1])
        for name, value in attributes.items():
            stored.attrs[name] = value


def read_tile_coordinates(path: str | Path, *, edge: float | None = None, size: int | None = None) -> Tiles:
    """Reads tile coordinates from HDF5 as CLAM, TRIDENT or `write_tiles` write them.

    Args:
        path: the file; `coords` holds x and y in level-0 pixels, (tile, 2) or (1, tile, 2).
        edge: of a tile in level-0 pixels, where the file does not say.
        size: pixels along a side once it is read, where the file does not say.

    Raises:
        CaseError: the file is damaged, holds no `coords`, or does not say how large a tile is.
    """
    import h5py

    path = Path(path)

    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    try:
        with h5py.File(path) as file:
            if "coords" not in file:
                raise CaseError(f"{path}: expected tile coordinates `coords`, found {', '.join(file) or 'nothing'}")
            stored = np.asarray(file["coords"])
            said = dict(file.attrs) | dict(file["coords"].attrs)
    except (OSError, KeyError, RuntimeError, ValueError) as error:  # h5py raises all of them over damage
        raise CaseError(f"{path}: cannot be read as HDF5 ({error}); write or copy it again") from error
    coordinates = as_coordinates(stored, path)
    found = _edge(said) if edge is None else (float(edge), float(edge))
    pixels = size or said.get("patch_size")
    if found is None or pixels is None:
        raise CaseError(
            f"{path}: does not say how many level-0 pixels a tile spans and how many pixels it is read at "
            f"(has {', '.join(sorted(said)) or 'no attributes'}); give edge and size"
        )
    um_per_px = said.get("um_per_px")
    return Tiles(
        coordinates, found, int(pixels), None if um_per_px is None else float(um_per_px), int(said.get("overlap", 0))
    )


def as_coordinates(stored: Array, path: Path) -> Array:
    """Turns stored x, y into row, column, int64, (tile, 2); raises CaseError where they are not whole places."""
    if stored.ndim == 3 and stored.shape[0] == 1:
        stored = stored[0]
    if stored.ndim != 2 or stored.shape[1] != 2 or stored.dtype.kind not in "iuf":
        raise CaseError(f"{path}: expected tile coordinates (tile, 2), got {stored.shape} of {stored.dtype}")
    if stored.dtype.kind == "f" and not np.array_equal(stored, np.rint(stored)):
        raise CaseError(f"{path}: expected tile coordinates in whole level-0 pixels, got fractions or NaN")
    return stored[:, ::-1].astype(np.int64)


def _starts(side: int, edge: float, step: float) -> Array:
    # A last tile for less than a millionth of a pixel would hold nothing.
    count = 1 + max(0, int(np.ceil((side - edge) / step - 1e-6)))
    starts: Array = np.rint(np.arange(count) * step).astype(np.int64)
    # Rounded past the border, a last tile for a fraction of a pixel would lie outside.
    inside: Array = np.unique(np.minimum(starts, side - 1))
    return inside


def _tissue_share(slide: Slide, tissue: Mask, coordinates: Array, edge: tuple[float, float]) -> Array:
    """Share of each tile's area that is tissue: exact, by the bilinear integral of the mask."""
    from scipy.ndimage import map_coordinates

    mask = np.asarray(tissue.labels) > 0
    scale = [side / count for side, count in zip(slide.size, mask.shape, strict=True)]
    if abs(scale[0] / scale[1] - 1) > 0.05 and min(mask.shape) > 20:
        raise CaseError(
            f"{slide.path}: is {slide.size}, which a tissue mask of {mask.shape} does not cover; give its own"
        )
    total = np.pad(mask.astype(np.float64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    low = [np.clip(coordinates[:, axis] / scale[axis], 0, mask.shape[axis]) for axis in (0, 1)]
    high = [np.clip((coordinates[:, axis] + edge[axis]) / scale[axis], 0, mask.shape[axis]) for axis in (0, 1)]

    def at(rows: Array, columns: Array) -> Array:
        found: Array = map_coordinates(total, [rows, columns], order=1, mode="nearest")
        return found

    inside = at(high[0], high[1]) - at(low[0], high[1]) - at(high[0], low[1]) + at(low[0], low[1])
    share: Array = inside * (scale[0] * scale[1]) / (edge[0] * edge[1])
    return share.round(9)


def _coloured(pixels: Array, *, ink: bool) -> Array:
    red, green, blue = (pixels[..., channel].astype(np.int16) for channel in range(3))
    brightest, darkest = pixels.max(axis=2), pixels.min(axis=2)
    saturation = (brightest - darkest) / np.maximum(brightest, 1).astype(np.float32)
    usable = brightest >= DARKEST
    if ink:
        # Haematoxylin, eosin and DAB all leave more red than green; blue and green ink do not, and red ink is brighter
        # than any tissue of its saturation.
        usable &= ~((saturation > 0.5) & (green >= red))
        usable &= ~((saturation > 0.75) & (red > 170) & (np.abs(green - blue) < 60))
    counts = np.bincount((saturation[usable] * 255).astype(np.int64), minlength=256)
    threshold = float(np.clip((otsu(counts) + 1) / 255, *SATURATION))
    found: Array = usable & (saturation > threshold)
    return found


def _clean(mask: Array, pixel_mm2: float) -> Array:
    """The majority of each neighbourhood, without small objects and small holes."""
    from scipy.ndimage import uniform_filter

    smooth = uniform_filter(mask.astype(np.float32), SMOOTHING, mode="nearest") > 0.5
    kept = _without_small(smooth, SMALLEST_MM2 / pixel_mm2)
    return ~_without_small(~kept, LARGEST_HOLE_MM2 / pixel_mm2)


def _without_small(mask: Array, pixels: float) -> Array:
    from scipy.ndimage import label

    parts, count = label(mask)
    if not count:
        return mask
    large = np.bincount(parts.ravel()) >= pixels
    large[0] = False
    kept: Array = large[parts]
    return kept


def _edge(said: Mapping[str, Any]) -> tuple[float, float] | None:
    """Rows and columns of a tile in level-0 pixels: ours, TRIDENT's, or CLAM's, whose pairs are x, y."""
    if "edge_level0" in said:
        rows, columns = (float(one) for one in said["edge_level0"])
        return rows, columns
    if "patch_size_level0" in said:
        return (float(said["patch_size_level0"]),) * 2
    if "patch_size" not in said:
        return None
    size = float(said["patch_size"])
    if "downsample" in said:
        across, down = np.broadcast_to(np.asarray(said["downsample"], np.float64), 2)
        return size * float(down), size * float(across)
    return (size, size) if "patch_level" in said and int(said["patch_level"]) == 0 else None
