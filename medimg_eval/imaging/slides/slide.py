"""One slide: a region at a given size of pixel, in level-0 coordinates.

Associated pictures (the label with its barcode and name, the macro photograph) are never returned by anything here.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging.slides.backends import Backend, credible, first_line, open_backend
from medimg_eval.imaging.slides.halving import halved
from medimg_eval.system import threads

BLOCK = 1024
"""Edge of the source pixels that are in memory at once, per thread, while a large region is read."""


@dataclass(frozen=True)
class Level:
    """Pyramid level: (rows, columns), and level-0 pixels per pixel."""

    size: tuple[int, int]
    downsample: tuple[float, float]


@dataclass(frozen=True)
class _View:
    """Output pixels on a level: start, and level pixels each."""

    level: int
    start: tuple[float, float]
    step: tuple[float, float]

    @property
    def stored(self) -> bool:
        """Whether output pixels are stored pixels."""
        return self.step == (1.0, 1.0) and all(offset.is_integer() for offset in self.start)


class Slide:
    """Slide opened lazily in each process; picklable."""

    def __init__(self, path: str | Path, um_per_px: float | None = None) -> None:
        """Takes a file or DICOM slide folder, opening nothing.

        `um_per_px` is the size of a level-0 pixel in micrometres, where the file states none or a wrong one.
        """
        self.path = Path(path)
        self._given = um_per_px
        self._open: tuple[int, Backend, tuple[str, ...]] | None = None

    @property
    def levels(self) -> tuple[Level, ...]:
        """Levels, largest first; CaseError where the slide cannot be opened."""
        sizes = self._backend.sizes
        (rows, columns), *_ = sizes
        return tuple(Level(size, (rows / size[0], columns / size[1])) for size in sizes)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of level 0."""
        return self._backend.sizes[0]

    @property
    def um_per_px(self) -> tuple[float, float] | None:
        """Micrometres per level-0 pixel (row, column); None without credible value."""
        if self._given is not None:
            return self._given, self._given
        stated = self._backend.stated
        return stated if credible(stated) else None

    @property
    def background(self) -> tuple[int, int, int]:
        """Red, green, blue of what was not scanned."""
        return self._backend.background

    @property
    def vendor(self) -> str:
        """Name of the scanner or format, empty when unknown."""
        return self._backend.vendor

    @property
    def objective(self) -> str:
        """Magnification of the objective, empty when unknown."""
        return self._backend.objective

    @property
    def doubts(self) -> tuple[str, ...]:
        """Doubts about the slide, in words."""
        backend = self._backend
        doubts = list(cast("tuple[int, Backend, tuple[str, ...]]", self._open)[2])
        if backend.stated is None and self._given is None:
            doubts.append("states no micrometres per pixel")
        if backend.stated is not None and not credible(backend.stated) and self._given is None:
            doubts.append(f"states {backend.stated[1]:.4g} micrometres per pixel, which no slide has; ignored")
        if backend.stated is not None and self._given is not None and abs(backend.stated[1] / self._given - 1) > 0.01:
            doubts.append(f"states {backend.stated[1]:.4g} micrometres per pixel; {self._given:g} is used as asked")
        associated = [name for name in backend.associated if name in ("label", "macro", "overview")]
        if associated:
            doubts.append(
                f"holds a {' and a '.join(associated)} picture, which may show a name or barcode; it was not read"
            )
        return tuple(doubts)

    def read_region(
        self,
        row: float,
        column: float,
        size: int | tuple[int, int],
        um_per_px: float | None = None,
        *,
        downsample: float | tuple[float, float] | None = None,
    ) -> Array:
        """Reads a rectangle at a size of pixel, uint8, (row, column, 3).

        The level is the coarsest that is still as fine as asked for; its pixels are averaged down (a triangle filter
        twice as wide as the output pixel), or returned as stored where that moves none of them by more than a pixel.
        Places past the border have the background's colour. First row and column are in level-0 pixels; one size is
        that of a square. A pixel of the result has so many micrometres, or level-0 pixels (`downsample`). Raises
        CaseError where the slide states no micrometres per pixel and none were given, or the pixels are damaged.
        """
        rows, columns = (size, size) if isinstance(size, int) else size
        scale = self.scale(um_per_px) if downsample is None else _as_pair(downsample)
        return self._read(self._view((row, column), (rows, columns), scale), rows, columns, nearest=False)

    def read_labels(self, row: float, column: float, size: tuple[int, int], downsample: tuple[float, float]) -> Array:
        """Reads a labelled rectangle by nearest pixels, as `read_region`."""
        return self._read(self._view((row, column), size, downsample), *size, nearest=True)

    def scale(self, um_per_px: float | None) -> tuple[float, float]:
        """Level-0 (rows, columns) per pixel of a size in micrometres.

        None is level 0 itself. Raises what `read_region` does.
        """
        if um_per_px is None:
            return 1.0, 1.0
        own = self.um_per_px
        if own is None:
            raise CaseError(
                f"{self.path}: states no credible micrometres per pixel, so {um_per_px:g} cannot be met; "
                "give the size of its level-0 pixels"
            )
        return um_per_px / own[0], um_per_px / own[1]

    def close(self) -> None:
        """Closes the files; the next use opens them again."""
        if self._open is not None and self._open[0] == os.getpid():
            self._open[1].close()
        self._open = None

    def __enter__(self) -> Slide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}

    @property
    def _backend(self) -> Backend:
        """This process's open slide, as forked handles share positions."""
        if self._open is not None and self._open[0] != os.getpid():
            # Closing what the parent holds could wait for a lock that no thread of this process will release.
            _LEFT_TO_PARENT.append(self._open[1])
            self._open = None
        if self._open is None:
            self._open = (os.getpid(), *open_backend(self.path))
        return self._open[1]

    def _view(self, place: tuple[float, float], shape: tuple[int, int], scale: tuple[float, float]) -> _View:
        levels = self.levels
        # A level one per cent too coarse is the level meant: odd sizes make downsamples such as 4.0003.
        index = max(
            i for i, pyramid_level in enumerate(levels) if i == 0 or max(pyramid_level.downsample) <= 1.01 * min(scale)
        )
        factors = levels[index].downsample
        step = (scale[0] / factors[0], scale[1] / factors[1])
        start = (place[0] / factors[0], place[1] / factors[1])
        if all(abs(ratio - 1) * side < 0.5 for ratio, side in zip(step, shape, strict=True)):
            return _View(index, (float(round(start[0])), float(round(start[1]))), (1.0, 1.0))
        return _View(index, start, step)

    def _read(self, view: _View, rows: int, columns: int, *, nearest: bool) -> Array:
        """Reads output pixels in blocks whose source fits in memory."""
        out = np.empty((rows, columns, 3), np.uint8)
        edge = max(4, int(BLOCK / max(*view.step, 1)))
        blocks = [
            (row, column, min(edge, rows - row), min(edge, columns - column))
            for row in range(0, rows, edge)
            for column in range(0, columns, edge)
        ]

        def fill(block: tuple[int, int, int, int]) -> None:
            row, column, height, width = block
            self._paint(view, row, column, out[row : row + height, column : column + width], nearest=nearest)

        count = threads(len(blocks))
        if count < 2:
            for block in blocks:
                fill(block)
        else:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(fill, blocks))
        return out

    def _paint(self, view: _View, row: int, column: int, out: Array, *, nearest: bool) -> None:
        """Fills output pixels from the slide, background around it."""
        (top, height), (left, width) = (
            _span_inside(span, start, step, side)
            for span, start, step, side in zip(
                ((row, out.shape[0]), (column, out.shape[1])),
                view.start,
                view.step,
                self.levels[view.level].size,
                strict=True,
            )
        )
        if (max(height, 0), max(width, 0)) != out.shape[:2]:
            out[:] = self.background
        if height <= 0 or width <= 0:
            return
        if view.stored:
            first = (int(view.start[0]) + top, int(view.start[1]) + left)
            pixels = self._cut(view.level, first, (height, width))
        else:
            pixels = self._resized(view, (top, height), (left, width), nearest=nearest)
        out[top - row : top - row + height, left - column : left - column + width] = pixels

    def _resized(self, view: _View, rows: tuple[int, int], columns: tuple[int, int], *, nearest: bool) -> Array:
        from PIL import Image as Pillow

        first, shape, around, box = [], [], [], []
        for axis, (span, count) in enumerate((rows, columns)):
            side, step = self.levels[view.level].size[axis], view.step[axis]
            start = view.start[axis] + span * step
            stop = start + count * step
            # The filter reaches one step past each end, so that neighbouring blocks and tiles meet without a seam.
            low, high = int(np.floor(start - step - 1)), int(np.ceil(stop + step + 1))
            inner_low, inner_high = max(low, 0), min(high, side)
            # The first and last output pixel may hang over the border by half their size.
            before, after = max(0, -int(np.floor(start))), max(0, int(np.ceil(stop)) - side)
            first.append(inner_low)
            shape.append(inner_high - inner_low)
            around.append((before, after))
            box.append((start - inner_low + before, stop - inner_low + before))
        pixels = self._cut(view.level, (first[0], first[1]), (shape[0], shape[1]))
        if view.step == (2.0, 2.0) and rows[1] == columns[1] and not nearest:
            inside = (
                start.is_integer() and start >= 1 and end < side for (start, end), side in zip(box, shape, strict=True)
            )
            halved_pixels = halved(pixels, int(box[0][0]), int(box[1][0]), rows[1]) if all(inside) else None
            if halved_pixels is not None:
                return halved_pixels
        if around != [(0, 0), (0, 0)]:
            pixels = np.pad(pixels, (*around, (0, 0)), mode="edge")
        way = Pillow.Resampling.NEAREST if nearest else Pillow.Resampling.BILINEAR
        (top, bottom), (left, right) = box
        right, bottom = min(right, pixels.shape[1]), min(bottom, pixels.shape[0])  # rounding of the last digit
        image = Pillow.fromarray(pixels).resize((columns[1], rows[1]), way, box=(left, top, right, bottom))
        return np.asarray(image)

    def _cut(self, level: int, first: tuple[int, int], shape: tuple[int, int]) -> Array:
        try:
            return self._backend.cut(level, *first, *shape)
        except UserError:
            raise
        # Each library raises its own: OpenSlideError, struct.error, ImcdError, WsiDicomError, ...
        except Exception as error:
            backend = self._backend.name
            if backend == "openslide":
                # It refuses everything after an error, yet the next region may be whole. The handle is let go rather
                # than closed: other threads may be reading from it.
                self._open = None
            raise CaseError(
                f"{self.path}: level {level} is damaged or cut short in its rows {first[0]} to {first[0] + shape[0]}, "
                f"columns {first[1]} to {first[1] + shape[1]} ({backend}: {first_line(error)}); copy it again"
            ) from error


_LEFT_TO_PARENT: list[Backend] = []


def _span_inside(span: tuple[int, int], start: float, step: float, side: int) -> tuple[int, int]:
    """(first, count) of output pixels centred on the slide."""
    first = max(span[0], int(np.ceil(-start / step - 0.5)))
    # A centre on the far border lies outside.
    stop = min(span[0] + span[1], int(np.ceil((side - start) / step - 0.5)))
    return first, stop - first


def _as_pair(value: float | tuple[float, float]) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (float(value), float(value))
