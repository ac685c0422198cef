"""Degradations of CT in Hounsfield units: dose, views, metal and motion by projections, kernels, thick slices."""

from __future__ import annotations

from functools import partial

import numpy as np

from medimg_eval.case import Array, Image
from medimg_eval.degradations.declaration import degradation
from medimg_eval.degradations.scaling import stored_as
from medimg_eval.degradations.sinograms import VIEWS, WATER, changed_by, project
from medimg_eval.errors import CaseError

_ct = partial(degradation, modalities=("CT",), hounsfield=True)
_projected = "; parallel beam, 360 views, water 0.0192 / mm at 70 keV"

ELECTRONIC = 10.0
"""Standard deviation of the detector's own noise, photons."""

METAL = 8000.0
"""Hounsfield units of metal."""

STARVED = 7.0
"""Line integral above which nothing is told apart."""

MOST_RODS = 4


def _by_slices(image: Image, change: Array) -> Array:
    """Returns what was made of the first channel as the image stores it."""
    return stored_as(image, change.reshape(image.array.shape[1:])[None])


def _first_channel(image: Image) -> Array:
    """The first channel as (row, column, slice), float32."""
    array: Array = image.array[0].astype(np.float32)
    return array if array.ndim == 3 else array[..., None]


@_ct(
    "ct_low_dose",
    levels={"photons": (1e5, 5e4, 2e4, 1e4, 5e3)},
    unit="photons of an unattenuated ray, beside the noise that the image has" + _projected,
    source="ours; counts of a ray by Beer-Lambert with electronic noise of 10, as in Yu et al. 2012 "
    "(doi 10.1097/RCT.0b013e3182606c20)",
)
def low_dose(image: Image, draw: np.random.Generator, *, photons: float) -> Array:
    """Low-dose CT: Poisson noise of line integrals, reconstructed.

    Each line integral is measured anew, and the difference reconstructed.
    """

    def measure(integrals: Array) -> Array:
        counts = photons * np.exp(-integrals)
        unit = draw.standard_normal(integrals.shape, dtype=np.float32)
        counts += np.sqrt(counts + np.float32(ELECTRONIC**2)) * unit  # normal in the place of Poisson
        return np.asarray(np.log(np.float32(photons)) - np.log(np.maximum(counts, 1)), np.float32)

    return _by_slices(image, changed_by(_first_channel(image), image.spacing[0], measure))


@_ct(
    "ct_sparse_view",
    draws=False,
    levels={"views": (180, 120, 90, 60, 40)},
    unit="views of 360 over half a turn" + _projected,
)
def sparse_view(image: Image, draw: np.random.Generator, *, views: int) -> Array:
    """Streaks of fewer views, evenly spaced."""
    chosen = np.zeros(VIEWS, bool)
    chosen[np.linspace(0, VIEWS, views, endpoint=False).astype(int)] = True
    return _by_slices(image, changed_by(_first_channel(image), image.spacing[0], lambda integrals: integrals, chosen))


@_ct(
    "ct_limited_angle",
    levels={"degrees": (165, 150, 135, 120, 100)},
    unit="degrees of a half turn that are seen" + _projected,
)
def limited_angle(image: Image, draw: np.random.Generator, *, degrees: float) -> Array:
    """Streaks and lost edges where part of the turn is missing."""
    first = int(draw.integers(VIEWS))
    chosen = np.roll(np.arange(VIEWS) < degrees / 180 * VIEWS, first)
    return _by_slices(image, changed_by(_first_channel(image), image.spacing[0], lambda integrals: integrals, chosen))


@_ct(
    "ct_metal",
    levels={"rods": (1, 1, 2, 3, 4), "millimetres": (2.0, 3.0, 4.0, 4.0, 5.0)},
    unit="rods of 8000 HU along the last axis, and their radius; line integrals above 7 are alike" + _projected,
)
def metal(image: Image, draw: np.random.Generator, *, rods: int, millimetres: float) -> Array:
    """Metal streaks; lower severities' rods are among higher ones'."""
    slices, spacing = _first_channel(image), image.spacing[0]
    units = draw.random(MOST_RODS)
    inside = np.argwhere(slices.max(axis=2) > -300)
    if not len(inside):
        raise CaseError("condition ct_metal needs a body, values above -300 HU, and the image has none")
    rows, columns = np.mgrid[: slices.shape[0], : slices.shape[1]]
    rod = np.zeros(slices.shape[:2], bool)
    for unit in units[:rods]:
        row, column = inside[int(unit * len(inside))]
        rod |= np.hypot(rows - row, columns - column) * spacing <= millimetres
    added = WATER * METAL / 1000
    through = project(added * rod[..., None].astype(np.float32)) * np.float32(spacing)

    def starve(integrals: Array) -> Array:
        return np.asarray(integrals + np.minimum(through, np.maximum(STARVED - integrals, 0)) - through)

    streaked = changed_by(slices, spacing, starve)
    return _by_slices(image, np.where(rod[..., None], np.float32(METAL), streaked))


@_ct(
    "ct_motion",
    levels={"millimetres": (1.0, 2.0, 3.0, 5.0, 8.0)},
    unit="largest shift in the plane during half a turn" + _projected,
)
def motion(image: Image, draw: np.random.Generator, *, millimetres: float) -> Array:
    """Motion during projection: doubled edges and streaks."""
    direction, phase, cycles = draw.uniform(0, 2 * np.pi), draw.uniform(0, 2 * np.pi), draw.uniform(0.75, 1.5)
    angles = np.pi * np.arange(VIEWS) / VIEWS
    path = np.sin(phase + 2 * np.pi * cycles * np.arange(VIEWS) / VIEWS) - np.sin(phase)
    shifts = millimetres / 2 / image.spacing[0] * path * np.cos(angles - direction)

    def move(integrals: Array) -> Array:
        bins = np.arange(integrals.shape[1])
        moved = np.empty_like(integrals)
        for view, shift in enumerate(shifts):
            position = np.clip(bins - shift, 0, len(bins) - 1)
            low = np.minimum(position.astype(int), len(bins) - 2)
            share = (position - low).astype(np.float32)[:, None]
            moved[view] = integrals[view][low] * (1 - share) + integrals[view][low + 1] * share
        return moved

    return _by_slices(image, changed_by(_first_channel(image), image.spacing[0], move))


def _filter_spectrum(image: Image, response: Array) -> Array:
    """Multiplies the spectrum of each slice by a response, (row, column)."""
    from scipy.fft import irfft2, rfft2

    slices = np.moveaxis(_first_channel(image), -1, 0)
    rows, columns = slices.shape[1:]
    filtered = irfft2(rfft2(slices) * response[:, : columns // 2 + 1], s=(rows, columns))
    return _by_slices(image, np.moveaxis(filtered, 0, -1))


def _radial_frequencies(image: Image) -> Array:
    """Radial frequency over that of Nyquist, (row, column)."""
    rows, columns = (np.fft.fftfreq(size) * 2 for size in image.array.shape[1:3])
    radii: Array = np.hypot(rows[:, None], columns).astype(np.float32)
    return radii


@_ct(
    "ct_soft_kernel",
    draws=False,
    levels={"cutoff": (0.8, 0.65, 0.5, 0.35, 0.25)},
    unit="share of Nyquist's frequency at which a tenth is left",
    source="ours; a kernel is a radial filter in the plane",
)
def soft_kernel(image: Image, draw: np.random.Generator, *, cutoff: float) -> Array:
    """A smoother reconstruction kernel."""
    return _filter_spectrum(image, np.exp(-np.log(10) * (_radial_frequencies(image) / cutoff) ** 2))


@_ct(
    "ct_sharp_kernel",
    draws=False,
    levels={"gain": (0.5, 1.0, 2.0, 3.0, 4.0)},
    unit="k of 1 + k f^2, f over Nyquist's frequency",
    source="ours; a kernel is a radial filter in the plane",
)
def sharp_kernel(image: Image, draw: np.random.Generator, *, gain: float) -> Array:
    """A sharper reconstruction kernel, with the noise that it lifts."""
    f = np.minimum(_radial_frequencies(image), 1)
    return _filter_spectrum(image, 1 + gain * f**2)


@_ct(
    "ct_thick_slices",
    draws=False,
    levels={"millimetres": (2.0, 3.0, 5.0, 7.5, 10.0)},
    unit="thickness of slices; one that the image has already changes nothing",
    axes=3,
)
def thick_slices(image: Image, draw: np.random.Generator, *, millimetres: float) -> Array:
    """Means over thicker slices along the last axis, linearly back to the grid."""
    slices, step = _first_channel(image), image.spacing[2]
    count, size = slices.shape[2], millimetres / step
    if size <= 1:
        return image.array
    edges = np.clip(np.arange(0, count + size, size), 0, count)
    edges = edges[: int(np.searchsorted(edges, count)) + 1]
    sums = np.concatenate([np.zeros((*slices.shape[:2], 1)), np.cumsum(slices, axis=2, dtype=np.float64)], axis=2)
    low = np.minimum(edges.astype(int), count - 1)
    at_edges = sums[..., low] + (sums[..., low + 1] - sums[..., low]) * (edges - low)
    means = np.diff(at_edges, axis=2) / np.diff(edges)
    middles = (edges[1:] + edges[:-1]) / 2 - 0.5
    position = np.clip(np.interp(np.arange(count), middles, np.arange(len(middles))), 0, len(middles) - 1)
    first = np.minimum(position.astype(int), max(len(middles) - 2, 0))
    share = position - first
    after = np.minimum(first + 1, len(middles) - 1)
    return _by_slices(image, means[..., first] * (1 - share) + means[..., after] * share)
