"""Pyramidal TIFF out."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from medimg_eval.case import Array
from medimg_eval.system import whole

QUALITY = 90
"""Of JPEG tiles."""


def write_pyramid(
    path: str | Path,
    pixels: Array,
    *,
    um_per_px: float | None,
    tile: int = 256,
    levels: int | None = None,
    compression: Literal["jpeg", "deflate"] | None = "jpeg",
) -> None:
    """Writes a tiled pyramidal TIFF; the file appears whole or not at all, and equal pixels give equal bytes.

    Each level has half the rows and columns of the one before (rounded up) and holds means of two by two pixels.

    Args:
        path: where to; its folder exists.
        pixels: uint8, (row, column, 3), of level 0.
        um_per_px: size of a level-0 pixel in micrometres, stored as resolution per centimetre; None stores none.
        tile: edge of the stored tiles, a multiple of 16.
        levels: how many; None goes on until a level fits in one tile.
        compression: `jpeg` (not exact), `deflate` or None (both exact).

    Raises:
        ValueError: the pixels are not (row, column, 3) of uint8, or the tile edge is not a multiple of 16.
    """
    import tifffile

    path = Path(path)

    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise ValueError(f"expected (row, column, 3) of uint8, got {pixels.shape} of {pixels.dtype}")
    if tile < 16 or tile % 16:
        raise ValueError(f"expected a tile edge that is a multiple of 16, got {tile}")
    jpeg = compression == "jpeg"
    with whole(path) as partial, tifffile.TiffWriter(partial, bigtiff=False) as file:
        for index, level in enumerate(_levels(pixels, tile, levels)):
            per_cm = None if um_per_px is None else 10_000 / (um_per_px * pixels.shape[0] / level.shape[0])
            file.write(
                level,
                tile=(tile, tile),
                photometric="rgb",
                compression=compression,
                compressionargs={"level": QUALITY} if jpeg else None,
                subfiletype=min(index, 1),
                resolution=None if per_cm is None else (per_cm, per_cm),
                resolutionunit="NONE" if per_cm is None else "CENTIMETER",
                metadata=None,
                software="medimg-eval",
            )


def _levels(pixels: Array, tile: int, count: int | None) -> list[Array]:
    found = [pixels]
    while max(found[-1].shape[:2]) > tile if count is None else len(found) < count:
        found.append(_halved(found[-1]))
    return found


def _halved(pixels: Array) -> Array:
    """Means of two by two pixels, rounded; the last row and column count twice where their number is odd."""
    rows, columns = pixels.shape[:2]
    even = np.pad(pixels, ((0, rows % 2), (0, columns % 2), (0, 0)), mode="edge").astype(np.uint16)
    total = even[0::2, 0::2] + even[1::2, 0::2] + even[0::2, 1::2] + even[1::2, 1::2]
    halved: Array = ((total + 2) // 4).astype(np.uint8)
    return halved
