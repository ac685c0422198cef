"""The distance from every point of one map's surfaces to the other map's surface of the same label.

Most points lie near: the places around each are looked up in the order of their distance, so the first that is
the label's is the nearest. Where that stops paying, some mm out, a KD-tree of each label takes over. Distances
are exact, and of the same rounding either way: the length of a whole number of steps along each axis. The labels of a
picture are searched for along columns and then rows, one after the other, unless they are many.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Bools, Floats, Ints
from medimg_eval.metrics.segmentation.surfaces import Bytes, Codes, Indices, LabelSurfaces, Spacing

# Places around a point that are looked up at most, by axes, and the most steps along an axis.
PLACES = {2: 400, 3: 1200}
REACH = 15
# What is looked up at once fits a processor's cache, and is worth a call.
LOOKUPS_AT_ONCE = 1 << 16
LOOKUPS_AT_LEAST = 1 << 11
POINTS_AT_ONCE = 1 << 17
# In lookups: what a query of a KD-tree costs, and for each of its points the building of it.
QUERY = 350
BUILDING = 30
# It is judged whether to go on after about so many places.
WINDOW = 12
# Beyond, sorting costs less than a table.
LONGEST_TABLE = 1 << 22
# Rows to the next target of a column that has none near: more than are reached, and no overflow with a step more.
NOWHERE = 200
# Of pictures with more labels, those of all labels are searched for together.
LABELS_APART = 50
# More than the rounding of a squared distance.
SLACK = 1e-9

# Places in a padded map, labels, and a number for the label and the kind of surface at once.
Points: TypeAlias = tuple[Indices, Codes, Indices]


@dataclass(frozen=True, eq=False)
class StructuringBall:
    """The steps from a place to those around it, nearest first.

    Attributes:
        steps: (n, axes) in voxels.
        ranks: (n,) place of each length among `lengths`.
        lengths: (ranks,) mm, ascending.
    """

    steps: Indices
    ranks: Indices
    lengths: Floats

    @cached_property
    def reach(self) -> tuple[int, ...]:
        """The most steps along each axis."""
        return tuple(int(most) for most in self.steps.max(axis=0))


@cache
def ball(spacing: Spacing) -> StructuringBall:
    """Returns the places around a point that are looked up."""
    axes, sizes = len(spacing), np.asarray(spacing)
    volume = PLACES[axes] * sizes.prod()
    radius = math.cbrt(volume * 0.75 / math.pi) if axes == 3 else math.sqrt(volume / math.pi)
    radius = min(radius, REACH * min(spacing))
    spans = (range(-most, most + 1) for most in (radius / sizes).astype(int))
    steps = np.array(list(itertools.product(*spans)), np.int64)
    lengths = step_lengths(steps, spacing)
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] <= radius]
    different, ranks = np.unique(lengths[order], return_inverse=True)
    return StructuringBall(steps[order], ranks, different)


def step_lengths(steps: Ints, spacing: Spacing) -> Floats:
    """Returns the length in mm of steps between places, (n, axes)."""
    lengths: Floats = np.sqrt(np.square(steps * np.asarray(spacing)).sum(axis=1))
    return lengths


@dataclass(frozen=True, eq=False)
class DistanceProfiles:
    """Surface distances between two maps, by label.

    Attributes:
        apart: By label, distances in mm, each once and ascending, with how much surface is at each.
        near: Further ones, of all labels: (ranks,) distances, ascending; and (ranks, labels + 1) how much of each
            label's surface is at each of them.
    """

    apart: dict[int, tuple[Floats, Floats]]
    near: tuple[Floats, Floats] | None = None

    def of(self, label: int) -> tuple[Floats, Floats]:
        """Returns a label's ascending distances, with surface at each."""
        if self.near is None:
            return self.apart.get(label, (np.empty(0), np.empty(0)))
        lengths, surface = self.near
        held = np.flatnonzero(surface[:, label])
        values, weights = lengths[held], surface[held, label]
        if label not in self.apart:
            return values, weights
        if not len(values):
            return self.apart[label]
        values, merged = np.unique(np.concatenate([values, self.apart[label][0]]), return_inverse=True)
        return values, _sum_weights(merged, np.concatenate([weights, self.apart[label][1]]))


def nearest(
    one: LabelSurfaces, other: LabelSurfaces, shape: tuple[int, ...], spacing: Spacing
) -> tuple[DistanceProfiles, DistanceProfiles]:
    """Returns border distances within each label, both ways.

    Args:
        one: A border; distances to a label that the other lacks are inf.
        other: A border of a map of the same labels.
        shape: Of the padded maps that both count their places in, with zeros around as far as the ball reaches.
        spacing: Voxel size in mm along each axis.
    """
    if len(shape) == 2 and other.sets.shape[1] <= LABELS_APART:
        return _of_contours(one, other, shape, spacing)
    around = ball(spacing)
    table = np.zeros(math.prod(shape), np.promote_types(one.numbers.dtype, other.numbers.dtype))
    steps = np.zeros(len(around.steps), np.int64)
    for axis, along in enumerate(around.steps.T, start=1):
        steps += along * math.prod(shape[axis:])
    profiles = []
    for start, target in ((one, other), (other, one)):
        table[target.places] = target.numbers
        sizes = np.bincount(target.label, minlength=target.sets.shape[1])
        search = _Search(table, target.sets, sizes, steps, around.ranks)
        surface, remaining = search.near_surface(start)
        far = _far_distances(remaining, start.weights, target, shape, spacing)
        profiles.append(DistanceProfiles(far, (around.lengths, surface)))
        table[target.places] = 0
    return profiles[0], profiles[1]


def _of_contours(
    one: LabelSurfaces, other: LabelSurfaces, shape: tuple[int, ...], spacing: Spacing
) -> tuple[DistanceProfiles, DistanceProfiles]:
    """Returns `nearest` for pictures' borders, boxed by label."""
    profiles_: tuple[dict[int, tuple[Floats, Floats]], ...] = ({}, {})
    labels = one.sets.shape[1]
    sides = (one, other) if labels == 2 else (_by_label(one), _by_label(other))
    ends = [np.searchsorted(side.label, np.arange(labels + 1)) for side in sides]
    for label in range(1, labels):
        parts = [slice(*end[label : label + 2]) for end in ends]
        indices, within = [side.index[part] for side, part in zip(sides, parts, strict=True)], shape
        if labels > 2:
            indices, within = _crop_points(indices, shape, spacing)
        for way, profiles in enumerate(profiles_):
            start, cells = sides[way], sides[way].cell[parts[way]]
            if len(cells):
                profiles[label] = _in_picture(indices[way], cells, indices[1 - way], within, start.weights, spacing)
    return DistanceProfiles(profiles_[0]), DistanceProfiles(profiles_[1])


def tally(lengths: Floats, cells: Array, weights: Floats) -> tuple[Floats, Floats]:
    """Returns ascending distances with their weighted surface."""
    values, which = np.unique(lengths, return_inverse=True)
    times = np.bincount(which * len(weights) + cells, minlength=len(values) * len(weights))
    return values, (times.reshape(-1, len(weights)) * weights).sum(axis=1)


def _by_label(border: LabelSurfaces) -> LabelSurfaces:
    """Returns the same border, its points in the order of their labels."""
    order = np.argsort(border.label, kind="stable")
    return replace(border, index=border.index[order], label=border.label[order], cell=border.cell[order])


def _crop_points(
    places: list[Indices], shape: tuple[int, ...], spacing: Spacing
) -> tuple[list[Indices], tuple[int, ...]]:
    """Returns points in their smallest box with margins, and shape."""
    rows, columns = np.divmod(np.concatenate(places), shape[1])
    if not len(rows):
        return places, (1, 1)
    width = int(np.ptp(columns)) + 1 + ball(spacing).reach[1]
    # A line before the first and one after the last hold what is looked up beside their ends.
    inside = (rows - rows.min() + 1) * width + (columns - columns.min())
    return np.split(inside, [len(places[0])]), (int(np.ptp(rows)) + 3, width)


@cache
def _step_ranks(spacing: Spacing) -> tuple[npt.NDArray[np.uint16], Floats]:
    """Returns length ranks of step pairs, and lengths in mm, ascending; last inf."""
    rows, columns = ball(spacing).reach
    down = np.square(np.arange(NOWHERE + 1) * spacing[0])
    down[1 << rows.bit_length() :] = np.inf
    across = np.square(np.arange(columns + 1) * spacing[1])
    lengths, ranks = np.unique(np.sqrt(down + across[:, None]), return_inverse=True)
    return ranks.reshape(-1).astype(np.uint16), lengths


def _in_picture(
    points: Indices, cells: Bytes, targets: Indices, shape: tuple[int, ...], weights: Floats, spacing: Spacing
) -> tuple[Floats, Floats]:
    """Returns distances in mm to the nearest targets, and surface.

    First how far each place is from a target of its own column, as far as the ball reaches; then, for the points alone,
    the least sum of two squares over the columns around (Saito and Toriwaki 1994). What is farther is left to others.
    """
    rows, columns = ball(spacing).reach
    table, lengths = _step_ranks(spacing)
    off = np.full(shape, NOWHERE, np.uint8)
    off.reshape(-1)[targets] = 0
    for step in (1 << power for power in range(rows.bit_length())):
        farther = off + np.uint8(step)
        np.minimum(off[step:], farther[:-step], out=off[step:])
        np.minimum(off[:-step], farther[step:], out=off[:-step])
    # The margin keeps lines apart: a column before the first is one after the last of the line before.
    column_numbers = np.arange(columns + 1)[:, None]
    line, flat = (column_numbers * (NOWHERE + 1)).astype(np.uint16), off.reshape(-1)
    ranks = np.empty(len(points), np.uint16)
    for start in range(0, len(points), LOOKUPS_AT_ONCE // len(column_numbers)):
        part = slice(start, start + LOOKUPS_AT_ONCE // len(column_numbers))
        near = np.minimum(flat.take(points[part] + column_numbers), flat.take(points[part] - column_numbers))
        table.take(near + line).min(axis=0, out=ranks[part])
    limit = min((1 << rows.bit_length()) * spacing[0], (columns + 1) * spacing[1])
    unsettled = np.flatnonzero(ranks >= lengths.searchsorted(limit))
    ranks[unsettled] = len(lengths) - 1
    kinds = len(weights)
    times = np.bincount(ranks * np.intp(kinds) + cells, minlength=len(lengths) * kinds).reshape(-1, kinds)
    surface = (times[:-1] * weights).sum(axis=1)
    held = np.flatnonzero(surface)
    if not len(unsettled):
        return lengths[held], surface[held]
    ends = [np.array(np.unravel_index(index, shape)) for index in (points[unsettled], targets)]
    few = len(targets) and len(unsettled) * len(targets) <= LOOKUPS_AT_ONCE
    far = tally((_by_pairs if few else _by_tree)(ends[0], ends[1], spacing), cells[unsettled], weights)
    return np.concatenate([lengths[held], far[0]]), np.concatenate([surface[held], far[1]])


def _by_pairs(points: Indices, targets: Indices, spacing: Spacing) -> Floats:
    """Returns what `_by_tree` does, of few points and at least one target."""
    squares = np.zeros((targets.shape[1], points.shape[1]))
    for mine, theirs, size in zip(points, targets, spacing, strict=True):
        apart = (theirs[:, None] - mine) * size
        squares += np.square(apart, out=apart)
    lengths: Floats = np.sqrt(squares.min(axis=0))
    return lengths


@dataclass(frozen=True, eq=False)
class _Search:
    """Looks the places around points up.

    Attributes:
        table: What is at each place: 0, a label whose surface it is, or (above them) a set of labels.
        sets: (sets, labels + 1) whether each label is in each set.
        sizes: (labels + 1,) points of each label's surface.
        steps: (n,) steps along the table, nearest first.
        ranks: (n,) of their lengths.
    """

    table: Codes
    sets: Bools
    sizes: Indices
    steps: Indices
    ranks: Indices

    def near_surface(self, start: LabelSurfaces) -> tuple[Floats, list[Points]]:
        """Returns label surface by distance, (ranks, labels + 1), and remaining points."""
        labels, kinds = len(self.sizes), len(start.weights)
        keys = [np.zeros(0, np.int64)]
        remaining = [(start.index[:0], start.label[:0], keys[0])]
        for at in range(0, len(start.index), POINTS_AT_ONCE):
            part = slice(at, at + POINTS_AT_ONCE)
            index, label = start.index[part], start.label[part].astype(self.table.dtype)
            key = label * np.int64(kinds) + start.cell[part]
            missing = self.sizes[label] == 0
            if missing.any():
                remaining.append((index[missing], label[missing], key[missing]))
                index, label, key = index[~missing], label[~missing], key[~missing]
            remaining.append(self._near((index, label, key), labels * kinds, keys))
        ranks = int(self.ranks[-1]) + 1
        distinct, times = _count_keys(np.concatenate(keys), ranks * labels * kinds)
        surface = np.bincount(distinct // kinds, times * start.weights[distinct % kinds], ranks * labels)
        return surface.reshape(ranks, labels).astype(np.float64), remaining

    def _near(self, points: Points, stride: int, keys: list[Indices]) -> Points:
        """Finds nearest targets; adds rank times `stride` and key to `keys`.

        Returns:
            The points that are left, when it no longer pays to look further places up.
        """
        index, label, key = points
        done = examined = hits = 0
        while len(index) and done < len(self.steps):
            # Points are far fewer later on; then many places of each are looked up at once.
            width = max(1, min(max(done, LOOKUPS_AT_LEAST // len(index)), LOOKUPS_AT_ONCE // len(index)))
            width = min(width, len(self.steps) - done)
            hit = self._hits(index + self.steps[done : done + width, None], label)
            near: Bools = hit[0] if width == 1 else np.logical_or.reduce(hit)
            got = np.flatnonzero(near)
            done, examined, hits = done + width, examined + hit.size, hits + len(got)
            if len(got):
                rank = self.ranks[done - width + hit[:, got].argmax(axis=0)] if width > 1 else self.ranks[done - 1]
                keys.append(rank * stride + key[got])
                indices = np.flatnonzero(~near)
                index, label, key = index[indices], label[indices], key[indices]
            if examined > WINDOW * len(near):
                if hits * QUERY < examined and not self._cheaper(label, len(self.steps) - done):
                    break
                examined = hits = 0
        return index, label, key

    def _hits(self, places: Indices, label: Codes) -> Bools:
        """Returns whether each place, (tried, n), has the surface of the n labels."""
        values = self.table[places]
        hit: Bools = values == label
        if len(self.sets):
            shared = np.flatnonzero(values >= len(self.sizes))
            number = values.reshape(-1)[shared].astype(np.int64) - len(self.sizes)
            hit.reshape(-1)[shared] = self.sets[number, label[shared % len(label)]]
        return hit

    def _cheaper(self, label: Codes, places: int) -> bool:
        """Whether further lookups cost less than building trees."""
        points = self.sizes[np.bincount(label, minlength=len(self.sizes)) > 0].sum()
        return bool(len(label) * places < BUILDING * points)


def _far_distances(
    left: list[Points], weights: Floats, target: LabelSurfaces, shape: tuple[int, ...], spacing: Spacing
) -> dict[int, tuple[Floats, Floats]]:
    """Returns remaining points' distances by label, with surface."""
    index, labels, keys = (np.concatenate(parts) for parts in zip(*left, strict=True))
    profiles = {}
    for label in np.unique(labels).tolist():
        mine = np.flatnonzero(labels == label)
        mine = mine[np.argsort(index[mine])]  # neighbours one after the other: queries find the tree in the cache
        points, targets = (
            np.array(np.unravel_index(flat, shape)) for flat in (index[mine], target.index[target.label == label])
        )
        values, which = np.unique(_by_tree(points, targets, spacing), return_inverse=True)
        profiles[label] = values, _sum_weights(which, weights[keys[mine] % len(weights)])
    return profiles


def _by_tree(points: Indices, targets: Indices, spacing: Spacing) -> Floats:
    """Returns distances in mm of (axes, n) voxels; inf without targets."""
    from scipy.spatial import cKDTree

    if not targets.size:
        return np.full(points.shape[1], np.inf)
    targets = targets[:, _within_reach(points, targets, spacing)].T
    # Splitting at the middle of the box builds several times faster than at the median, and surfaces
    # are spread evenly enough that the queries do not suffer.
    tree = cKDTree(targets * np.asarray(spacing), leafsize=32, balanced_tree=False, compact_nodes=False)
    nearest_of = tree.query(points.T * np.asarray(spacing))[1]
    return step_lengths(points.T - targets[nearest_of], spacing)


def _within_reach(points: Indices, targets: Indices, spacing: Spacing) -> Indices:
    """Returns targets that may be nearest, few for clustered points.

    Every point is within some distance of one target, the farthest from the points' box to it. A target that is
    farther from all of the box is the nearest of none.
    """
    closest, farthest = np.zeros((2, targets.shape[1]))
    for target, ends, size in zip(targets, points, spacing, strict=True):
        below, above = target - int(ends.min()), target - int(ends.max())
        closest += np.square(size * np.maximum(np.maximum(-below, above), 0))
        farthest += np.square(size * np.maximum(below, -above))
    return np.flatnonzero(closest <= farthest.min() * (1 + SLACK))


def _count_keys(keys: Indices, limit: int) -> tuple[Indices, Indices]:
    """Returns distinct keys below a limit, and counts."""
    if limit > LONGEST_TABLE:
        different, times = np.unique(keys, return_counts=True)
        return different, times
    table = np.bincount(keys, minlength=limit)
    codes = np.flatnonzero(table)
    return codes, table[codes]


def _sum_weights(which: Indices, weights: Floats) -> Floats:
    """Returns the sum of the weights of each kind."""
    return np.bincount(which, weights).astype(np.float64)
