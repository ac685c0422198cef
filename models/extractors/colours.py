"""Statistics of a picture's colours as features: no network, no weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from medimg_eval.case import Array
from medimg_eval.models.extractors.base import Encoder

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

SHARES = (5, 25, 50, 75, 95)
"""Percentiles of each colour's optical density."""


class ColourStatistics(Encoder):
    """Colour statistics of a picture: 27 numbers, without network or weights.

    For the optical density of red, green and blue they are mean, standard deviation, percentiles, and the mean step
    between neighbouring pixels along rows and along columns. It knows how much stain there is and how it is spread,
    nothing of shapes: a floor for encoders of stained tissue, and enough to try heads on slides without weights.
    """

    preprocessing: ClassVar[str] = "optical density, -log10((value + 1) / 256), of red, green and blue"
    uses_torch: bool = False

    def __init__(self, preferred_batch: int = 64) -> None:
        self.preferred_batch = preferred_batch

    def load(self) -> None:
        """Loads nothing."""

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns statistics, float32, (picture, 27): nine per colour channel."""
        rows = [_colour_statistics(np.asarray(picture.convert("RGB"))) for picture in pictures]
        return np.stack(rows) if rows else np.zeros((0, 3 * (len(SHARES) + 4)), np.float32)


def _colour_statistics(pixels: Array) -> Array:
    density = _DENSITY[pixels]
    flat = density.reshape(-1, 3)
    steps = [
        np.abs(np.diff(density, axis=axis)).mean((0, 1)) if density.shape[axis] > 1 else np.zeros(3) for axis in (0, 1)
    ]
    statistics = [flat.mean(0), flat.std(0), *np.percentile(flat, SHARES, axis=0), *steps]
    return np.concatenate(statistics).astype(np.float32)


_DENSITY = -np.log10((np.arange(256, dtype=np.float32) + 1) / 256)
"""Optical density of each 8-bit value."""
