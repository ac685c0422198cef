"""Labels of any size as small numbers, of as few bytes as will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics._border import Codes
from medimg_eval.metrics._surfaces import Bools

LabelMap: TypeAlias = npt.NDArray[np.integer[Any]] | Bools

VOXELS_AT_ONCE = 1 << 17
# Labels that span no more than this are looked up in a table; others are searched for.
LONGEST_TABLE = 1 << 20


class Numbering:
    """The number of each region: its label, if labels are small and stand alone; or else 1, 2, ... in their order.

    Attributes:
        numbers: The number of each region, above 0.
        highest: The highest number that may occur, be it of a label that is in no region.
        dtype: Unsigned, holds them all.
        kept: Whether every label is its own number, those in no region too.
    """

    def __init__(self, maps: Sequence[LabelMap], regions: Sequence[Sequence[int]]) -> None:
        self._regions = regions
        self._low = min(0, *(int(one.min(initial=0)) for one in maps))
        self._high = max(int(one.max(initial=0)) for one in maps)
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
        renumbered = self._renumbering()
        slab = max(1, VOXELS_AT_ONCE // max(1, one[:1].size))
        for start in range(0, len(one), slab):
            target[start : start + slab] = renumbered(one[start : start + slab])

    def _renumbering(self) -> Callable[[LabelMap], npt.NDArray[Any]]:
        if self.kept:
            return np.asarray
        number = {
            label: index
            for index, labels in enumerate(self._regions, start=1)
            for label in labels
            if self._low <= label <= self._high
        }
        if self._high - self._low >= LONGEST_TABLE:
            return lambda part: _searched(part, number).astype(self.dtype)
        table = np.zeros(self._high - self._low + 1, self.dtype)
        table[np.fromiter(number, np.int64) - self._low] = list(number.values())
        if self._low:
            return lambda part: table.take(part.astype(np.int64) - self._low)
        return lambda part: table.take(part.astype(np.intp))


def _searched(values: LabelMap, number: dict[int, int]) -> npt.NDArray[np.int64]:
    labels = np.array(sorted(number), values.dtype)
    if not len(labels):
        return np.zeros(values.shape, np.int64)
    at = np.searchsorted(labels, values).clip(max=len(labels) - 1)
    numbers = np.array([number[label] for label in labels.tolist()])
    found: npt.NDArray[np.int64] = np.where(labels[at] == values, numbers[at], 0)
    return found
