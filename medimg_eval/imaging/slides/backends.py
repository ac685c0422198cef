"""The libraries that open slides, behind one face: openslide, then tiffslide, then wsidicom.

Stored tiles of plain TIFF are decoded straight into the result: no alpha channel, no lock, threads that pay.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.library_logs import kept_log, without_values

CREDIBLE = (0.01, 20.0)
"""Micrometres a level-0 pixel may measure: scanners make 0.1 to 2, and 72 dpi (353) is a program's default."""

PLAIN = ("generic-tiff", "aperio")
"""Vendors whose tiles lie side by side, so that they can be decoded without openslide, several times as fast."""

INSTALL = "pip install 'medimg-eval[slides]'"


class Backend(Protocol):
    """An open slide, by the library of its `name`.

    Attributes:
        sizes: (rows, columns) of each level.
        downsamples: level-0 pixels per pixel of each level.
        vendor: of the scanner or format, as objective (magnification) empty when unknown.
        stated: micrometres per level-0 pixel along rows and columns as the file states them, or None.
        background: red, green, blue of what was not scanned.
        associated: names of the pictures beside the pyramid, such as `label`.
    """

    name: str
    sizes: tuple[tuple[int, int], ...]
    downsamples: tuple[float, ...]
    vendor: str
    stated: tuple[float, float] | None
    background: tuple[int, int, int]
    objective: str
    associated: tuple[str, ...]

    def cut(self, level: int, row: int, column: int, rows: int, columns: int) -> Array:
        """Reads a rectangle within a level: uint8, (row, column, 3).

        Rows and columns are in that level's pixels.
        """

    def close(self) -> None:
        """Closes the files."""


class OpenSlideBackend:
    """Slides through openslide: SVS, NDPI, SCN, MRXS, BIF, VMS, DICOM, generic tiled TIFF."""

    name = "openslide"
    prefix = "openslide"

    def __init__(self, path: Path) -> None:
        self._slide = self._open(path)
        try:
            self._describe(path)
        except Exception:
            self._slide.close()
            raise

    def _describe(self, path: Path) -> None:
        properties: Mapping[str, Any] = self._slide.properties
        self.sizes = tuple((rows, columns) for columns, rows in self._slide.level_dimensions)
        self.downsamples = tuple(float(downsample) for downsample in self._slide.level_downsamples)
        self.vendor = str(properties.get(f"{self.prefix}.vendor") or "")
        self.stated = _parse_pair(properties.get(f"{self.prefix}.mpp-y"), properties.get(f"{self.prefix}.mpp-x"))
        self.background = _parse_colour(properties.get(f"{self.prefix}.background-color"))
        self.objective = str(properties.get(f"{self.prefix}.objective-power") or "")
        self.associated = tuple(self._slide.associated_images)
        self._tiles = stored_tiles(path, self.sizes) if self.vendor in PLAIN else None

    def cut(self, level: int, row: int, column: int, rows: int, columns: int) -> Array:
        """See `Backend.cut`."""
        pixels = None if self._tiles is None else self._tiles.cut(level, row, column, rows, columns)
        if pixels is not None:
            return pixels
        factor = self.downsamples[level]
        return np.asarray(self._region((self._place(column, factor), self._place(row, factor)), level, (columns, rows)))

    def close(self) -> None:
        """Closes the files."""
        self._slide.close()
        if self._tiles is not None:
            self._tiles.close()

    def _place(self, index: int, factor: float) -> int:
        """Level pixel in level-0 pixels, as openslide rounds."""
        return round(index * factor)

    def _open(self, path: Path) -> Any:
        import openslide

        return openslide.OpenSlide(path)

    def _region(self, location: tuple[int, int], level: int, size: tuple[int, int]) -> Any:
        from PIL import Image

        image = self._slide.read_region(location, level, size)
        if image.getchannel("A").getextrema() == (255, 255):
            return image.convert("RGB")
        under = Image.new("RGBA", image.size, (*self.background, 255))
        return Image.alpha_composite(under, image).convert("RGB")


class TiffSlideBackend(OpenSlideBackend):
    """Slides of the TIFF family through tifffile."""

    name = "tiffslide"
    prefix = "tiffslide"

    def _place(self, index: int, factor: float) -> int:
        """Level-0 pixel inside a level pixel after tiffslide's rounding."""
        start = math.ceil(index * factor)
        return start + (int(start / factor) < index)

    def _open(self, path: Path) -> Any:
        import tiffslide

        return tiffslide.TiffSlide(path)

    def _describe(self, path: Path) -> None:
        page = self._slide.ts_tifffile.pages.first
        if page.dtype != "uint8" or page.samplesperpixel not in (3, 4):
            raise ValueError(f"expected 8-bit RGB, got {page.samplesperpixel} channels of {page.dtype}")
        if _is_cut_short(self._slide.ts_tifffile):
            raise ValueError("pages or tiles are stored past the end of the file")
        super()._describe(path)

    def _region(self, location: tuple[int, int], level: int, size: tuple[int, int]) -> Any:
        return self._slide.read_region(location, level, size).convert("RGB")


class WsiDicomBackend:
    """DICOM whole-slide images through wsidicom."""

    name = "wsidicom"

    def __init__(self, path: Path) -> None:
        import wsidicom

        of_series = [files for files in _dicom_series(path.parent).values() if path in files]
        self._slide = wsidicom.WsiDicom.open(of_series[0] if of_series else path)
        levels = sorted(self._slide.pyramids[0], key=lambda level: -int(level.size.width))
        self._numbers = [level.level for level in levels]
        self.sizes = tuple((level.size.height, level.size.width) for level in levels)
        top = self.sizes[0]
        self.downsamples = tuple((top[0] / rows + top[1] / columns) / 2 for rows, columns in self.sizes)
        self.vendor = "dicom"
        self.stated = _parse_pair(self._slide.mpp.height, self._slide.mpp.width)
        self.background = (255, 255, 255)
        self.objective = ""
        associated = {"label": self._slide.labels, "macro": self._slide.overviews}
        self.associated = tuple(name for name, images in associated.items() if images)

    def cut(self, level: int, row: int, column: int, rows: int, columns: int) -> Array:
        """Reads a rectangle within a level: uint8, (row, column, 3).

        Rows and columns are in that level's pixels.
        """
        image = self._slide.read_region((column, row), self._numbers[level], (columns, rows))
        return np.asarray(image.convert("RGB"))

    def close(self) -> None:
        """Closes the files."""
        self._slide.close()


def open_backend(path: Path) -> tuple[Backend, tuple[str, ...]]:
    """Opens a slide by the first able library, noting failures.

    Raises CaseError when none can; it says what each said, and what is not installed.
    """
    file = _one_file(path)
    notes = []
    poor: Backend | None = None
    ways: tuple[tuple[str, Callable[[Path], Backend]], ...] = (
        ("openslide", OpenSlideBackend),
        ("tiffslide", TiffSlideBackend),
        ("wsidicom", WsiDicomBackend),
    )
    for name, way in ways:
        try:
            with kept_log("tifffile"):  # what matters of it is raised as well
                backend = way(file)
        except ModuleNotFoundError:
            notes.append(f"{name} is not installed")
        # Each library raises its own mixture: OpenSlideError, TiffFileError, WsiDicomError, KeyError, ValueError, ...
        except Exception as error:  # noqa: BLE001
            notes.append(f"{name} cannot open it ({type(error).__name__}: {first_line(error)})")
        else:
            wrong = _wrong_level(backend.sizes)
            if wrong is not None:
                backend.close()
                raise CaseError(f"{path}: {wrong}; write or copy it again")
            if name == "openslide" and _misses_levels(file, backend):
                poor = backend
                notes.append("openslide sees one level only")
                continue
            return backend, tuple(f"{note}; read with {name}" for note in notes)
    if poor is not None:
        return poor, ("only its largest level can be reached, so that coarse pixels take long to read",)
    hint = f"; {INSTALL} adds what is missing" if any("not installed" in note for note in notes) else ""
    raise CaseError(f"{path}: cannot be opened as a slide: {', '.join(notes)}; write or copy it again{hint}")


def _wrong_level(sizes: tuple[tuple[int, int], ...]) -> str | None:
    (rows, columns), *_ = sizes
    for index, (high, wide) in enumerate(sizes):
        if high < 1 or wide < 1:
            return f"level {index} has no pixels ({high} x {wide})"
        # Sizes are rounded, and some scanners pad; a tenth more is another picture.
        if abs(high - rows * wide / columns) > max(2, high / 10):
            return f"level {index} is {high} x {wide}, which is not level 0 ({rows} x {columns}) made smaller"
    return None


def _misses_levels(path: Path, backend: Backend) -> bool:
    """Whether levels lie in SubIFDs, which openslide ignores."""
    if len(backend.sizes) > 1 or backend.vendor != "generic-tiff":
        return False
    import tifffile

    with kept_log("tifffile"), tifffile.TiffFile(path) as file:
        return bool(file.pages.first.subifds)


def _is_cut_short(file: Any) -> bool:
    """Whether an open TIFF is truncated, which tifffile ignores."""
    size = file.filehandle.size
    pages = [page for top in file.pages for page in (top, *(top.pages or ()))]
    if any(max(map(sum, zip(page.dataoffsets, page.databytecounts, strict=True)), default=0) > size for page in pages):
        return True
    layout, stream = file.tiff, file.filehandle
    stream.seek(file.pages[len(file.pages) - 1].offset)
    tags = int.from_bytes(stream.read(layout.tagnosize), _ORDER[layout.byteorder])
    stream.seek(tags * layout.tagsize, 1)
    return any(stream.read(layout.offsetsize))  # where the next page would be; zero after the last


_ORDER: Mapping[str, Literal["little", "big"]] = {"<": "little", ">": "big"}


def credible(stated: tuple[float, float] | None) -> bool:
    """Says whether a file's micrometres per pixel can be those of a slide."""
    return stated is not None and all(CREDIBLE[0] <= size <= CREDIBLE[1] for size in stated)


def _one_file(path: Path) -> Path:
    """File to open, or a file of a folder's pyramid series."""
    if path.is_file():
        if path.stat().st_size == 0:
            raise CaseError(f"{path}: is empty; write or copy it again")
        return path
    if not path.is_dir():
        raise CaseError(f"{path}: no such file")
    series = _dicom_series(path)
    if len(series) != 1:
        names_found = ", ".join(sorted(files[0].name for files in series.values())) or "none"
        raise CaseError(
            f"{path}: expected a folder of one DICOM slide, found {len(series)} ({names_found}); name the file"
        )
    return next(iter(series.values()))[0]


def _dicom_series(folder: Path) -> dict[str, list[Path]]:
    """DICOM files by series, pyramid levels first."""
    import pydicom

    levels: dict[str, list[Path]] = {}
    by_series: dict[str, list[Path]] = {}
    for entry in sorted(entry for entry in folder.iterdir() if entry.is_file()):
        try:
            header = pydicom.dcmread(entry, specific_tags=["SeriesInstanceUID", "ImageType"], stop_before_pixels=True)
        except (pydicom.errors.InvalidDicomError, OSError, EOFError):
            continue  # notes and tables lie beside images
        kind = levels if "VOLUME" in header.get("ImageType", ()) else by_series
        kind.setdefault(str(header.get("SeriesInstanceUID", "")), []).append(entry)
    return {series: files + by_series.get(series, []) for series, files in levels.items()}


def _parse_pair(rows: Any, columns: Any) -> tuple[float, float] | None:
    try:
        return float(rows), float(columns)
    except (TypeError, ValueError):
        return None


def _parse_colour(text: Any) -> tuple[int, int, int]:
    try:
        value = int(str(text), 16)
    except ValueError:
        return 255, 255, 255
    return value >> 16 & 255, value >> 8 & 255, value & 255


def first_line(error: Exception) -> str:
    """First line of a library's message, without values that may be a patient's."""
    return without_values((str(error).strip().splitlines() or [""])[0])


COMPRESSIONS = ("JPEG", "NONE", "LZW", "ADOBE_DEFLATE", "DEFLATE")
"""Those of which every decoder makes the same pixels."""

CACHED = 2**26
"""Bytes of decoded tiles that are kept: the next row of regions finds those of the row before, up to some 20,000 px."""


class StoredTiles:
    """Stored tiles of TIFF levels, safe for threads and forks."""

    def __init__(self, path: Path, pages: Sequence[Any]) -> None:
        with path.open("rb") as stream:
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self._levels = [_Level(page) for page in pages]
        largest = max(level.tile[0] * level.tile[1] * 3 for level in self._levels)
        self._tile = lru_cache(max(1, CACHED // largest))(self._decode)

    def cut(self, level: int, row: int, column: int, rows: int, columns: int) -> Array | None:
        """Reads a rectangle that lies within a level, uint8, (row, column, 3).

        None where a tile is not stored: what lies there is for openslide to say. Raises ValueError when a tile is
        damaged or cut short.
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
        stored_level = self._levels[level]
        index = down * stored_level.across + across
        start, length = stored_level.offsets[index], stored_level.lengths[index]
        if length == 0:
            return None
        content = self._bytes[start : start + length]
        if len(content) != length:
            raise ValueError("a tile lies past the end of the file")
        decoded, _, shape = stored_level.decode(content, index, jpegtables=stored_level.tables)
        tile: Array = decoded[0, : shape[1], : shape[2]]
        if tile.dtype != np.uint8 or tile.shape[2] != 3:
            raise ValueError(f"a tile holds {tile.shape[2]} channels of {tile.dtype} instead of 8-bit RGB")
        return tile


class _Level:
    """Settings that decode a page after its file is closed."""

    def __init__(self, page: Any) -> None:
        self.tile = (page.tilelength, page.tilewidth)
        self.across = -(-page.imagewidth // page.tilewidth)
        self.offsets, self.lengths = page.dataoffsets, page.databytecounts
        self.decode, self.tables = page.decode, page.jpegtables


def stored_tiles(path: Path, sizes: Sequence[tuple[int, int]]) -> StoredTiles | None:
    """Pages of each level (rows, columns); None where not all readable."""
    import tifffile

    try:
        with kept_log("tifffile"), tifffile.TiffFile(path) as file:
            plain = [page for page in file.pages if _is_plain(page)]
            level_pages = [[page for page in plain if (page.imagelength, page.imagewidth) == size] for size in sizes]
            # Two pages of one size may be two depths of focus: which of them is meant is for openslide to say.
            if any(len(pages) != 1 for pages in level_pages):
                return None
            return StoredTiles(path, [pages[0] for pages in level_pages])
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
