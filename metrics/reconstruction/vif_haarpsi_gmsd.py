"""VIF, HaarPSI and GMSD of one slice, in numpy and scipy."""

from __future__ import annotations

import math

import numpy as np

from medimg_eval.metrics.arrays import Array

TINY = 1e-10
"""Of VIF: variances below it are none."""

VIF_SIZE, HAAR_SIZE, GMSD_SIZE = 41, 16, 2
"""How many rows and columns the windows need at least."""

HAAR_C, HAAR_ALPHA = 30.0, 4.2
"""Of HaarPSI: the constant of the similarity, and the slope of the logistic function (Reisenhofer et al. 2018)."""

GMSD_C = 170 / 255**2
"""Of GMSD, for images from 0 to 1 (Xue et al. 2014)."""


def information_fidelity(reference: Array, image: Array, noise: float) -> float:
    """Returns pixel-domain VIF over four scales; NaN for uninformative references.

    Args:
        reference: float64, (row, column), at least 41 along each axis.
        image: The same.
        noise: Variance of the visual noise, in units of the images.
    """
    kept_information = reference_information = 0.0
    for scale in range(4):
        taps = 2 ** (4 - scale) + 1
        weights = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * (taps / 5) ** 2))
        weights /= weights.sum()
        if scale:
            reference, image = (_window_means(picture, weights)[::2, ::2] for picture in (reference, image))
        mean, image_mean = _window_means(reference, weights), _window_means(image, weights)
        variance = np.maximum(_window_means(reference * reference, weights) - mean * mean, 0)
        spread = np.maximum(_window_means(image * image, weights) - image_mean * image_mean, 0)
        covariance = _window_means(reference * image, weights) - mean * image_mean
        flat, blurred = variance < TINY, spread < TINY
        gain = covariance / (variance + TINY)
        noise_variance = spread - gain * covariance
        gain[flat], noise_variance[flat], variance[flat] = 0, spread[flat], 0
        gain[blurred], noise_variance[blurred] = 0, 0
        turned = gain < 0
        noise_variance[turned], gain[turned] = spread[turned], 0
        np.maximum(noise_variance, TINY, out=noise_variance)
        kept_information += float(np.log10(1 + gain * gain * variance / (noise_variance + noise)).sum())
        reference_information += float(np.log10(1 + variance / noise).sum())
    return kept_information / reference_information if reference_information > 0 else math.nan


def haar_similarity(reference: Array, image: Array) -> float:
    """Returns HaarPSI; NaN where neither image has a coefficient of the third scale.

    Args:
        reference: float64, from 0 to 255, (row, column), at least 16 along each axis.
        image: The same.
    """
    from scipy.special import expit, logit

    first_, second_ = _average_quarters(reference), _average_quarters(image)
    total = weight = 0.0
    for axis in (0, 1):
        similar = np.zeros(first_.shape)
        for scale in (1, 2):
            first, second = (
                np.abs(_haar_coefficients(first_, scale, axis)),
                np.abs(_haar_coefficients(second_, scale, axis)),
            )
            similar += (2 * first * second + HAAR_C) / (first * first + second * second + HAAR_C)
        weights = np.maximum(np.abs(_haar_coefficients(first_, 3, axis)), np.abs(_haar_coefficients(second_, 3, axis)))
        total += float((expit(HAAR_ALPHA * similar / 2) * weights).sum())
        weight += float(weights.sum())
    return float((logit(total / weight) / HAAR_ALPHA) ** 2) if weight > 0 else math.nan


def gradient_deviation(reference: Array, image: Array) -> float:
    """Returns GMSD of images from 0 to 1: deviation of gradient magnitude similarity over pixels."""
    first, second = _prewitt_gradient(_average_quarters(reference)), _prewitt_gradient(_average_quarters(image))
    similarity_map = (2 * first * second + GMSD_C) / (first * first + second * second + GMSD_C)
    return float(similarity_map.std())


def _window_means(image: Array, weights: Array) -> Array:
    """Means over a window, where it lies inside the image."""
    from scipy.ndimage import correlate1d

    reach = len(weights) // 2
    lowered = correlate1d(image, weights, axis=0)[reach : len(image) - reach]
    means: Array = correlate1d(lowered, weights, axis=1)[:, reach : image.shape[1] - reach]
    return means


def _average_quarters(image: Array) -> Array:
    """Averages 2 x 2 pixels, zero-padded at odd ends, as the authors."""
    rows, columns = image.shape
    even = np.pad(image, ((0, rows % 2), (0, columns % 2)))
    quarters: Array = (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / 4
    return quarters


def _haar_coefficients(image: Array, scale: int, axis: int) -> Array:
    """Haar coefficients of a scale and direction, zero-padded."""
    from scipy.ndimage import correlate1d

    size = 2**scale
    step = np.repeat([1 / size, -1 / size], size // 2)
    # The filter of even length starts size / 2 - 1 before its pixel.
    change = correlate1d(image, step, axis=axis, mode="constant", origin=-1)
    coefficients: Array = correlate1d(change, np.ones(size), axis=1 - axis, mode="constant", origin=-1)
    return coefficients


def _prewitt_gradient(image: Array) -> Array:
    """Length of the Prewitt gradient, with zeros around the image."""
    from scipy.ndimage import correlate1d

    change, mean = np.array([-1.0, 0.0, 1.0]), np.full(3, 1 / 3)
    both = [
        correlate1d(correlate1d(image, change, axis=axis, mode="constant"), mean, axis=1 - axis, mode="constant")
        for axis in (0, 1)
    ]
    length: Array = np.hypot(*both)
    return length
