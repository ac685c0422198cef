"""Where in a picture lies what a network was shown of it: it was scaled, and its edges may have been cut off."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.codecs import TilePlaces, Weighed
from medimg_eval.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array

Box = tuple[float, float, float, float]

_TENSORS = ("ToTensor", "MaybeToTensor", "PILToTensor", "MaybePILToTensor", "ConvertImageDtype", "Normalize")


def with_maps(answer: Weighed, names: Sequence[str], maps: Array, box: Box) -> Weighed:
    """Answer with the maps of one picture beside it.

    Args:
        answer: to be completed; is returned.
        names: of the classes that maps are of.
        maps: (class, row, column), or (1, row, column) of one for all classes.
        box: of the input in the picture.
    """
    if len(maps) == len(names):
        answer.maps = {name: each.ravel() for name, each in zip(names, maps, strict=True)}
    if len(maps) == 1 != len(names) or not answer.maps:
        answer.attention = maps[0].ravel()
    rows, columns = maps.shape[1:]
    answer.places = TilePlaces.of_grid(rows, columns, box)
    return answer


def box_of_input(transform: Any, size: tuple[int, int]) -> Box:
    """Locates the network's input in the picture before its transform.

    The transform is shown a picture of row numbers, and one of column numbers: of scaling, cutting and padding alone
    two places near the middle say where all others come from.

    Args:
        transform: of timm or torchvision: a `Compose`, or torchvision's preset of classifications.
        size: rows and columns of the picture.

    Returns:
        First row and column of the input, and those behind its end, in pixels of the picture; beyond it where the
        transform pads.

    Raises:
        UserError: the transform is another, or does something else.
    """
    edges = []
    for axis in (0, 1):
        numbers = np.arange(size[axis], dtype=np.float32) + 0.5
        resized = _transform_geometry(transform, np.broadcast_to(numbers[:, None] if axis == 0 else numbers, size))
        line = resized[:, resized.shape[1] // 2] if axis == 0 else resized[resized.shape[0] // 2]
        middle, step = len(line) // 2, max(1, len(line) // 8)
        first, last = float(line[middle - step]), float(line[middle + step])
        slope = (last - first) / (2 * step)
        if not slope > 0 or abs(float(line[middle]) - (first + last) / 2) > 0.51 * max(slope, 1):
            raise UserError("model.explain: the preprocessing does more than to scale and to cut; maps have no places")
        begin = first - slope * (middle - step + 0.5)
        edges.append((begin, begin + slope * len(line)))
    (top, bottom), (left, right) = edges
    return top, left, bottom, right


def _transform_geometry(transform: Any, numbers: Any) -> Any:
    """Row and column maps after the transform's geometric steps, float32."""
    from PIL import Image

    picture: Picture = Image.fromarray(np.ascontiguousarray(numbers, np.float32))
    if hasattr(transform, "resize_size") and hasattr(transform, "crop_size"):
        functional: Any = importlib.import_module("torchvision.transforms.functional")
        resized = functional.resize(picture, transform.resize_size, interpolation=transform.interpolation)
        return np.asarray(functional.center_crop(resized, transform.crop_size))
    steps = getattr(transform, "transforms", None)
    if steps is None:
        raise UserError(f"model.explain: {type(transform).__name__} is no transform whose steps are known here")
    for step in steps:
        if type(step).__name__ in _TENSORS:
            break
        picture = step(picture)
    return np.asarray(picture)
