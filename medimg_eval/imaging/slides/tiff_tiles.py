"""Stored tiles of TIFF slides, decoded straight into the result: no alpha channel, no lock, threads that pay."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.imaging.library_logs import kept_log

COMPRESSIONS = ("JPEG", "NONE", "LZW", "ADOBE_DEFLATE", "DEFLATE")
"""Those of which every decoder makes the same pixels."""

CACHED = 64
"""Decoded tiles kept, so that neighbouring regions do not decode their common tiles twice."""


class StoredTiles:
    """The tiles of some levels of a TIFF file. May be read by many threads and after a fork."""

    def __init__(self, path: Path, pages: Sequence[Any]) -> None:
        with path.open("rb") as stream:
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self._levels = [_Level(page) for page in pages]
        self._tile = lru_cache(CACHED)(self._decode)

    def cut(self, level: int, row: int, column: int, rows: int, columns: int) -> Array | None:
        """Reads a rectangle that lies within a level, uint8, (row, column, 3).

        Returns None where a tile is not stored: what lies there is for openslide to say.

        Raises:
            ValueError: a tile is damaged or cut short.
        """
        high, wide = self._levels[level].tile
        out = np.empty((rows, columns, 3), np.uint8)
        for down in range(row // high, (row + rows - 1) // high + 1):
            for across in range(column // wide, (column + columns - 1) // wide + 1):
                tile = self._tile(level, down, across)
                if tile is None:
                    return None
                top, left = down * high - row, across * wide - column  # of the tile, in the result
                part = tile[max(0, -top) : rows - top, max(0, -left) : columns - left]
                first_row, first_column = max(top, 0), max(left, 0)
                out[first_row : first_row + part.shape[0], first_column : first_column + part.shape[1]] = part
        return out

    def close(self) -> None:
        """Lets the file go."""
        self._tile.cache_clear()
        self._bytes.close()

    def _decode(self, level: int, down: int, across: int) -> Array | None:
        one = self._levels[level]
        index = down * one.across + across
        start, length = one.offsets[index], one.lengths[index]
        if length == 0:
            return None
        content = self._bytes[start : start + length]
        if len(content) != length:
            raise ValueError("a tile lies past the end of the file")
        decoded, _, shape = one.decode(content, index, jpegtables=one.tables)
        tile: Array = decoded[0, : shape[1], : shape[2]]
        if tile.dtype != np.uint8 or tile.shape[2] != 3:
            raise ValueError(f"a tile holds {tile.shape[2]} channels of {tile.dtype} instead of 8-bit RGB")
        return tile


class _Level:
    """What it takes to decode a page after its file is closed."""

    def __init__(self, page: Any) -> None:
        self.tile = (page.tilelength, page.tilewidth)
        self.across = -(-page.imagewidth // page.tilewidth)
        self.offsets, self.lengths = page.dataoffsets, page.databytecounts
        self.decode, self.tables = page.decode, page.jpegtables


def stored_tiles(path: Path, sizes: Sequence[tuple[int, int]]) -> StoredTiles | None:
    """Finds the page of each level, (rows, columns); None where one is missing or stored in another way."""
    import tifffile

    try:
        with kept_log("tifffile"), tifffile.TiffFile(path) as file:
            plain = [page for page in file.pages if _is_plain(page)]
            found = [[page for page in plain if (page.imagelength, page.imagewidth) == size] for size in sizes]
            # Two pages of one size may be two depths of focus: which of them is meant is for openslide to say.
            if any(len(pages) != 1 for pages in found):
                return None
            return StoredTiles(path, [pages[0] for pages in found])
    except (tifffile.TiffFileError, OSError, ValueError, AttributeError, TypeError, LookupError, ArithmeticError):
        return None  # what openslide opens it also reads


def _is_plain(page: Any) -> bool:
    return (
        page.is_tiled
        and page.dtype == np.uint8
        and page.samplesperpixel == 3
        and page.planarconfig == 1
        and page.imagedepth == 1
        and page.compression.name in COMPRESSIONS
        and page.photometric.name in ("RGB", "YCBCR")
        # YCbCr that is not JPEG would be converted by nobody.
        and (page.photometric.name == "RGB" or page.compression.name == "JPEG")
    )
