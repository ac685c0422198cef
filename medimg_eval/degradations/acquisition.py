"""Degradations of acquisitions as data sets of pictures for vision-language models have them."""

from __future__ import annotations

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.degradations.declaration import degradation
from medimg_eval.degradations.moves import Move, about_middle
from medimg_eval.degradations.scaling import by_picture


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
    """A crop, a rotation, a shift, and other brightness and contrast, as a moving camera gives."""
    scale, ratio, across, down, turn, right, below, light, depth = draw.uniform(-1, 1, 9)
    height, width = grid.shape
    area = 1 - share * 0.1 * (1 + scale) / 2
    stretch = float(np.exp(ratio * np.log(1 + 0.05 * share)))
    zoom = np.sqrt(area) * np.array([1 / np.sqrt(stretch), np.sqrt(stretch)])
    room = np.maximum(np.array([height, width]) * (1 - zoom), 0) / 2
    angle = np.radians(10 * share * turn)
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shift = room * np.array([down, across]) - 0.1 * share * np.array([height * below, width * right])

    def colours(image: Image) -> Array:
        from PIL import Image as Pillow
        from PIL import ImageEnhance

        def change(picture: Array) -> Array:
            lit = ImageEnhance.Brightness(Pillow.fromarray(picture)).enhance(1 + 0.2 * share * light)
            return np.array(ImageEnhance.Contrast(lit).enhance(1 + 0.2 * share * depth))

        return by_picture(image, change)

    return Move(about_middle(zoom[:, None] * turned, shift, grid.shape), then=colours)
