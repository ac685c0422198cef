"""Reconstructed and synthesised images against a reference: pure functions of two arrays.

What a number means depends on the data range, the window and the unit, so each function wants to be told: either a
`data_range`, or the name of a preset, as in `psnr(reference, reconstruction, "fastmri")` and the metric `psnr@fastmri`.
A volume is (slice, row, column). Grey images only. All functions take images as `psnr` does, and raise what it raises.

>>> reference = np.linspace(0, 1, 64 * 64).reshape(64, 64)
>>> round(psnr(reference, reference + 0.1, data_range=1.0), 6)
20.0
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, TypeAlias, get_args

import numpy as np

from medimg_eval.metrics.arrays import Array
from medimg_eval.metrics.declarations import share_metric
from medimg_eval.metrics.reconstruction.presets import Slice, Window, image_pair
from medimg_eval.metrics.reconstruction.structural_similarity import (
    SMALLEST,
    multiscale_similarity,
    similarity,
    taps_of,
)
from medimg_eval.metrics.reconstruction.vif_haarpsi_gmsd import (
    GMSD_SIZE,
    HAAR_SIZE,
    VIF_SIZE,
    gradient_deviation,
    haar_similarity,
    information_fidelity,
)

Norm: TypeAlias = Literal["l2", "range", "mean"]

BITS = 255.0
"""The data range that HaarPSI has its constant for."""

_image = partial(share_metric, kind="image", parameter="preset", parameter_optional=True, parameter_is_text=True)


@_image(title="PSNR", unit="dB", best=math.inf, source="peak signal-to-noise ratio")
def psnr(
    reference: Array, reconstruction: Array, preset: str | None = None, *, data_range: float | None = None
) -> float:
    """The peak signal-to-noise ratio, 10 log10(range^2 / mean squared error).

    Args:
        reference: (row, column) or (slice, row, column); integers or floats, or complex numbers, of which the
            magnitude counts (with `skmtea` the complex difference, where both are complex).
        reconstruction: Of the same shape.
        preset: A name of `PRESETS`, instead of `data_range`.
        data_range: The largest minus the smallest value that such an image can have.

    Returns:
        In dB; infinite where the images are equal. Of a preset that judges slices the mean over slices, from which
        equal slices are left out unless all are.

    Raises:
        ValueError: As all functions here: the shapes or bit depths differ, values are not finite, the range is missing,
            or smaller than what the reference spans, or a slice is blank, of which a preset can take no range.
        UsageError: If there is no such preset.
    """
    pair = image_pair(reference, reconstruction, preset, data_range)
    errors, _ = pair.sums()
    tops = pair.ranges[: len(errors)]
    with np.errstate(divide="ignore"):
        values = 10 * np.log10(tops**2 * (pair.reference.size / len(errors)) / errors)
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else math.inf


_error = partial(_image, higher_is_better=False, best=0.0, worst=1.0, value_kind="ratio")


@_error(title="NRMSE", source="Euclidean norms; meddlr (SKM-TEA)")
def nrmse(
    reference: Array,
    reconstruction: Array,
    preset: str | None = None,
    *,
    normalisation: Norm = "l2",
    data_range: float | None = None,
) -> float:
    """The root of the mean squared error over the root of the mean square of the reference.

    Errors are taken per volume, or per slice where the preset says so. `normalisation` is what the root of the mean
    squared error is divided by: `l2`, the root of the mean square of the reference; `range`, its largest minus its
    smallest value, or `data_range`; `mean`, its mean. One and the same error of a brain is .054, .023 or .060 by these.
    At least 0; 1 for an image of zeros (`l2`).

    Raises:
        ValueError: As `psnr`; or the reference is 0 everywhere, in the volume or in a slice.
    """
    if normalisation not in get_args(Norm):
        raise ValueError(f"Expected `normalisation` to be one of {', '.join(get_args(Norm))}, got {normalisation!r}")
    if data_range is not None and normalisation != "range":
        raise ValueError(f"Expected no `data_range` where errors are divided by {normalisation}, got {data_range:g}")
    pair = image_pair(reference, reconstruction, preset, data_range, ranged=False)
    if normalisation == "l2":
        return float(np.sqrt(pair.relative()).mean())
    errors, _ = pair.sums()
    levels = pair.levels(normalisation, data_range)
    return float((np.sqrt(errors * len(errors) / pair.reference.size) / levels).mean())


@_error(title="NMSE", source="Zbontar et al. 2018 (fastMRI)")
def nmse(reference: Array, reconstruction: Array, preset: str | None = None) -> float:
    """The sum of squared errors over the sum of squares of the reference.

    Sums are taken per volume, or per slice where the preset says so. At least 0; 1 for an image of zeros. The square of
    `nrmse` where there is one slice or volume.

    Raises:
        ValueError: As `nrmse`.
    """
    pair = image_pair(reference, reconstruction, preset, None, ranged=False)
    return float(pair.relative().mean())


@_image(title="SSIM", source="Wang et al. 2004")
def ssim(
    reference: Array,
    reconstruction: Array,
    preset: str | None = None,
    *,
    data_range: float | None = None,
    window: Window = "gaussian",
) -> float:
    """The mean structural similarity over all places where the window lies inside the image.

    Without a preset the window is `gaussian` (11 x 11, sigma 1.5, population variances, as Wang et al. have it) or
    `uniform` (7 x 7, sample variances, scikit-image's default). -1 to 1; the mean over slices.

    Raises:
        ValueError: As `psnr`; or the image is smaller than the window.
    """
    if window not in get_args(Window):
        raise ValueError(f"Expected `window` to be one of {', '.join(get_args(Window))}, got {window!r}")
    pair = image_pair(reference, reconstruction, preset, data_range)
    chosen = pair.preset.window if preset is not None else window
    return pair.mean(
        lambda one: similarity(one.reference, one.reconstruction, one.data_range, chosen).ssim, taps_of(chosen)
    )


@_image(title="MS-SSIM", source="Wang, Simoncelli & Bovik 2003")
def ms_ssim(
    reference: Array, reconstruction: Array, preset: str | None = None, *, data_range: float | None = None
) -> float:
    """The multi-scale structural similarity: contrast and structure at five scales, luminance at the coarsest.

    The window is Gaussian, 11 x 11, whatever the preset; a mean below 0 at a scale counts as 0. 0 to 1; the mean over
    slices.

    Raises:
        ValueError: As `psnr`; or the image is smaller than 176 pixels, for which there are no five scales.
    """
    pair = image_pair(reference, reconstruction, preset, data_range)
    return pair.mean(lambda one: multiscale_similarity(one.reference, one.reconstruction, one.data_range), SMALLEST)


@_image(title="VIF", source="Sheikh & Bovik 2006, in the pixel domain")
def vif(
    reference: Array, reconstruction: Array, preset: str | None = None, *, data_range: float | None = None
) -> float:
    """The visual information fidelity in the pixel domain: what the reconstruction tells of the reference, in shares.

    The data range is scaled to 255, for which the noise variance of 2 is meant. `mcmrrec` scales each slice by the
    largest value of the reference and takes 0.4. At least 0; above 1 where contrast is enhanced. The mean over slices,
    of which those whose reference is constant have no value; NaN where none has.

    Raises:
        ValueError: As `psnr`; or the image is smaller than 41 pixels.
    """
    pair = image_pair(reference, reconstruction, preset, data_range)

    def judge(one: Slice) -> float:
        top = one.largest if pair.preset.span == "both" else one.data_range
        scale = pair.preset.vif_range / top if top > 0 else 1.0
        return information_fidelity(one.reference * scale, one.reconstruction * scale, pair.preset.noise)

    return pair.mean(judge, VIF_SIZE)


@_image(title="HaarPSI", source="Reisenhofer et al. 2018")
def haarpsi(
    reference: Array, reconstruction: Array, preset: str | None = None, *, data_range: float | None = None
) -> float:
    """The Haar wavelet-based perceptual similarity of images that were averaged over 2 x 2 pixels.

    0 to 1; the mean over slices, of which those where both images are 0 have no value; NaN where none has.

    Raises:
        ValueError: As `psnr`; or the image is smaller than 16 pixels.
    """
    pair = image_pair(reference, reconstruction, preset, data_range)
    return pair.mean(lambda one: haar_similarity(*one.scaled(BITS)), HAAR_SIZE)


@_image(title="GMSD", higher_is_better=False, best=0.0, worst=0.5, source="Xue et al. 2014")
def gmsd(
    reference: Array, reconstruction: Array, preset: str | None = None, *, data_range: float | None = None
) -> float:
    """The gradient magnitude similarity deviation: how unevenly the gradients of the two images are alike.

    Images are averaged over 2 x 2 pixels first; gradients are Prewitt's; the standard deviation is that of all pixels
    (1/n, as in the paper). 0 to 0.5; the mean over slices.
    """
    pair = image_pair(reference, reconstruction, preset, data_range)
    return pair.mean(lambda one: gradient_deviation(*one.scaled(1.0)), GMSD_SIZE)
