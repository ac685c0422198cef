"""How far one surface is from another: every distance once, with the surface that lies at it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from medimg_eval.metrics.arrays import Floats

# A surface that lies at the tolerance is within it, however the spacing was rounded: 3 x 0.8 is
# 2.4000000000000004 in float64, and must not miss a tolerance of 2.4.
TOLERANCE_SLACK = 1e-6
# A sum of areas that should be exactly 95 % of a surface may come out a few roundings short of it.
AREA_SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class Distances:
    """The distances from the points of one surface to another surface.

    Attributes:
        values: (n,) float64, mm, ascending; a distance may occur more than once. inf where the other
            surface does not exist.
        weights: (n,) float64, above 0: the surface at each distance, in points ("voxel"), or in mm2 (2-D: mm)
            ("surfel").
        interpolate: whether percentiles are NumPy's of points ("voxel"; weights are then whole numbers), or
            the smallest distance within which a share of the surface lies ("surfel").
    """

    values: Floats
    weights: Floats
    interpolate: bool

    @cached_property
    def size(self) -> float:
        """The whole surface: points, mm2 or mm; 0 if there is none."""
        return float(self._cumulated[-1])  # as `within` sums, so that all of it is exactly all of it

    @cached_property
    def total(self) -> float:
        """The sum of the distances, each times its surface."""
        return float(self.values @ self.weights)

    @cached_property
    def total_of_squares(self) -> float:
        """The sum of the squared distances, each times its surface."""
        return float(self.values**2 @ self.weights)

    @property
    def largest(self) -> float:
        """The largest distance in mm; NaN without a surface."""
        return float(self.values[-1]) if len(self.values) else math.nan

    def within(self, tolerance: float) -> float:
        """Surface within `tolerance` mm, with a slack of 1e-6."""
        return float(self._cumulated[self.values.searchsorted(tolerance * (1 + TOLERANCE_SLACK), side="right")])

    def percentile(self, percent: float) -> float:
        """Distance in mm at `percent` (0 to 100) of surface; NaN without surface."""
        if not len(self.values):
            return math.nan
        reached = self._cumulated[1:]
        if not self.interpolate:
            at = reached.searchsorted(percent / 100 * reached[-1] * (1 - AREA_SLACK))
            return float(self.values[at])
        # NumPy's linear rule on the points that the weights stand for: point k is the first whose
        # cumulated number exceeds k.
        rank = percent / 100 * (self.size - 1)
        below, above = math.floor(rank), math.ceil(rank)
        low: float
        high: float
        low, high = self.values[reached.searchsorted([below, above], side="right")].tolist()
        return low if low == high else low + (high - low) * (rank - below)

    @cached_property
    def _cumulated(self) -> Floats:
        cumulated = np.zeros(len(self.weights) + 1)
        np.add.accumulate(self.weights, out=cumulated[1:])
        return cumulated

    def pooled(self, other: Distances) -> Distances:
        """The distances of both directions as one list."""
        values = np.concatenate([self.values, other.values])
        order = np.argsort(values, kind="stable")
        return Distances(values[order], np.concatenate([self.weights, other.weights])[order], self.interpolate)
