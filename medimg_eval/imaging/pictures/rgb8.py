"""Images as vision-language models take them: 8-bit RGB pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.errors import CaseError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array, Image, Prompt


def as_picture(image: Image) -> Picture:
    """Turns an image into a PIL image, RGB.

    Pictures of 8 bits stay as they are; grey ones get three equal channels, and an alpha channel is laid over white.
    Of other types the values are stretched from the smallest to the largest; what is not finite counts as 0.

    Args:
        image: (channel, row, column), of 1 to 4 channels.

    Raises:
        CaseError: it is a volume or a clip, whose slice or frames the layout must name, or holds nothing.
    """
    from PIL import Image as Pictures

    array = np.asarray(image.array)
    if array.ndim != 3 or array.shape[0] not in (1, 2, 3, 4):
        raise CaseError(
            f"an image of shape {array.shape} is no picture; name the slices or frames shown in task.layout.images"
        )
    if not array.size:
        raise CaseError(f"an image of shape {array.shape} holds no pixel; mend the file, or leave the case out")
    alpha = array[-1:] if array.shape[0] in (2, 4) else None
    colours = array if alpha is None else array[:-1]
    if colours.dtype != np.uint8:
        colours = _stretched(colours)
    if alpha is not None:
        opaque = alpha.astype(np.float32) / (np.iinfo(alpha.dtype).max if alpha.dtype.kind in "iu" else 1)
        opaque = np.clip(np.nan_to_num(opaque), 0, 1)  # what is no alpha channel must not turn colours round
        colours = np.rint(colours * opaque + 255 * (1 - opaque)).astype(np.uint8)
    bands = [Pictures.fromarray(np.ascontiguousarray(band)) for band in colours]
    return Pictures.merge("RGB", bands if len(bands) == 3 else bands * 3)


def as_pictures(prompt: Prompt) -> list[Picture]:
    """The images of a prompt as PIL images, RGB, in their order; raises CaseError as `as_picture` does."""
    return [as_picture(image) for image in prompt.images]


def _stretched(array: Array) -> Array:
    values = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if high == low:
        return np.zeros(array.shape, np.uint8)
    stretched: Array = np.rint((values - low) * (255 / (high - low))).astype(np.uint8)
    return stretched
