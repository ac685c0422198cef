"""SSIM and MS-SSIM of one slice: separable windows as products with narrow matrices, strip by strip in cache."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from medimg_eval.metrics.arrays import Array

K1, K2 = 0.01, 0.03
"""Of the data range: what keeps the two quotients finite (Wang et al. 2004)."""

SIGMA, TAPS, EVEN_TAPS = 1.5, 11, 7
"""Of the Gaussian window: standard deviation and length; the length of the uniform one."""

SCALES = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""The exponents of MS-SSIM from the finest scale to the coarsest (Wang, Simoncelli & Bovik 2003)."""

SMALLEST = TAPS * 2 ** (len(SCALES) - 1)
"""How many rows and columns five scales need."""

STRIP = 32
"""Rows, and columns, that one product makes: few enough that the matrix stays narrow and all of it in cache."""


class Similarity(NamedTuple):
    """Means over the places where the window lies inside the image.

    Attributes:
        ssim: Of luminance times contrast and structure.
        contrast: Of contrast and structure alone.
    """

    ssim: float
    contrast: float


def taps_of(window: str) -> int:
    """How long a window is along each axis."""
    return TAPS if window == "gaussian" else EVEN_TAPS


def similarity(
    reference: Array, image: Array, data_range: float, window: str = "gaussian", *, luminance: bool = True
) -> Similarity:
    """Returns mean SSIM and mean contrast of one slice.

    Args:
        reference: float64, (row, column), at least as long as the window along each axis.
        image: The same.
        data_range: Above 0.
        window: `gaussian` with population variances, or `uniform` with sample variances.
        luminance: Whether SSIM is asked for; otherwise it is 0.
    """
    reach = taps_of(window) - 1
    down, across = _window_matrices(window)
    sample = 1.0 if window == "gaussian" else EVEN_TAPS**2 / (EVEN_TAPS**2 - 1)
    rows, columns = reference.shape[0] - reach, reference.shape[1] - reach
    strip = np.empty((4, STRIP + reach, reference.shape[1]))
    lowered, means = np.empty((4, STRIP, reference.shape[1])), np.empty((4, STRIP, columns))
    totals = np.zeros(2)
    for top in range(0, rows, STRIP):
        height = min(STRIP, rows - top)
        moments = _strip_moments(reference[top : top + height + reach], image[top : top + height + reach], strip)
        low, mean = lowered[:, :height], means[:, :height]
        np.matmul(down[:height, : height + reach], moments, out=low)
        for left in range(0, columns, STRIP):
            width = min(STRIP, columns - left)
            part = low[:, :, left : left + width + reach]
            np.matmul(part, across[: width + reach, :width], out=mean[:, :, left : left + width])
        first = (K1 * data_range) ** 2 if luminance else None
        totals += _strip_sums(mean, first, (K2 * data_range) ** 2, sample)
    mean_similarity, contrast = totals / (rows * columns)
    return Similarity(float(mean_similarity), float(contrast))


def multiscale_similarity(reference: Array, image: Array, data_range: float) -> float:
    """Returns five-scale contrast times coarsest SSIM, each to its exponent.

    Images are float64, (row, column), at least 176 along each axis. A mean below 0 counts as 0. From scale to scale
    both are averaged over 2 x 2 pixels; a last row or column without a partner is dropped.
    """
    product = 1.0
    for scale, exponent in enumerate(SCALES):
        last = scale == len(SCALES) - 1
        similarities = similarity(reference, image, data_range, luminance=last)
        product *= max(similarities.ssim if last else similarities.contrast, 0.0) ** exponent
        if not last:
            reference, image = halved(reference), halved(image)
    return product


def halved(image: Array) -> Array:
    """Averages 2 x 2 pixels, (row // 2, column // 2)."""
    rows, columns = image.shape[0] // 2 * 2, image.shape[1] // 2 * 2
    lines = image[0:rows:2, :columns] + image[1:rows:2, :columns]
    quarters: Array = (lines[:, 0::2] + lines[:, 1::2]) / 4
    return quarters


def _strip_moments(reference: Array, image: Array, strip: Array) -> Array:
    """Both images, sum of squares, and product, sufficient for windows."""
    moments: Array = strip[:, : len(reference)]
    moments[0], moments[1] = reference, image
    np.multiply(reference, reference, out=moments[2])
    moments[2] += image * image
    np.multiply(reference, image, out=moments[3])
    return moments


def _strip_sums(means: Array, first: float | None, second: float, sample: float) -> tuple[float, float]:
    """Sums of SSIM and of contrast over a strip; overwrites the means."""
    reference_mean, image_mean, squares, product = means
    mixed = reference_mean * image_mean
    reference_mean *= reference_mean
    image_mean *= image_mean
    reference_mean += image_mean
    squares -= reference_mean
    product -= mixed
    # 2 covariance + c2 over the sum of variances + c2
    product *= 2 * sample
    product += second
    squares *= sample
    squares += second
    product /= squares
    contrast = float(product.sum())
    if first is None:
        return 0.0, contrast
    mixed *= 2
    mixed += first
    reference_mean += first
    mixed /= reference_mean
    mixed *= product
    return float(mixed.sum()), contrast


@lru_cache(maxsize=2)
def _window_matrices(window: str) -> tuple[Array, Array]:
    """Left (STRIP, STRIP + reach) and right window matrices of strips."""
    taps = taps_of(window)
    weights = np.full(taps, 1 / taps)
    if window == "gaussian":
        weights = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * SIGMA**2))
        weights /= weights.sum()
    down = np.zeros((STRIP, STRIP + taps - 1))
    for row in range(STRIP):
        down[row, row : row + taps] = weights
    return down, np.ascontiguousarray(down.T)
