"""What an image metric takes for granted, by name: domain, range, window and unit; and the pair it then judges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Array

Window: TypeAlias = Literal["gaussian", "uniform"]

CHANNELS = 4
"""A last axis up to this long holds channels (grey, real and imaginary part, RGB, RGBA): no slice is so narrow."""

SLACK = 1e-6
"""By how much of the range a reference may exceed it: rounding."""


@dataclass(frozen=True)
class ImagePreset:
    """A published way of judging a reconstruction against its reference.

    Attributes:
        name: What stands after "@" in a metric's name.
        span: What the data range is: the largest value of the reference `volume` or of each reference `slice`, or of
            each slice from the smallest to the largest value of `both` images.
        unit: Whether squared errors are averaged over the `volume`, or PSNR and NRMSE over its slices. SSIM and
            the others are judged slice by slice and averaged over the slices of a volume in any case.
        window: Of SSIM: Gaussian, 11 x 11, sigma 1.5, population variances; or uniform, 7 x 7, sample variances.
        complex_error: Whether PSNR and NRMSE take differences of complex images; otherwise of magnitudes.
        noise: Of VIF: the variance of the visual noise.
        vif_range: Of VIF: what the data range is scaled to first.
    """

    name: str
    span: Literal["volume", "slice", "both"]
    unit: Literal["volume", "slice"]
    window: Window
    complex_error: bool = False
    noise: float = 2.0
    vif_range: float = 255.0

    def describe(self) -> str:
        """Says in words what numbers of this name rest on."""
        span = {
            "volume": "largest reference value of the volume",
            "slice": "largest reference value of the slice",
            "both": "joint spread of both images of the slice",
        }[self.span]
        domain = "complex differences" if self.complex_error else "magnitudes"
        return f"{self.name}: range {span}, errors per {self.unit}, {self.window} window, {domain}"


PRESETS: Mapping[str, ImagePreset] = {
    preset.name: preset
    for preset in (
        ImagePreset("fastmri", span="volume", unit="volume", window="uniform"),
        ImagePreset("skmtea", span="slice", unit="slice", window="gaussian", complex_error=True),
        ImagePreset("mcmrrec", span="both", unit="slice", window="uniform", noise=0.4, vif_range=1.0),
        ImagePreset("wang", span="volume", unit="volume", window="gaussian"),
    )
}
"""The presets by name. `wang` takes 255 as the range of images of 8 bits."""

_PLAIN = ImagePreset("", span="volume", unit="volume", window="gaussian")


class Slice(NamedTuple):
    """One slice of both images, float64 or complex128, (row, column), with its data range."""

    reference: Array
    reconstruction: Array
    data_range: float

    @property
    def largest(self) -> float:
        """The largest magnitude of the reference."""
        return float(np.abs(self.reference).max())

    def scaled(self, top: float) -> tuple[Array, Array]:
        """Both images in units in which the data range is `top`."""
        factor = top / self.data_range
        return self.reference * factor, self.reconstruction * factor


@dataclass(frozen=True, eq=False)
class ImagePair:
    """Two comparable images, (slice, row, column), their data ranges, (slice,), and conventions."""

    reference: Array
    reconstruction: Array
    ranges: Array
    preset: ImagePreset

    def slices(self, *, complex_error: bool = False) -> Iterator[Slice]:
        """Yields slices, as magnitudes unless complex differences are wanted."""
        both = self.reference.dtype.kind == self.reconstruction.dtype.kind == "c"
        for reference_slice, reconstructed_slice, data_range in zip(
            self.reference, self.reconstruction, self.ranges, strict=True
        ):
            if complex_error and both:
                yield Slice(
                    reference_slice.astype(np.complex128), reconstructed_slice.astype(np.complex128), float(data_range)
                )
            else:
                yield Slice(_as_magnitude(reference_slice), _as_magnitude(reconstructed_slice), float(data_range))

    def sums(self) -> tuple[Array, Array]:
        """Returns sums of squared errors and reference squares, by volume or slice, float64."""
        both = [
            (_image_energy(pair_slice.reconstruction - pair_slice.reference), _image_energy(pair_slice.reference))
            for pair_slice in self.slices(complex_error=self.preset.complex_error)
        ]
        errors, powers = np.array(both).T
        if self.preset.unit == "volume":
            errors, powers = errors.sum(keepdims=True), powers.sum(keepdims=True)
        return errors, powers

    def relative(self) -> Array:
        """Returns squared errors over reference squares, by volume or slice; ValueError if 0."""
        errors, powers = self.sums()
        if not powers.all():
            raise ValueError(f"Expected a reference that shows something, got {self._where(powers == 0)} of zeros")
        return errors / powers

    def levels(self, which: Literal["range", "mean"], data_range: float | None) -> Array:
        """Returns the reference's spread or mean, by volume or slice; ValueError unless positive."""
        if data_range is not None:
            return np.array([data_range])
        size = np.abs(self.reference) if self.reference.dtype.kind == "c" else self.reference.astype(np.float64)
        axes = None if self.preset.unit == "volume" else (1, 2)
        levels_ = size.mean(axis=axes) if which == "mean" else size.max(axis=axes) - size.min(axis=axes)
        levels = np.atleast_1d(levels_)
        if not (levels > 0).all():
            raise ValueError(f"Expected a reference whose {which} is above 0, got {self._where(levels <= 0)} without")
        return levels

    def mean(self, judge: Callable[[Slice], float], smallest: int) -> float:
        """Returns the mean of `judge` over slices with values; NaN without.

        Raises:
            ValueError: the image has fewer than `smallest` rows or columns.
        """
        if min(self.reference.shape[1:]) < smallest:
            raise ValueError(f"Expected at least {smallest} rows and columns, got {self.reference.shape[1:]}")
        values = [value for pair_slice in self.slices() if not math.isnan(value := judge(pair_slice))]
        return float(np.mean(values)) if values else math.nan

    def _where(self, wrong: Array) -> str:
        return f"{int(wrong.sum())} of {len(wrong)} slices" if self.preset.unit == "slice" else "an image"


def preset_of(name: str) -> ImagePreset:
    """Returns the preset of a name; UsageError for others."""
    UsageError.refuse_invalid("preset of image metrics", PRESETS, name)
    return PRESETS[name]


def image_pair(
    reference: Array, reconstruction: Array, preset: str | None, data_range: float | None, *, ranged: bool = True
) -> ImagePair:
    """Checks two images as for `psnr`, with their data range.

    Raises:
        ValueError: If the images differ in shape or bit depth, are no images, hold values that are not finite, if the
            range is missing, not above 0, or too small for the reference, or cannot be taken of a blank slice.
        UsageError: If there is no such preset.
    """
    first, second = np.asarray(reference), np.asarray(reconstruction)
    _check_arrays(first, second)
    chosen = _PLAIN if preset is None else preset_of(preset)
    if first.ndim == 2:
        first, second = first[None], second[None]
    if preset is not None and data_range is not None:
        raise ValueError(f"Expected a preset or `data_range`, got both ({preset!r} and {data_range!r})")
    if preset is None and data_range is None:
        if ranged:
            raise ValueError("Expected `data_range` or a preset: the values of an image do not tell its range")
        return ImagePair(first, second, np.full(len(first), math.nan), chosen)
    ranges = _given_range(first, data_range) if data_range is not None else _slice_ranges(first, second, chosen, ranged)
    return ImagePair(first, second, ranges, chosen)


def _check_arrays(first: Array, second: Array) -> None:
    if first.shape != second.shape:
        raise ValueError(f"Expected images of one shape, got a reference {first.shape}, not {second.shape}")
    if first.ndim not in (2, 3) or not first.size:
        raise ValueError(f"Expected images as (row, column) or (slice, row, column), got the shape {first.shape}")
    if first.ndim == 3 and first.shape[2] <= CHANNELS < first.shape[1]:
        raise ValueError(
            f"Expected grey images as (row, column) or (slice, row, column), got the shape {first.shape}, whose last "
            "axis is one of channels; judge one, `image[..., 0]`, or of colours a grey image, `image.mean(axis=-1)`"
        )
    for name, image in (("reference", first), ("reconstruction", second)):
        if image.dtype.kind not in "iufc":
            raise ValueError(f"Expected `{name}` to hold numbers, got {image.dtype}")
        wrong = 0 if image.dtype.kind in "iu" else image.size - int(np.isfinite(image).sum())
        if wrong:
            raise ValueError(f"Expected `{name}` to be finite, got {wrong} of {image.size} values that are not")
    if first.dtype.kind in "iu" and second.dtype.kind in "iu" and first.dtype != second.dtype:
        raise ValueError(f"Expected images of one bit depth, got {first.dtype} and {second.dtype}")


def _given_range(reference: Array, data_range: float) -> Array:
    if not 0 < data_range < math.inf:
        raise ValueError(f"Expected `data_range` to be above 0, got {data_range!r}")
    size = np.abs(reference) if reference.dtype.kind == "c" else reference
    spread = float(size.max()) - float(size.min())
    if spread > data_range * (1 + SLACK):
        raise ValueError(f"Expected `data_range` to hold the reference, got {data_range:g} for a spread of {spread:g}")
    return np.full(len(reference), float(data_range))


def _slice_ranges(reference: Array, reconstruction: Array, preset: ImagePreset, ranged: bool) -> Array:
    """The range of each slice, float64, (slice,)."""
    if preset.name == "wang" and reference.dtype == np.uint8:
        return np.full(len(reference), 255.0)
    ranges = np.array([_as_magnitude(image_slice).max() for image_slice in reference])
    if preset.span == "volume":
        ranges[:] = ranges.max()
    elif preset.span == "both":
        pairs = [
            (_as_magnitude(reference_slice), _as_magnitude(two))
            for reference_slice, two in zip(reference, reconstruction, strict=True)
        ]
        ranges = np.array([max(a.max(), b.max()) - min(a.min(), b.min()) for a, b in pairs])
    below = 0 if reference.dtype.kind in "cu" or preset.span == "both" else float(reference.min())
    if ranged and below < -SLACK * float(ranges.max()):
        raise ValueError(
            f"Expected magnitudes, for {preset.name!r} takes the largest value of the reference as its range, got "
            f"values down to {below:g}; shift both images, or give `data_range`"
        )
    blank = np.flatnonzero(~(ranges > 0))
    if len(blank) and ranged:
        raise ValueError(
            f"Expected slices that show something, got {len(blank)} of {len(ranges)} without a data range above 0, the "
            f"first of them slice {blank[0]}; leave them out, or give `data_range`"
        )
    return ranges


def _image_energy(image: Array) -> float:
    """The sum of squared magnitudes."""
    return float(np.vdot(image, image).real)


def _as_magnitude(image: Array) -> Array:
    """Of complex values their magnitude; float64 in any case."""
    size: Array = np.abs(image) if image.dtype.kind == "c" else image
    return size.astype(np.float64, copy=False)
