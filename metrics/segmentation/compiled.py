"""Contours of pictures and the distances between them, compiled by Numba where it is installed (extra `fast`).

Written as loops over plain arrays, and compiled when the first picture is judged, or by tasks after 2,000; the machine
code is kept, beside this file or in the user's cache where that cannot be written. Values are those of `surfaces` and
`nearest_surface`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats
from medimg_eval.metrics.segmentation.nearest_surface import LONGEST_TABLE, DistanceProfiles
from medimg_eval.metrics.segmentation.surfaces import Codes, Spacing, kinds_of

Points: TypeAlias = npt.NDArray[np.int32]
Steps: TypeAlias = npt.NDArray[np.int16]

FAR = 32000
"""Rows to the next target of a column that has none; no picture that is judged here has half as many."""

LONGEST = FAR // 2

SPARED = 4000
"""Calls of `kernels` that are refused first: NumPy judges 2,000 pictures in the time that Numba takes to load."""


class Kernels(NamedTuple):
    """The compiled functions."""

    cut: Any
    measure: Any


def _find_box(one: Array, other: Array) -> tuple[int, int, int, int]:
    """Returns row and column bounds of nonzero pixels in two pictures."""
    rows, columns = np.zeros(one.shape[0], np.uint8), np.zeros(one.shape[1], np.uint8)
    for row in range(one.shape[0]):
        mine, theirs, held = one[row], other[row], np.uint8(0)
        for column in range(one.shape[1]):
            filled = np.uint8((mine[column] != 0) | (theirs[column] != 0))
            columns[column] |= filled
            held |= filled
        rows[row] = held
    down, across = np.flatnonzero(rows), np.flatnonzero(columns)
    if not len(down):
        return 0, 0, 0, 0
    return down[0], down[-1] + 1, across[0], across[-1] + 1


def _crop_pair(
    one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], tuple[int, int, int, int], tuple[np.uint8, int, int, int]]:
    """Returns two pictures cropped by `_find_box` with zero margin, and content.

    Content is all bits that any pixel has, and how many pixels have the lowest in the first, in the second, in both.
    """
    box = _find_box(one, other)
    top, bottom, left, right = box
    first = np.zeros((bottom - top + 2, right - left + 2), np.uint8)
    second = np.zeros_like(first)
    bits, size, other_size, both = np.uint8(0), 0, 0, 0
    for row in range(top, bottom):
        mine, theirs = one[row, left:right], other[row, left:right]
        target, other_target = first[row - top + 1, 1:-1], second[row - top + 1, 1:-1]
        # A line has fewer pixels than these can count, and short numbers are added many at once.
        held, other_held, shared = np.uint16(0), np.uint16(0), np.uint16(0)
        for column in range(right - left):
            pixel, other_pixel = mine[column], theirs[column]
            target[column], other_target[column] = pixel, other_pixel
            bits |= pixel | other_pixel
            held += np.uint16(pixel & 1)
            other_held += np.uint16(other_pixel & 1)
            shared += np.uint16(pixel & other_pixel & 1)
        size, other_size, both = size + int(held), other_size + int(other_held), both + int(shared)
    return first, second, box, (bits, size, other_size, both)


def _find_contour(codes: Array, label: int, box: tuple[int, int, int, int], kinds: npt.NDArray[np.uint8]) -> Points:
    """Returns a label's contour points, (n, 3): row, column, kind.

    `codes` are padded by a 0 on each side; `kinds`, (16,), are those of corners by their 2x2 code, or (0,) for border
    pixels, all of kind 0.
    """
    top, bottom, left, right = box
    first = 1 if len(kinds) else 0
    width = right - left + 1 + first
    points = np.empty((4 * width, 3), np.int32)
    # Of the type of the pixels, so that many are compared at once.
    own_label = codes.dtype.type(label)
    mixed = np.zeros((width + 7) // 8 * 8, np.uint8)
    by_eight = mixed.view(np.uint64)
    size = 0
    for row in range(top - first, bottom + 1):
        if size + width > len(points):
            points = np.concatenate((points, np.empty_like(points)))
        # Lines from the first column that is looked at, so that no index is below 0.
        start = left - first
        here, below, right_neighbours = codes[row, start:], codes[row + 1, start:], codes[row, start + 1 :]
        if first:
            across = codes[row + 1, start + 1 :]
            for at in range(width):
                own = here[at]
                mixed[at] = (own != right_neighbours[at]) | (own != below[at]) | (own != across[at])
        else:
            above, before = codes[row - 1, start:], codes[row, start - 1 :]
            for at in range(width):
                own, ends = here[at], (here[at] != above[at]) | (here[at] != below[at])
                mixed[at] = (own == own_label) & (ends | (own != before[at]) | (own != right_neighbours[at]))
        for eight in range(len(by_eight)):
            # Most places are no border: eight at once are passed over.
            for at in range(8 * eight, min(8 * eight + 8, width) if by_eight[eight] else 0):
                kind = 0
                if first:
                    code = (here[at] == label) + 2 * (right_neighbours[at] == label)
                    code += 4 * (below[at] == label) + 8 * (codes[row + 1, start + 1 + at] == label)
                    kind = kinds[code]
                if mixed[at] and (not first or code):
                    points[size, 0], points[size, 1], points[size, 2] = row - top + first, at, kind
                    size += 1
    return points[:size]


def _rows_off(targets: Points, shape: tuple[int, int]) -> Steps:
    """Returns rows to the column's nearest target, (rows, columns); else `FAR`."""
    rows, columns = shape
    off = np.full((rows, columns), FAR, np.int16)
    for at in range(len(targets)):
        off[targets[at, 0], targets[at, 1]] = 0
    for row in range(1, rows):
        for column in range(columns):
            off[row, column] = min(off[row, column], off[row - 1, column] + 1)
    for row in range(rows - 2, -1, -1):
        for column in range(columns):
            off[row, column] = min(off[row, column], off[row + 1, column] + 1)
    return off


def _find_nearest(points: Points, off: Steps, spacing: tuple[float, float]) -> Steps:
    """Returns steps to the nearest targets, (n, 2); 0 without.

    The least sum of two squares over the columns, nearest first, until a column alone is farther.
    """
    columns = off.shape[1]
    steps = np.zeros((len(points), 2), np.int16)
    for at in range(len(points)):
        row, column = points[at, 0], points[at, 1]
        best = np.inf
        for step in range(columns):
            across = (step * spacing[1]) * (step * spacing[1])
            if across >= best:
                break
            down = off[row, column - step] if column >= step else np.int16(FAR)
            if column + step < columns:
                down = min(down, off[row, column + step])
            square = (down * spacing[0]) * (down * spacing[0]) + across
            if down < LONGEST and square < best:
                best, steps[at, 0], steps[at, 1] = square, down, step
    return steps


def _count_steps(points: Points, steps: Steps, kinds: int) -> tuple[Array, Array, int]:
    """Returns distinct steps (n,) and point counts by kind (n, kinds).

    Steps are rows times a width plus columns, ascending; the width comes last.
    """
    farthest, width = 0, 1
    for at in range(len(points)):
        farthest, width = max(farthest, int(steps[at, 0])), max(width, int(steps[at, 1]) + 1)
    table = (farthest + 1) * width
    if table * kinds <= LONGEST_TABLE:
        times = np.zeros((table, kinds), np.int64)
        for at in range(len(points)):
            times[int(steps[at, 0]) * width + steps[at, 1], points[at, 2]] += 1
        return np.arange(table), times, width
    keys = np.empty(len(points))
    for at in range(len(points)):
        keys[at] = int(steps[at, 0]) * width + steps[at, 1]
    different, times, last = np.empty(len(points), np.int64), np.zeros((len(points), kinds), np.int64), -1
    for at in np.argsort(keys):
        if last < 0 or keys[at] > different[last]:
            last += 1
        different[last] = int(keys[at])
        times[last, points[at, 2]] += 1
    return different[: last + 1], times[: last + 1], width


def _distance_profile(
    points: Points, targets: Points, shape: tuple[int, int], spacing: tuple[float, float], weights: Floats
) -> tuple[Floats, Floats]:
    """Returns ascending distances in mm, and surface at each."""
    different, times, width = _count_steps(
        points, _find_nearest(points, _rows_off(targets, shape), spacing), len(weights)
    )
    lengths, nearest, size = np.empty(len(different)), np.empty(len(different), np.int64), 0
    for index in range(len(different)):
        held = 0
        for kind in range(len(weights)):
            held += times[index, kind]
        if held:
            down, across = different[index] // width * spacing[0], different[index] % width * spacing[1]
            lengths[size], nearest[size] = np.sqrt(down * down + across * across), index
            size += 1
    # Points are counted before they are weighed, as by NumPy: so in pixels not a bit differs.
    values, surface, last = np.empty(size), np.zeros(size), -1
    counted = np.zeros((size, len(weights)))
    for at in np.argsort(lengths[:size]):
        if last < 0 or lengths[at] > values[last]:
            last += 1
        values[last] = lengths[at]
        for kind in range(len(weights)):
            counted[last, kind] += times[nearest[at], kind]
    for at in range(last + 1):
        for kind in range(len(weights)):
            surface[at] += counted[at, kind] * weights[kind]
    if not len(targets):
        values[:] = np.inf
    return values[: last + 1], surface[: last + 1]


def _measure_label(
    codes: tuple[Array, Array],
    label: int,
    box: tuple[int, int, int, int],
    kinds: npt.NDArray[np.uint8],
    spacing: tuple[float, float],
    weights: Floats,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns a label's `_distance_profile` from one picture to another, and back."""
    first_contour, second_contour = (
        _find_contour(codes[0], label, box, kinds),
        _find_contour(codes[1], label, box, kinds),
    )
    shape = box[1] - box[0] + 2, box[3] - box[2] + 2
    lengths, surface = _distance_profile(first_contour, second_contour, shape, spacing, weights)
    lengths_back, surface_back = _distance_profile(second_contour, first_contour, shape, spacing, weights)
    return lengths, surface, lengths_back, surface_back


_FUNCTIONS = (_crop_pair, _measure_label)
# What they call.
_PARTS = (_find_box, _find_contour, _rows_off, _find_nearest, _count_steps, _distance_profile)


@cache
def _compile_kernels() -> Kernels | None:
    try:
        from numba import extending, njit
    except ImportError:
        return None
    for part in _PARTS:
        extending.register_jitable(part)
    try:
        return Kernels(*(njit(cache=True)(function) for function in _FUNCTIONS))
    except RuntimeError:  # neither this folder nor the user's cache can be written
        return Kernels(*(njit(function) for function in _FUNCTIONS))


_spared: Iterator[int] = iter(())


@cache
def spare_loading() -> None:
    """Keeps a process's first pictures in NumPy, sparing compilation."""
    global _spared  # noqa: PLW0603 - as what is loaded is the process's
    _spared = iter(range(SPARED))


def kernels(longest: int) -> Kernels | None:
    """Returns compiled functions; None without Numba or worth."""
    return _compile_kernels() if longest < LONGEST and next(_spared, None) is None else None


def contour_profiles(
    compiled: Kernels,
    codes: tuple[Codes, Codes],
    boxes: Iterable[tuple[int, tuple[slice, ...]]],
    spacing: Spacing,
    surface: str,
) -> tuple[DistanceProfiles, DistanceProfiles]:
    """Returns contour distances between pictures, padded by 0, by label, both ways."""
    weights, kinds = kinds_of(spacing) if surface == "surfel" else (np.ones(1), np.zeros(0, np.uint8))
    profiles: tuple[dict[int, tuple[Floats, Floats]], ...] = ({}, {})
    for label, (rows, columns) in boxes:
        box = rows.start, rows.stop - 1, columns.start, columns.stop - 1
        lengths = compiled.measure(codes, label, box, kinds, spacing, weights)
        profiles[0][label], profiles[1][label] = lengths[:2], lengths[2:]
    return DistanceProfiles(profiles[0]), DistanceProfiles(profiles[1])
