"""Orientation, resampling and affines: image and label map moved the same way, from the same grid to the same grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import numpy as np

from medimg_eval.case import Array, Geometry, Image, Mask
from medimg_eval.errors import CaseError

Thing = TypeVar("Thing", Image, Mask)

ENDS = ("LR", "PA", "IS")
"""Negative and positive end of each axis of RAS+ space."""


HALF = 0.5 + 1e-6
"""A centre on the face between two voxels belongs to the later one, whatever rounding did to it."""


def orientation(affine: Array) -> str:
    """Returns the axis code, such as `RAS`: ends of axes.

    Oblique axes get the letter of the nearest patient axis, no two axes the same. The affine is (4, 4), to RAS+ mm.
    """
    steps = np.asarray(affine, np.float64)[:3, :3]
    cosines = steps / np.linalg.norm(steps, axis=0)
    best = max(itertools.permutations(range(3)), key=lambda order: sum(abs(cosines[order[v], v]) for v in range(3)))
    return "".join(ENDS[world][int(cosines[world, voxel] > 0)] for voxel, world in enumerate(best))


def reorient(thing: Thing, code: str = "RAS") -> Thing:
    """Reorients a volume towards `code`, by rotations and flips.

    No value is changed: arrays are views of the given ones, and every voxel stays where it was in the patient. Raises
    ValueError for a code that has not one of each of R or L, A or P, S or I, or another number of axes than three.
    """
    if len(code) != 3 or any(sum(letter in ends for letter in code) != 1 for ends in ENDS):
        raise ValueError(f"expected one of each of R or L, A or P, S or I, such as 'RAS', got {code!r}")
    shape = thing.geometry.shape
    if len(shape) != 3:
        raise ValueError(f"expected three spatial axes, got the shape {shape}")
    now = orientation(thing.affine)
    sources = [next(v for v in range(3) if ends_of(now[v]) == ends_of(letter)) for letter in code]
    flips: list[bool] = [now[source] != letter for source, letter in zip(sources, code, strict=True)]
    turn = np.zeros((4, 4))
    turn[3, 3] = 1
    for axis, (source, flip) in enumerate(zip(sources, flips, strict=True)):
        turn[source, axis] = -1 if flip else 1
        turn[source, 3] = shape[source] - 1 if flip else 0

    def moved(array: Array) -> Array:
        lead = array.ndim - 3
        array = array.transpose(*range(lead), *(lead + source for source in sources))
        cut: tuple[Any, ...] = (..., *(slice(None, None, -1) if flip else slice(None) for flip in flips))
        view: Array = array[cut]
        return view

    return _rebuild_image(thing, moved, thing.affine @ turn)


def ends_of(letter: str) -> str:
    """Returns the axis a letter belongs to, such as `LR` for `R`."""
    return next(ends for ends in ENDS if letter in ends)


def grid_of_spacing(geometry: Geometry, spacing: Sequence[float]) -> Geometry:
    """Returns the grid of another spacing in mm, same field of view.

    The middle of the volume and the directions of its axes stay. The field of view (from the outer face of the
    first voxel to the outer face of the last) is rounded to whole voxels, by the same amount at both ends. Raises
    ValueError where the spacing is not one number above 0 per axis.
    """
    if len(spacing) != len(geometry.shape) or not all(0 < step < math.inf for step in spacing):
        raise ValueError(f"expected {len(geometry.shape)} spacings above 0, got {tuple(spacing)}")
    scale = np.array(spacing) / geometry.spacing
    shape = tuple(max(1, round(float(n / by))) for n, by in zip(geometry.shape, scale, strict=True))
    axes = len(shape)
    affine = np.array(geometry.affine, np.float64)
    affine[:3, :axes] *= scale
    middle = geometry.affine[:3, :axes] @ ((np.array(geometry.shape) - 1) / 2)
    affine[:3, 3] += middle - affine[:3, :axes] @ ((np.array(shape) - 1) / 2)
    return Geometry(shape, affine, geometry.units)


@overload
def resample(thing: Image, to: Geometry | Sequence[float], *, order: int = ..., fill: float = ...) -> Image: ...


@overload
def resample(
    thing: Mask, to: Geometry | Sequence[float], *, labels: Literal["nearest", "linear"] = ..., fill: float = ...
) -> Mask: ...


def resample(
    thing: Image | Mask,
    to: Geometry | Sequence[float],
    *,
    order: int = 1,
    labels: Literal["nearest", "linear"] = "nearest",
    fill: float = 0,
) -> Image | Mask:
    """Brings an image or a label map onto another grid; both move alike.

    A voxel of the new grid takes its value from where its centre lies in the old one. A centre within the outer
    faces of the old volume takes part of it; beyond them it is `fill`. Nothing is smoothed first: an image brought
    to much larger voxels shows aliasing.

    Args:
        thing: an image or label map of two or three spatial axes.
        to: the grid, or mm along each spatial axis (see `grid_of_spacing`).
        order: of an image: 0 nearest (keeps the dtype), 1 linear, 3 cubic spline (both give float32, or float64
            of float64 and of integers of 32 bits and more; complex stays complex).
        labels: of a label map: `nearest`; or `linear`, where each label's share of the voxel is interpolated and
            the largest share wins, which gives smoother outlines. Labels are never interpolated as numbers.
        fill: what lies outside, in the image's units; the label of what lies outside.

    Returns:
        The same kind, on the new grid. `valid` of an image turns False where a value lies outside, or was mixed
        from values that were not valid.

    Raises:
        ValueError: another order, another number of axes, pictures in different planes, or a grid in mm for what
            is in pixels (or the other way round).
    """
    if not isinstance(thing, Image):
        return _resampled_mask(thing, to, labels, fill)
    target = _target_geometry(thing, to)
    pull = _pull_matrix(thing.geometry, target)
    outside = _outside_mask(pull, thing.geometry.shape, target.shape)
    if order not in (0, 1, 3):
        raise ValueError(f"expected order 0, 1 or 3, got {order!r}")
    channels = [
        _fill_outside(_interpolate_values(channel, pull, target.shape, order), outside, fill) for channel in thing.array
    ]
    array = channels[0][None] if len(channels) == 1 else np.stack(channels)
    valid = None if outside is None else ~outside
    if thing.valid is not None:
        share = _interpolate_values(thing.valid.astype(np.float32), pull, target.shape, min(order, 1)) > 0.999
        valid = share if valid is None else share & valid
    return replace(thing, array=array, affine=np.array(target.affine, np.float64), valid=valid)


def _target_geometry(thing: Image | Mask, to: Geometry | Sequence[float]) -> Geometry:
    target = to if isinstance(to, Geometry) else grid_of_spacing(thing.geometry, to)
    if target.units != thing.units:
        raise ValueError(f"expected a grid in {thing.units}, as what is resampled, got one in {target.units}")
    return replace(target, shape=tuple(int(size) for size in target.shape))  # ITK takes no integers of numpy


def _resampled_mask(mask: Mask, to: Geometry | Sequence[float], labels: str, fill: float) -> Mask:
    if labels not in ("nearest", "linear"):
        raise ValueError(f"expected labels 'nearest' or 'linear', got {labels!r}")
    target = _target_geometry(mask, to)
    pull = _pull_matrix(mask.geometry, target)
    moved = (_interpolate_labels if labels == "linear" else _nearest_voxels)(mask.labels, pull, target.shape)
    moved = _fill_outside(moved, _outside_mask(pull, mask.geometry.shape, target.shape), fill)
    numbers = None if labels == "linear" else mask.instances
    if numbers is not None:
        numbers = _fill_outside(
            _nearest_voxels(numbers, pull, target.shape), _outside_mask(pull, mask.geometry.shape, target.shape), 0
        )
    return replace(mask, labels=moved, affine=np.array(target.affine, np.float64), instances=numbers)


def _rebuild_image(thing: Thing, moved: Callable[[Array], Array], affine: Array) -> Thing:
    changes: dict[str, Any] = {"affine": affine}
    if isinstance(thing, Mask):
        changes |= {"labels": moved(thing.labels)}
        changes |= {"instances": None if thing.instances is None else moved(thing.instances)}
    else:
        changes |= {"array": moved(thing.array), "valid": None if thing.valid is None else moved(thing.valid)}
    return replace(thing, **changes)


def _pull_matrix(source: Geometry, target: Geometry) -> Array:
    """Returns target-to-source indices, (axes, axes + 1), free of rounding."""
    axes = len(source.shape)
    if len(target.shape) != axes:
        raise ValueError(f"expected a grid of {axes} axes, got the shape {target.shape}")
    pull = np.linalg.solve(source.affine, target.affine)
    if axes == 2 and np.abs(pull[2, [0, 1, 3]]).max() > 1e-3:
        raise ValueError("expected a grid in the picture's own plane")
    pull = pull[:axes, [*range(axes), 3]]
    # Affines of float32 headers differ in the seventh digit; whole steps must stay whole, and faces inside.
    nearest = np.rint(pull)
    tolerance = np.array([*(1e-6 for _ in range(axes)), 1e-4])
    return np.where(np.abs(pull - nearest) < tolerance, nearest, pull)


def _outside_mask(pull: Array, source: tuple[int, ...], target: tuple[int, ...]) -> Array | None:
    """Returns voxels outside the source's outer faces; None without."""
    axes = len(source)
    ends = np.array(list(itertools.product(*[(0, n - 1) for n in target])), np.float64).T
    corners = pull[:, :axes] @ ends + pull[:, axes:]
    slack = 1e-3
    outside: Array | None = None
    for axis, n in enumerate(source):
        if corners[axis].min() >= -0.5 - slack and corners[axis].max() <= n - 0.5 + slack:
            continue  # the grid is convex: its corners are its farthest points
        steps = [pull[axis, a] * np.arange(target[a]) if pull[axis, a] else np.zeros(1) for a in range(axes)]
        position: Array = sum(np.ix_(*steps), start=np.array(pull[axis, axes]))
        beyond = (position < -0.5 - slack) | (position > n - 0.5 + slack)
        outside = np.broadcast_to(beyond, target) if outside is None else outside | beyond
    return outside


def _fill_outside(array: Array, outside: Array | None, fill: float) -> Array:
    if outside is not None:
        if array.dtype.kind in "iu" and not (
            float(fill).is_integer() and np.can_cast(np.min_scalar_type(int(fill)), array.dtype)
        ):
            raise ValueError(f"expected a fill that {array.dtype} can hold, got {fill:g}")
        array[outside] = fill
    return array


def _interpolate_values(array: Array, pull: Array, shape: tuple[int, ...], order: int) -> Array:
    """Interpolates; replicates borders, mirrors them for cubic splines."""
    if order == 0:
        return _nearest_voxels(array, pull, shape)
    if array.dtype.kind == "c":
        parts = (_interpolate_values(part, pull, shape, order) for part in (array.real, array.imag))
        return next(parts) + 1j * next(parts)
    import SimpleITK

    wide = array.dtype.kind in "iuf" and array.dtype.itemsize >= (8 if array.dtype.kind == "f" else 4)
    kind: type[np.floating[Any]] = np.float64 if wide else np.float32
    # In index space, where shear and oblique axes are nothing but a matrix. SimpleITK's arrays run backwards, and
    # it knows neither bool, float16, long double nor another byte order.
    is_plain = array.dtype.kind in "iuf" and array.dtype.isnative and array.dtype.itemsize <= 8
    plain = array if is_plain and array.dtype != np.float16 else array.astype(kind)
    if order == 3 and min(array.shape) < 4:
        # ITK's B-spline mirrors an axis once, and on one shorter than its support reads beyond the memory.
        from scipy import ndimage

        wanted = array.astype(kind)
        return np.asarray(ndimage.affine_transform(wanted, pull[:, :-1], pull[:, -1], shape, order=3, mode="nearest"))
    resampler = SimpleITK.ResampleImageFilter()
    resampler.SetSize(shape)
    resampler.SetTransform(
        SimpleITK.AffineTransform(pull[:, :-1].ravel().tolist(), pull[:, -1].tolist(), [0.0] * len(shape))
    )
    resampler.SetInterpolator(SimpleITK.sitkLinear if order == 1 else SimpleITK.sitkBSpline)
    resampler.SetOutputPixelType(SimpleITK.sitkFloat64 if wide else SimpleITK.sitkFloat32)
    resampler.UseNearestNeighborExtrapolatorOn()
    resampler.SetNumberOfThreads(1)  # cases are read side by side already
    result: Array = SimpleITK.GetArrayFromImage(resampler.Execute(SimpleITK.GetImageFromArray(plain.T))).T
    return result


def _nearest_voxels(array: Array, pull: Array, shape: tuple[int, ...]) -> Array:
    """Nearest voxels; ties go to the axis' end."""
    axes = len(shape)
    matrix = pull[:, :axes]
    if np.count_nonzero(matrix) == axes and (np.count_nonzero(matrix, axis=0) == 1).all():
        # Axes of the two grids run along one another: rows and columns are picked, one axis at a time.
        across = [int(np.flatnonzero(matrix[:, axis])[0]) for axis in range(axes)]
        picks = [
            np.clip(np.floor(matrix[s, t] * np.arange(shape[t]) + pull[s, axes] + HALF), 0, array.shape[s] - 1)
            for t, s in enumerate(across)
        ]
        return array.transpose(across)[np.ix_(*(pick.astype(np.intp) for pick in picks))]
    result: Array = np.empty(shape, array.dtype)
    for first in range(shape[0]):  # one plane at a time keeps the indices small
        steps = np.ix_(*(np.arange(n, dtype=np.float64) for n in shape[1:]))
        position = [
            matrix[s, 0] * first + pull[s, axes] + sum(matrix[s, 1 + a] * steps[a] for a in range(axes - 1))
            for s in range(axes)
        ]
        where = [np.clip(np.floor(p + HALF), 0, array.shape[s] - 1).astype(np.intp) for s, p in enumerate(position)]
        result[first] = array[tuple(where)]
    return result


def _interpolate_labels(labels: Array, pull: Array, shape: tuple[int, ...]) -> Array:
    """Labels with the largest interpolated share; lower ones win ties."""
    from scipy import ndimage

    values = np.unique(labels)
    remaining = values[0]
    boxes = ndimage.find_objects(_number_labels(labels, values))
    result = np.full(shape, remaining, labels.dtype)
    best = np.zeros(shape, np.float32)
    total = np.zeros(shape, np.float32)
    for value, box in zip(values[1:], boxes, strict=True):
        # Work goes into the surroundings of each label alone.
        near = tuple(
            slice(max(0, cut.start - 1), min(cut.stop + 1, n)) for cut, n in zip(box, labels.shape, strict=True)
        )
        part = _target_reach(pull, box, shape)
        if any(cut.start >= cut.stop for cut in part):
            continue
        start = pull[:, -1] + pull[:, :-1] @ [cut.start for cut in part] - [cut.start for cut in near]
        size = tuple(cut.stop - cut.start for cut in part)
        share = _interpolate_values(
            (labels[near] == value).astype(np.float32), np.column_stack([pull[:, :-1], start]), size, 1
        )
        wins = share > best[part] + 1e-6
        best[part][wins] = share[wins]
        result[part][wins] = value
        total[part] += share
    result[1 - total >= best - 1e-6] = remaining
    return result


def _number_labels(labels: Array, values: Array) -> Array:
    """Returns int32 labels: each value's place among the sorted values."""
    if labels.dtype.kind == "u" and labels.dtype.itemsize <= 2:
        table = np.zeros(np.iinfo(labels.dtype).max + 1, np.int32)
        table[values] = np.arange(len(values))
        return table[labels]
    return np.searchsorted(values, labels).astype(np.int32)


def _target_reach(pull: Array, box: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Returns the target region a source box touches, plus a voxel."""
    axes = len(shape)
    ends = np.array(list(itertools.product(*[(cut.start - 1.0, float(cut.stop)) for cut in box]))).T
    corners = np.linalg.solve(pull[:, :axes], ends - pull[:, axes:])
    low = np.floor(corners.min(axis=1)) - 1
    high = np.ceil(corners.max(axis=1)) + 2
    return tuple(
        slice(int(min(max(0, a), n)), int(max(min(n, b), 0))) for a, b, n in zip(low, high, shape, strict=True)
    )


LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""What turns DICOM's and ITK's patient axes into NIfTI's, and back."""


def check_affine(path: Path, affine: Array) -> None:
    """Refuses an affine that is no map from voxels to space.

    Raises CaseError where it holds NaN or infinity, has an axis without length, or axes that lie in one plane.
    """
    steps = affine[:3, :3]
    lengths = np.linalg.norm(steps, axis=0)
    if not np.isfinite(affine).all() or not lengths.all() or abs(np.linalg.det(steps / lengths)) < 1e-6:
        lengths_text = ", ".join(f"{length:g}" for length in lengths)
        raise CaseError(
            f"{path}: has no usable affine: spacing {lengths_text}, expected numbers above 0 along three different "
            "directions; mend its header"
        )


def farthest(one: Geometry, other: Geometry) -> float:
    """Returns the largest corner distance of two equal-shaped grids, mm."""
    ends = np.array(np.meshgrid(*[(0, max(n - 1, 1)) for n in (*one.shape, 1)[:3]])).reshape(3, -1)
    corners = np.vstack([ends, np.ones_like(ends[:1])])
    return float(np.linalg.norm(((one.affine - other.affine) @ corners)[:3], axis=0).max())


def shifted(affine: Array, box: Box | None) -> Array:
    """Moves the origin of an affine to the first voxel of a box."""
    affine = np.array(affine, dtype=np.float64)
    if box is not None:
        affine[:3, 3] += affine[:3, : len(box)] @ [start for start, _ in box]
    return affine


def clip_box(path: Path, shape: tuple[int, ...], box: Box | None) -> Box | None:
    """Returns the box as whole numbers.

    Raises CaseError where it has other axes than the volume, is empty, or sticks out.
    """
    if box is None:
        return None
    bounds = tuple((int(start), int(stop)) for start, stop in box)
    if len(bounds) != len(shape) or not all(0 <= a < b <= size for (a, b), size in zip(bounds, shape, strict=True)):
        raise CaseError(f"{path}: has no region {bounds}; it holds {shape} voxels (start and stop along each axis)")
    return bounds


Box = tuple[tuple[int, int], ...]
"""(start, stop) along each axis."""
