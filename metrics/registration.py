"""Registration: how well a transform brings a moving image onto a fixed one, and how it bends space.

A displacement is in voxels, on the grid of the fixed image: its index i lies at i + d(i) of the moving one. So a field
pulls the moving image back, as those of Learn2Reg, ITK and voxelmorph do. Its Jacobian determinant is that of the map
in mm where both images have the same voxels, whatever their orientation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Bools, Floats
from medimg_eval.metrics.declarations import error_metric
from medimg_eval.metrics.registry import ScoreTable, asked_metrics, summary
from medimg_eval.metrics.scores import LabelScore

WHOLE = "all"
"""The label of what is judged of the field and of all points together."""

SMALLEST = 1e-9
"""What a Jacobian determinant is raised to before its logarithm, as in Learn2Reg's script."""

LAYERS = 16
"""Layers of a grid whose Jacobian determinants are computed at once."""

LEARN2REG = "Learn2Reg (Hering et al., IEEE TMI 42, 2023)"

registration_metrics = partial(asked_metrics, kind="registration", what="transforms")


def jacobian_determinants(displacement: npt.ArrayLike) -> Floats:
    """Jacobian determinants of a map, float64, (*spatial): local volume ratios.

    A ratio is the volume of a voxel's image over that of the voxel. Differences are central, and one-sided at
    the edges of the grid.

    Args:
        displacement: (axes, *spatial) in voxels, at least two along each axis.

    Raises:
        ValueError: The shape is another.

    >>> bool(np.all(jacobian_determinants(np.zeros((2, 3, 3))) == 1))
    True
    """
    field = np.asarray(displacement, np.float64)
    axes = field.ndim - 1
    if axes not in (2, 3) or len(field) != axes or min(field.shape[1:]) < 2:
        raise ValueError(f"Expected a displacement (axes, *spatial) of two or three axes, got {field.shape}")
    length = field.shape[1]
    determinants = np.empty(field.shape[1:])
    for start in range(0, length, LAYERS):  # the slopes take nine times the room of what is found
        low, stop = max(0, start - 1), min(length, start + LAYERS)
        part = field[:, low : stop + 1]
        slopes = [[np.gradient(component, axis=axis) for axis in range(axes)] for component in part]
        for row in range(axes):
            slopes[row][row] += 1
        determinants[start:stop] = _jacobian_determinant(slopes)[start - low : stop - low]
    return determinants


def _jacobian_determinant(rows: Sequence[Sequence[Floats]]) -> Floats:
    if len(rows) == 2:
        return rows[0][0] * rows[1][1] - rows[0][1] * rows[1][0]
    (a, b, c), (d, e, f), (g, h, i) = rows
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def sample_field(field: npt.ArrayLike, places: npt.ArrayLike, order: int = 1) -> Floats:
    """Field values between voxels, (component, place), float64; 0 outside the grid.

    `places` are (axes, place) in voxels; `order` is the spline's: 0 nearest, 1 linear, 3 cubic.
    """
    from scipy.ndimage import map_coordinates

    return np.stack([map_coordinates(np.asarray(part, np.float64), places, order=order) for part in np.asarray(field)])


def warp_labels(labels: Array, displacement: npt.ArrayLike) -> Array:
    """Moving labels warped onto the fixed grid by nearest voxel; 0 from outside.

    `displacement` is (axes, *spatial) in voxels on the fixed grid.
    """
    from scipy.ndimage import map_coordinates

    field = np.asarray(displacement, np.float64)
    warped: Array = map_coordinates(labels, np.indices(field.shape[1:]) + field, order=0)
    return warped


def inverse_errors(forward: npt.ArrayLike, inverse: npt.ArrayLike) -> Floats:
    """Distances from start after mapping there and back, (axes, *spatial).

    Components, float64, in voxels of the fixed image. NaN where a point leaves the moving image. The field
    back is interpolated linearly.

    Args:
        forward: (axes, *spatial) on the grid of the fixed image.
        inverse: (axes, *spatial) on that of the moving one.
    """
    there, back = np.asarray(forward, np.float64), np.asarray(inverse, np.float64)
    positions = (np.indices(there.shape[1:]) + there).reshape(len(there), -1)
    errors = there.reshape(len(there), -1) + sample_field(back, positions)
    last = np.array(back.shape[1:])[:, None] - 1
    errors[:, ((positions < 0) | (positions > last)).any(axis=0)] = np.nan
    return errors.reshape(there.shape)


@dataclass(frozen=True, eq=False)
class RegistrationPair:
    """A transform of one case, and what is known to be right.

    Attributes:
        displacement: (axes, *spatial) in voxels, on the grid of the fixed image.
        region: bool, (*spatial), where the field is judged; None for everywhere.
        moved: Fixed points as the transform places them in the moving image, (point, axes), in mm (or pixels).
        points: Where they should lie there; None of a case without points.
        returned: How far voxels end from where they began, (*spatial) in mm (or pixels); None without an inverse.
        errors: How far voxels are placed from where a known field places them, likewise; None where none is known.
    """

    displacement: Floats
    region: Bools | None = None
    moved: Floats | None = None
    points: Floats | None = None
    returned: Floats | None = None
    errors: Floats | None = None

    @cached_property
    def determinants(self) -> Floats:
        """Jacobian determinants, (*spatial)."""
        return jacobian_determinants(self.displacement)

    def within(self, field: Array, margin: int = 0) -> Array:
        """Field values in the region, (voxel,), without `margin` edge voxels."""
        inner = (slice(margin, -margin or None),) * field.ndim
        return field[inner].ravel() if self.region is None else field[inner][self.region[inner]]

    @cached_property
    def distances(self) -> Floats:
        """From where points are placed to where they should lie, (point,)."""
        if self.moved is None or self.points is None:
            return np.empty(0)
        apart: Floats = np.linalg.norm(self.moved - self.points, axis=1)
        return apart

    def mean_in_region(self, lengths: Floats | None) -> float:
        """Mean over the region of what is known there; NaN where nothing is."""
        if lengths is None:
            return math.nan
        inside = self.within(lengths)
        return _known_mean(inside[~np.isnan(inside)])


_length = partial(error_metric, kind="registration", unit="mm", worst="diagonal")
_bending = partial(error_metric, kind="registration", worst=math.nan, optional=True)


@_length(title="TRE", optional=True, source=LEARN2REG)
def tre(pair: RegistrationPair) -> float:
    """The target registration error: the mean distance from where fixed points are placed to where they should lie.

    In mm of the moving image; the transform maps points of the fixed image to the moving one. NaN without points.
    """
    return _known_mean(pair.distances)


@_length(title="Largest TRE", optional=True, source="largest target registration error of a case")
def tre_largest(pair: RegistrationPair) -> float:
    """The largest distance from where a fixed point is placed to where it should lie, in mm; NaN without points."""
    return float(pair.distances.max()) if len(pair.distances) else math.nan


@_length(title="Field error", optional=True, source="end-point error of a known field")
def field_error(pair: RegistrationPair) -> float:
    """The mean distance in the region from where voxels are placed to where a known field places them.

    In mm; NaN where none is known.
    """
    return pair.mean_in_region(pair.errors)


@_length(title="Inverse error", optional=True, source="Christensen and Johnson, IEEE TMI 20, 2001")
def inverse_consistency(pair: RegistrationPair) -> float:
    """The mean distance in the region from where voxels began to where they end, there and back.

    In mm of the fixed image; voxels that leave the moving image do not count. NaN of a model without an inverse.
    """
    return pair.mean_in_region(pair.returned)


@_bending(title="Folded", unit="%", source="share of voxels whose Jacobian determinant is 0 or below")
def negative_jacobians(pair: RegistrationPair) -> float:
    """The share of voxels of the region whose Jacobian determinant is 0 or below, in %: there the map folds."""
    return 100 * _known_mean(pair.within(pair.determinants) <= 0)


@_bending(title="SDlogJ", source="standard deviation of the logarithm of the Jacobian determinant")
def sdlogj(pair: RegistrationPair) -> float:
    """The standard deviation over the region of the logarithm of the Jacobian determinant.

    Determinants below 1e-9, as of folded voxels, count as 1e-9, so that folds are dear.
    """
    determinants = pair.within(pair.determinants)
    return float(np.log(determinants.clip(SMALLEST)).std()) if determinants.size else math.nan


@_bending(title="SDlogJ (Learn2Reg)", source=LEARN2REG)
def sdlogj_learn2reg(pair: RegistrationPair) -> float:
    """The standard deviation of log(J + 3), at least two voxels from the edges of the grid, as in Learn2Reg's script.

    Because 3 is added, most folds do not reach the bound of 1e-9: the number is smaller than `sdlogj`, and tells less.
    """
    determinants = pair.within(pair.determinants, margin=2)
    return float(np.log((determinants + 3).clip(SMALLEST, 1e9)).std()) if determinants.size else math.nan


_worst_cases = partial(summary, source=LEARN2REG)


@_worst_cases(needs=("tre",), title="TRE30", higher_is_better=False, unit="mm", best=0.0)
def tre_30(rows: ScoreTable) -> float:
    """The 0.7 quantile of the cases' target registration errors: three of ten cases are as bad or worse."""
    return _known_quantile(rows.value, 0.7)


@_worst_cases(needs=("dice",), title="Dice30", higher_is_better=True, best=1.0, value_kind="bounded")
def dice_30(rows: ScoreTable) -> float:
    """The 0.3 quantile of the cases' mean Dice over labels: three of ten cases are as bad or worse."""
    is_known = ~np.isnan(rows.value)
    cases, case_index = np.unique(np.asarray(rows.case)[is_known], return_inverse=True)
    means = np.bincount(case_index, rows.value[is_known], len(cases)) / np.maximum(
        np.bincount(case_index, minlength=len(cases)), 1
    )
    return _known_quantile(means, 0.3)


def registration_scores(pair: RegistrationPair, metrics: Sequence[str]) -> list[LabelScore]:
    """Scores of one transform, labelled "all", in metrics' order; UsageError for unknown ones."""
    return [
        LabelScore(WHOLE, name, float(definition.function(pair)), "present")
        for name, (definition, _) in registration_metrics(metrics).items()
    ]


def worst_registration_scores(metrics: Sequence[str], diagonal: float) -> list[LabelScore]:
    """Scores "failed" of a case without a transform; distances are the fixed image's diagonal."""
    return [
        LabelScore(WHOLE, name, diagonal if definition.worst == "diagonal" else float(definition.worst), "failed")
        for name, (definition, _) in registration_metrics(metrics).items()
    ]


def _known_mean(values: Array) -> float:
    return float(values.mean()) if values.size else math.nan


def _known_quantile(values: Floats, share: float) -> float:
    defined = values[~np.isnan(values)]
    return float(np.quantile(defined, share)) if defined.size else math.nan
