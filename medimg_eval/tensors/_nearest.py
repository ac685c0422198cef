"""The nearest point of the same label on the other surface, for every surface point.

Near points are found by looking at the places around in the order of their distance, for all labels at once: the
first hit is the nearest. Points that are farther than the last place are measured label by label.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from medimg_eval.metrics.segmentation import StructuringBall, step_lengths
from medimg_eval.tensors._surfaces import SurfacePoints

LOOKUPS = 1 << 22
"""Places looked at in one step: enough for a GPU to be busy, few enough to fit beside two large volumes."""

WIDEST = 64
"""Places around one point that are looked at in one step."""

PAIRS = 1 << 24
"""Distances that are held at once where all pairs are measured."""


def nearest(
    start: SurfacePoints,
    target: SurfacePoints,
    shape: tuple[int, ...],
    spacing: tuple[float, ...],
    around: StructuringBall,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Returns distance ranks of `start`'s points, and distances beyond them.

    That is (n,), the place in `around.lengths`, its length for a point that is farther; and (far,) mm, of those points
    in their order. Each label of `start` must have a point in `target`; both lie in a box of that shape.
    """
    ranks = _near_ranks(start, target, shape, around)
    far = ranks == len(around.lengths)
    labels, points = start.labels[far], start.points[far]
    steps = torch.empty_like(points)
    measure = by_pairs if points.is_cuda else by_tree
    for label in torch.unique(labels).tolist():
        mine, targets = labels == label, target.points[target.labels == label]
        steps[mine] = points[mine] - targets[measure(points[mine], targets, spacing)]
    return ranks.cpu().numpy(), step_lengths(steps.cpu().numpy(), spacing)


def by_pairs(points: Tensor, targets: Tensor, spacing: tuple[float, ...]) -> Tensor:
    """Returns the nearest target of each point, by brute force."""
    sizes = torch.tensor(spacing, dtype=torch.float64, device=points.device)
    point_mm, target_mm = points * sizes, targets * sizes
    nearest = [
        torch.cdist(part, target_mm, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
        for part in torch.split(point_mm, max(1, PAIRS // len(target_mm)))
    ]
    return torch.cat(nearest)


def by_tree(points: Tensor, targets: Tensor, spacing: tuple[float, ...]) -> Tensor:
    """Returns the nearest target of each point, by CPU tree."""
    from scipy.spatial import cKDTree

    sizes = np.asarray(spacing)
    tree = cKDTree(targets.cpu().numpy() * sizes, balanced_tree=False, compact_nodes=False)
    return torch.from_numpy(tree.query(points.cpu().numpy() * sizes)[1]).to(points.device)


def _near_ranks(start: SurfacePoints, target: SurfacePoints, shape: tuple[int, ...], around: StructuringBall) -> Tensor:
    device = start.points.device
    padded = [size + 2 * most for size, most in zip(shape, around.reach, strict=True)]
    line = [math.prod(padded[axis + 1 :]) for axis in range(len(padded))]
    origin = sum(most * step for most, step in zip(around.reach, line, strict=True))
    strides, volume = torch.tensor(line, device=device), math.prod(padded)
    layers = int(target.layers.max()) + 1 if len(target.layers) else 1
    surface = torch.zeros(layers * volume, dtype=target.labels.dtype, device=device)
    surface[target.layers * volume + (target.points * strides).sum(1) + origin] = target.labels
    steps = (torch.from_numpy(around.steps).to(device) * strides).sum(1)
    order = torch.from_numpy(around.ranks).to(device)
    positions = (start.points * strides).sum(1) + origin
    ranks = torch.full((len(positions),), len(around.lengths), device=device)
    for part in torch.split(torch.arange(len(positions), device=device), LOOKUPS // 8):
        _search_ranks(ranks, part, positions, start.labels, surface.view(layers, volume), (steps, order))
    return ranks


def _search_ranks(
    ranks: Tensor, points: Tensor, places: Tensor, labels: Tensor, surface: Tensor, around: tuple[Tensor, Tensor]
) -> None:
    """Writes ranks of the first matching neighbour; others keep theirs."""
    steps, order = around
    none, first = ranks.new_full((), torch.iinfo(ranks.dtype).max), 0
    while len(points) and first < len(steps):
        width = min(WIDEST, max(1, first), max(8, LOOKUPS // len(points)))
        at = places[points, None] + steps[first : first + width]
        own = labels[points, None]
        hit = surface[0][at] == own
        for layer in surface[1:]:
            hit |= layer[at] == own
        ranks_ = torch.where(hit, order[first : first + width], none).amin(1)
        ranks[points] = torch.minimum(ranks[points], ranks_)
        points = points[ranks_ == none]
        first += width
