"""Where the tissue of a slide lies, and the tiles that cover it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medimg_eval.case import Array, Mask, Units
from medimg_eval.errors import CaseError
from medimg_eval.imaging.slides.slide import Slide

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

    `coordinates`, int64, (tile, 2), are row and column of each tile's first pixel, and `edge` its rows and columns,
    which need not be whole, both in level-0 pixels. `size` are pixels along a side once it is read, of `um_per_px`
    where that is known, and neighbours share `overlap` of them.
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
    starts = [
        _tile_starts(side, tile_edge, tile_edge * (size - overlap) / size)
        for side, tile_edge in zip(slide.size, edge, strict=True)
    ]
    coordinates = np.stack(np.meshgrid(*starts, indexing="ij"), axis=-1).reshape(-1, 2)
    if tissue is not False:
        tissue_ = tissue_mask(slide) if tissue is True else tissue
        share = _tissue_share(slide, tissue_, coordinates, edge)
        coordinates = coordinates[share >= minimum_tissue] if minimum_tissue > 0 else coordinates[share > 0]
    return Tiles(coordinates, edge, size, um_per_px, overlap)


def read_tiles(slide: Slide, tiles: Tiles, indices: Iterable[int] | None = None) -> Array:
    """Reads tiles, uint8, (tile, 3, size, size), all or `indices`.

    Raises CaseError when the slide is damaged.
    """
    which = range(len(tiles)) if indices is None else list(indices)
    out = np.empty((len(which), 3, tiles.size, tiles.size), np.uint8)
    downsample = (tiles.edge[0] / tiles.size, tiles.edge[1] / tiles.size)
    for index, tile in enumerate(which):
        row, column = (int(coordinate) for coordinate in tiles.coordinates[tile])
        out[index] = np.moveaxis(slide.read_region(row, column, tiles.size, downsample=downsample), 2, 0)
    return out


def tissue_mask(slide: Slide, *, um_per_px: float = 8.0, ink: bool = True) -> Mask:
    """Tissue by colour: saturated, not black, smoothed, cleaned.

    The threshold on saturation is Otsu's, kept within `SATURATION`. Blue and green ink is left out, and bright red ink.
    Labels are uint8, (row, column) over the whole slide, 1 is tissue; the affine has steps in mm (ones without a size).

    Args:
        slide: the slide.
        um_per_px: of the mask's pixels; where the slide states no size of pixel, its longer side has 2,048 of them.
        ink: leaves pen marks out; False for strong blue and green stains (alcian blue, trichrome).

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
    labels = _clean_mask(_coloured_mask(pixels, ink=ink), sizes[0] * sizes[1] / 1e6)
    steps = (1.0, 1.0) if own is None else (sizes[0] / 1000, sizes[1] / 1000)
    units: Units = "pixel" if own is None else "mm"
    return Mask(labels.astype(np.uint8), np.diag([*steps, 1.0, 1.0]), {1: "tissue"}, units=units)


def otsu(counts: Array) -> int:
    """Otsu's threshold bin (1979); 0 for fewer than two classes."""
    from skimage.filters import threshold_otsu

    return int(threshold_otsu(hist=counts)) if np.count_nonzero(counts) > 1 else 0


def as_coordinates(stored: Array, path: Path) -> Array:
    """Converts x, y to row, column, int64, (tile, 2).

    Raises CaseError where they are not whole places.
    """
    if stored.ndim == 3 and stored.shape[0] == 1:
        stored = stored[0]
    if stored.ndim != 2 or stored.shape[1] != 2 or stored.dtype.kind not in "iuf":
        raise CaseError(f"{path}: expected tile coordinates (tile, 2), got {stored.shape} of {stored.dtype}")
    if stored.dtype.kind == "f" and not np.array_equal(stored, np.rint(stored)):
        raise CaseError(f"{path}: expected tile coordinates in whole level-0 pixels, got fractions or NaN")
    return stored[:, ::-1].astype(np.int64)


def _tile_starts(side: int, edge: float, step: float) -> Array:
    # A last tile for less than a millionth of a pixel would hold nothing.
    count = 1 + max(0, int(np.ceil((side - edge) / step - 1e-6)))
    starts: Array = np.rint(np.arange(count) * step).astype(np.int64)
    # Rounded past the border, a last tile for a fraction of a pixel would lie outside.
    return np.unique(np.minimum(starts, side - 1))


def _tissue_share(slide: Slide, tissue: Mask, coordinates: Array, edge: tuple[float, float]) -> Array:
    """Tissue share of each tile, exact by bilinear integral."""
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
        totals: Array = map_coordinates(total, [rows, columns], order=1, mode="nearest")
        return totals

    inside = at(high[0], high[1]) - at(low[0], high[1]) - at(high[0], low[1]) + at(low[0], low[1])
    share: Array = inside * (scale[0] * scale[1]) / (edge[0] * edge[1])
    return share.round(9)


def _coloured_mask(pixels: Array, *, ink: bool) -> Array:
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
    is_coloured: Array = usable & (saturation > threshold)
    return is_coloured


def _clean_mask(mask: Array, pixel_mm2: float) -> Array:
    """The majority of each neighbourhood, without small objects and small holes."""
    from scipy.ndimage import uniform_filter

    smooth = uniform_filter(mask.astype(np.float32), SMOOTHING, mode="nearest") > 0.5
    large_parts = _without_small(smooth, SMALLEST_MM2 / pixel_mm2)
    return ~_without_small(~large_parts, LARGEST_HOLE_MM2 / pixel_mm2)


def _without_small(mask: Array, pixels: float) -> Array:
    from scipy.ndimage import label

    parts, count = label(mask)
    if not count:
        return mask
    large = np.bincount(parts.ravel()) >= pixels
    large[0] = False
    kept_mask: Array = large[parts]
    return kept_mask
