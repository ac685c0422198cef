"""Random draws that depend on what is drawn for, and on nothing else."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from medimg_eval.case import Array, Image

VERSION = 1
"""Of the draws: raised where the same key gives other numbers than before."""


class DrawKey(NamedTuple):
    """Key of draws, independent of severity, case order and process.

    Attributes:
        seed: of the run.
        case: id of the case.
        repeat: which of the run's repeats.
    """

    seed: int
    case: str
    repeat: int = 0

    def generator(self, name: str, image: int = 0) -> np.random.Generator:
        """Returns the generator of a degradation of one of the case's images."""
        text = "\0".join(map(str, (VERSION, *self, name, image)))
        return np.random.default_rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))


def standard_normal(draw: np.random.Generator, image: Image) -> Array:
    """Draws N(0, 1) per pixel, (channel, *spatial).

    float64 of 8-bit pictures, float32 of others.
    """
    kind = np.float64 if image.array.dtype == np.uint8 else np.float32
    channels, *spatial = image.array.shape
    return np.moveaxis(draw.standard_normal((*spatial, channels), dtype=kind), -1, 0)


def uniform(draw: np.random.Generator, image: Image) -> Array:
    """Draws from [0, 1) per pixel, (channel, *spatial).

    float64 of 8-bit pictures, float32 of others.
    """
    kind = np.float64 if image.array.dtype == np.uint8 else np.float32
    channels, *spatial = image.array.shape
    return np.moveaxis(draw.random((*spatial, channels), dtype=kind), -1, 0)


def whole(unit: float, low: int, high: int) -> int:
    """Returns an integer in [low, high] for a draw in [0, 1)."""
    return low + int(unit * max(high - low + 1, 1))
