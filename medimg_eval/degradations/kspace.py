"""Degradations of samples of k-space, complex, whose last two axes are frequencies."""

from __future__ import annotations

from functools import partial

import numpy as np

from medimg_eval.case import Array, Image
from medimg_eval.degradations.declaration import degradation

_samples = partial(degradation, domain="samples")

SPIKE = 0.1
"""Height of a spike, share of the largest sample."""

MIDDLE = 0.08
"""Share of the lines, in the middle of k-space, that are never lost."""


@_samples(
    "kspace_noise",
    levels={"sd": (0.5, 1.0, 2.0, 4.0, 8.0)},
    unit="standard deviation over the median magnitude",
)
def noise(image: Image, draw: np.random.Generator, *, sd: float) -> Array:
    """Complex Gaussian noise of the receiver; where no sample is, none is added."""
    shape = image.array.shape
    unit = (draw.standard_normal(shape) + 1j * draw.standard_normal(shape)) / np.sqrt(2)
    sizes = np.abs(image.array)
    there = sizes > 0
    median = float(np.median(sizes[there])) if there.any() else 0.0
    return (image.array + np.where(there, sd * median * unit, 0)).astype(image.array.dtype)


@_samples(
    "kspace_undersampling",
    levels={"factor": (1.5, 2.0, 3.0, 4.0, 6.0)},
    unit="times fewer lines beside the middle 8 %",
)
def undersampling(image: Image, draw: np.random.Generator, *, factor: float) -> Array:
    """Random undersampling of the last axis, nested by severity."""
    count = image.array.shape[-1]
    units = draw.random(count)
    from_middle = np.abs(np.arange(count) - (count - 1) / 2)
    sampled = (units < 1 / factor) | (from_middle <= MIDDLE * count / 2)
    return np.where(sampled, image.array, 0).astype(image.array.dtype)


@_samples(
    "kspace_motion",
    levels={"pixels": (0.5, 1.0, 2.0, 3.0, 5.0)},
    unit="largest shift along each axis, in pixels",
)
def motion(image: Image, draw: np.random.Generator, *, pixels: float) -> Array:
    """Four movements between k-space lines, each lasting to the next."""
    height, width = image.array.shape[-2:]
    times, shifts = np.sort(draw.random(4)), draw.uniform(-1, 1, (5, 2))
    shifts[0] = 0  # as it lay at the beginning
    lines = np.searchsorted(times, np.arange(width) / width)
    # In the middle of k-space the object lies as published, so that the image as a whole stays.
    shift = pixels * (shifts[lines] - shifts[lines[width // 2]])
    rows, columns = (np.arange(size) - size // 2 for size in (height, width))
    phase = np.exp(-2j * np.pi * (rows[:, None] / height * shift[:, 0] + columns / width * shift[:, 1]))
    moved: Array = (image.array * phase).astype(image.array.dtype)
    return moved


@_samples("kspace_spikes", levels={"number": (1, 2, 4, 8, 16)}, unit="samples to which a tenth of the largest is added")
def spikes(image: Image, draw: np.random.Generator, *, number: int) -> Array:
    """K-space spikes, nested by severity."""
    spiked, units = image.array.copy(), draw.random((16, 3))
    height = SPIKE * float(np.abs(spiked).max())
    for own in units[:number]:
        row, column = (int(unit * size) for unit, size in zip(own[:2], spiked.shape[-2:], strict=True))
        spiked[..., row, column] += height * np.exp(2j * np.pi * own[2])
    return spiked
