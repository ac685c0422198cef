"""What is done to a label map before it is judged, label by label: steps named in a model's `postprocess`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from medimg_eval.case import Array, Mask
from medimg_eval.errors import UsageError

Names = Mapping[int, str]


@dataclass(frozen=True)
class Step(ABC):
    """One step.

    Attributes:
        labels: names of the labels it works on; all of the task's when None.
    """

    labels: Sequence[str] | None = None

    @abstractmethod
    def __call__(self, mask: Array, names: Names, spacing: Sequence[float]) -> Array:
        """Returns a changed mask, integers, (*spatial), spacing in mm; UsageError for unknown labels."""

    def _chosen(self, names: Names) -> list[int]:
        if self.labels is None:
            return sorted(names)
        numbers = {name: label for label, name in names.items()}
        UsageError.refuse_unknown("model.postprocess: the task has no label", numbers, *self.labels)
        return [numbers[name] for name in self.labels]


@dataclass(frozen=True)
class KeepLargest(Step):
    """Keeps the largest 26-connected component; others become background.

    Attributes:
        together: take the labels as one structure, as nnU-Net does with its foreground; else each by itself.
    """

    together: bool = False

    def __call__(self, mask: Array, names: Names, spacing: Sequence[float]) -> Array:
        """Returns a copy with one component; the first wins ties."""
        cleaned = mask.copy()
        chosen = self._chosen(names)
        for group in [chosen] if self.together else [[label] for label in chosen]:
            for inside, parts, count in _label_components(mask, group):
                sizes = np.bincount(parts.ravel(), minlength=count + 1)[1:]
                cleaned[inside][(parts > 0) & (parts != 1 + sizes.argmax())] = 0
        return cleaned


@dataclass(frozen=True)
class DropSmall(Step):
    """Removes connected components below a size. Voxels touch by faces, edges and corners.

    Attributes:
        volume: least size that stays, in mm3 (of pictures mm2).
        voxels: least size that stays, in voxels.
    """

    volume: float = 0.0
    voxels: int = 0

    def __call__(self, mask: Array, names: Names, spacing: Sequence[float]) -> Array:
        """Returns a copy without the components that are smaller than either size."""
        cleaned = mask.copy()
        least = max(self.voxels, self.volume / float(np.prod(spacing)) - 1e-9)
        for label in self._chosen(names):
            for inside, parts, count in _label_components(mask, [label]):
                small = np.bincount(parts.ravel(), minlength=count + 1) < least
                small[0] = False
                cleaned[inside][small[parts]] = 0
        return cleaned


@dataclass(frozen=True)
class FillHoles(Step):
    """Gives a label the background that it encloses; other labels inside it stay."""

    def __call__(self, mask: Array, names: Names, spacing: Sequence[float]) -> Array:
        """Returns a copy in which no chosen label encloses background by faces."""
        from scipy.ndimage import binary_fill_holes

        filled = mask.copy()
        for label in self._chosen(names):
            inside = _true_extent(mask == label)
            if inside is not None:
                part = filled[inside]
                part[binary_fill_holes(part == label) & (part == 0)] = label
        return filled


def postprocessed(steps: Sequence[Step], mask: Array, names: Names, spacing: Sequence[float]) -> Array:
    """Returns the label map after each step in turn."""
    for step in steps:
        mask = step(mask, names, spacing)
    return mask


def postprocessed_mask(steps: Sequence[Step], mask: Mask, names: Names) -> Mask:
    """Postprocesses a mask that brings its own grid."""
    return replace(mask, labels=postprocessed(steps, mask.labels, names, mask.geometry.spacing)) if steps else mask


def _label_components(mask: Array, labels: Sequence[int]) -> Iterator[tuple[tuple[slice, ...], Array, int]]:
    """Labels' bounding box, numbered components and count; nothing where absent."""
    from scipy.ndimage import label as number

    member = np.isin(mask, labels)
    inside = _true_extent(member)
    if inside is not None:
        parts, count = number(member[inside], np.ones((3,) * mask.ndim))
        yield inside, parts, count


def _true_extent(member: Array) -> tuple[slice, ...] | None:
    """The smallest box that holds every true voxel, or None."""
    from scipy.ndimage import find_objects

    (box,) = find_objects(member.astype(np.uint8), 1) or (None,)
    return box
