"""Surfaces of masks: where their points lie, how much each weighs, how far one surface is from another.

Two surfaces are known. "voxel": every mask voxel with a face neighbour outside the mask, at its centre,
each weighing 1. "surfel": every grid corner whose 2x2x2 (2-D: 2x2) voxels are not all equal, weighing the
area in mm2 (2-D: length in mm) of the marching-cubes patch that the corner's voxels cut out. What lies
beyond the image is outside the mask, so an object that touches the border has a surface there.

The patch of a 2x2x2 code is derived here rather than tabulated:

* it passes through the middle of every cube edge whose two ends differ;
* on each cube face, middles are joined in pairs; a face crossed four times is ambiguous, and there the
  corners that are the fewer in the whole cube are cut off one by one;
* the joins close into loops, and each loop is filled with the triangles that, on a cube of unit edges,
  have the largest total area (loops that are flat have the same area however they are filled).

With these three rules the areas are those that DeepMind's surface-distance and MONAI tabulate, for every
code and every spacing (compared in the tests).
"""

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Spacing = tuple[float, ...]

# Corners and edge middles of a square or cube, in half edges: corners have 0 or 2, middles one or more 1s.
Point = tuple[int, ...]
Segment = tuple[Point, Point]
Triangle = tuple[Point, Point, Point]

_SQUARE: tuple[Point, ...] = ((0, 0), (0, 2), (2, 2), (2, 0))


@cache
def surfel_measures(spacing: Spacing) -> Floats:
    """Returns the surface in each code's cell: (256,) areas in mm2, or (16,) lengths in mm for 2-D.

    Bit k of a code says whether corner k, in `itertools.product((0, 1), repeat=axes)` order, is inside.
    """
    sizes = np.asarray(spacing)
    # A segment stretches with the spacing along its own axes; an area vector is normal to its triangle, so
    # it stretches with the spacings of the two other axes.
    if len(spacing) == 2:
        (codes, vectors), stretch, cells = _segment_vectors(), sizes, 16
    else:
        (codes, vectors), stretch, cells = _area_vectors(), sizes.prod() / sizes, 256
    lengths = np.linalg.norm(vectors * stretch, axis=1)
    measures = np.bincount(codes, lengths, minlength=cells).astype(np.float64)
    measures.setflags(write=False)
    return measures


@cache
def _segment_vectors() -> tuple[npt.NDArray[np.int64], Floats]:
    """Returns the code of every contour segment of the 16 squares, and the segment in pixel edges."""
    found = [
        (code, np.subtract(end, start) / 2)
        for code, corners in _cells(axes=2)
        for start, end in _face_segments(_SQUARE, corners)
    ]
    return np.array([code for code, _ in found]), np.array([vector for _, vector in found])


@cache
def _area_vectors() -> tuple[npt.NDArray[np.int64], Floats]:
    """Returns the code of every triangle of the 256 cubes, and its area vector on a cube of unit edges."""
    found = [
        (code, _area_vector(triangle))
        for code, corners in _cells(axes=3)
        for loop in _loops(corners)
        for triangle in max(_triangulations(loop), key=_total_area)
    ]
    return np.array([code for code, _ in found]), np.array([vector for _, vector in found])


def _cells(axes: int) -> Iterator[tuple[int, frozenset[Point]]]:
    """Yields each code with the corners that are the fewer: the inside ones, or else the outside ones."""
    corners = list(itertools.product((0, 2), repeat=axes))
    for code in range(2 ** len(corners)):
        inside = frozenset(corner for bit, corner in enumerate(corners) if code >> bit & 1)
        yield code, inside if len(inside) <= len(corners) / 2 else frozenset(corners) - inside


def _face_segments(ring: tuple[Point, ...], corners: frozenset[Point]) -> list[Segment]:
    """Returns how the surface crosses one face, given as a ring of four corners."""
    edges = list(zip(ring, (*ring[1:], ring[0]), strict=True))
    middles = [_middle(a, b) if (a in corners) != (b in corners) else None for a, b in edges]
    crossed = [middle for middle in middles if middle is not None]
    if len(crossed) == 2:
        return [(crossed[0], crossed[1])]
    # Four crossings: cut off each corner of `corners` by itself, between the edges that meet there.
    return [
        (before, after)
        for corner, before, after in zip(ring, (middles[-1], *middles[:-1]), middles, strict=True)
        if corner in corners and before is not None and after is not None
    ]


def _loops(corners: frozenset[Point]) -> list[list[Point]]:
    """Returns the closed polygons in which the surface crosses the six faces of one cube."""
    links: dict[Point, list[Point]] = {}
    for axis, side in itertools.product(range(3), (0, 2)):
        ring = tuple((*corner[:axis], side, *corner[axis:]) for corner in _SQUARE)
        for start, end in _face_segments(ring, corners):
            links.setdefault(start, []).append(end)
            links.setdefault(end, []).append(start)
    loops = []
    while links:
        loop = [next(iter(links))]
        while onward := [point for point in links.pop(loop[-1]) if point in links]:
            loop.append(onward[0])
        loops.append(loop)
    return loops


def _triangulations(loop: list[Point]) -> Iterator[tuple[Triangle, ...]]:
    """Yields every way of filling a polygon with triangles between its own points."""
    if len(loop) < 3:
        yield ()
        return
    for k in range(1, len(loop) - 1):
        for left, right in itertools.product(_triangulations(loop[: k + 1]), _triangulations(loop[k:])):
            yield (*left, (loop[0], loop[k], loop[-1]), *right)


def _total_area(triangles: tuple[Triangle, ...]) -> float:
    return float(sum(np.linalg.norm(_area_vector(triangle)) for triangle in triangles))


def _area_vector(triangle: Triangle) -> Floats:
    """Returns the vector normal to the triangle whose length is its area, for a cube of unit edges."""
    a, b, c = (np.asarray(point) / 2 for point in triangle)
    vector: Floats = np.cross(b - a, c - a) / 2
    return vector


def _middle(a: Point, b: Point) -> Point:
    return tuple((x + y) // 2 for x, y in zip(a, b, strict=True))
