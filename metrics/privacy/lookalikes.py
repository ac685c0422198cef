"""Pictures that look alike: one that was stored in another format, size, window or compression.

A picture becomes a square of 64 x 64 pixels, each against what lies around it, so that brightness, contrast and size do
not count. 256 signs of its coarse waves find candidates; the correlation of the squares decides. What was turned,
flipped or cropped is for `CopyFinder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

EDGE = 64
"""Of the squares that are compared."""

WAVES = 16
"""Of the lowest waves along each axis, those whose signs are kept."""

AROUND = 21
"""Edge of the square around a pixel that its brightness is measured against, as in `CopyFinder`."""

BITS = 64
"""Of 256 signs, so many may differ in a candidate: of squares that correlate by 0.95 about 26 do (acos(0.95) / pi), and
up to 54 where high waves are weak; of others 128."""

ALIKE = 0.95
"""The least correlation of pictures that are told: JPEG, half the size, gamma and a clipped window stay above it, and
phantoms of one anatomy below 0.94."""

STRIP = 2048
"""Pictures that are compared at once."""


class Looks(NamedTuple):
    """Reduced forms of pictures.

    Attributes:
        squares: float16, (picture, 4096): of mean 0 and length 1; zeros for a picture of one colour.
        signs: uint64, (picture, 4).
    """

    squares: npt.NDArray[np.float16]
    signs: npt.NDArray[np.uint64]


def looks_of(picture: npt.ArrayLike) -> Looks:
    """Reduced picture of (row, column) or (channel, row, column); NaN is 0."""
    from scipy.fft import dctn
    from scipy.ndimage import uniform_filter

    grey = np.nan_to_num(np.asarray(picture, np.float32))
    if grey.ndim == 3:
        grey = grey.mean(0)
    small = _shrink_picture(grey)
    around = uniform_filter(small, AROUND, mode="reflect")
    spread = np.sqrt(np.maximum(uniform_filter(small * small, AROUND, mode="reflect") - around * around, 0))
    plain = (small - around) / (spread + 0.02 * max(float(np.ptp(small)), 1e-6))
    plain = uniform_filter(plain, 2, mode="reflect")
    plain = plain - plain.mean()
    length = float(np.linalg.norm(plain))
    square = plain / length if length > 1e-3 else np.zeros_like(plain)
    waves = dctn(square, norm="ortho")[:WAVES, :WAVES].reshape(-1)
    return Looks(square.reshape(1, -1).astype(np.float16), np.packbits(waves > 0).view(np.uint64).reshape(1, -1))


def joined_looks(looks: list[Looks]) -> Looks:
    """Several pictures' looks as one."""
    return Looks(np.concatenate([look.squares for look in looks]), np.concatenate([look.signs for look in looks]))


def lookalikes_between(one: Looks, other: Looks, least: float = ALIKE) -> Iterator[tuple[int, int, float]]:
    """Yields similar pairs of two sets, correlation from `least`.

    Pairs are in the order of the first set. Pictures of one colour are like none.
    """
    for start in range(0, len(one.signs), STRIP):
        mine = one.signs[start : start + STRIP]
        differ = np.zeros((len(mine), len(other.signs)), np.uint16)
        for part in range(mine.shape[1]):
            differ += np.bitwise_count(mine[:, part, None] ^ other.signs[None, :, part])
        rows, columns = np.nonzero(differ <= BITS)
        for first in range(0, len(rows), STRIP):  # of many candidates not all squares at once
            left_rows, right = rows[first : first + STRIP] + start, columns[first : first + STRIP]
            similarity = np.einsum(
                "pd,pd->p", one.squares[left_rows].astype(np.float32), other.squares[right].astype(np.float32)
            )
            for index in np.flatnonzero(similarity >= least):
                yield int(left_rows[index]), int(right[index]), min(1.0, float(similarity[index]))


def _shrink_picture(grey: Floats) -> Floats:
    """The picture as a square, each pixel the mean of what it covers."""
    for axis in (0, 1):
        edges = np.linspace(0, grey.shape[axis], EDGE + 1).astype(np.int64)
        starts = np.minimum(edges[:-1], grey.shape[axis] - 1)
        width = np.maximum(np.diff(edges), 1).astype(np.float32)
        sums = np.add.reduceat(grey, starts, axis=axis)
        grey = (sums / (width[:, None] if axis == 0 else width)).astype(np.float32)
    return grey
