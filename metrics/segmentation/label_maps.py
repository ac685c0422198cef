"""Two label maps side by side: cropped to what either holds, counted, and measured for all labels at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Bools, Ints
from medimg_eval.metrics.segmentation.compiled import contour_profiles, kernels
from medimg_eval.metrics.segmentation.distance_samples import Distances
from medimg_eval.metrics.segmentation.nearest_surface import DistanceProfiles, ball, nearest
from medimg_eval.metrics.segmentation.surfaces import Codes, Spacing, surfel_border, voxel_border

LabelMap: TypeAlias = npt.NDArray[np.integer[Any]] | Bools

VOXELS_AT_ONCE = 1 << 17
# Labels that span no more than this are looked up in a table; others are searched for.
LONGEST_TABLE = 1 << 20


class LabelIndex:
    """Number of each region: small single label, or running number.

    Attributes:
        numbers: The number of each region, above 0.
        highest: The highest number that may occur, be it of a label that is in no region.
        dtype: Unsigned, holds them all.
        kept: Whether every label is its own number, those in no region too.
    """

    def __init__(self, maps: Sequence[LabelMap], regions: Sequence[Sequence[int]]) -> None:
        self._regions = regions
        signed = [label_map for label_map in maps if label_map.dtype.kind == "i"]
        self._low = min((int(label_map.min(initial=0)) for label_map in signed), default=0)
        self._high = max(int(label_map.max(initial=0)) for label_map in maps)
        small = self._low == 0 and self._high <= 4 * len(regions)
        self.kept = small and all(len(labels) == 1 for labels in regions)
        # A label above the highest that occurs is absent, and so is the number after that.
        self.numbers = [
            min(labels[0], self._high + 1) if self.kept else number for number, labels in enumerate(regions, start=1)
        ]
        self.highest = max(self._high, *self.numbers) if self.kept else len(regions)
        self.dtype = np.min_scalar_type(self.highest)

    def write(self, one: LabelMap, target: Codes) -> None:
        """Writes the numbers of a label map into an array of its shape."""
        if self.kept:
            np.copyto(target, one, casting="unsafe")
            return
        renumbered = self._renumbering()
        slab = max(1, VOXELS_AT_ONCE // max(1, one[:1].size))
        for start in range(0, len(one), slab):
            target[start : start + slab] = renumbered(one[start : start + slab])

    def _renumbering(self) -> Callable[[LabelMap], Array]:
        number = {
            label: index
            for index, labels in enumerate(self._regions, start=1)
            for label in labels
            if self._low <= label <= self._high
        }
        if self._high - self._low >= LONGEST_TABLE:
            return lambda part: _number_values(part, number).astype(self.dtype)
        table = np.zeros(self._high - self._low + 1, self.dtype)
        table[np.fromiter(number, np.int64) - self._low] = list(number.values())
        if self._low:
            return lambda part: table.take(part.astype(np.int64) - self._low)
        return lambda part: table.take(part.astype(np.intp))


def _number_values(values: LabelMap, number: dict[int, int]) -> Ints:
    labels = np.array(sorted(number), values.dtype)
    if not len(labels):
        return np.zeros(values.shape, np.int64)
    at = np.searchsorted(labels, values).clip(max=len(labels) - 1)
    numbers = np.array([number[label] for label in labels.tolist()])
    return np.where(labels[at] == values, numbers[at], 0)


Box: TypeAlias = tuple[slice, ...]

VOXELS_AT_ONCE = 1 << 17


class LabelMapPair:
    """Reference and prediction with judged regions, of one or more labels.

    What distances need is computed for all regions together, when it is first asked for.

    Attributes:
        shape: Voxels of the image along each axis.
        spacing: Voxel size in mm along each axis.
        surface: What distances are measured between: "surfel" or "voxel".
    """

    def __init__(
        self,
        reference: LabelMap,
        prediction: LabelMap,
        spacing: Spacing,
        regions: Sequence[Sequence[int]],
        surface: str,
        ignore: int | None = None,
    ) -> None:
        if surface not in ("surfel", "voxel"):
            raise ValueError(f"Expected `surface` to be 'surfel' or 'voxel', got {surface!r}")
        self.shape: tuple[int, ...] = reference.shape
        self.spacing = spacing
        self.surface = surface
        if ignore is None and self._cut(reference, prediction, regions):
            return
        # Axes are taken in the order and direction in which the voxels lie in memory.
        steps = reference.strides
        self._order = sorted(range(reference.ndim), key=lambda axis: -abs(steps[axis]))
        self._turn = tuple(slice(None, None, -1 if steps[axis] < 0 else 1) for axis in self._order)
        self._spacing = tuple(spacing[axis] for axis in self._order)
        straight = [label_map.transpose(self._order)[self._turn] for label_map in (reference, prediction)]
        self._crop = _joint_box(straight)
        self._number([label_map[self._crop] for label_map in straight], regions, ignore)

    def _cut(self, reference: LabelMap, prediction: LabelMap, regions: Sequence[Sequence[int]]) -> bool:
        """Crops and counts a picture's masks by compiled functions, where possible."""
        if len(regions) != 1 or tuple(regions[0]) != (1,) or len(self.shape) != 2:
            return False
        maps = [
            label_map.view(np.uint8) if label_map.dtype == np.bool_ else label_map
            for label_map in (reference, prediction)
        ]
        compiled = kernels(max(self.shape))
        if not compiled or not all(label_map.dtype == np.uint8 and label_map.flags.c_contiguous for label_map in maps):
            return False
        first_codes, second_codes, (top, bottom, left, right), (bits, *sizes) = compiled.cut(*maps)
        if bits > 1:
            return False
        self._order, self._turn, self._spacing = [0, 1], (slice(None, None, 1),) * 2, self.spacing
        self._crop = slice(top, bottom), slice(left, right)
        self._inside: Box = (slice(1, bottom - top + 1), slice(1, right - left + 1))
        self._codes, self._numbers, self._highest, self._alone = (first_codes, second_codes), [1], 1, True
        self._counts = [[0, size] for size in sizes]
        return True

    def _number(self, maps: Sequence[LabelMap], regions: Sequence[Sequence[int]], ignore: int | None) -> None:
        """Numbers the cropped maps with zero margin, and counts."""
        numbering = LabelIndex(maps, regions)
        self._numbers = numbering.numbers
        shape, self._inside = _with_margins(maps[0].shape, ball(self._spacing).reach)
        self._codes = (np.zeros(shape, numbering.dtype), np.zeros(shape, numbering.dtype))
        for label_map, codes in zip(maps, self._codes, strict=True):
            numbering.write(label_map, codes[self._inside])
            if ignore is not None:
                codes[self._inside] *= maps[0] != ignore
        self._highest = numbering.highest
        self._counts = _voxel_counts(self._codes, self._highest)
        unlisted = {number for number in range(1, self._highest + 1) if self._occurs(number)}.difference(self._numbers)
        for codes in self._codes if unlisted else ():
            _remove_numbers(codes, unlisted, self._highest)
        # A region that is all there is needs no search for its box.
        self._alone = len(regions) == 1 and numbering.kept and ignore is None and not unlisted

    def _occurs(self, number: int) -> bool:
        """Whether a number is in one of the maps."""
        return bool(self._counts[0][number] or self._counts[1][number])

    def sizes(self, region: int) -> tuple[int, int, int]:
        """Returns a region's voxels in reference, prediction and both."""
        reference, prediction, both = (counts[self._numbers[region]] for counts in self._counts)
        return reference, prediction, both

    def box(self, region: int) -> Box:
        """Returns the smallest box of a region in both maps."""
        slices: dict[int, slice] = {}
        sizes = [self.shape[axis] for axis in self._order]
        parts = zip(self._order, self._turn, self._crop, self._boxes[self._numbers[region]], sizes, strict=True)
        for axis, turn, crop, part, size in parts:
            start, stop = crop.start + part.start, crop.start + part.stop
            slices[axis] = slice(start, stop) if turn.step == 1 else slice(size - stop, size - start)
        return tuple(slices[axis] for axis in range(len(slices)))

    def masks(self, region: int) -> tuple[Bools, Bools]:
        """Returns a region's cropped masks, memory-contiguous along the last axis."""
        number = self._numbers[region]
        back = np.argsort(self._order)
        reference_mask, predicted_mask = (
            np.ascontiguousarray((codes[self._inside][self._boxes[number]] == number)[self._turn].transpose(back))
            for codes in self._codes
        )
        return reference_mask, predicted_mask

    def reference_distances(self, region: int) -> Distances:
        """Returns the distances from the reference's surface to the prediction's."""
        return self._distances(self._profiles[0], region)

    def prediction_distances(self, region: int) -> Distances:
        """Returns the distances from the prediction's surface to the reference's."""
        return self._distances(self._profiles[1], region)

    def _distances(self, profiles: DistanceProfiles, region: int) -> Distances:
        values, weights = profiles.of(self._numbers[region])
        return Distances(values, weights, interpolate=self.surface == "voxel")

    @cached_property
    def _boxes(self) -> list[Box]:
        """The joint box of each number within the crop."""
        nowhere = (slice(0, 0),) * len(self.shape)
        if self._alone:
            return [nowhere, *[tuple(slice(0, part.stop - part.start) for part in self._crop)] * self._highest]
        from scipy.ndimage import find_objects

        boxes = [find_objects(codes[self._inside], max_label=self._highest) for codes in self._codes]
        return [
            nowhere,
            *(
                _join_boxes(reference_box or predicted_box, predicted_box or reference_box) or nowhere
                for reference_box, predicted_box in zip(*boxes, strict=True)
            ),
        ]

    @property
    def _padded_boxes(self) -> Iterator[tuple[int, Box]]:
        """Each number that occurs, and its box in the padded maps."""
        starts = [part.start for part in self._inside]
        for number in filter(self._occurs, range(1, self._highest + 1)):
            box = zip(starts, self._boxes[number], strict=True)
            yield number, tuple(slice(start + part.start, start + part.stop) for start, part in box)

    @cached_property
    def _profiles(self) -> tuple[DistanceProfiles, DistanceProfiles]:
        """The distances from the reference's surfaces and from the prediction's."""
        if len(self.shape) == 2 and (compiled := kernels(max(self._codes[0].shape))):
            return contour_profiles(compiled, self._codes, self._padded_boxes, self._spacing, self.surface)
        if self.surface == "voxel":
            reference_border, predicted_border = (voxel_border(codes, self._highest) for codes in self._codes)
        else:
            reference_border, predicted_border = (
                surfel_border(codes, self._highest, self._spacing) for codes in self._codes
            )
        return nearest(reference_border, predicted_border, self._codes[0].shape, self._spacing)


def _joint_box(maps: Sequence[LabelMap]) -> Box:
    """Returns the smallest box of nonzero voxels in any map."""
    if maps[0].ndim == 2:
        rows = _held_slice(_held_along(maps, axis=1))
        return rows, _held_slice(_held_along([label_map[rows] for label_map in maps], axis=0))
    across = [np.bitwise_or.reduce(label_map, axis=0) for label_map in maps]
    return tuple(
        _held_slice(held)
        for held in (_held_along(maps, axis=(1, 2)), _held_along(across, axis=1), _held_along(across, axis=0))
    )


def _held_along(maps: Sequence[LabelMap], axis: int | tuple[int, ...]) -> Array:
    """Returns whether one of the maps holds something but 0 along some axes."""
    first, second = (np.bitwise_or.reduce(label_map, axis=axis) for label_map in maps)
    held: Array = np.logical_or(first, second)
    return held


def _held_slice(held: Array) -> slice:
    at = np.flatnonzero(held)
    return slice(int(at[0]), int(at[-1]) + 1) if len(at) else slice(0, 0)


def _with_margins(shape: tuple[int, ...], reach: tuple[int, ...]) -> tuple[tuple[int, ...], Box]:
    """Returns the shape with zero margins, and the map's place.

    The row of voxels goes on from the end of a line to the start of the next, so along all axes but the first
    one margin keeps lines apart on both sides. It is wider than the reach, since surfels lie up to one place
    before the map.
    """
    first = reach[0] + 2
    starts = (first, *(1 for _ in shape[1:]))
    stops = (first, *(most + 1 for most in reach[1:]))
    padded = tuple(start + size + stop for start, size, stop in zip(starts, shape, stops, strict=True))
    return padded, tuple(slice(start, start + size) for start, size in zip(starts, shape, strict=True))


def _voxel_counts(maps: Sequence[Codes], highest: int) -> list[list[int]]:
    """Returns voxels by number in each map and both, (3, highest + 1)."""
    first_codes, second_codes = (codes.reshape(-1) for codes in maps)
    if highest == 1:  # then they hold nothing but 0 and 1
        sizes = [0, 0, 0]
        for start in range(0, len(first_codes), VOXELS_AT_ONCE):
            mine, theirs = (
                codes[start : start + VOXELS_AT_ONCE].view(np.bool_) for codes in (first_codes, second_codes)
            )
            for index, mask in enumerate((mine, theirs, mine & theirs)):
                sizes[index] += int(np.count_nonzero(mask))
        return [[0, size] for size in sizes]
    counts = np.zeros((3, highest + 1))
    for start in range(0, len(first_codes), VOXELS_AT_ONCE):
        first, second = first_codes[start : start + VOXELS_AT_ONCE], second_codes[start : start + VOXELS_AT_ONCE]
        lengths = None
        # Voxels of the same labels follow one another; runs are far fewer than voxels, unless the maps are noise.
        changes = first[1:] != first[:-1]
        changes |= second[1:] != second[:-1]
        ends = np.flatnonzero(changes)
        if len(ends) < len(first) // 8:
            ends = np.append(ends, len(first) - 1)
            lengths = np.diff(ends, prepend=-1)
            first, second = first[ends], second[ends]
        is_same = first == second
        counts[0] += np.bincount(first, lengths, highest + 1)
        counts[1] += np.bincount(second, lengths, highest + 1)
        counts[2] += np.bincount(first[is_same], None if lengths is None else lengths[is_same], highest + 1)
    return counts.astype(np.int64).tolist()


def _remove_numbers(codes: Codes, numbers: Collection[int], highest: int) -> None:
    """Makes background of the voxels that have one of the numbers."""
    flat = codes.reshape(-1)
    table = np.arange(highest + 1).astype(codes.dtype)
    table[list(numbers)] = 0
    for start in range(0, len(flat), VOXELS_AT_ONCE):
        part = flat[start : start + VOXELS_AT_ONCE]
        part[:] = table.take(part.astype(np.intp))


def _join_boxes(one: Box | None, other: Box | None) -> Box | None:
    if one is None or other is None:
        return None
    return tuple(slice(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(one, other, strict=True))
