"""What an encoder waits for: tiles of a slide beside openslide with PIL, as TRIDENT reads them; features beside h5py.

    python benchmarks/features.py [RESULTS.json]

Every figure comes from one run on one machine; compare ratios, not milliseconds. That both sides give the same is
checked. Files lie in memory: what the disk adds is the same for all.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import openslide
from PIL import Image
from writing import write

from medimg_eval.imaging.slides import Slide, read_features, read_tiles, tile_grid
from medimg_eval.imaging.slides.reading import write_pyramid
from medimg_eval.store import FeatureStore, Item

EDGE, TILE, REPEATS = 8192, 256, 5
ROWS, LENGTH, GATHERED = 10_000, 1024, 2048


def tissue(rng: np.random.Generator) -> np.ndarray:
    """A field of pink with blue dots, on glass."""
    coarse = rng.normal(0, 1, (EDGE // 64, EDGE // 64)).astype(np.float32)
    field = np.asarray(Image.fromarray(coarse).resize((EDGE, EDGE), Image.Resampling.BICUBIC))
    pixels = np.empty((EDGE, EDGE, 3), np.uint8)
    pixels[:] = (240, 240, 240)
    pixels[field > 0] = (225, 150, 185)
    pixels[field > 1] = (110, 70, 150)
    return pixels + rng.integers(0, 9, pixels.shape, np.uint8)


def together(ways: dict[str, Callable[[], object]], per: float = 1.0) -> dict[str, float]:
    """The least CPU time of each of a few turns, in which all take part, in ms per unit."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            begun = time.process_time()
            way()
            times[name].append((time.process_time() - begun) / per * 1000)
    return {name: round(min(some), 4) for name, some in times.items()}


def tiles(folder: Path) -> dict[str, dict[str, float]]:
    """Tiles in the order of a grid, of slides at 20x and at 40x; both shown at 20x. Each turn opens the slide anew."""
    found = {}
    for name, own in (("20x slide, tiles at 20x", 0.5), ("40x slide, tiles at 20x", 0.25)):
        path = folder / f"{own}.tif"
        # Scanners store levels 1, 4 and 16: 40x is brought to 20x from level 0.
        write_pyramid(path, tissue(np.random.default_rng(0)), um_per_px=own, levels=1)
        grid = tile_grid(Slide(path), size=TILE, um_per_px=0.5)
        edge = round(grid.edge[0])
        count = min(256, len(grid))

        def through_openslide(path=path, grid=grid, edge=edge, count=count) -> np.ndarray:
            shown, plain = [], openslide.OpenSlide(path)
            for row, column in grid.coordinates[:count].tolist():
                tile = plain.read_region((column, row), 0, (edge, edge)).convert("RGB")
                shown.append(np.asarray(tile if edge == TILE else tile.resize((TILE, TILE))))
            return np.stack(shown)

        def through_us(path=path, grid=grid, count=count) -> np.ndarray:
            return read_tiles(Slide(path), grid, range(count))

        for _ in range(8):  # until what makes half the pixels is loaded, as for the slides after the first
            through_us()
        apart = np.abs(np.moveaxis(through_us(), 1, 3).astype(int) - through_openslide())
        if (edge == TILE and apart.max()) or apart.mean() > 3:  # filters differ where pixels are averaged
            sys.exit(f"{name}: the readers disagree, by {apart.mean():.2f} on average")
        found[name] = together({"ours": through_us, "openslide and PIL": through_openslide}, count)
    return found


def features(folder: Path) -> dict[str, dict[str, float]]:
    """A bag of 10,000 x 1024 as TRIDENT writes it, in chunks of a row; and 2,048 random rows of it."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(ROWS, LENGTH)).astype(np.float32)
    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("features", data=values[:1], chunks=(1, LENGTH), maxshape=(None, LENGTH))
        for start in range(1, ROWS, 512):  # batch by batch, as features come
            stop = min(start + 512, ROWS)
            stored.resize(stop, axis=0)
            stored[start:stop] = values[start:stop]
    store = FeatureStore.create(folder / "store", {}, LENGTH)
    store.add([Item("a", values)])
    np.save(folder / "a.npy", values)
    which = np.sort(rng.choice(ROWS, GATHERED, replace=False))

    def by_h5py() -> np.ndarray:
        with h5py.File(path) as file:
            return file["features"][:]

    def rows_by_h5py() -> np.ndarray:
        with h5py.File(path) as file:
            return file["features"][which]

    whole = {
        "h5py": by_h5py,
        "ours, of TRIDENT's file": lambda: read_features(path).features,
        "ours, of our store": lambda: np.array(store.rows("a")),
        "numpy, of an .npy (the disk's speed)": lambda: np.load(folder / "a.npy"),
    }
    some = {
        "h5py, by a list of rows": rows_by_h5py,
        "ours, of our store": lambda: np.asarray(store.rows("a"))[which],
    }
    if not all(np.array_equal(way(), values) for way in whole.values()):
        sys.exit("the readers disagree")
    return {f"{ROWS} x {LENGTH}, CPU ms": together(whole), f"{GATHERED} random rows, CPU ms": together(some)}


def main() -> None:
    """Measures, prints, and writes where it is told to."""
    sys.path.remove(str(Path(__file__).parent))  # numba imports `coverage`, which is not this folder's
    with tempfile.TemporaryDirectory() as name:
        found: dict[str, object] = {"a tile, CPU ms": tiles(Path(name)), **features(Path(name))}
    write(found, openslide=openslide.__library_version__, h5py=h5py.__version__)


if __name__ == "__main__":
    main()
