"""A classifier on the image tower of a CLIP model: a linear head, trained by `fit` with or without the tower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from medimg_eval.case import Image
from medimg_eval.errors import UserError
from medimg_eval.models.base import Example, Pass
from medimg_eval.models.classification.base import NetworkClassifier, distinct, stored_classes
from medimg_eval.models.networks import load_weights
from medimg_eval.models.vision_language import OpenClip


class OpenClipClassifier(NetworkClassifier):
    """Image tower of open_clip with a linear head over classes.

    The head is given the embedding at length 1 times the scale that the model has learned.

    Args:
        weights: file or folder of the CLIP model's own weights: the `checkpoint` of `OpenClip`.
        checkpoint: of a `fit` run: its folder, or one of its checkpoints.
        frozen: whether the tower stays as it is, so that `fit` trains the head alone.

    Raises:
        UsageError: invalid settings; `prepare` raises UserError where the open_clip library is missing or
            the model cannot be loaded.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint", "weights")

    def __init__(
        self,
        model_name: str | None = None,
        pretrained: str | None = None,
        weights: str | None = None,
        checkpoint: str | None = None,
        *,
        frozen: bool = True,
        classes: Sequence[str] | None = None,
        augment: Mapping[str, Any] | None = None,
        several: str = "mean",
        batch: int = 64,
    ) -> None:
        super().__init__(classes=classes, augment=augment, several=several, batch=batch)
        # Kept out of the module's own state, which is tower and head alone.
        self._clip = (OpenClip(model_name, pretrained, weights),)
        self.checkpoint, self.frozen = checkpoint, frozen

    def check_ready(self) -> None:
        """Refuses a head whose weights are random."""
        if self.checkpoint is None:
            raise UserError("this classifier has no head; set model.checkpoint=PATH, or train it first with `fit`")

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Loads the tower; adds a head for checkpoint or task classes."""
        if self.network is not None:
            return
        path = None if self.checkpoint is None else Path(self.checkpoint).expanduser()
        if not self.classes:
            self.classes = stored_classes(path) if path is not None else distinct(list(labels.values()))
        if not self.classes:
            raise UserError("set model.classes to the names of the classes, in the order of the head")
        (clip,) = self._clip
        if path is None:
            clip.check_ready()
        clip.load()
        scale = float(clip.clip.logit_scale.detach().exp())
        self.network = _Headed(clip.clip.visual, scale, len(self.classes), self.frozen)
        if path is not None:
            load_weights(self.network, path)
        self.network.eval()
        self.keep_names()

    def one_pass(self) -> Pass | None:
        """The classification of one image."""
        if self.network is None:
            return None
        (clip,) = self._clip
        pass_ = clip.one_pass()
        return None if pass_ is None else Pass(self.network, pass_.shape)

    def load(self) -> None:
        """Refuses to go on without `prepare`, which makes the network."""
        if self.network is None:
            raise UserError("this classifier knows no task yet; call prepare()")

    def tensor(self, image: Image) -> Tensor:
        """The picture as the tower was trained with it."""
        (clip,) = self._clip
        return clip.shown(image)


class _Headed(nn.Module):
    """An image tower and a linear head."""

    def __init__(self, tower: Any, scale: float, classes: int, frozen: bool) -> None:
        super().__init__()
        self.tower, self.scale, self.frozen = tower, scale, frozen
        self.tower.requires_grad_(not frozen)
        self.head = nn.Linear(self._features(tower), classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits, (picture, class)."""
        if self.frozen:
            self.tower.eval()  # whatever training has switched on
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = nn.functional.normalize(self.tower(pictures), dim=-1)
        logits: Tensor = self.head(features * self.scale)
        return logits

    @staticmethod
    @torch.no_grad()
    def _features(tower: Any) -> int:
        size = tower.image_size
        rows, columns = size if isinstance(size, Sequence) else (size, size)
        return int(tower.eval()(torch.zeros(1, 3, rows, columns)).shape[-1])
