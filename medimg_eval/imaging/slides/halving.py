"""Half the pixels along both axes, as Pillow's triangle filter makes them, compiled by Numba (extra `fast`).

Where an output pixel is two by two stored ones and none is cut, the filter's weights are 1, 3, 3 and 1 eighths, which
its fixed-point numbers hold exactly; it rounds after the rows and again after the columns. So do whole numbers here, in
a twentieth of the time.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any

import numpy as np

from medimg_eval.case import Array

SPARED = 1500
"""Squares of a process that are left to Pillow first: it makes them in the time that Numba takes to load."""

_asked = count()


def halved(pixels: Array, top: int, left: int, edge: int) -> Array | None:
    """Brings a square to half its pixels along both axes.

    Equal, pixel by pixel, to `resize` of Pillow with `BILINEAR` and the box of twice `edge` at `top` and `left`. Of
    other rectangles newer versions of Pillow take columns before rows, and round elsewhere.

    Args:
        pixels: uint8, (row, column, 3), contiguous, with a pixel or more beyond the box on each side.
        top: first row of the box, from 1.
        left: its first column, from 1.
        edge: of the result.

    Returns:
        uint8, (edge, edge, 3); None where Numba is not installed, or not worth its loading yet.
    """
    function = _compile_halving() if next(_asked) >= SPARED else None
    if function is None:
        return None
    out = np.empty((edge, edge, 3), np.uint8)
    function(pixels.reshape(len(pixels), -1), top - 1, 3 * (left - 1), out.reshape(edge, -1))
    return out


def _halve_rows(pixels: Array, top: int, begin: int, out: Array) -> None:
    """Halved rows (row, 3 columns), resuming from a row's value."""
    width = out.shape[1]
    three, four = np.int16(3), np.int16(4)
    sums = np.empty(2 * width, np.int16)
    lines = np.empty((4, width), np.int16)  # the last four rows, half as wide
    for row in range(2 * len(out) + 2):
        near = pixels[top + row, begin : begin + 2 * width + 6]
        for column in range(2 * width - 3):  # at every pixel, which vectors do at once
            middle = np.int16(near[column + 3]) + np.int16(near[column + 6])
            sums[column] = np.int16(near[column]) + three * middle + np.int16(near[column + 9]) + four
        line = lines[row & 3]
        for column in range(0, width, 3):
            line[column] = sums[2 * column] >> 3
            line[column + 1] = sums[2 * column + 1] >> 3
            line[column + 2] = sums[2 * column + 2] >> 3
        if row >= 3 and row & 1:
            first, second = lines[(row - 3) & 3], lines[(row - 2) & 3]
            third, last = lines[(row - 1) & 3], lines[row & 3]
            target = out[(row - 3) >> 1]
            for column in range(width):
                middle = second[column] + third[column]
                target[column] = np.uint8((first[column] + three * middle + last[column] + four) >> 3)


@cache
def _compile_halving() -> Any:
    try:
        from numba import njit
    except ImportError:
        return None
    try:
        return njit(cache=True)(_halve_rows)
    except RuntimeError:  # neither this folder nor the user's cache can be written
        return njit(_halve_rows)
