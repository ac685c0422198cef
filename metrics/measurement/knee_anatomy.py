"""Sub-regions of knee cartilage and meniscus, as DOSMA divides them for SKM-TEA.

Axes are rows from superior to inferior, columns from anterior to posterior, slices from one side to the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Parts: TypeAlias = list[dict[str, Array]]

BINS = 72
"""Sectors of 5 degrees about the femur in which deep and superficial cartilage are told apart."""


class _Division(NamedTuple):
    """How a tissue is divided: its number of components that are kept, and its parts along each direction."""

    components: int
    split: Callable[[Array, Array, bool], Parts]


def knee_subregions(tissue: str, mask: Array, t2: Array, *, medial_first: bool) -> dict[str, Array]:
    """Sub-regions of a tissue of the knee, name -> bool (row, column, slice).

    Femoral and tibial cartilage have 18, patellar has 6, the meniscus 2: those of the whole thickness (`total`) are
    the union of two others. Of a femoral or patellar mask the largest component counts, of others the two largest. A
    voxel that is alone in its sector of the femur is deep and superficial.

    Args:
        tissue: a key of `DIVISIONS`.
        mask: bool, (row, column, slice).
        t2: of the same shape, in ms; the femur is divided where it is known and by its centre of mass.
        medial_first: whether slice 0 is medial.

    Raises:
        ValueError: There is no such tissue, or shapes differ or are not of three axes.

    Source: Desai et al., DOSMA (dosma/tissues), by which SKM-TEA's evaluation divides.

    >>> mask = np.ones((2, 2, 4), bool)
    >>> {name: int(part.sum()) for name, part in knee_subregions("meniscus", mask, mask, medial_first=True).items()}
    {'medial': 8, 'lateral': 8}
    """
    from scipy import ndimage

    if tissue not in DIVISIONS:
        raise ValueError(f"tissue is invalid: expected one of {', '.join(DIVISIONS)}, got {tissue!r}")
    if mask.ndim != 3 or mask.shape != t2.shape:
        raise ValueError(f"Expected a mask and a map of one shape of three axes, got {mask.shape} and {t2.shape}")
    division = DIVISIONS[tissue]
    labels, _ = ndimage.label(mask)
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    largest = np.argsort(-sizes, kind="stable")[: division.components]
    kept = np.isin(labels, largest[sizes[largest] > 0])
    box = ndimage.find_objects(kept.astype(np.uint8))[0] if kept.any() else (slice(0, 1),) * 3
    parts = {}
    directions = division.split(kept[box], t2[box], medial_first)
    for chosen in itertools.product(*(direction.items() for direction in directions)):
        part = np.zeros(mask.shape, bool)
        part[box] = np.logical_and.reduce(
            [kept[box], *(np.broadcast_to(inside, kept[box].shape) for _, inside in chosen)]
        )
        parts[" ".join(name for name, _ in chosen)] = part
    return parts


def _split_femur(mask: Array, t2: Array, medial_first: bool) -> Parts:
    """Depth, side and place about the circle of the femur."""
    known = np.where(mask, np.nan_to_num(t2), 0.0)
    inside = known > 0
    if not inside.any():
        nothing = np.zeros_like(mask)
        return [dict.fromkeys(names, nothing) for names in (("deep", "superficial", "total"), SIDES, PLACES)]
    row, column = _fit_circle(*np.nonzero(inside.any(axis=2)))
    rows, columns = np.indices(mask.shape[:2])
    radii = np.hypot(columns - column, row - rows)
    angles = np.degrees(np.arctan2(row - rows, columns - column))
    angles[angles >= 90] -= 360
    sectors = np.floor((angles + 270) / (360 / BINS)).astype(int)
    index = (sectors[..., None] + BINS * np.arange(mask.shape[2]))[inside]
    depths = np.broadcast_to(radii[..., None], mask.shape)
    lowest, highest = np.full(BINS * mask.shape[2], math.inf), np.zeros(BINS * mask.shape[2])
    np.minimum.at(lowest, index, depths[inside])
    np.maximum.at(highest, index, depths[inside])
    limits = np.full(mask.shape, math.nan)
    limits[inside] = (0.5 * (highest[index] - lowest[index])) + lowest[index]
    return [
        {"deep": depths <= limits, "superficial": depths >= limits, "total": inside},
        _sides(known, medial_first),
        dict(zip(PLACES, (places[..., None] for places in _femoral_places(angles)), strict=True)),
    ]


def _femoral_places(angles: Array) -> tuple[Array, Array, Array]:
    """Anterior, central (the lowest 30 degrees) and posterior."""
    return angles < -105, (angles >= -105) & (angles < -75), angles >= -75


def _fit_circle(rows: Array, columns: Array) -> tuple[float, float]:
    """The centre whose distances to points vary least."""
    from scipy import optimize

    def spread(centre: Array) -> Array:
        radii: Array = np.hypot(rows - centre[0], columns - centre[1])
        return np.asarray(radii - radii.mean())

    start = rows.mean(), columns.mean()
    row, column = start if len(rows) < len(start) else optimize.leastsq(spread, start)[0]
    return float(row), float(column)


def _split_tibia(mask: Array, t2: Array, medial_first: bool) -> Parts:
    """Superior and inferior, sides, and thirds of each plateau."""
    half = _first_half(mask, 2)
    places = [np.zeros((1, *mask.shape[1:]), bool) for _ in PLACES]
    columns = np.arange(mask.shape[1])
    for plateau in (np.flatnonzero(half), np.flatnonzero(~half)):
        taken = np.flatnonzero(mask[..., plateau].any(axis=(0, 2)))
        if not taken.size:
            continue
        span = taken[-1] - taken[0]
        first, second = (math.ceil(taken[0] + share * span) for share in (1 / 3, 2 / 3))
        for place, inside in zip(
            places, (columns < first, (columns >= first) & (columns < second), columns >= second), strict=True
        ):
            place[0][:, plateau] = inside[:, None]
    upper = _upper_part(mask, 0)
    return [
        {"superior": upper, "inferior": ~upper, "total": mask},
        _sides(mask, medial_first),
        dict(zip(PLACES, places, strict=True)),
    ]


def _split_patella(mask: Array, t2: Array, medial_first: bool) -> Parts:
    """Depth, where the bone is anterior, and sides."""
    upper = _upper_part(mask, 1)
    return [{"superficial": ~upper, "deep": upper, "total": mask}, _sides(mask, medial_first)]


def _split_meniscus(mask: Array, t2: Array, medial_first: bool) -> Parts:
    """Sides alone, as SKM-TEA has it."""
    return [_sides(mask, medial_first)]


def _upper_part(mask: Array, axis: int) -> Array:
    """Voxels before the centre of mass of their own line."""
    places = np.arange(mask.shape[axis]).reshape([-1 if number == axis else 1 for number in range(3)])
    counts = mask.sum(axis=axis, keepdims=True)
    centres = (mask * places).sum(axis=axis, keepdims=True) / np.maximum(counts, 1)
    upper: Array = places < np.ceil(centres)
    return upper


def _first_half(weights: Array, axis: int) -> Array:
    """Places along an axis before the centre of mass."""
    from scipy import ndimage

    centre = ndimage.center_of_mass(weights)[axis] if weights.any() else 0.0
    before: Array = np.arange(weights.shape[axis]) < math.ceil(centre)
    return before


def _sides(weights: Array, medial_first: bool) -> dict[str, Array]:
    first = _first_half(weights, 2)
    return dict(zip(SIDES, (first, ~first) if medial_first else (~first, first), strict=True))


SIDES, PLACES = ("medial", "lateral"), ("anterior", "central", "posterior")

DIVISIONS: Mapping[str, _Division] = {
    "femoral cartilage": _Division(1, _split_femur),
    "tibial cartilage": _Division(2, _split_tibia),
    "patellar cartilage": _Division(1, _split_patella),
    "meniscus": _Division(2, _split_meniscus),
}
"""Tissue -> how it is divided."""
