"""Parallel projections of slices, and the images that filtered back-projection makes of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.case import Array

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

WATER = 0.0192
"""Attenuation of water at about 70 keV, 1 / mm."""

VIEWS = 360
"""Angles over half a turn."""

_WIDTH = 3
"""Bins that a pixel's shadow falls on at most."""

TOGETHER = 64
"""Slices that are projected at once."""

Change = Callable[[Array], Array]
"""Takes line integrals (view, bin, slice) and returns them as a scanner would have measured them."""


def attenuation_of(hounsfield: Array) -> Array:
    """Returns attenuation in 1 / mm, at least 0, float32."""
    return np.maximum(WATER * (1 + hounsfield.astype(np.float32) / 1000), 0)


def hounsfield_of(attenuation: Array) -> Array:
    """Returns a difference of attenuations, 1 / mm, in Hounsfield units."""
    return attenuation * np.float32(1000 / WATER)


SMALL = 2**12
"""Pixels of a slice whose rays are kept for the next one."""


def _projection_rays(shape: tuple[int, int], view: int, views: int) -> csr_matrix:
    return (_kept_rays if shape[0] * shape[1] <= SMALL else _make_rays)(shape, view, views)


def _make_rays(shape: tuple[int, int], view: int, views: int) -> csr_matrix:
    """Returns a view's projection as sparse matrix (pixel, bin).

    Shadows of neighbours meet without gaps, so that nothing is aliased, as points would be at 45 degrees.
    """
    from scipy.sparse import csr_matrix

    bins = _detector_bins(shape)
    angle = np.pi * view / views
    rows, columns = (np.arange(size) - (size - 1) / 2 for size in shape)
    position = (np.cos(angle) * rows[:, None] + np.sin(angle) * columns).ravel() + (bins - 1) / 2
    sides = sorted((max(abs(np.cos(angle)), 1e-3), max(abs(np.sin(angle)), 1e-3)))
    first = np.floor(position - sum(sides) / 2 + 0.5).astype(np.int32)
    edges = [_shadow_share(first - 0.5 + step - position, *sides) for step in range(_WIDTH + 1)]
    shares = np.stack([after - before for before, after in pairwise(edges)], axis=1).astype(np.float32)
    starts = np.arange(0, _WIDTH * position.size + 1, _WIDTH, dtype=np.int32)
    held = shares.ravel(), (first[:, None] + np.arange(_WIDTH, dtype=np.int32)).ravel(), starts
    return csr_matrix(held, shape=(position.size, bins))


_kept_rays = lru_cache(maxsize=2 * VIEWS)(_make_rays)


def _shadow_share(until: Array, short: float, long: float) -> Array:
    """Share of a pixel's trapezoid shadow below a position."""
    ends = ((short + long) / 2, (long - short) / 2)
    corners = [(1, ends[0]), (-1, ends[1]), (-1, -ends[1]), (1, -ends[0])]
    return np.asarray(sum(sign * np.maximum(until + end, 0) ** 2 for sign, end in corners) / (2 * short * long))


def _detector_bins(shape: tuple[int, int]) -> int:
    return int(np.ceil(np.hypot(*shape))) + 4


def project(slices: Array, views: int = VIEWS) -> Array:
    """Line integrals, (view, bin, slice), in pixels, of slices (row, column, slice)."""
    shape = slices.shape[0], slices.shape[1]
    flat = np.ascontiguousarray(slices.reshape(-1, slices.shape[2]), np.float32)
    return np.stack([_projection_rays(shape, view, views).T @ flat for view in range(views)])


def reconstruct(integrals: Array, shape: tuple[int, int], chosen: Array | None = None) -> Array:
    """Returns slices (row, column, slice) by filtered back-projection.

    If there are fewer views, each counts for as many, so that a full turn weighs as before.
    """
    from scipy.fft import irfft, rfft

    views, bins, count = integrals.shape
    size = 2 ** int(np.ceil(np.log2(2 * bins)))
    # The ramp as Kak and Slaney have it in space, so that the mean of an image is kept.
    lags = np.concatenate([np.arange(size // 2 + 1), np.arange(size // 2 - 1, 0, -1)])
    kernel = np.zeros(size)
    kernel[0] = 0.25
    kernel[lags % 2 == 1] = -1 / (np.pi * lags[lags % 2 == 1]) ** 2
    response = rfft(kernel).real.astype(np.float32)[:, None]
    taken = np.arange(views) if chosen is None else np.flatnonzero(chosen)
    image = np.zeros((shape[0] * shape[1], count), np.float32)
    for view in taken:
        filtered = irfft(rfft(integrals[view], size, axis=0) * response, size, axis=0)[:bins].astype(np.float32)
        image += _projection_rays(shape, int(view), views) @ filtered
    return (image * np.float32(np.pi / len(taken))).reshape(*shape, count)


def changed_by(hounsfield: Array, spacing: float, change: Change, chosen: Array | None = None) -> Array:
    """Returns slices (row, column, slice) plus changed integrals' reconstruction.

    What is not changed stays as it is: the reconstruction of the integrals themselves is taken off.

    Args:
        hounsfield: (row, column, slice).
        spacing: mm, edge of a pixel.
        change: of dimensionless line integrals.
        chosen: bool, (view,): the views that are left.
    """
    changed = np.empty(hounsfield.shape, np.float32)
    shape = hounsfield.shape[:2]
    for start in range(0, hounsfield.shape[2], TOGETHER):
        some = hounsfield[:, :, start : start + TOGETHER]
        integrals = project(attenuation_of(some)) * np.float32(spacing)
        measured = change(integrals)
        if chosen is None:
            apart = reconstruct(measured - integrals, shape)
        else:
            apart = reconstruct(measured, shape, chosen) - reconstruct(integrals, shape)
        changed[:, :, start : start + TOGETHER] = some + hounsfield_of(apart / np.float32(spacing))
    return changed
