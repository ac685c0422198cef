"""Segment Anything, as the transformers library has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from medimg_eval.case import Array, Guide
from medimg_eval.errors import UserError, import_optional
from medimg_eval.models.base import Example, Pass
from medimg_eval.models.segmentation.postprocess import Step
from medimg_eval.models.segmentation.promptable import PromptableSegmenter

MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""Of red, green and blue in the pictures that SAM was trained on."""


class Encoded(NamedTuple):
    """A picture that was seen.

    Attributes:
        embedding: (1, channel, row, column).
        shape: rows and columns of the picture.
        scale: by which it was enlarged before.
    """

    embedding: Tensor
    shape: tuple[int, int]
    scale: float


class Sam(nn.Module, PromptableSegmenter):
    """SAM, and models of its architecture such as MedSAM: a single mask for each box or set of points.

    Pictures are enlarged until the longer side fills the encoder's input, standardised, and padded at the lower and
    right border; masks go the same way back (bilinear), above 0 inside.

    Args:
        hub: name of a model on the Hugging Face hub, such as `facebook/sam-vit-base`; may be downloaded.
        revision: of it: a commit pins the weights.
        checkpoint: folder that `save_pretrained` wrote, instead of `hub`.
        window: as of `PromptableSegmenter`.
        postprocess: steps on the label map.
        at_once: guides decoded together.

    Raises:
        UserError: neither or both of `hub` and `checkpoint`; `prepare` raises it where the transformers library is
            missing or the model cannot be loaded.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint",)

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
        try:
            loaded: Any = transformers.SamModel.from_pretrained(source, revision=self.revision)
        except Exception as error:  # the library fails in many ways over files, names and the network
            raise UserError(f"{source}: cannot be loaded as a SAM model ({error})") from error
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
        shown = torch.from_numpy(picture).to(device, torch.float32).permute(2, 0, 1)[None]
        shown = interpolate(shown, size, mode="bilinear", antialias=True, align_corners=False)
        mean, deviation = (torch.tensor(three, device=device).view(1, 3, 1, 1) for three in (MEAN, DEVIATION))
        padded = pad((shown - mean) / deviation, (0, side - size[1], 0, side - size[0]))
        return Encoded(self.sam.get_image_embeddings(padded), (rows, columns), scale)

    @torch.inference_mode()
    def decode(self, encoded: Encoded, guides: Sequence[Guide]) -> Sequence[Array]:
        """Returns SAM's logits for each guide on the picture's own pixels."""
        maps: list[Array] = []
        for alike in _alike(guides):
            for begin in range(0, len(alike), self.at_once):
                maps += self._decoded(encoded, [guides[index] for index in alike[begin : begin + self.at_once]])
        order = [index for alike in _alike(guides) for index in alike]
        return [maps[order.index(index)] for index in range(len(guides))]

    def _decoded(self, encoded: Encoded, guides: Sequence[Guide]) -> list[Array]:
        """Guides of the same kind: all or none with a box, each with as many points."""
        device, scale = encoded.embedding.device, encoded.scale

        def across_then_down(values: Sequence[Array]) -> Tensor:
            pairs = np.stack(values).reshape(len(guides), -1, 2)[..., ::-1] * scale
            return torch.as_tensor(pairs.copy(), dtype=torch.float32, device=device)[None]

        asked: dict[str, Any] = {}
        boxes = [guide.box for guide in guides if guide.box is not None]
        if boxes:
            asked["input_boxes"] = across_then_down(boxes).flatten(2)
        if len(guides[0].points):
            asked["input_points"] = across_then_down([guide.points for guide in guides])
            signs = np.stack([guide.positive for guide in guides]).astype(np.int64)
            asked["input_labels"] = torch.as_tensor(signs, device=device)[None]
        answer = self.sam(image_embeddings=encoded.embedding, multimask_output=False, **asked)
        logits = answer.pred_masks[0].float()  # (guide, 1, row, column)
        side = self.sam.config.vision_config.image_size
        enlarged = interpolate(logits, (side, side), mode="bilinear", align_corners=False)
        rows, columns = (int(n * scale + 0.5) for n in encoded.shape)
        back = interpolate(enlarged[..., :rows, :columns], encoded.shape, mode="bilinear", align_corners=False)
        return list(back[:, 0].cpu().numpy())


def _alike(guides: Sequence[Guide]) -> list[list[int]]:
    """Places of the guides that SAM can take together, group by group."""
    groups: dict[tuple[bool, int], list[int]] = {}
    for index, guide in enumerate(guides):
        groups.setdefault((guide.box is None, len(guide.points)), []).append(index)
    return list(groups.values())
