"""Metrics of maps of where a model looked, beside the outline of what was to be found.

A map gives each of several cells, rectangles of one size, a weight: tiles of a slide, or the cells of a grid over a
picture. It is 0 where no cell lies. Areas are exact: a cell that the outline cuts counts in part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats
from medimg_eval.metrics.declarations import share_metric

KIND = "map"

POINTING = "Zhang et al., Int J Comput Vis 2018, doi 10.1007/s11263-017-1059-x"
ENERGY = "Wang et al. 2020 (Score-CAM), doi 10.1109/CVPRW50498.2020.00020"


@dataclass(frozen=True, eq=False)
class LocatedMap:
    """A map, and how its cells lie to the outline of one class.

    Attributes:
        weights: (cell,), from 0 on.
        areas: (cell,), of the part of each cell that lies in the picture, in pixels of the mask.
        inside: (cell,), of the part of each cell that lies in the outline.
        centred: bool, (cell,), whether the centre of a cell lies in the outline.
        outlined: area of the whole outline.
        whole: area of the picture.
    """

    weights: Floats
    areas: Floats
    inside: Floats
    centred: Bools
    outlined: float
    whole: float

    @classmethod
    def of(
        cls,
        weights: npt.ArrayLike,
        places: npt.ArrayLike,
        edge: float | tuple[float, float],
        mask: npt.ArrayLike,
        downsample: float = 1.0,
    ) -> Self:
        """Lays a map over a mask.

        Args:
            weights: (cell,), from 0 on.
            places: (cell, 2), row and column of each cell's first pixel; cells share no pixel.
            edge: of a cell, in the same pixels; of cells that are no squares their height and width.
            mask: bool, (row, column), of the whole picture.
            downsample: pixels that places count in along the edge of a pixel of the mask.

        Raises:
            ValueError: shapes do not fit, a weight is negative or not finite, or the outline is empty.
        """
        heights, corners = np.asarray(weights, np.float64), np.asarray(places, np.float64) / downsample
        outline: Bools = np.asarray(mask, bool)
        side: Floats = np.broadcast_to(np.asarray(edge, np.float64), 2) / downsample
        if heights.ndim != 1 or corners.shape != (len(heights), 2) or outline.ndim != 2 or not (side > 0).all():
            raise ValueError(
                f"expected weights (cell,), places (cell, 2), an edge above 0 and a mask (row, column), got "
                f"{heights.shape}, {corners.shape}, {edge} and {outline.shape}"
            )
        if not len(heights) or not np.isfinite(heights).all() or heights.min() < 0:
            raise ValueError("expected weights from 0 on, all of them finite, and at least one")
        if not outline.any():
            raise ValueError("the outline is empty")
        shape = np.array(outline.shape)
        first, last = np.clip(corners, 0, shape), np.clip(corners + side, 0, shape)
        middle = np.floor(corners + side / 2).astype(int)
        within: Bools = np.all((middle >= 0) & (middle < shape), axis=1)
        row, column = np.where(within[:, None], middle, 0).T
        return cls(
            heights,
            (last - first).prod(axis=1),
            _covered_area(outline, first, last),
            within & outline[row, column],
            float(outline.sum()),
            float(outline.size),
        )


def _covered_area(outline: Bools, first: Floats, last: Floats) -> Floats:
    """Area of the outline in rectangles whose corners need not be whole pixels."""
    sums = np.zeros((outline.shape[0] + 1, outline.shape[1] + 1))
    np.cumsum(np.cumsum(outline, axis=0, dtype=np.float64), axis=1, out=sums[1:, 1:])

    def below(row: Floats, column: Floats) -> Floats:
        """Area above and left of a point: between whole pixels it is bilinear."""
        i, j = np.minimum(np.floor([row, column]).astype(int), np.array(outline.shape)[:, None] - 1)
        y, x = row - i, column - j
        upper = sums[i, j] * (1 - x) + sums[i, j + 1] * x
        lower = sums[i + 1, j] * (1 - x) + sums[i + 1, j + 1] * x
        below_area: Floats = upper * (1 - y) + lower * y
        return below_area

    area = below(*last.T) - below(first[:, 0], last[:, 1]) - below(last[:, 0], first[:, 1]) + below(*first.T)
    return np.maximum(area, 0.0)


_maps = partial(share_metric, kind=KIND, optional=True)


@_maps(title="Pointing game", source=POINTING, value_kind="proportion")
def pointing_game(pair: LocatedMap) -> float:
    """Whether the centre of the cell with the largest weight lies in the outline; of equal cells the first counts.

    Its mean over cases is the share of hits. Without the tolerance that some papers allow.
    """
    return float(pair.centred[int(np.argmax(pair.weights))])


@_maps(title="Map energy", source=ENERGY)
def map_energy(pair: LocatedMap) -> float:
    """The share of the map's sum that lies in the outline, each weight being spread evenly over its cell.

    0 of a map that is 0 everywhere. A map that weighs all cells alike has the share of their area that is outlined.
    """
    shares = np.divide(pair.inside, pair.areas, out=np.zeros_like(pair.inside), where=pair.areas > 0)
    total = float(pair.weights.sum())
    return min(1.0, float(pair.weights @ shares) / total) if total > 0 else 0.0


@_maps(
    title="Map IoU",
    source="intersection over union of a map cut at a share of its largest weight",
    parameter="share of the largest weight that is kept",
    parameter_optional=True,
    parameter_most=1.0,
)
def map_iou(pair: LocatedMap, share: float = 0.5) -> float:
    """The intersection over union of the outline and the cells that have a share of the largest weight, 0.5 untold.

    0 of a map that is 0 everywhere. What of the outline no cell covers counts as missed.
    """
    largest = float(pair.weights.max())
    is_salient = pair.weights >= share * largest if largest > 0 else np.zeros(len(pair.weights), bool)
    shared = float(pair.inside[is_salient].sum())
    return min(1.0, shared / (float(pair.areas[is_salient].sum()) + pair.outlined - shared))


@_maps(title="Map AUPRC", source="average precision of pixels, as in scikit-learn")
def map_auprc(pair: LocatedMap) -> float:
    """The average precision of the picture's pixels, ranked by the map, which is 0 where no cell lies.

    Pixels of equal weight are one level, whatever their order. A map without information has the outline's share of
    the picture.
    """
    uncovered = (max(0.0, pair.whole - pair.areas.sum()), max(0.0, pair.outlined - pair.inside.sum()))
    weights = np.append(pair.weights, 0.0)
    levels, level = np.unique(-weights, return_inverse=True)
    areas = np.bincount(level, np.append(pair.areas, uncovered[0]), len(levels))
    inside = np.bincount(level, np.append(pair.inside, uncovered[1]), len(levels))
    covered = np.cumsum(areas)
    precision = np.divide(np.cumsum(inside), covered, out=np.zeros_like(covered), where=covered > 0)
    return min(1.0, float(inside @ precision) / pair.outlined)
