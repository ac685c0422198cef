"""Tiles and whole slides read through us, openslide and tiffslide, from one JPEG-tiled pyramid made here.

    python benchmarks/slides.py [RESULTS.json]

Every figure comes from one run on one machine; compare ratios, not milliseconds. That all readers give the same pixels
is checked.
"""

import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import openslide
import tiffslide
from PIL import Image
from writing import write

from medimg_eval.imaging.slides.reading import Slide, write_pyramid
from medimg_eval.imaging.slides.tiles import read_tiles, tile_grid, tissue_mask

EDGE, TILE, COUNT, REPEATS = 8192, 256, 200, 3


def tissue(rng: np.random.Generator) -> np.ndarray:
    """A field of pink with blue dots, on glass."""
    coarse = rng.normal(0, 1, (EDGE // 64, EDGE // 64)).astype(np.float32)
    field = np.asarray(Image.fromarray(coarse).resize((EDGE, EDGE), Image.Resampling.BICUBIC))
    pixels = np.empty((EDGE, EDGE, 3), np.uint8)
    pixels[:] = (240, 240, 240)
    pixels[field > 0] = (225, 150, 185)
    pixels[field > 1] = (110, 70, 150)
    return pixels + rng.integers(0, 9, pixels.shape, np.uint8)


def best(function: Callable[[], object]) -> tuple[float, float]:
    """The least CPU and wall time of a few calls, in seconds."""
    times = []
    for _ in range(REPEATS):
        cpu, wall = time.process_time(), time.perf_counter()
        function()
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    return min(one[0] for one in times), min(one[1] for one in times)


def measure(path: Path) -> dict[str, dict[str, float]]:
    """Milliseconds of CPU per tile, and seconds of wall for the whole."""
    rng = np.random.default_rng(1)
    # On no grid: a tile then lies on up to four stored ones.
    places = rng.integers(0, EDGE - 4 * TILE, (COUNT, 2))
    ours, plain, other = Slide(path), openslide.OpenSlide(path), tiffslide.TiffSlide(path)

    def through_openslide(row: int, column: int) -> np.ndarray:
        return np.asarray(plain.read_region((column, row), 0, (TILE, TILE)).convert("RGB"))

    def through_tiffslide(row: int, column: int) -> np.ndarray:
        return other.read_region((column, row), 0, (TILE, TILE), as_array=True)

    readers = {
        "ours": lambda row, column: ours.read_region(row, column, TILE),
        "openslide": through_openslide,
        "tiffslide": through_tiffslide,
        "ours, at 0.7 um per pixel": lambda row, column: ours.read_region(row, column, TILE, 0.7),
        "ours, at 1 um per pixel": lambda row, column: ours.read_region(row, column, TILE, 1.0),
    }
    for row, column in places[:20].tolist():
        found = [readers[name](row, column) for name in ("ours", "openslide", "tiffslide")]
        if not all((found[0] == one).all() for one in found):
            sys.exit(f"the readers disagree at row {row}, column {column}")

    tiles = {
        name: best(lambda reader=reader: [reader(row, column) for row, column in places.tolist()])[0] / COUNT * 1000
        for name, reader in readers.items()
    }
    grid = tile_grid(ours, size=TILE, um_per_px=0.5)
    tiles["ours, in the order of a grid"] = best(lambda: read_tiles(ours, grid, range(COUNT)))[0] / COUNT * 1000
    whole = {
        "ours": best(lambda: ours.read_region(0, 0, (EDGE, EDGE)))[1],
        "openslide": best(lambda: np.asarray(plain.read_region((0, 0), 0, (EDGE, EDGE)).convert("RGB")))[1],
        "tiffslide": best(lambda: other.read_region((0, 0), 0, (EDGE, EDGE), as_array=True))[1],
        "ours, at 0.7 um per pixel": best(lambda: ours.read_region(0, 0, (5851, 5851), 0.7))[1],
        "tissue mask": best(lambda: tissue_mask(ours))[1],
    }
    for one in (ours, plain, other):
        one.close()
    return {"256 x 256 tile, CPU ms": tiles, f"{EDGE} x {EDGE} whole, wall s": whole}


def main() -> None:
    """Measures, prints, and writes where it is told to."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "slide.tif"
        write_pyramid(path, tissue(np.random.default_rng(0)), um_per_px=0.5)
        found: dict[str, object] = dict(measure(path))
        found["slide"] = {"edge": EDGE, "compression": "jpeg", "megabytes": path.stat().st_size / 1e6}
    write(found, openslide=openslide.__library_version__, tiffslide=tiffslide.__version__)


if __name__ == "__main__":
    main()
