"""Whole-slide images."""

from __future__ import annotations

from pathlib import Path


def is_slide(path: Path) -> bool:
    """Says whether a TIFF file is a pyramid."""
    import tifffile

    with tifffile.TiffFile(path) as file:
        return bool(file.pages[0].is_tiled)
