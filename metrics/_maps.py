"""All labels of two label maps at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics._pairs import LabelPair, Settings
from medimg_eval.metrics._surfaces import Spacing

LabelMap: TypeAlias = npt.NDArray[np.integer]
Box: TypeAlias = tuple[slice, ...]


def label_pairs(
    reference: LabelMap, prediction: LabelMap, spacing: Spacing, labels: Mapping[int, tuple[str, Settings]]
) -> dict[str, LabelPair]:
    """Returns the pair of masks of each label, by name.

    Args:
        reference: Integer label map, 2-D or 3-D.
        prediction: Integer label map of the same shape.
        spacing: Voxel size in mm along each axis.
        labels: Label, 1 or above -> its name and how it is judged; the surface is the same for all.
    """
    boxes = _joint_boxes(reference, prediction, max(labels))
    nowhere = (slice(0, 0),) * reference.ndim
    pairs = {}
    for label, (name, settings) in labels.items():
        box = boxes.get(label, nowhere)
        pair = LabelPair(reference[box] == label, prediction[box] == label, spacing, settings, name)
        pair.offset = tuple(int(part.start) for part in box)
        pair.shape = reference.shape
        pairs[name] = pair
    return pairs


def _joint_boxes(reference: LabelMap, prediction: LabelMap, highest: int) -> dict[int, Box]:
    """Returns the smallest box around each label up to `highest` that is in one of the maps."""
    from scipy.ndimage import find_objects

    boxes: dict[int, Box] = {}
    for label_map in (reference, prediction):
        for label, found in enumerate(find_objects(label_map, max_label=highest), start=1):
            if found is not None:
                boxes[label] = _union(boxes.get(label, found), found)
    return boxes


def _union(one: Box, other: Box) -> Box:
    return tuple(slice(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(one, other, strict=True))
