"""Whole-slide images, read, and written as pyramidal TIFF.

Associated pictures (the label with its barcode and name, the macro photograph) are never returned by anything here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Mask, Units
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.label_values import label_map
from medimg_eval.imaging.library_logs import kept_log
from medimg_eval.imaging.slides.slide import Level, Slide
from medimg_eval.system import whole

__all__ = ["LARGE", "LIMIT", "Level", "Slide", "grid", "is_slide", "placement", "read", "read_mask", "write_pyramid"]

LIMIT = 100_000_000
"""Pixels of level 0 up to which a slide is read whole without being told the level, size of pixel or region."""

LARGE = 4096
"""A tiled TIFF of one level with a longer side than this is a slide, a smaller one a picture."""

PAGES = 32
"""Pages looked through for a reduced level."""

Box = tuple[tuple[int, int], tuple[int, int]]
"""(start, stop) of rows and of columns, in level-0 pixels."""


@dataclass(frozen=True)
class _Plan:
    """Region to read: origin, result shape, and scale."""

    first: tuple[int, int]
    shape: tuple[int, int]
    downsample: tuple[float, float]
    steps: tuple[float, float] | None

    @property
    def affine(self) -> Any:
        return np.diag([*(self.steps or (1.0, 1.0)), 1.0, 1.0])

    @property
    def units(self) -> Units:
        return "pixel" if self.steps is None else "mm"


def is_slide(path: Path) -> bool:
    """Whether a TIFF is a slide: tiled, multi-level or large.

    Longer than `LARGE` on a side.
    """
    import tifffile

    try:
        with kept_log("tifffile"), tifffile.TiffFile(path) as file:
            top = file.pages.first
            if not top.is_tiled:
                return False
            if max(top.imagelength, top.imagewidth) > LARGE or top.subifds:
                return True
            for index in range(1, PAGES):
                page = file.pages[index]
                if page.is_tiled and page.imagelength < top.imagelength and page.imagewidth < top.imagewidth:
                    return True
    except IndexError:  # there are no more pages
        return False
    # Of a damaged header any of these; the reader says what is wrong with it.
    except (tifffile.TiffFileError, OSError, ValueError, AttributeError, TypeError, LookupError, ArithmeticError):
        return False
    return False


def read(
    paths: Sequence[Path],
    *,
    um_per_px: float | None = None,
    level: int | None = None,
    region: Box | None = None,
    level0_um_per_px: float | None = None,
) -> Image:
    """Reads a slide, or a part of it, (3, row, column) of uint8.

    The affine holds the steps in mm, or ones where the slide states no credible size (`units` is `pixel`).

    Args:
        paths: the file, a folder of one DICOM slide, or that slide's files.
        um_per_px: micrometres per pixel of the result.
        level: instead, a level as it is stored.
        region: (start, stop) of rows and of columns, in level-0 pixels; None reads the whole slide.
        level0_um_per_px: size of a level-0 pixel, where the file states none or a wrong one.

    Raises:
        CaseError: the slide cannot be opened or is damaged, the level or region is not on it, or it is larger than
            `LIMIT` pixels and nothing says which part is meant.
        UsageError: both `um_per_px` and `level`.
    """
    with _open_slide(paths, level0_um_per_px) as slide:
        plan = _plan_region(slide, um_per_px, level, region)
        array = slide.read_region(*plan.first, plan.shape, downsample=plan.downsample)
        notes = list(slide.doubts)
        if min(plan.downsample) < 0.99:
            notes.append(f"finer than scanned: {1 / min(plan.downsample):.3g} pixels were made of each")
        facts = {"vendor": slide.vendor, "objective": slide.objective}
        return Image(
            np.moveaxis(array, 2, 0),
            plan.affine,
            modality="SM",
            units=plan.units,
            notes=tuple(notes),
            attributes={key: value for key, value in facts.items() if value},
        )


def grid(
    paths: Sequence[Path],
    *,
    um_per_px: float | None = None,
    level: int | None = None,
    region: Box | None = None,
    level0_um_per_px: float | None = None,
) -> Geometry:
    """Reads the grid alone, from the headers; takes and raises what `read` does."""
    with _open_slide(paths, level0_um_per_px) as slide:
        plan = _plan_region(slide, um_per_px, level, region)
        return Geometry(plan.shape, plan.affine, plan.units)


def placement(
    paths: Sequence[Path],
    *,
    um_per_px: float | None = None,
    level: int | None = None,
    region: Box | None = None,
    level0_um_per_px: float | None = None,
) -> tuple[tuple[int, int], tuple[float, float]]:
    """Position of the pixels that `read` returns; raises as it does.

    Row and column of their corner are in level-0 pixels, as are the steps along rows and columns.
    """
    with _open_slide(paths, level0_um_per_px) as slide:
        plan = _plan_region(slide, um_per_px, level, region)
        return plan.first, plan.downsample


def read_mask(
    paths: Sequence[Path],
    *,
    um_per_px: float | None = None,
    level: int | None = None,
    region: Box | None = None,
    level0_um_per_px: float | None = None,
) -> Mask:
    """Reads a slide of labels by nearest pixels; arguments as `read`.

    Raises CaseError as `read` does, and where the slide is in colour.
    """
    with _open_slide(paths, level0_um_per_px) as slide:
        plan = _plan_region(slide, um_per_px, level, region)
        array = slide.read_labels(*plan.first, plan.shape, plan.downsample)
        if (array != array[..., :1]).any():
            raise CaseError(f"{paths[0]}: expected a label map in grey, got a slide in colour")
        notes = list(slide.doubts)
        if min(plan.downsample) > 1.01 and len(slide.levels) > 1:
            notes.append("labels come from a reduced level, where whoever wrote it may have averaged them")
        return Mask(label_map(array[None, ..., 0], paths[0]), plan.affine, notes=tuple(notes), units=plan.units)


def _open_slide(paths: Sequence[Path], level0_um_per_px: float | None) -> Slide:
    slide = Slide(paths[0], level0_um_per_px)
    if len(paths) > 1 and (slide.vendor != "dicom" or len({path.parent for path in paths}) > 1):
        slide.close()
        raise CaseError(f"{paths[1]}: one slide is one file, or the DICOM files of one folder; got {len(paths)} files")
    return slide


def _plan_region(slide: Slide, um_per_px: float | None, level: int | None, region: Box | None) -> _Plan:
    rows, columns = slide.size
    if um_per_px is None and level is None and region is None and rows * columns > LIMIT:
        sizes = ", ".join(
            f"{index}: {pyramid_level.size[0]} x {pyramid_level.size[1]}"
            for index, pyramid_level in enumerate(slide.levels)
        )
        raise CaseError(
            f"{slide.path}: holds {rows} x {columns} pixels, and more than {LIMIT // 10**6} million are not read "
            f"unasked; give um_per_px, a region, or a level ({sizes})"
        )
    if um_per_px is not None and level is not None:
        raise UsageError(f"{slide.path}: give um_per_px or level, not both")
    downsample = (
        _level_downsample(slide, level) if level is not None else slide.scale(_check_resolution(slide, um_per_px))
    )
    (top, bottom), (left, right) = region or ((0, rows), (0, columns))
    if not (0 <= top < bottom <= rows and 0 <= left < right <= columns):
        raise CaseError(
            f"{slide.path}: holds rows 0 to {rows} and columns 0 to {columns}, asked for rows {top} to {bottom} and "
            f"columns {left} to {right}"
        )
    extent = (bottom - top, right - left)
    shape = (max(1, round(extent[0] / downsample[0])), max(1, round(extent[1] / downsample[1])))
    own = slide.um_per_px
    steps = None if own is None else (own[0] * downsample[0] / 1000, own[1] * downsample[1] / 1000)
    return _Plan((top, left), shape, downsample, steps)


def _level_downsample(slide: Slide, level: int) -> tuple[float, float]:
    if not 0 <= level < len(slide.levels):
        raise CaseError(f"{slide.path}: has levels 0 to {len(slide.levels) - 1}, asked for {level}")
    return slide.levels[level].downsample


def _check_resolution(slide: Slide, um_per_px: float | None) -> float | None:
    if um_per_px is not None and not um_per_px > 0:
        raise CaseError(f"{slide.path}: expected um_per_px above zero, got {um_per_px:g}")
    return um_per_px


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
    """Writes a tiled pyramidal TIFF, atomically and reproducibly.

    Equal pixels give equal bytes.

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
        for index, level in enumerate(_pyramid_levels(pixels, tile, levels)):
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


def _pyramid_levels(pixels: Array, tile: int, count: int | None) -> list[Array]:
    levels = [pixels]
    while max(levels[-1].shape[:2]) > tile if count is None else len(levels) < count:
        levels.append(_halve_pixels(levels[-1]))
    return levels


def _halve_pixels(pixels: Array) -> Array:
    """Rounded 2 x 2 means; odd last rows and columns repeat."""
    rows, columns = pixels.shape[:2]
    even = np.pad(pixels, ((0, rows % 2), (0, columns % 2), (0, 0)), mode="edge").astype(np.uint16)
    total = even[0::2, 0::2] + even[1::2, 0::2] + even[0::2, 1::2] + even[1::2, 1::2]
    return ((total + 2) // 4).astype(np.uint8)
