"""Contours of pictures and the distances between them, compiled by Numba where it is installed (extra `fast`).

Written as loops over plain arrays, and compiled when the first picture is judged; the machine code is kept, beside this
file or in the user's cache where that cannot be written. Values are those of `surfaces` and `nearest_surface`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.segmentation.nearest_surface import (
    LONGEST_TABLE,
    DistanceProfiles,
    step_lengths,
    tally,
)
from medimg_eval.metrics.segmentation.surfaces import Codes, Floats, Spacing, kinds_of

Points: TypeAlias = npt.NDArray[np.int32]
Steps: TypeAlias = npt.NDArray[np.int16]

FAR = 32000
"""Rows to the next target of a column that has none; no picture that is judged here has half as many."""

LONGEST = FAR // 2


class Kernels(NamedTuple):
    """The compiled functions."""

    find_filled: Any
    find_contour: Any
    rows_off: Any
    find_nearest: Any
    add_up: Any


def _find_filled(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Returns the rows, and the columns, in which one of two pictures is not 0."""
    rows, columns = np.zeros(one.shape[0], np.uint8), np.zeros(one.shape[1], np.uint8)
    for row in range(one.shape[0]):
        mine, theirs, held = one[row], other[row], np.uint8(0)
        for column in range(one.shape[1]):
            filled = np.uint8((mine[column] != 0) | (theirs[column] != 0))
            columns[column] |= filled
            held |= filled
        rows[row] = held
    return rows, columns


def _find_contour(
    codes: npt.NDArray[Any], label: int, box: tuple[int, int, int, int], kinds: npt.NDArray[np.uint8]
) -> Points:
    """Returns the points of a label's surface, (n, 3): row and column in the box's, and the kind of each.

    Args:
        codes: padded by a 0 on each side at least.
        label: whose surface.
        box: first and last row, first and last column, beyond which there is none of it.
        kinds: (16,) the kind of a corner by its 2x2 code; (0,) for border pixels, all of kind 0.
    """
    top, bottom, left, right = box
    first = 1 if len(kinds) else 0
    width = right - left + 1 + first
    found = np.empty(((bottom - top + 1 + first) * width, 3), np.int32)
    mixed = np.zeros((width + 7) // 8 * 8, np.uint8)
    by_eight = mixed.view(np.uint64)
    size = 0
    for row in range(top - first, bottom + 1):
        # Lines from the first column that is looked at, so that no index is below 0.
        start = left - first
        here, below, beside = codes[row, start:], codes[row + 1, start:], codes[row, start + 1 :]
        if first:
            across = codes[row + 1, start + 1 :]
            for at in range(width):
                own = here[at]
                mixed[at] = (own != beside[at]) | (own != below[at]) | (own != across[at])
        else:
            above, before = codes[row - 1, start:], codes[row, start - 1 :]
            for at in range(width):
                own, ends = here[at], (here[at] != above[at]) | (here[at] != below[at])
                mixed[at] = (own == label) & (ends | (own != before[at]) | (own != beside[at]))
        for eight in range(len(by_eight)):
            # Most places are no border: eight at once are passed over.
            for at in range(8 * eight, min(8 * eight + 8, width) if by_eight[eight] else 0):
                kind = 0
                if first:
                    code = (here[at] == label) + 2 * (beside[at] == label)
                    code += 4 * (below[at] == label) + 8 * (codes[row + 1, start + 1 + at] == label)
                    kind = kinds[code]
                if mixed[at] and (not first or code):
                    found[size, 0], found[size, 1], found[size, 2] = row - top + first, at, kind
                    size += 1
    return found[:size].copy()


def _rows_off(targets: Points, shape: tuple[int, int]) -> Steps:
    """Returns how many rows each place is from a target of its own column, (rows, columns); `FAR` where it has none."""
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
    """Returns the rows and columns from each point to the nearest target, (n, 2): 0 where there is no target.

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


def _add_up(points: Points, steps: Steps, spacing: tuple[float, float], weights: Floats) -> tuple[Floats, Floats]:
    """Returns distances in mm, each once and ascending, and how much surface is at each.

    Nothing where a table of all steps is too long.
    """
    farthest, widest, kinds = np.int64(0), np.int64(1), len(weights)
    for at in range(len(points)):
        farthest, widest = max(farthest, steps[at, 0]), max(widest, steps[at, 1] + 1)
    rows = (farthest + 1) * widest if (farthest + 1) * widest * kinds <= LONGEST_TABLE else 0
    if not rows:
        return np.empty(0), np.empty(0)
    times = np.zeros((rows, kinds), np.int64)
    for at in range(len(points)):
        times[steps[at, 0] * widest + steps[at, 1], points[at, 2]] += 1
    lengths, surface = np.empty(len(times)), np.empty(len(times))
    size = 0
    for place in range(len(times)):
        held = 0.0
        for kind in range(kinds):
            held += times[place, kind] * weights[kind]
        if held > 0:
            down, across = place // widest * spacing[0], place % widest * spacing[1]
            lengths[size], surface[size] = np.sqrt(down * down + across * across), held
            size += 1
    values, held_at, last = np.empty(size), np.zeros(size), -1
    for place in np.argsort(lengths[:size]):
        if last < 0 or lengths[place] > values[last]:
            last += 1
        values[last] = lengths[place]
        held_at[last] += surface[place]
    return values[: last + 1], held_at[: last + 1]


_FUNCTIONS = (_find_filled, _find_contour, _rows_off, _find_nearest, _add_up)


@cache
def _compiled() -> Kernels | None:
    try:
        from numba import njit
    except ImportError:
        return None
    try:
        return Kernels(*(njit(cache=True)(one) for one in _FUNCTIONS))
    except RuntimeError:  # neither this folder nor the user's cache can be written
        return Kernels(*(njit(one) for one in _FUNCTIONS))


def kernels(longest: int) -> Kernels | None:
    """Returns the compiled functions; None where Numba is not installed, and for a picture of so many lines."""
    return _compiled() if longest < LONGEST else None


def contour_profiles(
    compiled: Kernels,
    codes: tuple[Codes, Codes],
    boxes: Iterable[tuple[int, tuple[slice, ...]]],
    labels: int,
    spacing: Spacing,
    surface: str,
) -> tuple[DistanceProfiles, DistanceProfiles]:
    """Returns the distances from the contours of one picture to those of another, label by label, and back.

    Args:
        compiled: the functions that do it.
        codes: label maps, padded by a 0 on each side at least.
        boxes: labels that occur, each with a box that holds it in both maps.
        labels: the highest label.
        spacing: pixel size in mm along each axis.
        surface: "surfel" or "voxel".
    """
    weights, kinds = kinds_of(spacing) if surface == "surfel" else (np.ones(1), np.zeros(0, np.uint8))
    found: tuple[dict[int, tuple[Floats, Floats]], ...] = ({}, {})
    for label, box in boxes:
        rows, columns = box
        ends = rows.start, rows.stop - 1, columns.start, columns.stop - 1
        shape = rows.stop - rows.start + 1, columns.stop - columns.start + 1
        one, other = (compiled.find_contour(some, label, ends, kinds) for some in codes)
        for profiles, start, target in ((found[0], one, other), (found[1], other, one)):
            if len(start):
                steps = compiled.find_nearest(start, compiled.rows_off(target, shape), spacing)
                lengths, held = compiled.add_up(start, steps, spacing, weights)
                if not len(lengths):
                    lengths, held = tally(step_lengths(steps, spacing), start[:, 2], weights)
                profiles[label] = (lengths if len(target) else np.full(len(lengths), np.inf)), held
    none = np.zeros(0), np.zeros((0, labels + 1))
    return DistanceProfiles(*none, found[0]), DistanceProfiles(*none, found[1])
