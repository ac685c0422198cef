"""Connected parts of masks, how they overlap, and which of two masks' parts are taken for the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from itertools import product
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats
from medimg_eval.metrics.segmentation.matching_rules import InstanceRule
from medimg_eval.metrics.segmentation.pairs import LabelPair

Integers = npt.NDArray[np.integer]
Found = TypeVar("Found")

_DENSE = 4
"""Joint counts are tabulated while the table has at most so many cells per voxel."""


_RUNS = 16
"""Parts are found from runs of voxels while there is at most one for so many voxels; noise has more."""


def once_per_pair(function: Callable[[LabelPair], Found]) -> Callable[[LabelPair], Found]:
    """Caches a value of a pair, which must not hold it, while the pair lives."""
    cache: WeakKeyDictionary[LabelPair, Found] = WeakKeyDictionary()

    @wraps(function)
    def once(pair: LabelPair) -> Found:
        if pair not in cache:
            cache[pair] = function(pair)
        return cache[pair]

    return once


def connected_parts(mask: Bools, connectivity: str = "corner") -> tuple[Integers, int]:
    """Numbers connected parts of a mask (*spatial) from 1, int32, and counts them.

    Voxels that share a "corner" are connected (26 neighbours, 2-D: 8), or only those that share a "face" (6, 2-D: 4).
    Parts are in the order of their first voxel.
    """
    from scipy.ndimage import generate_binary_structure, label
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    voxels = np.flatnonzero(mask)
    parts: Integers = np.zeros(mask.size, np.int32)
    if not voxels.size:
        return parts.reshape(mask.shape), 0
    length = mask.shape[-1]
    first = np.flatnonzero(np.concatenate([[True], (np.diff(voxels) != 1) | (voxels[1:] % length == 0)]))
    if len(first) * _RUNS > mask.size:
        parts, count = label(mask, generate_binary_structure(mask.ndim, 1 if connectivity == "face" else mask.ndim))
        return parts, int(count)
    runs = np.diff(first, append=voxels.size)
    first_runs, second_runs = _connected_runs(voxels[first], runs, mask.shape, connectivity)
    joined = coo_array((np.ones(len(first_runs), bool), (first_runs, second_runs)), shape=(len(first),) * 2)
    count, part = connected_components(joined, directed=False)
    number = np.empty(count, np.int32)
    number[np.argsort(np.unique(part, return_index=True)[1])] = np.arange(1, count + 1)
    parts[voxels] = np.repeat(number[part], runs)
    return parts.reshape(mask.shape), int(count)


def _connected_runs(
    starts: Integers, lengths: Integers, shape: tuple[int, ...], connectivity: str
) -> tuple[Integers, Integers]:
    """Returns connected voxel runs of the last axis, as pairs.

    `starts`, (run,), ascend, counted through the image; `lengths`, (run,), are in voxels.
    """
    # With a margin around the image and between lines, a neighbouring line lies the same number of voxels further on.
    line, column = np.divmod(starts, shape[-1])
    strides = [math.prod(size + 2 for size in shape[axis + 1 :]) for axis in range(len(shape) - 1)]
    at = np.unravel_index(line, shape[:-1]) if strides else ()
    begin = column + sum((along + 1) * stride for along, stride in zip(at, strides, strict=True))
    end = begin + lengths
    reach = int(connectivity != "face")
    first_runs, second_runs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for step in product((-1, 0, 1), repeat=len(shape) - 1):
        if step < (0,) * len(step) and (reach or np.abs(step).sum() == 1):
            shift = sum(by * stride for by, stride in zip(step, strides, strict=True))
            lowest = np.searchsorted(end, begin + shift + 1 - reach)
            count = np.maximum(np.searchsorted(begin, end + shift + reach) - lowest, 0)
            first_runs.append(np.repeat(np.arange(len(begin)), count))
            second_runs.append(np.arange(count.sum()) + np.repeat(lowest - np.cumsum(count) + count, count))
    return np.concatenate(first_runs), np.concatenate(second_runs)


def dilated(mask: Bools, steps: int) -> Bools:
    """Returns the mask dilated by face and edge neighbours, stepwise.

    Those are the 18 neighbours of `generate_binary_structure(3, 2)`; in 2-D all 8.
    """
    for _ in range(steps):
        lines = [_spread_mask(mask, axis) for axis in range(mask.ndim - 1)]
        # A voxel's 18 neighbours are the three 3 x 3 squares around it, one in each plane.
        grown = _spread_mask(lines[0], 1)
        if mask.ndim == 3:
            grown |= _spread_mask(lines[0], 2)
            grown |= _spread_mask(lines[1], 2)
        mask = grown
    return mask


def _spread_mask(mask: Bools, axis: int) -> Bools:
    """Returns the mask grown by one voxel to both sides along an axis."""
    grown = mask.copy()
    before: list[slice] = [slice(None)] * mask.ndim
    after = before.copy()
    before[axis], after[axis] = slice(None, -1), slice(1, None)
    grown[tuple(after)] |= mask[tuple(before)]
    grown[tuple(before)] |= mask[tuple(after)]
    return grown


def shared_voxels(one: Integers, other: Integers) -> tuple[Integers, Integers, Integers]:
    """Returns overlapping parts of two numberings, ascending, with voxels; 0 is no part."""
    both = (one > 0) & (other > 0)
    first, second = one[both].astype(np.int64), other[both].astype(np.int64)
    width = int(second.max(initial=0)) + 1
    codes = first * width + second
    if (int(first.max(initial=0)) + 1) * width <= _DENSE * max(one.size, 1024):
        table = np.bincount(codes)
        indices = np.flatnonzero(table)
        counts = table[indices]
    else:
        indices, counts = np.unique(codes, return_counts=True)
    return indices // width, indices % width, counts


def match_parts(
    reference: Integers, prediction: Integers, spacing: tuple[float, ...], rule: InstanceRule
) -> tuple[Integers, Integers, Integers]:
    """Matches parts one to one, by a rule.

    Parts are numbered from 1 without gaps, 0 elsewhere, (*spatial). Returns int64 (match,) each: the part of the
    reference, of the prediction (ordered by the former), and the voxels they share.
    """
    reference_parts, predicted_parts, shared = shared_voxels(reference, prediction)
    sizes, other_sizes = np.bincount(reference.ravel()), np.bincount(prediction.ravel())
    if rule.matching == "centroid":
        reference_parts, predicted_parts, distances = _near_centroids(reference, prediction, spacing, rule.threshold)
        reward = (min(len(sizes), len(other_sizes)) * rule.threshold) + 1 - distances
        voxels = dict(zip(zip(*shared_voxels(reference, prediction)[:2], strict=True), shared, strict=True))
        shared = np.array([voxels.get(key, 0) for key in zip(reference_parts, predicted_parts, strict=True)], np.int64)
    else:
        reward = shared / (sizes[reference_parts] + other_sizes[predicted_parts] - shared)
        if rule.matching == "iou":
            allowed = reward >= rule.threshold if rule.inclusive else reward > rule.threshold
            reference_parts, predicted_parts, shared, reward = (
                reference_parts[allowed],
                predicted_parts[allowed],
                shared[allowed],
                reward[allowed],
            )
    taken = (_match_greedily if rule.assignment == "greedy" else hungarian)(reference_parts, predicted_parts, reward)
    return reference_parts[taken], predicted_parts[taken], shared[taken]


def _near_centroids(
    reference: Integers, prediction: Integers, spacing: tuple[float, ...], threshold: float
) -> tuple[Integers, Integers, Floats]:
    """Returns pairs of parts with centroids within `threshold` mm, and distances."""
    from scipy.spatial import cKDTree

    ours, theirs = centroids(reference, spacing), centroids(prediction, spacing)
    if not len(ours) or not len(theirs):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    near = cKDTree(theirs).query_ball_point(ours, threshold)
    reference_parts = np.repeat(np.arange(len(ours)), [len(neighbours) for neighbours in near])
    predicted_parts = np.array([at for neighbours in near for at in sorted(neighbours)], np.int64)
    distances: Floats = np.linalg.norm(ours[reference_parts] - theirs[predicted_parts], axis=1)
    return reference_parts + 1, predicted_parts + 1, distances


def centroids(parts: Integers, spacing: tuple[float, ...]) -> Floats:
    """Returns centres of mass, (part, axes) in mm."""
    voxels = np.nonzero(parts)
    numbers = parts[voxels]
    sizes = np.bincount(numbers)[1:]
    sums = [np.bincount(numbers, along)[1:] / sizes for along in voxels]
    return np.stack(sums, axis=1) * np.asarray(spacing) if len(sizes) else np.zeros((0, parts.ndim))


def _match_greedily(ones: Integers, others: Integers, reward: Floats) -> Integers:
    """Takes pairs in the order of their reward; of equal ones the first."""
    free, other_free = set(ones.tolist()), set(others.tolist())
    taken = []
    for at in np.argsort(-reward, kind="stable"):
        if ones[at] in free and others[at] in other_free:
            free.remove(ones[at])
            other_free.remove(others[at])
            taken.append(at)
    return np.array(sorted(taken), np.int64)


def hungarian(ones: Integers, others: Integers, reward: Floats) -> Integers:
    """Returns ascending index pairs of the best one-to-one assignment."""
    from scipy.optimize import linear_sum_assignment

    rows, row = np.unique(ones, return_inverse=True)
    columns, column = np.unique(others, return_inverse=True)
    rewards = np.zeros((len(rows), len(columns)))
    rewards[row, column] = reward
    pair_indices = np.full(rewards.shape, -1)
    pair_indices[row, column] = np.arange(len(reward))
    taken = pair_indices[linear_sum_assignment(rewards, maximize=True)]
    return np.sort(taken[taken >= 0])
