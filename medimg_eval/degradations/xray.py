"""Degradations of radiographs: photons, detector, collimation, grid, movement, markers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.degradations.declaration import degradation
from medimg_eval.degradations.drawing import standard_normal
from medimg_eval.degradations.moves import Move, about_middle
from medimg_eval.degradations.scaling import as_unit, by_picture, from_unit

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_radiograph = partial(degradation, axes=2, modalities=("CR", "DX", "MG", "RG", "XA", "RF", "X-ray"))

DEPTH = 4.0
"""Attenuation, as a natural logarithm, from the darkest to the brightest value of a radiograph."""

PHOTONS = 2000.0
"""Photons of a pixel without attenuation at an exposure of 1."""

MOST_LINES = 32


@_radiograph(
    "xray_quantum_noise",
    levels={"stops": (1, 2, 3, 4, 5)},
    unit="halvings of the exposure of 2000 photons a pixel; values are taken as attenuation from 0 to 4",
)
def quantum_noise(image: Image, draw: np.random.Generator, *, stops: float) -> Array:
    """Quantum noise of low exposure, strongest where most is absorbed."""
    pixels, unit = as_unit(image), standard_normal(draw, image)
    photons = PHOTONS / 2**stops
    counts = photons * np.exp(-DEPTH * pixels)
    # What the image has of the full exposure is there already; the rest is added.
    spread = np.sqrt(counts) * np.sqrt(1 - 0.5**stops)
    return from_unit(image, -np.log(np.maximum(counts + spread * unit, 0.5) / photons) / DEPTH)


@_radiograph(
    "xray_overexposure",
    levels={"stops": (0.5, 1.0, 1.5, 2.0, 2.5)},
    unit="doublings of the exposure; values are taken as attenuation from 0 to 4",
)
def overexposure(image: Image, draw: np.random.Generator, *, stops: float) -> Array:
    """Overexposure: saturation merges the darkest values, where little is absorbed."""
    return from_unit(image, np.maximum(as_unit(image), stops * np.log(2) / DEPTH))


@_radiograph("xray_rotation", levels={"degrees": (2, 4, 8, 12, 20)}, unit="degrees, to either side", domain="moves")
def rotation(grid: Geometry, draw: np.random.Generator, *, degrees: float) -> Move:
    """A turned patient; what comes in from outside is dark."""
    angle = np.radians(degrees) * (1 if draw.random() < 0.5 else -1)
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return Move(about_middle(turned, np.zeros(2), grid.shape))


@_radiograph("xray_collimation", levels={"share": (0.05, 0.1, 0.15, 0.2, 0.3)}, unit="share of each side that is lost")
def collimation(image: Image, draw: np.random.Generator, *, share: float) -> Array:
    """Collimation: an uneven border without exposure; targets stay."""
    first = draw.random(2)
    shares = 2 * share * np.stack([first, 1 - first], axis=1)
    inside = np.zeros(image.array.shape[1:], bool)
    sizes: tuple[int, ...] = inside.shape
    ends = [slice(int(low * size), size - int(high * size)) for (low, high), size in zip(shares, sizes, strict=True)]
    inside[ends[0], ends[1]] = True
    return from_unit(image, np.where(inside, as_unit(image), 0))


@_radiograph("xray_grid_lines", levels={"contrast": (0.02, 0.04, 0.06, 0.08, 0.12)}, unit="share of the range")
def grid_lines(image: Image, draw: np.random.Generator, *, contrast: float) -> Array:
    """Lines of an anti-scatter grid, three to seven pixels apart."""
    period, phase = draw.uniform(3, 7), draw.uniform(0, 2 * np.pi)
    wave = np.sin(2 * np.pi * np.arange(image.array.shape[2]) / period + phase)
    return from_unit(image, as_unit(image) + contrast / 2 * wave)


@_radiograph("xray_detector_lines", levels={"lines": (1, 2, 4, 8, 16)}, unit="rows or columns of the detector")
def detector_lines(image: Image, draw: np.random.Generator, *, lines: int) -> Array:
    """Dead detector rows and columns, nested by severity."""
    units = draw.random((MOST_LINES, 3))
    pixels = as_unit(image).copy()
    for across, position, value in units[:lines]:
        at = int(position * pixels.shape[1 if across < 0.5 else 2])
        if across < 0.5:
            pixels[:, at, :] = round(value)
        else:
            pixels[:, :, at] = round(value)
    return from_unit(image, pixels)


@_radiograph("xray_motion", levels={"pixels": (3, 5, 9, 13, 19)}, unit="pixels of a path")
def motion(image: Image, draw: np.random.Generator, *, pixels: int) -> Array:
    """Blur of a movement at constant speed along a line."""
    return from_unit(image, blurred_along(as_unit(image), pixels, draw.uniform(0, np.pi)))


def blurred_along(unit: Array, length: float, angle: float) -> Array:
    """Returns (channel, row, column) averaged along a line of pixels."""
    from scipy.ndimage import shift

    steps = np.linspace(-(length - 1) / 2, (length - 1) / 2, 2 * int(np.ceil(length)) - 1)
    blurred = np.zeros(unit.shape, np.float32)
    for step in steps:
        offset = (0, step * np.sin(angle), step * np.cos(angle))
        blurred += shift(unit.astype(np.float32), offset, order=1, mode="nearest")
    return blurred / len(steps)


WORDS = ("PORTABLE", "AP", "SUPINE", "08:15", "ICU")
"""Marks without a side: a letter of the wrong side would contradict the picture."""


@_radiograph("xray_markers", levels={"number": (1, 2, 3, 4, 5)}, unit="number of marks")
def markers(image: Image, draw: np.random.Generator, *, number: int) -> Array:
    """Bright marker words at the border."""
    from PIL import ImageDraw, ImageFont

    order, units = draw.permutation(len(WORDS)), draw.random((len(WORDS), 2))
    font = ImageFont.load_default(max(8, min(image.array.shape[1:]) / 24))

    def change(sheet: Picture) -> Picture:
        pen, (width, height) = ImageDraw.Draw(sheet), sheet.size
        bright = 255 if sheet.mode == "L" else (255,) * 3
        for word, (along, side) in zip(order[:number], units, strict=False):
            text = WORDS[int(word)]
            across = width - pen.textlength(text, font=font)
            down = 0.01 * height if side < 0.5 else 0.93 * height
            pen.text((max(along * across, 0), down), text, fill=bright, font=font)
        return sheet

    return by_picture(image, change)
