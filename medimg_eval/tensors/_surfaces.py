"""Surfaces of all labels of a label map at once, on the device that the map lies on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

PIECE = 1 << 22
"""Voxels that are worked on at once where a wider copy of them is made."""

TABLE = 1 << 16
"""Labels below this are looked up in a table."""


class SurfacePoints(NamedTuple):
    """Surface points of all labels; shared points occur twice.

    A point that lies on the surfaces of two labels.

    Attributes:
        points: (n, axes) int64: index of a voxel, or of the grid corner before a voxel.
        labels: (n,): which label's surface, counted from 1.
        codes: (n,) int64: which of the voxels around a corner are the label's, one bit each; 0 for voxels.
        layers: (n,) int64: how many labels stand before this one at the same point.
    """

    points: Tensor
    labels: Tensor
    codes: Tensor
    layers: Tensor


def foreground_box(reference: Tensor, prediction: Tensor) -> tuple[slice, ...]:
    """Returns the smallest box of nonzero voxels in either map.

    An empty one if all is 0.
    """
    filled = (reference != 0) | (prediction != 0)
    box: list[slice] = []
    for axis in range(filled.ndim):
        other_axes = [other_axis for other_axis in range(filled.ndim) if other_axis != axis]
        indices = filled.any(dim=other_axes).nonzero()
        box.append(slice(int(indices[0]), int(indices[-1]) + 1) if len(indices) else slice(0, 0))
        filled = filled[(slice(None),) * axis + (box[-1],)]
    return tuple(box)


def numbered(label_map: Tensor, regions: Sequence[Sequence[int]]) -> Tensor:
    """Returns a map numbering the regions 1, 2, ..., smallest dtype.

    All else is 0.
    """
    dtype = next(dtype for dtype in (torch.uint8, torch.int16, torch.int32) if len(regions) <= torch.iinfo(dtype).max)
    pairs = sorted((label, number) for number, labels in enumerate(regions, start=1) for label in labels)
    labels, numbers = torch.tensor(pairs, dtype=torch.int64, device=label_map.device).T.contiguous()
    numbers = numbers.to(dtype)
    beyond = pairs[-1][0] + 1
    table = torch.zeros(min(beyond + 1, TABLE), dtype=dtype, device=label_map.device)
    if beyond < TABLE:
        table[labels] = numbers
    numbers_ = torch.empty(label_map.shape, dtype=dtype, device=label_map.device)
    pieces = (torch.split(tensor.reshape(-1), PIECE) for tensor in (label_map, numbers_))
    for piece, out in zip(*pieces, strict=True):
        wide = piece.to(torch.int64).clamp(0, beyond)
        if beyond < TABLE:
            torch.take(table, wide, out=out)
        else:
            indices = torch.searchsorted(labels, wide).clamp_(max=len(labels) - 1)
            out.copy_(torch.where(labels[indices] == wide, numbers[indices], 0))
    return numbers_


def surface_points(label_map: Tensor, surface: str) -> SurfacePoints:
    """Returns label surfaces of a numbered map, outside as background."""
    padded = torch.nn.functional.pad(label_map, (1, 1) * label_map.ndim)
    return _surface_voxels(label_map, padded) if surface == "voxel" else _surface_elements(padded)


def _surface_voxels(label_map: Tensor, padded: Tensor) -> SurfacePoints:
    """Voxels of a label with a face neighbour that is not of it."""
    border = torch.zeros(label_map.shape, dtype=torch.bool, device=label_map.device)
    for axis, start in itertools.product(range(label_map.ndim), (0, 2)):
        shift = [1] * label_map.ndim
        shift[axis] = start
        border |= _padded_part(padded, shift, label_map.shape) != label_map
    border &= label_map != 0
    points = border.nonzero()
    nothing = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    return SurfacePoints(points, label_map[border], nothing, nothing)


def _surface_elements(padded: Tensor) -> SurfacePoints:
    """Grid corners on a label's boundary, once per label."""
    axes = padded.ndim
    corners = list(itertools.product((0, 1), repeat=axes))
    shape = [size - 1 for size in padded.shape]
    start = _padded_part(padded, corners[0], shape)
    mixed = torch.zeros(shape, dtype=torch.bool, device=padded.device)
    for corner in corners[1:]:
        mixed |= _padded_part(padded, corner, shape) != start
    points = mixed.nonzero()
    strides = torch.tensor(padded.stride(), device=padded.device)
    steps = (torch.tensor(corners, device=padded.device) * strides).sum(1)
    around = padded.reshape(-1)[(points * strides).sum(1)[:, None] + steps]
    bits = 1 << torch.arange(len(corners), device=padded.device)
    before = torch.zeros(len(points), dtype=torch.int64, device=padded.device)
    surfaces = []
    for bit in range(len(corners)):
        is_same = around == around[:, bit : bit + 1]
        new = (around[:, bit] != 0) & ~is_same[:, :bit].any(dim=1)
        codes = (is_same[new] * bits).sum(1)
        surfaces.append((points[new], around[new, bit], codes, before[new]))
        before += new
    return SurfacePoints(*(torch.cat(parts) for parts in zip(*surfaces, strict=True)))


def _padded_part(padded: Tensor, start: Sequence[int], shape: Sequence[int]) -> Tensor:
    return padded[tuple(slice(first, first + size) for first, size in zip(start, shape, strict=True))]
