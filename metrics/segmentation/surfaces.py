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

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats, Ints

Spacing = tuple[float, ...]

# Corners and edge middles of a square or cube, in half edges: corners have 0 or 2, middles one or more 1s.
Point = tuple[int, ...]
Segment = tuple[Point, Point]
Triangle = tuple[Point, Point, Point]

_SQUARE: tuple[Point, ...] = ((0, 0), (0, 2), (2, 2), (2, 0))


@cache
def surfel_measures(spacing: Spacing) -> Floats:
    """Returns surface by code: (256,) mm2, or 2-D (16,) mm.

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
def _segment_vectors() -> tuple[Ints, Floats]:
    """Returns contour segments by code of 16 squares, in edges."""
    vectors = [
        (code, np.subtract(end, start) / 2)
        for code, corners in _iterate_cells(axes=2)
        for start, end in _face_segments(_SQUARE, corners)
    ]
    return np.array([code for code, _ in vectors]), np.array([vector for _, vector in vectors])


@cache
def _area_vectors() -> tuple[Ints, Floats]:
    """Returns triangles' codes and area vectors, of 256 unit cubes."""
    vectors = [
        (code, _area_vector(triangle))
        for code, corners in _iterate_cells(axes=3)
        for loop in _cube_loops(corners)
        for triangle in max(_fill_polygon(loop), key=_total_area)
    ]
    return np.array([code for code, _ in vectors]), np.array([vector for _, vector in vectors])


def _iterate_cells(axes: int) -> Iterator[tuple[int, frozenset[Point]]]:
    """Yields codes with the fewer corners, inside or outside."""
    corners = list(itertools.product((0, 2), repeat=axes))
    for code in range(2 ** len(corners)):
        inside = frozenset(corner for bit, corner in enumerate(corners) if code >> bit & 1)
        yield code, inside if len(inside) <= len(corners) / 2 else frozenset(corners) - inside


def _face_segments(ring: tuple[Point, ...], corners: frozenset[Point]) -> list[Segment]:
    """Returns the surface's segments across a face's corner ring."""
    edges = list(zip(ring, (*ring[1:], ring[0]), strict=True))
    middles = [_middle_point(a, b) if (a in corners) != (b in corners) else None for a, b in edges]
    crossed = [middle for middle in middles if middle is not None]
    if len(crossed) == 2:
        return [(crossed[0], crossed[1])]
    # Four crossings: cut off each corner of `corners` by itself, between the edges that meet there.
    return [
        (before, after)
        for corner, before, after in zip(ring, (middles[-1], *middles[:-1]), middles, strict=True)
        if corner in corners and before is not None and after is not None
    ]


def _cube_loops(corners: frozenset[Point]) -> list[list[Point]]:
    """Returns the surface's closed polygons on a cube's faces."""
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


def _fill_polygon(loop: list[Point]) -> Iterator[tuple[Triangle, ...]]:
    """Yields every way of filling a polygon with triangles between its own points."""
    if len(loop) < 3:
        yield ()
        return
    for k in range(1, len(loop) - 1):
        for first, right in itertools.product(_fill_polygon(loop[: k + 1]), _fill_polygon(loop[k:])):
            yield (*first, (loop[0], loop[k], loop[-1]), *right)


def _total_area(triangles: tuple[Triangle, ...]) -> float:
    return float(sum(np.linalg.norm(_area_vector(triangle)) for triangle in triangles))


def _area_vector(triangle: Triangle) -> Floats:
    """Returns the normal of a triangle, scaled to its area."""
    a, b, c = (np.asarray(point) / 2 for point in triangle)
    return np.cross(b - a, c - a) / 2


def _middle_point(a: Point, b: Point) -> Point:
    return tuple((x + y) // 2 for x, y in zip(a, b, strict=True))


Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Indices: TypeAlias = Ints
Bytes: TypeAlias = npt.NDArray[np.uint8]
# Places in a list of corners, the label that each has among others, and the label's 2x2x2 code.
Layer: TypeAlias = tuple[Indices | slice, Codes, Bytes]

VOXELS_AT_ONCE = 1 << 17
POINTS_AT_ONCE = 1 << 15
# Beyond, sorting costs less than a table.
LONGEST_TABLE = 1 << 22


@dataclass(frozen=True, eq=False)
class LabelSurfaces:
    """The surface points of all labels of one map.

    A point that several labels share is there once for each, and is looked up by a number for the set of them.

    Attributes:
        index: (n,) place in the padded map: of a voxel, or of the first of the 2x2x2 (2-D: 2x2) voxels at a corner.
        label: (n,) the label whose surface it is.
        cell: (n,) which of `weights` the point has.
        weights: The surface that each kind of point carries, in points, mm2 or mm.
        places: (m,) each place of `index` once.
        numbers: (m,) what is there: a label, or (above the highest label) a set of labels.
        sets: (sets, labels + 1) whether each label is in each set.
    """

    index: Indices
    label: Codes
    cell: Bytes
    weights: Floats
    places: Indices
    numbers: Codes
    sets: Bools


def voxel_border(codes: Codes, labels: int) -> LabelSurfaces:
    """Returns voxels of a label map, padded by 0, with a face neighbour of another label."""
    flat, steps = codes.ravel(), _neighbour_steps(codes)
    index = _where_mixed(flat, [*steps, *(-step for step in steps)], inside=True)
    label = flat[index]
    sets = np.zeros((0, labels + 1), np.bool_)
    return LabelSurfaces(index, label, np.zeros(len(index), np.uint8), np.ones(1), index, label, sets)


def surfel_border(codes: Codes, labels: int, spacing: Spacing) -> LabelSurfaces:
    """Returns border corners of a label map, padded by 0, by label, with surface areas."""
    flat, steps = codes.ravel(), _neighbour_steps(codes)
    corners = [sum(itertools.compress(steps, bits)) for bits in itertools.product((0, 1), repeat=codes.ndim)]
    indices = _where_mixed(flat, corners[1:], inside=False)
    layers = _labels_at_corners(flat, indices, corners) if labels > 1 else [_label_at_corners(flat, indices, corners)]
    numbers, sets = _number_corners(layers, labels)
    weights, cells = kinds_of(spacing)
    return LabelSurfaces(
        np.concatenate([indices[at] for at, _, _ in layers]),
        np.concatenate([label for _, label, _ in layers]),
        cells[np.concatenate([code for _, _, code in layers])],
        weights,
        indices,
        numbers,
        sets,
    )


def _neighbour_steps(codes: Codes) -> tuple[int, ...]:
    """Returns memory steps between neighbours along each axis."""
    return tuple(stride // codes.itemsize for stride in codes.strides)


def _where_mixed(flat: Codes, steps: Sequence[int], *, inside: bool) -> Indices:
    """Returns positions whose voxel differs a step on."""
    first, last = max(0, -min(steps)), flat.size - max(steps)
    parts = [np.zeros(0, np.int64)]
    for start in range(first, last, VOXELS_AT_ONCE):
        stop = min(start + VOXELS_AT_ONCE, last)
        here = flat[start:stop]
        if not flat[start : stop if inside else stop + max(steps)].any():
            continue
        mixed, differs = np.zeros(len(here), np.bool_), np.empty(len(here), np.bool_)
        for step in steps:
            mixed |= np.not_equal(here, flat[start + step : stop + step], out=differs)
        if inside:
            mixed &= here.astype(np.bool_)
        parts.append(np.flatnonzero(mixed) + start)
    return np.concatenate(parts)


def _label_at_corners(flat: Codes, places: Indices, corners: Sequence[int]) -> Layer:
    """Returns binary maps' corner labels, whose voxels are code bits."""
    code = np.zeros(len(places), np.uint8)
    for bit, corner in enumerate(corners):
        code |= np.left_shift(flat[places + corner], bit, dtype=np.uint8)
    return slice(None), np.ones(len(places), flat.dtype), code


def _labels_at_corners(flat: Codes, places: Indices, corners: Sequence[int]) -> list[Layer]:
    """Returns nonzero labels around corners, first layer complete."""
    high, low = np.empty((2, len(places)), flat.dtype)
    high_code, low_code = np.empty((2, len(places)), np.uint8)
    for start in range(0, len(places), POINTS_AT_ONCE):
        part = slice(start, start + POINTS_AT_ONCE)
        values = np.stack([flat[places[part] + corner] for corner in corners])
        high[part], low[part] = values.max(axis=0), values.min(axis=0)
        high_code[part], low_code[part] = _corner_codes(values, high[part]), _corner_codes(values, low[part])
    at = np.flatnonzero(low)
    layers: list[Layer] = [(slice(None), high, high_code), (at, low[at], low_code[at])]
    codes = high_code | low_code
    at = np.flatnonzero(codes != (1 << len(corners)) - 1)  # few corners have voxels of more than two kinds
    if len(at):
        codes, values = codes[at], np.stack([flat[places[at] + corner] for corner in corners])
        for bit in range(len(corners)):
            fresh = np.flatnonzero((codes >> bit & 1 == 0) & (values[bit] != 0))
            label = values[bit, fresh]
            code = _corner_codes(values[:, fresh], label)
            codes[fresh] |= code
            layers.append((at[fresh], label, code))
    return [layers[0], *(layer for layer in layers[1:] if len(layer[1]))]


@cache
def kinds_of(spacing: Spacing) -> tuple[Floats, Bytes]:
    """Returns ascending code measures, and each code's index."""
    weights, kinds = np.unique(surfel_measures(spacing), return_inverse=True)
    return weights, kinds.astype(np.uint8)


def _corner_codes(values: Codes, label: Codes) -> Bytes:
    """Returns code bits: which voxels around corners have the label."""
    code = np.zeros(len(label), np.uint8)
    for bit, voxel in enumerate(values):
        code |= np.left_shift((voxel == label).view(np.uint8), bit, dtype=np.uint8)
    return code


def _number_corners(layers: Sequence[Layer], labels: int) -> tuple[Codes, Bools]:
    """Returns corner numbers: labels, or label sets with members.

    A set is built up layer by layer: the number so far and the next label make a new number. So a set has as
    many numbers as there are orders in which it came about.
    """
    numbers = layers[0][1].astype(np.int64)
    sets = np.zeros((0, labels + 1), np.bool_)
    for at, label, _ in layers[1:]:
        keys = numbers[at] * (labels + 1) + label
        pairs, which = _unique_keys(keys, (labels + 1) * (labels + 1 + len(sets)))
        numbers[at] = which + labels + 1 + len(sets)
        before, added = np.divmod(pairs, labels + 1)
        rows = np.zeros((len(pairs), labels + 1), np.bool_)
        is_set = before > labels
        rows[is_set] = sets[before[is_set] - labels - 1]
        rows[~is_set, before[~is_set]] = True
        rows[np.arange(len(pairs)), added] = True
        sets = np.concatenate([sets, rows])
    return numbers.astype(np.min_scalar_type(labels + len(sets))), sets


def _unique_keys(keys: Indices, limit: int) -> tuple[Indices, Indices]:
    """Returns distinct keys below a limit, and each one's index."""
    if limit > LONGEST_TABLE:
        return np.unique(keys, return_inverse=True)
    table = np.zeros(limit, np.int64)
    table[keys] = 1
    different = np.flatnonzero(table)
    table[different] = np.arange(len(different))
    return different, table[keys]
