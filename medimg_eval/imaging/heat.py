"""Weights of places laid over a picture: a slide seen small, or the picture itself, and how much each place counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medimg_eval.case import Array, Image, Reference
from medimg_eval.errors import CaseError, UserError
from medimg_eval.image import FEATURES
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.imaging.slides import Slide

SIDE = 400
"""Pixels of the longer side of a small picture."""

HEAT = (255, 60, 0)
"""Colour of the largest weight."""


def small_picture(
    images: Sequence[Reference[Image]], corners: Array, edge: Array, side: int = SIDE
) -> tuple[Array, float]:
    """A small picture of what weights are of, and its scale.

    Args:
        images: of the case; the first counts.
        corners: (place, 2), row and column of the first pixel of each place, in pixels of level 0.
        edge: height and width of a place, broadcast to (2,).
        side: pixels of its longer side.

    Returns:
        uint8, (row, column, 3), and the pixels of level 0 along the edge of one of its pixels; white where only
        features are there.
    """
    files = [path for image in images for path in image.files]
    try:
        with Slide(files[0]) as slide:
            scale = max(1.0, max(slide.size) / side)
            height, width = (max(1, round(length / scale)) for length in slide.size)
            return np.asarray(slide.read_region(0, 0, (height, width), downsample=scale)), scale
    except (UserError, IndexError):
        picture = _scaled_picture(images, side)
    if picture is not None:
        return picture
    most = (corners.max(axis=0, initial=0) + np.broadcast_to(edge, 2)).astype(float)
    scale = max(1.0, most.max() / side)
    return np.full((*np.ceil(most / scale).astype(int), 3), 255, np.uint8), scale


def _scaled_picture(images: Sequence[Reference[Image]], side: int) -> tuple[Array, float] | None:
    try:
        image = images[0].read()
        if FEATURES.items() <= image.attributes.items():
            return None
        picture = as_picture(image)
    except (CaseError, IndexError):
        return None
    scale = max(1.0, max(picture.size) / side)
    size = tuple(max(1, round(length / scale)) for length in picture.size)
    return np.asarray(picture.resize(size).convert("RGB")), scale


def heat_of(shape: tuple[int, ...], scale: float, weights: Array, corners: Array, edge: Array) -> Array:
    """Shares of the largest weight on the pixels of a small picture.

    Args:
        shape: of the picture, (row, column, ...).
        scale: pixels of level 0 along the edge of one of its pixels.
        weights: (place,), from 0.
        corners: as of `small_picture`.
        edge: as of `small_picture`.

    Returns:
        Float64, (row, column), 0 to 1, NaN where no place lies.
    """
    height, width = shape[:2]
    painted = np.full((height, width), np.nan)
    first = np.round(corners / scale).astype(int).clip(0, (height, width))
    last = np.round((corners + np.broadcast_to(edge, 2)) / scale).astype(int).clip(0, (height, width))
    shares = weights / (weights.max() or 1.0)
    for (top, left), (bottom, right), share in zip(first, last, shares, strict=True):
        painted[top:bottom, left:right] = share
    return painted


def heat_image(images: Sequence[Reference[Image]], weights: Array, corners: Array, edge: Array) -> Image:
    """Small picture with weights in red, uint8, (3, row, column)."""
    picture, scale = small_picture(images, corners, edge)
    strength = 0.7 * np.nan_to_num(heat_of(picture.shape, scale, weights, corners, edge))[..., None]
    grey = np.broadcast_to(picture.mean(axis=2, keepdims=True), picture.shape)
    mixed = grey * (1 - strength) + np.array(HEAT) * strength
    return Image(np.ascontiguousarray(mixed.round().astype(np.uint8).transpose(2, 0, 1)), np.eye(4), units="pixel")
