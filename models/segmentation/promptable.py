"""Models that are told where to look: one encoding of a picture, one mask per box or set of points; SAM."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from medimg_eval.arguments import grouped
from medimg_eval.case import Array, Guide, Prompt, Prompts
from medimg_eval.errors import UserError, import_optional
from medimg_eval.models.base import Example, Pass, Segmenter
from medimg_eval.models.segmentation.postprocess import Step, postprocessed

MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Of red, green and blue in the pictures that SAM was trained on."""


class PromptableSegmenter(Segmenter):
    """Promptable 2-D segmenter; volumes go slice by slice across the last axis.

    A picture is encoded once, however many guides it has. A box of a volume is used on each slice it spans; points
    on the slice they lie on. Where the masks of two labels overlap, the higher score wins.

    Args:
        window: grey levels shown as black and white, [low, high]; None takes the 0.5th and 99.5th percentile of each
            image. Pictures of 8 bits are shown as they are.
    """

    def __init__(self, window: Sequence[float] | None = None, postprocess: Sequence[Step] = ()) -> None:
        self.window = window
        self.postprocess = tuple(postprocess)

    @abstractmethod
    def encode(self, picture: Array) -> Any:
        """Returns whatever `decode` needs of a picture: uint8, (row, column, 3)."""

    @abstractmethod
    def decode(self, encoded: Any, guides: Sequence[Guide]) -> Sequence[Array]:
        """Returns a score map per guide, float, (row, column); positive inside.

        Guides are boxes (row, column, row, column) and points (row, column) of the picture that was encoded.
        """

    def segment(self, prompts: Prompts) -> Sequence[Array]:
        """Returns a label map per prompt, without unguided labels."""
        return [self._segment(prompt) for prompt in prompts]

    def _segment(self, prompt: Prompt) -> Array:
        if prompt.guides is None:
            raise UserError("this model must be told where structures lie: set task.guides, such as {kind: box}")
        image = prompt.image
        pixels = self._shown(image.array)
        volume = pixels.ndim == 4
        stack = pixels if volume else pixels[..., None]
        labels = np.zeros(stack.shape[1:], dtype=np.int32)
        for index, slice_guides in sorted(_by_slice(prompt.guides, stack.shape[-1], volume=volume).items()):
            encoded = self.encode(_as_rgb(stack[..., index]))
            best = np.zeros(labels.shape[:2], dtype=np.float32)
            scores = self.decode(encoded, [guide for _, guide in slice_guides])
            for (label, _), score in zip(slice_guides, scores, strict=True):
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
        return np.round(np.clip(scaled, 0, 1) * 255).astype(np.uint8)


def _as_rgb(picture: Array) -> Array:
    """(channel, row, column) as RGB (row, column, 3); grey is repeated."""
    channels = picture[:3] if len(picture) >= 3 else np.repeat(picture[:1], 3, axis=0)
    return np.ascontiguousarray(np.moveaxis(channels, 0, -1))


def _by_slice(
    guides: Mapping[int, Sequence[Guide]], slices: int, *, volume: bool
) -> Mapping[int, list[tuple[int, Guide]]]:
    """Slice -> labels and guides to segment on it."""
    by_slice: dict[int, list[tuple[int, Guide]]] = {}
    for label, several in guides.items():
        for guide in several:
            for index, flat in _guides_by_slice(guide, slices) if volume else [(0, guide)]:
                by_slice.setdefault(index, []).append((label, flat))
    return by_slice


def _guides_by_slice(guide: Guide, slices: int) -> Iterator[tuple[int, Guide]]:
    """A guide by slice; slices need a box or positive point."""
    on = np.round(guide.points[:, -1]).astype(int)
    if guide.box is None:
        spanned, box = np.unique(on[guide.positive]), None
    else:
        first, last = np.clip(np.round(guide.box[[2, 5]]).astype(int), 0, slices - 1)
        spanned, box = np.arange(first, last + 1), guide.box[[0, 1, 3, 4]]
    for index in spanned.tolist():
        here = on == index
        yield index, Guide(box, guide.points[here, :2], guide.positive[here])


class Encoded(NamedTuple):
    """A picture's embedding, (1, channel, row, column), its shape, and its enlargement before."""

    embedding: Tensor
    shape: tuple[int, int]
    scale: float


class Sam(nn.Module, PromptableSegmenter):
    """SAM and its kind, such as MedSAM: one mask per guide.

    Pictures are enlarged until the longer side fills the encoder's input, standardised, and padded at the lower and
    right border; masks go the same way back (bilinear), above 0 inside.

    Args:
        hub: name of a model on the Hugging Face hub, such as `facebook/sam-vit-base`; may be downloaded.
        revision: of it: a commit pins the weights.
        checkpoint: folder that `save_pretrained` wrote, instead of `hub`.
        at_once: guides decoded together.

    Raises:
        UserError: neither or both of `hub` and `checkpoint`; `prepare` raises it where the transformers library is
            missing or the model cannot be loaded.
    """

    def __init__(
        self,
        hub: str | None = None,
        revision: str | None = None,
        checkpoint: str | None = None,
        window: Sequence[float] | None = None,
        postprocess: Sequence[Step] = (),
        at_once: int = 64,
    ) -> None:
        nn.Module.__init__(self)
        PromptableSegmenter.__init__(self, window, postprocess)
        if (hub is None) == (checkpoint is None):
            raise UserError("expected either model.hub or model.checkpoint, got " + ("both" if hub else "neither"))
        self.hub, self.revision, self.checkpoint, self.at_once = hub, revision, checkpoint, at_once
        self.sam: Any = None

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Loads the model, once."""
        if self.sam is not None:
            return
        transformers = import_optional("transformers")
        source = self.hub if self.checkpoint is None else str(Path(self.checkpoint).expanduser())
        with UserError.about(source, "cannot be loaded as a SAM model", Exception):
            loaded: Any = transformers.SamModel.from_pretrained(source, revision=self.revision)
        self.sam = loaded.eval()

    def one_pass(self) -> Pass | None:
        """The encoding of one picture and the decoding of one box."""
        if self.sam is None:
            return None
        side = self.sam.config.vision_config.image_size

        def run(picture: Tensor) -> Any:
            box = torch.tensor([[[0.0, 0.0, side, side]]], device=picture.device)
            return self.sam(pixel_values=picture, input_boxes=box, multimask_output=False)

        return Pass(run, (1, 3, side, side))

    @torch.inference_mode()
    def encode(self, picture: Array) -> Encoded:
        """Returns the embedding of a picture."""
        side, device = self.sam.config.vision_config.image_size, self.sam.device
        rows, columns = picture.shape[:2]
        scale = side / max(rows, columns)
        size = [int(rows * scale + 0.5), int(columns * scale + 0.5)]
        tensor = torch.from_numpy(picture).to(device, torch.float32).permute(2, 0, 1)[None]
        tensor = interpolate(tensor, size, mode="bilinear", antialias=True, align_corners=False)
        mean, deviation = (torch.tensor(three, device=device).view(1, 3, 1, 1) for three in (MEAN, DEVIATION))
        padded = pad((tensor - mean) / deviation, (0, side - size[1], 0, side - size[0]))
        return Encoded(self.sam.get_image_embeddings(padded), (rows, columns), scale)

    @torch.inference_mode()
    def decode(self, encoded: Encoded, guides: Sequence[Guide]) -> Sequence[Array]:
        """Returns SAM's logits for each guide on the picture's own pixels."""
        maps: list[Array] = []
        for group in _group_guides(guides):
            for begin in range(0, len(group), self.at_once):
                maps += self._decoded(encoded, [guides[index] for index in group[begin : begin + self.at_once]])
        order = [index for group in _group_guides(guides) for index in group]
        return [maps[order.index(index)] for index in range(len(guides))]

    def _decoded(self, encoded: Encoded, guides: Sequence[Guide]) -> list[Array]:
        """Decodes guides of one kind, with equal numbers of points."""
        device, scale = encoded.embedding.device, encoded.scale

        def across_then_down(values: Sequence[Array]) -> Tensor:
            pairs = np.stack(values).reshape(len(guides), -1, 2)[..., ::-1] * scale
            return torch.as_tensor(pairs.copy(), dtype=torch.float32, device=device)[None]

        arguments: dict[str, Any] = {}
        boxes = [guide.box for guide in guides if guide.box is not None]
        if boxes:
            arguments["input_boxes"] = across_then_down(boxes).flatten(2)
        if len(guides[0].points):
            arguments["input_points"] = across_then_down([guide.points for guide in guides])
            signs = np.stack([guide.positive for guide in guides]).astype(np.int64)
            arguments["input_labels"] = torch.as_tensor(signs, device=device)[None]
        answer = self.sam(image_embeddings=encoded.embedding, multimask_output=False, **arguments)
        logits = answer.pred_masks[0].float()  # (guide, 1, row, column)
        side = self.sam.config.vision_config.image_size
        enlarged = interpolate(logits, (side, side), mode="bilinear", align_corners=False)
        rows, columns = (int(n * scale + 0.5) for n in encoded.shape)
        back = interpolate(enlarged[..., :rows, :columns], encoded.shape, mode="bilinear", align_corners=False)
        return list(back[:, 0].cpu().numpy())


def _group_guides(guides: Sequence[Guide]) -> list[list[int]]:
    """Places of the guides that SAM can take together, group by group."""
    return list(grouped(((guide.box is None, len(guide.points)), index) for index, guide in enumerate(guides)).values())
