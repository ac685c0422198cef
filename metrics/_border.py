"""The surfaces of every label of a label map, found in one pass over its voxels.

A label map is read as one row of voxels, padded so that a step to a neighbour is a fixed step along the row and
never leaves it. Voxels and points are taken in pieces that fit a processor's cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics._surfaces import Bools, Floats, Spacing, surfel_measures

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Indices: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
# Places in a list of corners, the label that each has among others, and the label's 2x2x2 code.
Layer: TypeAlias = tuple[Indices | slice, Codes, Bytes]

VOXELS_AT_ONCE = 1 << 17
POINTS_AT_ONCE = 1 << 15
# Beyond, sorting costs less than a table.
LONGEST_TABLE = 1 << 22


@dataclass(frozen=True, eq=False)
class Border:
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


def voxel_border(codes: Codes, labels: int) -> Border:
    """Returns every voxel that has a face neighbour of another label.

    Args:
        codes: C-contiguous label map, padded by a 0 on each side at least.
        labels: The highest label.
    """
    flat, steps = codes.ravel(), _steps(codes)
    index = _where_mixed(flat, [*steps, *(-step for step in steps)], inside=True)
    label = flat[index]
    sets = np.zeros((0, labels + 1), np.bool_)
    return Border(index, label, np.zeros(len(index), np.uint8), np.ones(1), index, label, sets)


def surfel_border(codes: Codes, labels: int, spacing: Spacing) -> Border:
    """Returns every corner between voxels of different labels, for each label at it, with its 2x2x2 code's area.

    Args:
        codes: C-contiguous label map, padded by a 0 on each side at least.
        labels: The highest label.
        spacing: Voxel size in mm along each axis.
    """
    flat, steps = codes.ravel(), _steps(codes)
    corners = [sum(itertools.compress(steps, bits)) for bits in itertools.product((0, 1), repeat=codes.ndim)]
    places = _where_mixed(flat, corners[1:], inside=False)
    layers = _labels_at_corners(flat, places, corners)
    numbers, sets = _numbered(layers, labels)
    weights, cells = _kinds(spacing)
    return Border(
        np.concatenate([places[at] for at, _, _ in layers]),
        np.concatenate([label for _, label, _ in layers]),
        cells[np.concatenate([code for _, _, code in layers])],
        weights,
        places,
        numbers,
        sets,
    )


def _steps(codes: Codes) -> tuple[int, ...]:
    """Returns how far apart neighbours along each axis are in the row of voxels."""
    return tuple(stride // codes.itemsize for stride in codes.strides)


def _where_mixed(flat: Codes, steps: Sequence[int], *, inside: bool) -> Indices:
    """Returns the places whose voxel differs from one that lies some step on; `inside`: where it is not 0 itself."""
    first, last = max(0, -min(steps)), flat.size - max(steps)
    found = [np.zeros(0, np.int64)]
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
        found.append(np.flatnonzero(mixed) + start)
    return np.concatenate(found)


def _labels_at_corners(flat: Codes, places: Indices, corners: Sequence[int]) -> list[Layer]:
    """Returns each label but 0 of the voxels around corners, the first layer being one of every corner."""
    high, low = np.empty((2, len(places)), flat.dtype)
    high_code, low_code = np.empty((2, len(places)), np.uint8)
    for start in range(0, len(places), POINTS_AT_ONCE):
        part = slice(start, start + POINTS_AT_ONCE)
        values = np.stack([flat[places[part] + corner] for corner in corners])
        high[part], low[part] = values.max(axis=0), values.min(axis=0)
        high_code[part], low_code[part] = _code(values, high[part]), _code(values, low[part])
    at = np.flatnonzero(low)
    layers: list[Layer] = [(slice(None), high, high_code), (at, low[at], low_code[at])]
    seen = high_code | low_code
    at = np.flatnonzero(seen != (1 << len(corners)) - 1)  # few corners have voxels of more than two kinds
    if len(at):
        seen, values = seen[at], np.stack([flat[places[at] + corner] for corner in corners])
        for bit in range(len(corners)):
            fresh = np.flatnonzero((seen >> bit & 1 == 0) & (values[bit] != 0))
            label = values[bit, fresh]
            code = _code(values[:, fresh], label)
            seen[fresh] |= code
            layers.append((at[fresh], label, code))
    return [layers[0], *(layer for layer in layers[1:] if len(layer[1]))]


@cache
def _kinds(spacing: Spacing) -> tuple[Floats, Bytes]:
    """Returns the different measures of 2x2x2 codes, ascending, and which of them each code has."""
    weights, kinds = np.unique(surfel_measures(spacing), return_inverse=True)
    return weights, kinds.astype(np.uint8)


def _code(values: Codes, label: Codes) -> Bytes:
    """Returns a bit for each of the voxels around a corner: whether it has the label."""
    code = np.zeros(len(label), np.uint8)
    for bit, voxel in enumerate(values):
        code |= np.left_shift((voxel == label).view(np.uint8), bit, dtype=np.uint8)
    return code


def _numbered(layers: Sequence[Layer], labels: int) -> tuple[Codes, Bools]:
    """Returns the number of each corner, its label or (above the highest label) of its set, and who is in a set.

    A set is built up layer by layer: the number so far and the next label make a new number. So a set has as
    many numbers as there are orders in which it came about.
    """
    numbers = layers[0][1].astype(np.int64)
    sets = np.zeros((0, labels + 1), np.bool_)
    for at, label, _ in layers[1:]:
        keys = numbers[at] * (labels + 1) + label
        pairs, which = _different(keys, (labels + 1) * (labels + 1 + len(sets)))
        numbers[at] = which + labels + 1 + len(sets)
        before, added = np.divmod(pairs, labels + 1)
        rows = np.zeros((len(pairs), labels + 1), np.bool_)
        known = before > labels
        rows[known] = sets[before[known] - labels - 1]
        rows[~known, before[~known]] = True
        rows[np.arange(len(pairs)), added] = True
        sets = np.concatenate([sets, rows])
    return numbers.astype(np.min_scalar_type(labels + len(sets))), sets


def _different(keys: Indices, limit: int) -> tuple[Indices, Indices]:
    """Returns the different ones of many numbers below a limit, and which of them each is."""
    if limit > LONGEST_TABLE:
        return np.unique(keys, return_inverse=True)
    table = np.zeros(limit, np.int64)
    table[keys] = 1
    different = np.flatnonzero(table)
    table[different] = np.arange(len(different))
    return different, table[keys]
