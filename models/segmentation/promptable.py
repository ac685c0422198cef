"""Models that are told where to look: one encoding of a picture, one mask per box or set of points."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from medimg_eval.case import Array, Guide, Prompt, Prompts
from medimg_eval.errors import UserError
from medimg_eval.models.base import Segmenter
from medimg_eval.models.segmentation.postprocess import Step, postprocessed


class PromptableSegmenter(Segmenter):
    """A model of pictures that turns guides into masks; volumes are segmented slice by slice, across the last axis.

    A picture is encoded once, however many guides it has. A box of a volume is used on each slice it spans; points
    on the slice they lie on. Where the masks of two labels overlap, the higher score wins.

    Args:
        window: grey levels shown as black and white, [low, high]; None takes the 0.5th and 99.5th percentile of each
            image. Pictures of 8 bits are shown as they are.
        postprocess: steps on the label map, see docs/models.md.
    """

    def __init__(self, window: Sequence[float] | None = None, postprocess: Sequence[Step] = ()) -> None:
        self.window = window
        self.postprocess = tuple(postprocess)

    @abstractmethod
    def encode(self, picture: Array) -> Any:
        """Returns whatever `decode` needs of a picture: uint8, (row, column, 3)."""

    @abstractmethod
    def decode(self, encoded: Any, guides: Sequence[Guide]) -> Sequence[Array]:
        """Returns one map of scores per guide.

        Args:
            encoded: of the picture.
            guides: boxes (row, column, row, column) and points (row, column) of the picture.

        Returns:
            float, (row, column), above 0 where the structure is.
        """

    def segment(self, prompts: Prompts) -> Sequence[Array]:
        """Returns a label map per prompt; a label without a guide is not in it."""
        return [self._segment(prompt) for prompt in prompts]

    def _segment(self, prompt: Prompt) -> Array:
        if prompt.guides is None:
            raise UserError("this model must be told where structures lie: set task.guides, such as {kind: box}")
        image = prompt.image
        pixels = self._shown(image.array)
        volume = pixels.ndim == 4
        stack = pixels if volume else pixels[..., None]
        labels = np.zeros(stack.shape[1:], dtype=np.int32)
        for index, asked in sorted(_by_slice(prompt.guides, stack.shape[-1], volume=volume).items()):
            encoded = self.encode(_rgb(stack[..., index]))
            best = np.zeros(labels.shape[:2], dtype=np.float32)
            scores = self.decode(encoded, [guide for _, guide in asked])
            for (label, _), score in zip(asked, scores, strict=True):
                higher = score > best
                labels[higher, index] = label
                best = np.where(higher, score, best)
        mask = labels if volume else labels[..., 0]
        return postprocessed(self.postprocess, mask, prompt.labels, image.geometry.spacing)

    def _shown(self, array: Array) -> Array:
        """(channel, *spatial) as uint8."""
        if array.dtype == np.uint8 and self.window is None:
            return array
        low, high = np.percentile(array, (0.5, 99.5)) if self.window is None else self.window
        scaled = (array.astype(np.float32) - low) / max(float(high) - float(low), 1e-6)
        shown: Array = np.round(np.clip(scaled, 0, 1) * 255).astype(np.uint8)
        return shown


def _rgb(picture: Array) -> Array:
    """(channel, row, column) as (row, column, 3); grey is repeated, channels beyond the third are left out."""
    channels = picture[:3] if len(picture) >= 3 else np.repeat(picture[:1], 3, axis=0)
    return np.ascontiguousarray(np.moveaxis(channels, 0, -1))


def _by_slice(
    guides: Mapping[int, Sequence[Guide]], slices: int, *, volume: bool
) -> Mapping[int, list[tuple[int, Guide]]]:
    """Slice -> the label and the guide, flat, of everything to be segmented on it."""
    found: dict[int, list[tuple[int, Guide]]] = {}
    for label, several in guides.items():
        for guide in several:
            for index, flat in _flattened(guide, slices) if volume else [(0, guide)]:
                found.setdefault(index, []).append((label, flat))
    return found


def _flattened(guide: Guide, slices: int) -> Iterator[tuple[int, Guide]]:
    """The slices a guide speaks of, and what it says of each; a slice without box and positive point is left out."""
    on = np.round(guide.points[:, -1]).astype(int)
    if guide.box is None:
        spanned, box = np.unique(on[guide.positive]), None
    else:
        first, last = np.clip(np.round(guide.box[[2, 5]]).astype(int), 0, slices - 1)
        spanned, box = np.arange(first, last + 1), guide.box[[0, 1, 3, 4]]
    for index in spanned.tolist():
        here = on == index
        yield index, Guide(box, guide.points[here, :2], guide.positive[here])
