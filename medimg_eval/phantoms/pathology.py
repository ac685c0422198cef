"""Pathology phantoms: stained slides as tiled pyramids, with tumour regions and every nucleus known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.ndimage import binary_dilation, binary_erosion, gaussian_filter, label

from medimg_eval.case import Array
from medimg_eval.imaging.slides import write_pyramid
from medimg_eval.phantoms.cohort import Member, Question, Record, write_rows, yes_or_no
from medimg_eval.phantoms.shapes import ball, box, spread, texture

LABELS = {1: "tumour", 2: "other tissue"}
"""What the mask holds; glass is background."""

EDGE = 2048
"""Pixels along each side of level 0."""

UM = 0.5
"""Edge of a level-0 pixel in micrometres."""

COARSE = 4
"""Level-0 pixels along the edge of a pixel of the mask, which lies at 2 micrometres per pixel."""

GAP = {"tumour": 21.0, "stroma": 40.0, "crowd": 17.0}
"""Distance between nuclei in level-0 pixels; the crowd is of lymphocytes, dense as a tumour but small."""

TEXT = (
    "slides/CASE.tiff: pyramids, 0.5 micrometres per pixel at level 0; masks/CASE.png: 1 tumour, 2 other tissue, at 2 "
    "micrometres per pixel; nuclei/CASE.csv: row, column, kind, length, width (level-0 pixels) and angle (degrees, "
    "from the row axis to the column axis) of every nucleus. Every fifth patient's slides hold no tumour"
)


@dataclass(frozen=True)
class Slide:
    """One slide and what is true of it.

    Pixels are uint8, (row, column, 3), of level 0; regions uint8, (row, column), keys of `LABELS`, one pixel per COARSE
    x COARSE of level 0; nuclei float64, (nucleus, 5): row, column, half length, half width, angle. Their kinds are
    `tumour`, `stroma` or `lymphocyte`.
    """

    pixels: Array
    regions: Array
    nuclei: Array
    kinds: tuple[str, ...]


def slide(member: Member, edge: int = EDGE) -> Slide:
    """Draws one slide; `edge` is its level-0 side length.

    A multiple of 16.
    """
    body, own = member.body, member.own
    tissue, tumour, crowd = _draw_regions(own, edge // COARSE, tumour=not member.healthy)
    regions = np.where(tumour, np.uint8(1), np.where(tissue, np.uint8(2), np.uint8(0)))
    nuclei, kinds = _draw_nuclei(tissue, tumour, crowd, own)
    stain = _stain_amounts(tissue, tumour, own)
    _add_nuclei(stain, nuclei, kinds, own)
    return Slide(_colour_stains(stain, body, own), regions, nuclei, kinds)


def write_case(folder: Path, member: Member, edge: int = EDGE) -> Record:
    """Writes one case's slide, mask and nuclei."""
    from PIL import Image as Picture

    slide_ = slide(member, edge)
    names = {"image": ("slides", "tiff"), "mask": ("masks", "png"), "nuclei": ("nuclei", "csv")}
    files = {what: f"{part}/{member.case}.{suffix}" for what, (part, suffix) in names.items()}
    for part, _ in names.values():
        (folder / part).mkdir(exist_ok=True)
    write_pyramid(folder / files["image"], slide_.pixels, um_per_px=UM)
    Picture.fromarray(slide_.regions).save(folder / files["mask"])
    rows = (
        [f"{row:.2f}", f"{column:.2f}", kind, f"{2 * long:.2f}", f"{2 * short:.2f}", f"{angle:.1f}"]
        for (row, column, long, short, angle), kind in zip(slide_.nuclei, slide_.kinds, strict=True)
    )
    write_rows(folder / files["nuclei"], ["row", "column", "kind", "length", "width", "angle"], rows)
    return _make_record(slide_, files)


def _make_record(made: Slide, files: dict[str, str]) -> Record:
    present = bool((made.regions == 1).any())
    record = Record(files=files, findings={"tumour": present})
    square = (UM * COARSE / 1000) ** 2
    for key, name in LABELS.items():
        record.measurements.append((f"{name} area", float((made.regions == key).sum()) * square, "mm2"))
    for kind in ("tumour", "stroma", "lymphocyte"):
        record.measurements.append((f"{kind} nuclei", float(made.kinds.count(kind)), "nuclei"))
    parts, count = label(made.regions == 1)
    for number in range(1, count + 1):
        corners = np.array(box(parts == number)) * COARSE
        corners[2:] += COARSE - 1  # boxes speak of level 0
        record.boxes.append(("tumour", None, tuple(int(c) for c in corners)))
    share = float((made.regions == 1).sum() / (made.regions > 0).sum())
    bands = ("none", "less than a quarter", "a quarter to a half", "more than a half")
    band = bands[0 if not present else 1 + int(np.digitize(share, (0.25, 0.5)))]
    record.questions = [
        yes_or_no("Does the slide show a tumour?", present),
        Question("How much of the tissue is tumour?", band, bands),
    ]
    return record


def _draw_regions(rng: np.random.Generator, n: int, *, tumour: bool) -> tuple[Array, Array, Array]:
    """Tissue, tumour and lymphocyte crowds on the coarse grid, bool, (n, n)."""
    grid = np.ogrid[:n, :n]
    wave = texture(rng, (n, n), 60)
    outline = ball(
        grid,
        (rng.uniform(0.44, 0.56, 2) * n).tolist(),
        (rng.uniform(0.36, 0.46, 2) * n).tolist(),
        turn=rng.uniform(0, 180),
    )
    tissue = outline + 0.16 * wave < 1
    tissue &= texture(rng, (n, n), 40) < 1.9  # holes
    deep = binary_erosion(tissue, iterations=6)
    field = texture(rng, (n, n), 55) - 0.5 * outline
    level = np.quantile(field[deep], 1 - rng.uniform(0.18, 0.5))
    tumour_mask = deep & (field > level) if tumour else np.zeros((n, n), bool)
    parts, _ = label(tumour_mask)
    tumour_mask &= (np.bincount(parts.ravel()) > 400)[parts]  # specks are no tumour
    crowd = deep & (texture(rng, (n, n), 30) > 1.5) & ~binary_dilation(tumour_mask, iterations=4)
    return tissue, tumour_mask, crowd


def _draw_nuclei(tissue: Array, tumour: Array, crowd: Array, rng: np.random.Generator) -> tuple[Array, tuple[str, ...]]:
    """Nuclei clear of the borders of region and slide."""
    edge = len(tissue) * COARSE
    centres: list[Array] = []
    kinds: list[str] = []
    sizes = {"tumour": (7.0, 10.5, 0.62, 1.0), "stroma": (6.5, 9.5, 0.34, 0.6), "lymphocyte": (4.8, 5.8, 0.88, 1.0)}
    regions = {
        "tumour": (binary_erosion(tumour, iterations=3), GAP["tumour"]),
        "stroma": (binary_erosion(tissue & ~tumour & ~crowd, iterations=3), GAP["stroma"]),
        "lymphocyte": (binary_erosion(crowd), GAP["crowd"]),
    }
    for kind, (where, gap) in regions.items():
        points = spread(rng, (edge, edge), gap)
        points = points[(points > 14).all(axis=1) & (points < edge - 14).all(axis=1)]
        points = points[where[tuple((points / COARSE).astype(int).T)]]
        points = points[rng.random(len(points)) < 0.85]
        low, high, thin, round_ = sizes[kind]
        long = rng.uniform(low, high, len(points))
        short = long * rng.uniform(thin, round_, len(points))
        centres.append(np.column_stack([points, long, short, rng.uniform(0, 180, len(points))]))
        kinds += [kind] * len(points)
    return np.concatenate(centres), tuple(kinds)


def _stain_amounts(tissue: Array, tumour: Array, rng: np.random.Generator) -> Array:
    """Amounts of haematoxylin and eosin without the nuclei, float32, (2, row, column)."""
    edge = len(tissue) * COARSE
    full = _enlarge_pixels(gaussian_filter(tissue.astype(np.float32), 0.6), COARSE)
    inside = _enlarge_pixels(gaussian_filter(tumour.astype(np.float32), 1.5), COARSE)
    broad = _enlarge_pixels(texture(rng, tissue.shape, 28), COARSE)
    # Fibres of the stroma: a texture stretched along one direction.
    cells = (3, 17) if rng.random() < 0.5 else (17, 3)
    fibre = _enlarge_pixels(texture(rng, (edge // 2, edge // 2), cells), 2)
    stain = np.empty((2, edge, edge), np.float32)
    stain[0] = full * (0.10 + 0.05 * inside + 0.02 * broad)
    stain[1] = full * (0.50 - 0.06 * inside + 0.10 * broad + 0.11 * fibre * (1 - 0.7 * inside))
    return stain


def _enlarge_pixels(coarse: Array, times: int) -> Array:
    """Repeats every pixel along rows and columns."""
    return np.repeat(np.repeat(coarse, times, axis=0), times, axis=1)


def _add_nuclei(stain: Array, nuclei: Array, kinds: tuple[str, ...], rng: np.random.Generator) -> None:
    """Adds the nuclei to both stains, each in its own small window."""
    reach = 12
    window = np.arange(-reach, reach + 1, dtype=np.float32)
    depth = {"tumour": 0.72, "stroma": 0.85, "lymphocyte": 1.15}
    grain = texture(rng, (512, 512), 2.2)
    cosine, sine = np.cos(np.deg2rad(nuclei[:, 4])), np.sin(np.deg2rad(nuclei[:, 4]))
    amount = np.array([depth[kind] for kind in kinds]) * rng.uniform(0.75, 1.2, len(kinds))
    origin = rng.integers(0, 512 - 2 * reach - 1, (len(kinds), 2))
    for n, (row, column, long, short, _) in enumerate(nuclei):
        top, left = round(row) - reach, round(column) - reach
        y, x = window[:, None] - np.float32(row - round(row)), window[None] - np.float32(column - round(column))
        along, across = (cosine[n] * y + sine[n] * x) / long, (cosine[n] * x - sine[n] * y) / short
        within = np.sqrt(along**2 + across**2)
        a, b = origin[n]
        speck = grain[a : a + 2 * reach + 1, b : b + 2 * reach + 1]
        body = np.clip((1.08 - within) * 5, 0, 1)
        part = stain[:, top : top + 2 * reach + 1, left : left + 2 * reach + 1]
        part[0] += body * np.float32(amount[n]) * (0.8 + 0.2 * np.exp(-(((within - 0.9) / 0.2) ** 2)) + 0.14 * speck)
        part[1] *= 1 - 0.5 * body


def _colour_stains(stain: Array, body: np.random.Generator, rng: np.random.Generator) -> Array:
    """Light through two stains, whose colours differ from laboratory to laboratory, uint8."""
    vectors = np.array([[0.62, 0.72, 0.31], [0.10, 0.92, 0.30]]) + body.normal(0, 0.035, (2, 3))
    strength = body.uniform(0.8, 1.25, 2)
    light = np.array([246, 243, 246]) + rng.uniform(-5, 5, 3)
    edge = stain.shape[1]
    noise = np.float32(2.2) * _enlarge_pixels(rng.standard_normal((edge // 2, edge // 2), dtype=np.float32), 2)
    pixels = np.empty((edge, edge, 3), np.uint8)
    for channel in range(3):
        weights = (vectors[:, channel] * strength).astype(np.float32)
        density = weights[0] * stain[0] + weights[1] * stain[1]
        pixels[..., channel] = np.clip(np.float32(light[channel]) * np.exp(-density) + noise, 0, 255)
    return pixels
