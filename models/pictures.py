"""Images as vision-language models take them: 8-bit RGB pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.errors import CaseError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Image, Prompt


def as_picture(image: Image) -> Picture:
    """Turns an image into a PIL image, RGB.

    Pictures of 8 bits stay as they are; grey ones get three equal channels, and an alpha channel is laid over white.
    Of other types the values are stretched from the smallest to the largest.

    Args:
        image: (channel, row, column), of 1 to 4 channels.

    Raises:
        CaseError: it is a volume or a clip; the task's layout names the slice or frames to be shown.
    """
    from PIL import Image as pil

    array = np.asarray(image.array)
    if array.ndim != 3 or array.shape[0] not in (1, 2, 3, 4):
        raise CaseError(
            f"an image of shape {array.shape} is no picture; name the slices or frames to be shown in task.layout.images"
        )
    if array.dtype != np.uint8:
        array = _stretched(array)
    if array.shape[0] in (2, 4):
        alpha = array[-1:].astype(np.float32) / 255
        array = np.rint(array[:-1] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    if array.shape[0] == 1:
        array = np.repeat(array, 3, axis=0)
    return pil.fromarray(np.ascontiguousarray(array.transpose(1, 2, 0)), "RGB")


def as_pictures(prompt: Prompt) -> list[Picture]:
    """The images of a prompt as PIL images, RGB, in their order; raises CaseError as `as_picture` does."""
    return [as_picture(image) for image in prompt.images]


def _stretched(array: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    low, high = float(array.min()), float(array.max())
    if high == low:
        return np.zeros(array.shape, np.uint8)
    return np.rint((array.astype(np.float32) - low) * (255 / (high - low))).astype(np.uint8)
