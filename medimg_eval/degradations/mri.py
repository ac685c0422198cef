"""Degradations of magnitude MR volumes, with ROOD-MRI's ten transforms and levels."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.degradations.declaration import degradation
from medimg_eval.degradations.drawing import standard_normal
from medimg_eval.degradations.moves import Coarsening, Move, about_middle, rotation
from medimg_eval.degradations.scaling import smoothed, stored_as

_ROOD = "ROOD-MRI, Boone et al. 2023, arXiv 2203.06060; "
_TORCHIO = _ROOD + "TorchIO, Perez-Garcia et al. 2021, "
_volume = partial(degradation, axes=3, modalities=("MR",))

CONTROL_POINTS = 7
"""Along each axis of an elastic field; the two at each border stay."""


@_volume(
    "mri_affine",
    levels={"degrees": (6, 12, 18, 24, 30), "millimetres": (8, 16, 24, 32, 40)},
    unit="largest rotation about, and shift along, each axis",
    source=_TORCHIO + "RandomAffine",
    domain="moves",
)
def affine(grid: Geometry, draw: np.random.Generator, *, degrees: float, millimetres: float) -> Move:
    """A rotation about the middle and a shift."""
    turn, shift = draw.uniform(-1, 1, (2, 3))
    spacing = np.array(grid.spacing)
    linear = rotation(degrees * turn).T * spacing / spacing[:, None]
    return Move(about_middle(linear, millimetres * shift / spacing, grid.shape))


@_volume(
    "mri_anisotropy",
    levels={"factor": (2.8, 4.6, 6.4, 8.2, 10)},
    unit="factor of the spacing along one axis",
    source=_TORCHIO + "RandomAnisotropy",
    domain="moves",
)
def anisotropy(grid: Geometry, draw: np.random.Generator, *, factor: float) -> Move:
    """Thicker slices: subsampled along an axis, then linear interpolation."""
    axis = int(draw.integers(3))
    return Coarsening(about_middle(np.eye(3), np.zeros(3), grid.shape), axis=axis, factor=factor)


@_volume(
    "mri_elastic",
    levels={"millimetres": (6, 12, 18, 24, 30)},
    unit="largest displacement of a control point",
    source=_TORCHIO + "RandomElasticDeformation",
    domain="moves",
)
def elastic(grid: Geometry, draw: np.random.Generator, *, millimetres: float) -> Move:
    """Elastic deformation by cubic B-splines, 7 x 7 x 7 control points."""
    points = draw.uniform(-1, 1, (*[CONTROL_POINTS] * 3, 3))
    for axis in range(3):
        for layer in (0, 1, -1, -2):
            points[(slice(None),) * axis + (layer,)] = 0
    field = spline_field(millimetres * points, grid.shape) / np.array(grid.spacing, np.float32).reshape(3, 1, 1, 1)
    return Move(np.eye(3, 4), field.astype(np.float32))


def spline_field(points: Array, shape: tuple[int, ...]) -> Array:
    """Returns a cubic B-spline field, float32, (3, *shape).

    Control points, (i, j, k, 3), lie at equal distances.
    """
    lines = [_spline_weights(size, count) for size, count in zip(shape, points.shape[:3], strict=True)]
    field = np.moveaxis(points, -1, 0).astype(np.float32)
    for axis, weights in enumerate(lines):
        field = np.moveaxis(np.tensordot(field, weights, ([1 + axis], [1])), -1, 1 + axis)
    return np.ascontiguousarray(field)


def _spline_weights(size: int, count: int) -> Array:
    position = (np.arange(size) + 0.5) / size * (count - 3)  # as ITK lays the mesh: over whole voxels
    first = np.minimum(position.astype(int), count - 4)
    t = position - first
    basis = [(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3]
    weights = np.zeros((size, count), np.float32)
    for step, values in enumerate(basis):
        weights[np.arange(size), first + step] = values / 6
    return weights


@_volume(
    "mri_bias_field",
    levels={"coefficient": (0.3, 0.6, 0.9, 1.2, 1.5)},
    unit="largest coefficient of the polynomial of the field's logarithm",
    source=_TORCHIO + "RandomBiasField, order 3",
)
def bias_field(image: Image, draw: np.random.Generator, *, coefficient: float) -> Array:
    """Bias field: exponential of a cubic polynomial."""
    powers = [power for power in product(range(4), repeat=3) if sum(power) <= 3]
    factors = coefficient * draw.uniform(-1, 1, len(powers))
    return stored_as(image, image.array * bias(factors, image.array.shape[1:]))


def bias(factors: Array, shape: tuple[int, ...]) -> Array:
    """Returns exp of a polynomial in i, j, k: float32, (*shape)."""
    coefficients = np.zeros((4, 4, 4))
    for power, factor in zip((p for p in product(range(4), repeat=3) if sum(p) <= 3), factors, strict=True):
        coefficients[power] = factor
    for axis, size in enumerate(shape):
        line = np.arange(-size / 2, size / 2) + 0.5
        line = line / line.max() if line.max() > 0 else line
        coefficients = np.moveaxis(np.tensordot(coefficients, line ** np.arange(4)[:, None], ([axis], [0])), -1, axis)
        coefficients = coefficients.astype(np.float32) if axis < 2 else coefficients
    return np.exp(coefficients, dtype=np.float32)


@_volume(
    "mri_contrast_compression",
    draws=False,
    levels={"exponent": (0.86, 0.72, 0.58, 0.44, 0.3)},
    unit="exponent",
    source=_ROOD + "MONAI's AdjustContrast",
)
@_volume(
    "mri_contrast_expansion",
    draws=False,
    levels={"exponent": (1.4, 1.8, 2.2, 2.6, 3.0)},
    unit="exponent",
    source=_ROOD + "MONAI's AdjustContrast",
)
def contrast(image: Image, draw: np.random.Generator, *, exponent: float) -> Array:
    """Contrast change by a power of normalised values."""
    low, high = float(image.array.min()), float(image.array.max())
    width = high - low
    unit = (image.array.astype(np.float32) - np.float32(low)) / np.float32(width + 1e-7)
    return stored_as(image, unit ** np.float32(exponent) * np.float32(width) + np.float32(low))


@_volume(
    "mri_ghosting",
    levels={"number": (3, 5, 7, 9, 11), "intensity": (0.5, 1.0, 1.5, 2.0, 2.5)},
    unit="number of ghosts; share by which their planes of k-space are weakened",
    source=_TORCHIO + "RandomGhosting; values below 0 become 0",
)
def ghosting(image: Image, draw: np.random.Generator, *, number: int, intensity: float) -> Array:
    """Ghosting: every n-th k-space plane weakened, except the middle.

    The axis is drawn: the first or the second.
    """
    from scipy.fft import fft, ifft, ifftshift

    axis = 1 + int(draw.integers(2))
    size = image.array.shape[axis]
    weights = np.ones(size, np.float32)
    weights[::number] = 1 - intensity
    # Planes are of one axis, so that a transform along it alone gives what one along all three does.
    weights[size // 2] = 1
    weights = ifftshift(weights).reshape([-1 if axis_ == axis else 1 for axis_ in range(image.array.ndim)])
    ghosted = ifft(fft(image.array.astype(np.float32), axis=axis) * weights, axis=axis).real
    return stored_as(image, np.maximum(ghosted, 0))


@_volume(
    "mri_motion",
    levels={"degrees": (1, 2, 3, 4, 5), "millimetres": (2, 4, 6, 8, 10), "movements": (2, 4, 6, 8, 10)},
    unit="largest rotation about, and shift along, each axis; number of movements",
    source=_TORCHIO + "RandomMotion, Shaw et al. 2019; values below 0 become 0",
)
def motion(image: Image, draw: np.random.Generator, *, degrees: float, millimetres: float, movements: int) -> Array:
    """Motion during acquisition: parts of k-space, along the last axis, from moved volumes.

    Turns are about the middle of the volume; TorchIO 1.2 turns about the origin of the scanner's coordinates.
    """
    turns, shifts = draw.uniform(-1, 1, (2, 16, 3))
    jitter = draw.uniform(-0.3, 0.3, 16)[:movements]
    step = 1 / (movements + 1)
    times = step * (np.arange(1, movements + 1) + jitter)
    spacing = np.array(image.spacing)
    moves = [
        Move(
            about_middle(
                rotation(degrees * turn) * spacing / spacing[:, None],
                millimetres * shift / spacing,
                image.array.shape[1:],
            )
        )
        for turn, shift in zip(turns[:movements], shifts[:movements], strict=True)
    ]
    pixels = image.array.astype(np.float32)
    return stored_as(image, np.stack([np.maximum(_move_volume(channel, moves, times), 0) for channel in pixels]))


def _move_volume(volume: Array, moves: list[Move], times: Array) -> Array:
    from scipy.fft import fft, fftshift, ifft, ifftshift

    size = volume.shape[-1]
    lain = [None, *moves]
    later = np.flatnonzero(times > 0.5)
    still = int(later[0]) if later.size else len(lain) - 1
    lain[0], lain[still] = lain[still], lain[0]  # the middle of k-space is of the volume as it was
    ends, start, least = [*(size * times).astype(int), size], 0, float(volume.min())
    spectrum = np.empty(volume.shape, np.complex64)
    for move, end in zip(lain, ends, strict=True):
        if end > start:
            moved = volume if move is None else move.sample(volume, 1, least)
            spectrum[..., start:end] = fftshift(fft(moved, axis=-1), axes=-1)[..., start:end]
        start = max(start, end)
    return np.asarray(ifft(ifftshift(spectrum, axes=-1), axis=-1).real)


@_volume(
    "mri_rician_noise",
    levels={"sd": (0.16, 0.32, 0.48, 0.64, 0.8)},
    unit="standard deviation, share of the image's",
    source=_ROOD + "MONAI's RandRicianNoise",
)
def rician_noise(image: Image, draw: np.random.Generator, *, sd: float) -> Array:
    """Rician noise: magnitude after complex Gaussian noise."""
    spread = image.array.reshape(len(image.array), -1).std(axis=1, dtype=np.float64)
    spread = (sd * spread).astype(np.float32).reshape(-1, *[1] * (image.array.ndim - 1))
    real = standard_normal(draw, image)
    real *= spread
    real += image.array
    imaginary = standard_normal(draw, image)
    imaginary *= spread
    return stored_as(image, np.hypot(real, imaginary, out=real))


@_volume(
    "mri_smoothing",
    draws=False,
    levels={"millimetres": (0.8, 1.6, 2.4, 3.2, 4.0)},
    unit="standard deviation",
    source=_TORCHIO + "Blur",
)
def smoothing(image: Image, draw: np.random.Generator, *, millimetres: float) -> Array:
    """Gaussian blur."""
    return stored_as(image, smoothed(image.array, [millimetres / step for step in image.spacing]))


@_volume(
    "mri_gibbs",
    draws=False,
    levels={"kept": (0.8, 0.65, 0.5, 0.4, 0.3)},
    unit="share of k-space kept along the first two axes",
)
def gibbs(image: Image, draw: np.random.Generator, *, kept: float) -> Array:
    """Ringing at edges: the outer part of k-space is lost."""
    from scipy.fft import fft2, fftfreq, ifft2

    rows, columns = (np.abs(fftfreq(size)) <= kept / 2 for size in image.array.shape[1:3])
    window = (rows[:, None] & columns)[None, :, :, None]
    spectrum = fft2(image.array.astype(np.float32), axes=(1, 2)) * window
    return stored_as(image, np.abs(ifft2(spectrum, axes=(1, 2))))


@_volume("mri_spikes", levels={"height": (0.2, 0.4, 0.6, 0.8, 1.0)}, unit="height, share of the largest of k-space")
def spikes(image: Image, draw: np.random.Generator, *, height: float) -> Array:
    """Stripes: one sample of k-space is far too large."""
    pixels = image.array.astype(np.float32)
    frequency = [int(draw.integers(size // 8, max(size // 3, size // 8 + 1))) for size in pixels.shape[1:]]
    phase = sum(
        2 * np.pi * at * np.arange(size).reshape([-1 if axis == axis_ else 1 for axis_ in range(3)]) / size
        for axis, (at, size) in enumerate(zip(frequency, pixels.shape[1:], strict=True))
    )
    top = np.abs(pixels.reshape(len(pixels), -1).mean(axis=1)).reshape(-1, 1, 1, 1)  # of k-space, over the voxels
    return stored_as(image, np.maximum(pixels + height * top * np.cos(phase, dtype=np.float32), 0))
