"""Reconstructions that need no training: zero filling, sensitivity-weighted combination, and results on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from medimg_eval.case import Array, Image, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging.kspace import inverse_fft
from medimg_eval.models.base import Reconstructor

FLOOR = 1e-6
"""Of the brightest voxel: below it no coil is thought to see anything."""


class ZeroFilled(Reconstructor):
    """Zero-filled reconstruction, coils combined by root sum of squares."""

    def reconstruct(self, prompts: Prompts) -> Sequence[Array]:
        """Returns magnitudes, float32."""
        return [zero_filled(prompt.image) for prompt in prompts]


class SenseCombine(Reconstructor):
    """SENSE: sensitivity-weighted coils, with missing lines solved for.

    Sensitivities are estimated from the lines about the middle of k-space that are all there, so that nothing but the
    samples is needed.

    Args:
        iterations: of conjugate gradients on the SENSE equations; 0 only combines the zero-filled images of the coils.
        regularisation: the weight of the squared image beside the squared misfit to the samples.
        centre: at most how many lines and columns the sensitivities are estimated from.
    """

    def __init__(self, iterations: int = 12, regularisation: float = 1e-2, centre: int = 24) -> None:
        if iterations < 0 or regularisation < 0 or centre < 1:
            raise UserError(
                "expected model.iterations and model.regularisation of at least 0 and model.centre of at least 1, got "
                f"{iterations}, {regularisation} and {centre}"
            )
        self.iterations, self.regularisation, self.centre = iterations, regularisation, centre

    def reconstruct(self, prompts: Prompts) -> Sequence[Array]:
        """Returns magnitudes, float32."""
        return [self.combine(prompt.image) for prompt in prompts]

    def combine(self, image: Image) -> Array:
        """Returns magnitudes, float32, (*axes), of the samples of one scan."""
        axes, centred = frequency_axes(image), is_centred(image)
        samples = image.array if centred else np.fft.fftshift(image.array, axes)
        measured = (samples != 0).any(axis=0, keepdims=True)
        maps = sensitivities(samples, measured, axes, self.centre)

        def combined(given: Array) -> Array:
            """The adjoint of what the scanner does."""
            combined_image: Array = (maps.conj() * inverse_fft(given, axes)).sum(axis=0)
            return combined_image

        def measure(picture: Array) -> Array:
            lines: Array = measured * _forward_fft(maps * picture, axes)
            return lines

        start = combined(samples)
        combined_image = _conjugate_gradients(
            start, lambda one: combined(measure(one)), axes, self.iterations, self.regularisation
        )
        magnitude: Array = np.abs(
            combined_image if centred else np.fft.ifftshift(combined_image, [axis - 1 for axis in axes])
        )
        return magnitude.astype(np.float32)


class FunctionReconstructor(Reconstructor):
    """Any function from samples to an image.

    Args:
        function: called with complex samples (coil, *axes) and the names of the axes but the coil's; returns the image.
    """

    def __init__(self, function: Callable[[Array, list[str]], Array]) -> None:
        self.function = function

    def reconstruct(self, prompts: Prompts) -> Sequence[Array]:
        """Returns what the function makes of each scan."""
        return [
            np.asarray(self.function(prompt.image.array, prompt.image.attributes.get("axes", "").split()))
            for prompt in prompts
        ]


def zero_filled(image: Image) -> Array:
    """Reconstructs by inverse FFT and root sum of squares: float32, (*axes)."""
    coils = inverse_fft(image.array, frequency_axes(image), centred=is_centred(image))
    root_sum: Array = np.sqrt(np.square(np.abs(coils)).sum(axis=0))
    return root_sum.astype(np.float32)


def frequency_axes(image: Image) -> list[int]:
    """Frequency axes of samples, coil 0; CaseError where none is named."""
    names = image.attributes.get("axes", "").split()
    axes = [axis for axis, name in enumerate(names, start=1) if name.startswith("k")]
    if not axes or len(names) != image.array.ndim - 1:
        raise CaseError(f"expected samples of k-space with named axes, got {image.array.shape} and axes {names}")
    return axes


def is_centred(image: Image) -> bool:
    """Whether the lowest frequency lies in the middle of the axes."""
    return image.attributes.get("centred", "true") == "true"


def sensitivities(samples: Array, measured: Array, axes: Sequence[int], centre: int) -> Array:
    """Returns coil sensitivities, complex, (coil, *axes).

    The sum of squares over coils is 1 where there is any signal, else 0. `measured` is bool, (1, *axes); the lowest
    frequency lies in the middle, of which at most `centre` lines along each frequency axis are taken.

    Raises:
        CaseError: the middle of k-space was not measured.
    """
    window = np.ones((1,) * samples.ndim)
    for axis in axes:
        other_axes = tuple(other_axis for other_axis in range(samples.ndim) if other_axis != axis)
        there = measured.any(axis=other_axes)
        middle = samples.shape[axis] // 2
        missing = np.flatnonzero(~there)
        nearest_gap = np.abs(missing - middle).min() if len(missing) else middle
        reach = min(int(nearest_gap), centre // 2, middle)
        if reach < 1:
            raise CaseError("the middle of k-space was not measured, and no sensitivities can be estimated of it")
        shape = [1] * samples.ndim
        shape[axis] = -1
        distance = np.abs(np.arange(samples.shape[axis]) - middle) / reach
        window = window * np.where(distance < 1, np.cos(np.pi / 2 * np.minimum(distance, 1)) ** 2, 0).reshape(shape)
    coarse = inverse_fft(samples * window.astype(np.float32), list(axes))
    size = np.sqrt(np.square(np.abs(coarse)).sum(axis=0, keepdims=True))
    return np.where(size > FLOOR * size.max(), coarse / np.maximum(size, np.finfo(size.dtype).tiny), 0)


def _forward_fft(images: Array, axes: Sequence[int]) -> Array:
    from scipy import fft

    return np.fft.fftshift(fft.fftn(np.fft.ifftshift(images, axes), axes=axes, norm="ortho"), axes)


def _conjugate_gradients(
    start: Array, apply: Callable[[Array], Array], axes: Sequence[int], iterations: int, regularisation: float
) -> Array:
    """Solves (A + regularisation) x = start by conjugate gradients, per slice."""
    if not iterations:
        return start
    inside = tuple(axis - 1 for axis in axes)

    def product(one: Array, other: Array) -> Array:
        product: Array = (one.conj() * other).real.sum(axis=inside, keepdims=True)
        return product

    solution, residual, step = np.zeros_like(start), start.copy(), start.copy()
    size = product(residual, residual)
    for _ in range(iterations):
        moved = apply(step) + regularisation * step
        length = size / np.maximum(product(step, moved), np.finfo(size.dtype).tiny)
        solution = solution + length * step
        residual = residual - length * moved
        smaller = product(residual, residual)
        step = residual + smaller / np.maximum(size, np.finfo(size.dtype).tiny) * step
        size = smaller
    return solution
