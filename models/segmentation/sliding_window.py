"""Sliding windows over an image, stitched strip by strip, so that a whole volume of probabilities never exists."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

Predict = Callable[[Tensor], Tensor]
"""Takes windows (window, channel, *size), returns class probabilities (window, class, *size)."""


@dataclass(frozen=True)
class Windows:
    """How an image is cut, and where the pieces are put together.

    Attributes:
        size: voxels of a window along each axis of the image.
        overlap: of neighbouring windows along each axis, 0 to below 1.
        batch: windows predicted at once.
        device: where windows are predicted.
        stitched_on: where the image lies and the strips are summed.
        alike: axes along which all voxels of a window weigh alike: of slices that do not know of each other.
        dtype: of the sums: float32, or float16 for half the memory and probabilities good to three digits.
    """

    size: tuple[int, ...]
    overlap: tuple[float, ...]
    batch: int
    device: torch.device
    stitched_on: torch.device
    alike: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32


class Strip(NamedTuple):
    """A finished part of an image by slices, (class, *strip); overwritten by the next."""

    where: tuple[slice, ...]
    probabilities: Tensor


class View(NamedTuple):
    """Orientation of an image for a network: rotation, then flips."""

    turns: int
    flips: tuple[int, ...]

    def show(self, windows: Tensor) -> Tensor:
        """Returns (window, channel, *size) as the network is to see it."""
        turned = torch.rot90(windows, self.turns, (2, 3)) if self.turns else windows
        return torch.flip(turned, [axis + 2 for axis in self.flips]) if self.flips else turned

    def undo(self, predicted: Tensor) -> Tensor:
        """Returns predictions of a view in the original orientation."""
        flipped = torch.flip(predicted, [axis + 2 for axis in self.flips]) if self.flips else predicted
        return torch.rot90(flipped, -self.turns, (2, 3)) if self.turns else flipped


def distinct_views(axes: int, flips: Sequence[int], rotations: bool) -> list[View]:
    """All combinations of flips and quarter turns, each orientation once.

    Four turns and flips of both axes make 16 combinations, but a picture has eight orientations.
    """
    corners = torch.arange(2**axes).reshape(1, 1, *(2,) * axes)
    views: dict[tuple[int, ...], View] = {}
    for turns in range(4 if rotations else 1):
        for count in range(len(flips) + 1):
            for chosen in itertools.combinations(flips, count):
                view = View(turns, chosen)
                views.setdefault(tuple(view.show(corners).flatten().tolist()), view)
    return list(views.values())


def strips(pixels: Tensor, predict: Predict, windows: Windows) -> Iterator[Strip]:
    """Yields class probabilities of (channel, *spatial) by strips of sliding windows.

    Windows are blended with Gaussian weights as in MONAI's `sliding_window_inference(mode="gaussian")`. Along the axis
    with the most windows only as many planes are held as a window is thick: what no later window will touch is yielded
    and forgotten. Strips cover the image once, along one axis in ascending order.
    """
    padded, margin = _pad_pixels(pixels, windows.size)
    shape = padded.shape[1:]
    axis = max(range(len(shape)), key=lambda a: shape[a] / windows.size[a])
    starts = [_window_starts(*each) for each in zip(shape, windows.size, windows.overlap, strict=True)]
    held = tuple(windows.size[axis] if a == axis else n for a, n in enumerate(shape))
    weight = _window_importance(windows)
    sums, total = torch.zeros(()), torch.zeros(held, dtype=windows.dtype, device=windows.stitched_on)
    for first, after in zip(starts[axis], [*starts[axis][1:], shape[axis]], strict=True):
        across = [[first] if a == axis else starts[a] for a in range(len(shape))]
        starts_ = list(itertools.product(*across))
        for begin in range(0, len(starts_), windows.batch):
            boxes = [_window_box(start, windows.size) for start in starts_[begin : begin + windows.batch]]
            stacked = torch.stack([padded[(slice(None), *box)] for box in boxes]).to(windows.device)
            answers = predict(stacked).to(windows.stitched_on, windows.dtype)
            if sums.ndim == 0:
                sums = torch.zeros((answers.shape[1], *held), dtype=windows.dtype, device=windows.stitched_on)
            for box, answer in zip(boxes, answers, strict=True):
                there = tuple(slice(None) if a == axis else part for a, part in enumerate(box))
                sums[(slice(None), *there)].addcmul_(answer, weight)
                total[there] += weight
        finished = after - first
        strip = sums.narrow(axis + 1, 0, finished).div_(total.narrow(axis, 0, finished))
        yield from _without_margin(strip, axis, first, margin, pixels.shape[1:])
        _shift_buffer(sums, axis + 1, finished)
        _shift_buffer(total, axis, finished)


def most_probable(pixels: Tensor, predict: Predict, windows: Windows) -> Tensor:
    """Returns the most probable class per voxel: int16, (*spatial)."""
    labels = torch.empty(pixels.shape[1:], dtype=torch.int16)
    for strip in strips(pixels, predict, windows):
        labels[strip.where] = strip.probabilities.argmax(0).to("cpu", torch.int16)
    return labels


def all_probabilities(pixels: Tensor, predict: Predict, windows: Windows) -> Tensor:
    """Returns the probabilities of every class: `windows.dtype`, (class, *spatial), in main memory."""
    probabilities = torch.zeros(())
    for strip in strips(pixels, predict, windows):
        if probabilities.ndim == 0:
            probabilities = torch.empty((len(strip.probabilities), *pixels.shape[1:]), dtype=windows.dtype)
        probabilities[(slice(None), *strip.where)] = strip.probabilities.cpu()
    return probabilities


def _window_starts(length: int, size: int, overlap: float) -> list[int]:
    step = max(1, int(size * (1 - overlap)))
    return [*range(0, length - size, step), length - size]


def _window_box(place: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(start, start + length) for start, length in zip(place, size, strict=True))


def _pad_pixels(pixels: Tensor, size: Sequence[int]) -> tuple[Tensor, list[int]]:
    """Image zero-padded to the window on both sides; leading width."""
    lacking = [max(0, length - n) for length, n in zip(size, pixels.shape[1:], strict=True)]
    if not any(lacking):
        return pixels, [0] * len(lacking)
    sides = [side for n in reversed(lacking) for side in (n // 2, n - n // 2)]
    return pad(pixels, sides), [n // 2 for n in lacking]


def _window_importance(windows: Windows) -> Tensor:
    """Gaussian importance of windows, sigma an eighth, minimum 0.001, as MONAI."""
    weight = torch.ones(())
    for axis, length in enumerate(windows.size):
        distance = (torch.arange(length) - (length - 1) / 2) * (axis not in windows.alike)
        weight = weight[..., None] * torch.exp(-0.5 * (distance / (0.125 * length)) ** 2)
    return weight.clamp(min=1e-3).to(windows.stitched_on, windows.dtype)


def _without_margin(
    strip: Tensor, axis: int, first: int, margin: Sequence[int], shape: Sequence[int]
) -> Iterator[Strip]:
    """Part of a strip within the image; nothing for padding."""
    where = []
    for a, length in enumerate(shape):
        begin = (first if a == axis else 0) - margin[a]
        inside = slice(max(0, begin), min(length, begin + strip.shape[a + 1]))
        if inside.start >= inside.stop:
            return
        strip = strip.narrow(a + 1, inside.start - begin, inside.stop - inside.start)
        where.append(inside)
    yield Strip(tuple(where), strip)


def _shift_buffer(buffer: Tensor, axis: int, planes: int) -> None:
    """Shifts a buffer's planes to the front in place, zeroing the rest."""
    kept_planes = buffer.shape[axis] - planes
    for begin in range(0, kept_planes, planes):
        count = min(planes, kept_planes - begin)
        buffer.narrow(axis, begin, count).copy_(buffer.narrow(axis, begin + planes, count))
    buffer.narrow(axis, max(0, kept_planes), min(planes, buffer.shape[axis])).zero_()
