"""Degradations of acquisitions as data sets of pictures for vision-language models have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.degradations.declaration import degradation
from medimg_eval.degradations.moves import Move, about_middle
from medimg_eval.degradations.scaling import by_picture, through_jpeg

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

TRIES = 10
"""Crops that are drawn, of which the first that lies in the picture is taken."""


@degradation(
    "kvasir_x1_weak",
    levels={"share": (0.2, 0.4, 0.6, 0.8, 1.0)},
    unit="share of the published ranges; severity 5 has them whole",
    source="Kvasir-VQA-x1, Gautam et al. 2025, arXiv 2506.09958: its augmentations, with our draws; the released "
    "pictures cannot be drawn again",
    domain="moves",
    axes=2,
)
def kvasir_x1_weak(grid: Geometry, draw: np.random.Generator, *, share: float) -> Move:
    """Weak camera motion: crop, rotation, shift, brightness, contrast and JPEG.

    Places are moved in one pass, linearly, where the authors' script interpolates three times by cubic splines.
    """
    areas, ratios = draw.random((2, TRIES))
    down, across, turn, below, right, light, depth = draw.uniform(-1, 1, 7)
    lit_first = bool(draw.random() < 0.5)
    size = np.array(grid.shape, np.float64)
    zoom = _first_crop(1 - 0.1 * share * areas, share, ratios)
    angle = np.radians(10 * share * turn)
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    linear, pushed = zoom[:, None] * turned, 0.1 * share * size * np.array([below, right])
    room = (size * (1 - zoom)) / 2
    shift = room * np.array([down, across]) - linear @ pushed

    def colours(image: Image) -> Array:
        from PIL import ImageEnhance

        changes: list[Callable[[Picture], Picture]] = [
            lambda picture: ImageEnhance.Brightness(picture).enhance(1 + 0.2 * share * light),
            lambda picture: ImageEnhance.Contrast(picture).enhance(1 + 0.2 * share * depth),
        ]

        def change(shown: Picture) -> Picture:
            for step in changes if lit_first else changes[::-1]:
                shown = step(shown)
            return through_jpeg(shown)

        return by_picture(image, change)

    picture = _kept_in_frame(grid.shape, turned, pushed)
    return Move(about_middle(linear, shift, grid.shape), then=colours, shown=picture)


def _kept_in_frame(shape: tuple[int, ...], turned: Array, pushed: Array) -> Array:
    """Returns visible parts after crop, rotation and shift."""
    middle = (np.array(shape) - 1) / 2
    positions = np.indices(shape).reshape(2, -1).T - middle - pushed
    inside = np.abs(np.stack([positions, positions @ turned.T])) <= np.array(shape) / 2
    return np.asarray(inside.all(axis=(0, 2))).reshape(shape)


def _first_crop(areas: Array, share: float, ratios: Array) -> Array:
    """Returns the first valid crop's edges as shares, (2,).

    Area and ratio of edges are drawn as by torchvision's RandomResizedCrop; the ratio is uniform on a logarithmic
    scale.
    """
    low, high = np.log(1 - 0.05 * share), np.log(1 + 0.05 * share)
    stretch = np.exp(low + (high - low) * ratios)
    edges: Array = np.sqrt(np.stack([areas / stretch, areas * stretch], axis=1))
    inside = edges[(edges <= 1).all(axis=1)]
    return inside[0] if len(inside) else np.ones(2)
