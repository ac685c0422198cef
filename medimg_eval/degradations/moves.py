"""Moves of what an image shows within its grid, and of masks, boxes and points with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from medimg_eval.case import Array, Boxes, Image, Mask, Points, Probabilities
from medimg_eval.errors import CaseError

LEAST_INSIDE = 0.25
"""Share of a box that must still be inside the field of view for its object to be looked for."""

EDGE_POINTS = 9
"""Points along each edge of a box whose corners are moved by a field."""

_ROUNDS = 30

_CLOSE = 0.1
"""Voxels by which the last round may still move a point."""


@dataclass(frozen=True, eq=False)
class Move:
    """Where what stands at each voxel comes from.

    Attributes:
        matrix: float64, (axes, axes + 1): voxel index -> index in the image as it was.
        field: float32, (axes, *spatial), added to that, in voxels; None for none.
        then: further change of the moved image's pixels; None for none.
        shown: bool, (*spatial): voxels at which something is shown still, where others were cut off between two moves;
            None for all.
    """

    matrix: Array
    field: Array | None = None
    then: Callable[[Image], Array] | None = None
    shown: Array | None = None

    def sample(self, array: Array, order: int, fill: float) -> Array:
        """Returns a moved array, (*spatial), nearest (order 0) or linear (1)."""
        from scipy.ndimage import affine_transform, map_coordinates

        axes = array.ndim
        # A voxel is as wide as its step: beyond the centres of the outermost ones there is something still.
        wider = np.pad(array, 1, mode="edge")
        if self.field is None:
            matrix, offset = self.matrix[:, :axes], self.matrix[:, axes] + 1
            moved = affine_transform(wider, matrix, offset, array.shape, order=order, cval=fill, prefilter=False)
        else:
            sources = self._sources(array.shape) + np.float32(1)
            moved = map_coordinates(wider, sources, order=order, cval=fill, prefilter=False)
        if self.shown is not None:
            moved[~self.shown] = fill
        return np.asarray(moved)

    def _sources(self, shape: tuple[int, ...]) -> Array:
        axes, linear = len(shape), self.matrix.astype(np.float32)
        assert self.field is not None  # noqa: S101 - told apart by the caller
        sources = self.field + linear[:, axes].reshape(-1, *[1] * axes)
        for axis_, size in enumerate(shape):
            line = np.arange(size, dtype=np.float32).reshape([-1 if axis == axis_ else 1 for axis in range(axes)])
            sources = sources + linear[:, axis_].reshape(-1, *[1] * axes) * line
        return sources

    def image(self, image: Image) -> Image:
        """Returns the moved image; outside is 0 or the minimum.

        0 in pictures, else the least value.
        """
        fill = 0.0 if image.array.dtype == np.uint8 else float(image.array.min())
        is_integer = np.issubdtype(image.array.dtype, np.integer)
        channels = image.array.astype(np.float32) if is_integer else image.array
        moved = np.stack([self.sample(channel, 1, fill) for channel in channels])
        moved = np.rint(moved).astype(image.array.dtype) if is_integer else moved.astype(image.array.dtype, copy=False)
        valid = None if image.valid is None else self.sample(image.valid.astype(np.uint8), 0, 0).astype(bool)
        moved_image = replace(image, array=moved, valid=valid, notes=())
        return moved_image if self.then is None else replace(moved_image, array=self.then(moved_image))

    def target(self, target: Any, shape: tuple[int, ...]) -> Any:
        """Returns the target of the moved image; placeless ones stay.

        Args:
            target: a Mask, Boxes, Points, or something without a place.
            shape: of the image, voxels along each axis.

        Raises:
            CaseError: outlines, or masks of boxes, which are not moved.
        """
        if isinstance(target, Mask):
            numbered = target.instances
            instances = None if numbered is None else self.sample(numbered, 0, 0)
            return replace(target, labels=self.sample(target.labels, 0, 0), instances=instances)
        if isinstance(target, Points):
            return self._points_inside(target, shape)
        if isinstance(target, Boxes):
            return self._boxes_inside(target, shape)
        if isinstance(target, Image | Probabilities) or getattr(target, "outlines", None):
            raise CaseError(f"a {type(target).__name__} cannot be moved with its image; leave out conditions that move")
        return target

    def positions(self, positions: Array) -> Array:
        """Returns where points go to, (point, axes), in voxel indices."""
        from scipy.ndimage import map_coordinates

        axes = positions.shape[1]
        back, offset = np.linalg.inv(self.matrix[:, :axes]), self.matrix[:, axes]
        moved = (positions - offset) @ back.T
        if self.field is None or not len(positions):
            return moved
        for _ in range(_ROUNDS):  # the field says whence each voxel comes; whither a point goes is looked for
            shift = [map_coordinates(part, moved.T, order=1, mode="nearest") for part in self.field]
            before, moved = moved, (positions - offset - np.stack(shift, axis=1)) @ back.T
        if np.abs(moved - before).max() > _CLOSE:
            raise CaseError(
                "a point lies where the move folds the image, and has no single place there; ask for a lower severity"
            )
        return moved

    def _points_inside(self, points: Points, shape: tuple[int, ...]) -> Points:
        moved = self.positions(points.positions)
        inside: Array = np.all((moved >= -0.5) & (moved <= np.array(shape) - 0.5), axis=1)
        if self.shown is not None:
            near = np.clip(np.rint(moved).astype(int), 0, np.array(shape) - 1)
            inside &= self.shown[tuple(near.T)]
        return Points(
            moved[inside],
            tuple(name for name, held in zip(points.names, inside.tolist(), strict=True) if held),
            None if points.values is None else points.values[inside],
            None if points.scores is None else points.scores[inside],
        )

    def _boxes_inside(self, boxes: Boxes, shape: tuple[int, ...]) -> Boxes:
        if boxes.masks is not None:
            raise CaseError("boxes with masks cannot be moved with their image; leave out conditions that move")
        axes, parts, held = len(shape), [], []
        for corners in boxes.corners:
            moved = self.positions(self._outline(corners[:axes] - 0.5, corners[axes:] + 0.5))
            low, high = moved.min(axis=0), moved.max(axis=0)
            first, last = np.maximum(low, -0.5), np.minimum(high, np.array(shape) - 0.5)
            share = np.prod(np.maximum(last - first, 0)) / np.prod(high - low)
            parts.append(np.concatenate([first + 0.5, last - 0.5]))
            held.append(bool(share >= LEAST_INSIDE))
        keep = np.array(held, dtype=bool)

        def kept(values: Array | None) -> Array | None:
            return None if values is None else values[keep]

        return Boxes(
            np.array(parts, dtype=np.float64).reshape(-1, 2 * axes)[keep],
            tuple(name for name, there in zip(boxes.names, held, strict=True) if there),
            kept(boxes.scores),
            None,
            None,
            kept(boxes.crowds),
            kept(boxes.ignored),
        )

    def _outline(self, low: Array, high: Array) -> Array:
        count = 2 if self.field is None else EDGE_POINTS
        lines = [np.linspace(first, last, count) for first, last in zip(low, high, strict=True)]
        grid = np.array(list(product(*lines)))
        ends = np.stack([(grid[:, axis] == line[0]) | (grid[:, axis] == line[-1]) for axis, line in enumerate(lines)])
        return np.asarray(grid[ends.sum(axis=0) >= len(lines) - 1])


@dataclass(frozen=True, eq=False)
class Coarsening(Move):
    """Coarser resolution along one axis: nearest down, linear up.

    Attributes:
        axis: along which.
        factor: how many times as far apart the coarser grid's voxels are.
    """

    axis: int = 0
    factor: float = 1.0

    def image(self, image: Image) -> Image:
        """Returns the image as it looks at the coarser resolution."""
        size = image.array.shape[1 + self.axis]
        chosen, position = self._grid(size)
        coarse = np.take(image.array, chosen, axis=1 + self.axis)
        below = np.clip(np.floor(position).astype(int), 0, len(chosen) - 1)
        above = np.minimum(below + 1, len(chosen) - 1)
        weight = np.clip(position - below, 0, 1).astype(np.float32)
        weight = weight.reshape([-1 if axis == 1 + self.axis else 1 for axis in range(image.array.ndim)])
        first, second = (np.take(coarse, at, axis=1 + self.axis).astype(np.float32) for at in (below, above))
        mixed = first + (second - first) * weight
        if np.issubdtype(image.array.dtype, np.integer):
            mixed = np.rint(mixed)
        return replace(image, array=mixed.astype(image.array.dtype, copy=False), notes=())

    def target(self, target: Any, shape: tuple[int, ...]) -> Any:
        """Returns masks at the coarser resolution, by nearest voxels; points and boxes stay."""
        if not isinstance(target, Mask):
            return target
        chosen, position = self._grid(target.labels.shape[self.axis])
        near = chosen[np.clip(np.rint(position).astype(int), 0, len(chosen) - 1)]
        numbered = target.instances
        instances = None if numbered is None else np.take(numbered, near, axis=self.axis)
        return replace(target, labels=np.take(target.labels, near, axis=self.axis), instances=instances)

    def _grid(self, size: int) -> tuple[Array, Array]:
        """Voxels of the coarse grid, and fine positions on it."""
        count = max(int(size / self.factor), 1)
        # Both grids have the same middle, as TorchIO's Resample places them.
        offset = (size - 1) / 2 - (count - 1) / 2 * self.factor
        chosen = np.clip(np.floor(offset + self.factor * np.arange(count) + 0.5).astype(int), 0, size - 1)
        return chosen, (np.arange(size) - offset) / self.factor


def about_middle(linear: Array, shift: Array, shape: tuple[int, ...]) -> Array:
    """Returns rotation and scaling about the grid's middle, (axes, axes + 1)."""
    middle = (np.array(shape) - 1) / 2
    return np.column_stack([linear, middle - linear @ middle + shift])


def rotation(degrees: Array) -> Array:
    """Returns ITK's rotation matrix (3, 3): second, first, third axis."""
    turned = np.eye(3)
    for axis in (1, 0, 2):
        first, two = [(1, 2), (2, 0), (0, 1)][axis]
        angle = np.radians(degrees[axis])
        turn = np.eye(3)
        turn[first, first] = turn[two, two] = np.cos(angle)
        turn[first, two], turn[two, first] = -np.sin(angle), np.sin(angle)
        turned = turn @ turned
    return turned
