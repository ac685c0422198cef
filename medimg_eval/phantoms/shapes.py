"""Shapes and textures that phantoms are drawn with.

Everything is made of element-wise arithmetic on numbers drawn from a seeded generator, so that the same seed
gives the same pixels whatever the number of threads.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from medimg_eval.case import Array


def texture(rng: np.random.Generator, shape: Sequence[int], cell: float | Sequence[float]) -> Array:
    """Smooth noise: random numbers on a coarse grid, joined by cubic B-splines.

    `cell` is the distance between the coarse grid's points in voxels, one or one per axis. The result is float32 of
    mean 0 and standard deviation 1.
    """
    cells = [float(cell)] * len(shape) if isinstance(cell, int | float) else [float(c) for c in cell]
    coarse = [int(np.ceil(n / c)) + 4 for n, c in zip(shape, cells, strict=True)]
    field: Array = rng.standard_normal(coarse, dtype=np.float32)
    for axis, (n, c) in enumerate(zip(shape, cells, strict=True)):
        at = np.arange(n) / c + rng.random()
        below = at.astype(int)
        t = (at - below).astype(np.float32)
        weights = ((1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3)
        along = [1] * len(shape)
        along[axis] = n
        parts = [np.take(field, below + k, axis=axis) * (w / 6).reshape(along) for k, w in enumerate(weights)]
        field = parts[0] + parts[1] + parts[2] + parts[3]
    field -= field.mean()
    field /= field.std() + np.float32(1e-12)
    return field


def places(affine: Array, shape: Sequence[int]) -> list[Array]:
    """Voxel positions in mm by axis, float32, each of full shape."""
    i, j, k = np.ogrid[tuple(slice(0, n) for n in shape)]
    return [(a * i + b * j + c * k + d).astype(np.float32) for a, b, c, d in affine[:3]]


def ball(
    coordinates: Sequence[Array], centre: Sequence[float], radii: float | Sequence[float], turn: float = 0
) -> Array:
    """Squared distance in radii (one, or per axis): below 1 inside.

    Coordinates are one array per axis, of shapes that broadcast; the turn is an angle in degrees from the first axis
    towards the second.
    """
    offsets = [c - np.float32(m) for c, m in zip(coordinates, centre, strict=True)]
    lengths = [float(radii)] * len(offsets) if isinstance(radii, int | float) else [float(r) for r in radii]
    if turn:
        cosine, sine = np.float32(np.cos(np.deg2rad(turn))), np.float32(np.sin(np.deg2rad(turn)))
        offsets[:2] = [offsets[0] * cosine + offsets[1] * sine, offsets[1] * cosine - offsets[0] * sine]
    squares = [(o / np.float32(r)) ** 2 for o, r in zip(offsets, lengths, strict=True)]
    total: Array = squares[0]
    for square in squares[1:]:
        total = total + square  # they broadcast
    return total


def step(value: Array, width: float) -> Array:
    """Soft step: 0 below -width, 1 above width."""
    t = np.clip(value / np.float32(2 * width) + np.float32(0.5), 0, 1)
    return t * t * (3 - 2 * t)


def box(mask: Array) -> tuple[int, ...]:
    """First and last nonzero voxels by axis: firsts, then lasts.

    Raises ValueError where nothing is set.
    """
    axes = range(mask.ndim)
    ends = [np.flatnonzero(mask.any(axis=tuple(a for a in axes if a != axis))) for axis in axes]
    if not ends[0].size:
        raise ValueError("expected a mask with something in it")
    return (*(int(e[0]) for e in ends), *(int(e[-1]) for e in ends))


def cylinder_noise(rng: np.random.Generator, rows: int, columns: int, cell: tuple[float, float]) -> Array:
    """A texture whose columns go round: its last column joins its first.

    Two textures are blended by the cosine of the angle, which leaves no seam.
    """
    turn = np.linspace(0, 2 * np.pi, columns, endpoint=False, dtype=np.float32)
    first, second = texture(rng, (rows, columns), cell), texture(rng, (rows, columns), cell)
    weight = (1 + np.cos(turn)) / 2
    joined: Array = first * np.sqrt(1 - weight) + np.roll(second, columns // 2, axis=1) * np.sqrt(weight)
    return joined


def spread(rng: np.random.Generator, shape: tuple[int, int], gap: float) -> Array:
    """Points about `gap` apart, (point, 2), on a jittered grid."""
    grid = itertools.product(*(np.arange(0, n, gap) for n in shape))
    points = np.array(list(grid), dtype=np.float64)
    return points + rng.uniform(0, gap * 0.8, points.shape)
