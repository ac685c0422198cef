"""Angles between points and between vertebrae: one code for the reference and for the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array

_STRAIGHT = 1e-4
"""How far both sides of its chord a spine may leave it and not count as S-shaped; AASCE's number."""

_EQUAL = 1e-9
"""Degrees by which equal angles may differ."""


class CobbAngles(NamedTuple):
    """Cobb angles of a frontal spine, 0 to 90 degrees.

    Attributes:
        mt: The largest angle between any two vertebrae: the main curve.
        pt: The curve above it.
        tl: The curve below it; of an S-shaped spine whose main curve lies low, the second curve above it.
    """

    mt: float
    pt: float
    tl: float


def cobb_angles(corners: npt.ArrayLike, height: float) -> CobbAngles:
    """Returns the AASCE challenge's Cobb angles from vertebrae's corners.

    The slope of a vertebra is that of the line through the middles of its left and of its right side, midway between
    its endplates. MT is the largest angle between two vertebrae, the upper and the lower end of the main curve. In a
    C-shaped spine PT is the angle between the first vertebra and the upper end, TL that between the lower end and the
    last vertebra. In an S-shaped spine, where the middles of the endplates lie on both sides of the chord from the
    first to the last of them, PT is the largest angle between the upper end and a vertebra above it; TL is the largest
    between the lower end and a vertebra below it if the main curve lies in the upper half of the image, else the
    largest between the upper end of PT and a vertebra above that.

    Corners may come in any order within a vertebra, and vertebrae in any order: they are put in order first, so that
    reference and prediction are measured alike.

    Args:
        corners: (4 * vertebra, 2), row and column, four that belong together after each other; in pixels, or mm.
        height: Of the image, in the same unit.

    Raises:
        ValueError: If there are not four corners of each of at least two vertebrae, or one is not finite.

    Source: the challenge's MATLAB code as ported in github.com/yijingru/Vertebra-Landmark-Detection (read, not copied).

    >>> level = [[0, 0], [0, 10], [5, 0], [5, 10]]
    >>> tilted = [[20, 0], [30, 10], [25, 0], [35, 10]]
    >>> round(cobb_angles([*level, *tilted], height=100).mt, 6)
    45.0
    """
    points = np.asarray(corners, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) % 4 or len(points) < 8 or not np.isfinite(points).all():
        raise ValueError(
            "Expected `corners` to be row and column of four corners of each of at least two vertebrae, "
            f"got {points.shape} with {int(np.isnan(points).sum())} NaN"
        )
    vertebrae = _order_corners(points.reshape(-1, 4, 2))
    angles = _pairwise_angles(vertebrae)
    upper, lower = divmod(_first_largest(angles.ravel()), len(angles))
    if not _is_s_shaped(vertebrae):
        pt, tl = angles[0, upper], angles[-1, lower]
    else:
        above = angles[upper, : upper + 1]
        pt = above.max()
        # The middle of a vertebra's upper endplate says how high it lies.
        if vertebrae[[upper, lower], :2, 0].mean(axis=1).sum() < height:
            tl = angles[lower, lower:].max()
        else:
            end = _first_largest(above)
            tl = angles[end, : end + 1].max()
    return CobbAngles(float(angles[upper, lower]), float(pt), float(tl))


def joint_angle(points: npt.ArrayLike) -> float:
    """Returns the angle of a joint in degrees, 0 to 180.

    Args:
        points: (3, axes): the angle at the second point between the directions to the first and to the third;
            or (4, axes): the angle between the directions from the first to the second and from the third to the
            fourth point. On a grid of equal steps along all axes, or in mm.

    Returns:
        The angle; NaN where two points that make up a direction are the same.

    Raises:
        ValueError: If there are not three or four points.

    >>> joint_angle([[0, 1], [0, 0], [1, 0]])
    90.0
    """
    corners = np.asarray(points, dtype=np.float64)
    if corners.ndim != 2 or len(corners) not in (3, 4):
        raise ValueError(f"Expected `points` to be three or four points, got {corners.shape}")
    first, second = (
        (corners[0] - corners[1], corners[2] - corners[1])
        if len(corners) == 3
        else (corners[1] - corners[0], corners[3] - corners[2])
    )
    lengths = float(np.linalg.norm(first)), float(np.linalg.norm(second))
    if 0.0 in lengths:
        return float("nan")
    first, second = first / lengths[0], second / lengths[1]
    # Sums and differences keep the digits that an arc cosine loses near 0 and 180 degrees.
    return float(np.degrees(2 * np.arctan2(np.linalg.norm(first - second), np.linalg.norm(first + second))))


def unwrapped(value: float, reference: float, period: float | None) -> float:
    """Returns a circular value's equivalent nearest to the reference.

    The value itself where it is not circular.

    >>> unwrapped(359.0, 2.0, period=360)
    -1.0
    """
    if period is None:
        return value
    return reference + (value - reference + period / 2) % period - period / 2


def measured_between(points: Sequence[npt.ArrayLike]) -> float:
    """Returns two points' distance, or three or four points' angle."""
    if len(points) == 2:
        return float(np.linalg.norm(np.subtract(points[0], points[1])))
    return joint_angle(np.asarray(points))


def _order_corners(vertebrae: Array) -> Array:
    """Returns vertebrae top down, corners UL, UR, LL, LR."""
    put = []
    for corners in vertebrae[np.argsort(vertebrae[:, :, 0].mean(axis=1), kind="stable")]:
        by_column = corners[np.argsort(corners[:, 1], kind="stable")]
        left, right = (side[np.argsort(side[:, 0], kind="stable")] for side in (by_column[:2], by_column[2:]))
        put.append((left[0], right[0], left[1], right[1]))
    return np.array(put)


def _pairwise_angles(vertebrae: Array) -> Array:
    """Returns the angles between all vertebrae in degrees, (vertebra, vertebra), at most 90."""
    across = (vertebrae[:, 1] + vertebrae[:, 3] - vertebrae[:, 0] - vertebrae[:, 2]) / 2
    tilt = np.degrees(np.arctan2(across[:, 0], across[:, 1]))
    angles: Array = np.minimum(np.abs(tilt[:, None] - tilt), 90.0)
    return angles


def _first_largest(angles: Array) -> int:
    """Returns the first largest angle's place, robust to rounding."""
    return int(np.argmax(angles >= angles.max() - _EQUAL))


def _is_s_shaped(vertebrae: Array) -> bool:
    """True if endplate middles lie on both sides."""
    middles = (vertebrae[:, 0::2] + vertebrae[:, 1::2]).reshape(-1, 2) / 2
    away, (rows, columns) = middles[:-2] - middles[-1], middles[0] - middles[-1]
    side = away[:, 0] * columns - away[:, 1] * rows
    right, left = side[side > 0].sum(), -side[side < 0].sum()
    # AASCE divides by rows * columns, which a spine whose ends lie above each other makes 0.
    return bool(4 * right * left >= _STRAIGHT * (rows * columns) ** 2 and right * left > 0)
