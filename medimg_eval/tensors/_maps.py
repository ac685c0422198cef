"""Two label maps side by side on one device: counted, and measured for all labels at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from medimg_eval.metrics import Distances
from medimg_eval.metrics.segmentation import ball, surfel_measures
from medimg_eval.tensors._nearest import nearest
from medimg_eval.tensors._surfaces import SurfacePoints, foreground_box, numbered, surface_points

Box = tuple[slice, ...]


class TensorMaps:
    """Reference and prediction with judged regions, of one or more labels.

    It answers a `LabelPair` as `LabelMapPair` does, with the same numbers. What several regions need is computed for
    all of them together on the device of the maps, when it is first asked for; what is found of each surface point
    is brought to the CPU, and weighed there in float64.

    Args:
        reference: Integer label map, or boolean mask, 2-D or 3-D.
        prediction: Of the same shape, on the same device.
        spacing: Voxel size in mm along each axis.
        regions: The labels that make up each region, 1 or above; no two share one.
        surface: What distances are measured between: "surfel" or "voxel".
        ignore: A label of the reference whose voxels are background in both maps.
    """

    def __init__(
        self,
        reference: Tensor,
        prediction: Tensor,
        spacing: tuple[float, ...],
        regions: Sequence[Sequence[int]],
        surface: str,
        ignore: int | None = None,
    ) -> None:
        self.shape: tuple[int, ...] = tuple(reference.shape)
        self.spacing = spacing
        self.surface = surface
        self._regions = len(regions)
        self._crop = foreground_box(reference, prediction)
        reference, prediction = reference[self._crop], prediction[self._crop]
        self._maps = numbered(reference, regions), numbered(prediction, regions)
        if ignore is not None:
            judged = reference != ignore
            self._maps = self._maps[0] * judged, self._maps[1] * judged

    def sizes(self, region: int) -> tuple[int, int, int]:
        """Returns a region's voxels in reference, prediction and both."""
        reference, prediction, both = self._counts[region + 1]
        return reference, prediction, both

    def box(self, region: int) -> Box:
        """Returns the smallest box of a region in both maps."""
        parts = zip(self._boxes[region + 1], self._crop, strict=True)
        return tuple(slice(crop.start + part.start, crop.start + part.stop) for part, crop in parts)

    def masks(self, region: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Returns the masks of a region, cropped to its box, on the CPU."""
        box = self._boxes[region + 1]
        reference, prediction = (_to_numpy(label_map[box] == region + 1) for label_map in self._maps)
        return reference, prediction

    def reference_distances(self, region: int) -> Distances:
        """Returns the distances from the reference's surface to the prediction's."""
        return self._profiles[0][region]

    def prediction_distances(self, region: int) -> Distances:
        """Returns the distances from the prediction's surface to the reference's."""
        return self._profiles[1][region]

    @cached_property
    def _counts(self) -> list[list[int]]:
        """By number, its voxels in one map, in the other and in both."""
        reference, prediction = self._maps
        maps = (reference, prediction, torch.where(reference == prediction, reference, 0))
        counts = [torch.bincount(part.reshape(-1), minlength=self._regions + 1) for part in maps]
        return torch.stack(counts, dim=1).tolist()

    @cached_property
    def _boxes(self) -> list[Box]:
        """By number, its joint box within the crop."""
        surfaces = [surface_points(label_map, "voxel") for label_map in self._maps]
        points, labels = (
            torch.cat(parts) for parts in zip(*[(surface.points, surface.labels) for surface in surfaces], strict=True)
        )
        indices = labels.long()[:, None].expand_as(points)
        ends = points.new_zeros((self._regions + 1, points.shape[1]))
        first = ends.scatter_reduce(0, indices, points, "amin", include_self=False).tolist()
        last = ends.scatter_reduce(0, indices, points + 1, "amax", include_self=False).tolist()
        return [tuple(slice(*part) for part in zip(*rows, strict=True)) for rows in zip(first, last, strict=True)]

    @cached_property
    def _profiles(self) -> tuple[list[Distances], list[Distances]]:
        """The distances from the reference's surfaces and from the prediction's, by region."""
        reference, prediction = (surface_points(label_map, self.surface) for label_map in self._maps)
        return self._directed(reference, prediction), self._directed(prediction, reference)

    def _directed(self, start: SurfacePoints, target: SurfacePoints) -> list[Distances]:
        there = torch.zeros(self._regions + 1, dtype=torch.bool, device=start.points.device)
        there[target.labels.long()] = True
        met = there[start.labels.long()]
        around = ball(self.spacing)
        shape = tuple(size + 1 for size in self._maps[0].shape)  # there is one grid corner more than voxels
        ranks, far = nearest(SurfacePoints(*(part[met] for part in start)), target, shape, self.spacing, around)
        measures = np.ones(1) if self.surface == "voxel" else surfel_measures(self.spacing)
        weights, labels = measures[_to_numpy(start.codes)], _to_numpy(start.labels).astype(np.int64)
        ranks_ = np.full(len(labels), len(around.lengths))
        ranks_[_to_numpy(met)] = ranks
        beyond = ranks_ == len(around.lengths)
        distances = np.full(int(beyond.sum()), np.inf)
        distances[_to_numpy(met)[beyond]] = far
        rows, row = self._regions + 1, len(around.lengths)
        near = np.bincount((labels * row + ranks_)[~beyond], weights[~beyond], rows * row).reshape(rows, row)
        farther = _by_label(labels[beyond], distances, weights[beyond], rows)
        return [self._joined(around.lengths, near[region], *farther[region]) for region in range(1, rows)]

    def _joined(
        self,
        lengths: npt.NDArray[np.float64],
        near: npt.NDArray[np.float64],
        far: npt.NDArray[np.float64],
        weights: npt.NDArray[np.float64],
    ) -> Distances:
        filled = np.flatnonzero(near)  # all that is near is nearer than all that is far
        values, held = np.concatenate([lengths[filled], far]), np.concatenate([near[filled], weights])
        return Distances(values, held, interpolate=self.surface == "voxel")


def _by_label(
    labels: npt.NDArray[np.int64], distances: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], rows: int
) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Returns the distances of each label, ascending, with their weights."""
    order = np.lexsort((distances, labels))
    ends = np.searchsorted(labels[order], np.arange(rows + 1))
    return [(distances[order[a:b]], weights[order[a:b]]) for a, b in itertools.pairwise(ends)]


def _to_numpy(values: Tensor) -> npt.NDArray[Any]:
    return values.cpu().numpy()
