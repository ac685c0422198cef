"""Classifiers of clips: video encoders of transformers, such as VideoMAE, and networks of torchvision."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Image
from medimg_eval.errors import CaseError, UsageError, UserError, nearest
from medimg_eval.models.base import Pass
from medimg_eval.models.classification.base import NetworkClassifier, distinct, stored_classes
from medimg_eval.models.networks import load_weights

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of colours that VideoMAE and V-JEPA 2 were trained with."""

KINETICS = (0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989)
"""The same of torchvision's networks of residual convolutions."""


class ClipClassifier(NetworkClassifier):
    """Clip classifier on evenly spaced frames, tested or trained by `fit`.

    The shorter side of a frame is brought to `size`, and the middle square is shown.

    Args:
        architecture: a video network of torchvision, such as `r3d_18` or `mvit_v2_s`, without weights; where no
            `encoder` is named.
        encoder: folder with `config.json` and weights of transformers, a copy of a video classifier on the hub, such as
            VideoMAE or V-JEPA 2.
        checkpoint: folder of a `fit` run, or its weights.
        classes: names, in the order of the head; by default those of the checkpoint, of the encoder's `config.json`
            or, of a head that is to be trained, of the task.
        new_head: of an encoder: whether a head for the task's classes takes the place of its own, for `fit`.
        frames: that are shown; by default as many as the encoder was made for, or 16.
        size: rows and columns; by default as the encoder was made for, or 112.
        augment: see `Moves`; None for none.
        batch: clips computed at once.

    Raises:
        UsageError: invalid settings; `prepare` raises UserError where the network cannot be made.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("encoder", "checkpoint")

    def __init__(
        self,
        architecture: str = "r3d_18",
        encoder: str | None = None,
        checkpoint: str | None = None,
        classes: Sequence[str] | None = None,
        *,
        new_head: bool = False,
        frames: int | None = None,
        size: int | None = None,
        augment: Mapping[str, Any] | None = None,
        batch: int = 4,
    ) -> None:
        super().__init__(classes=classes, augment=augment, several="mean", batch=batch)
        self.architecture, self.encoder, self.checkpoint, self.new_head = architecture, encoder, checkpoint, new_head
        self.frames, self.size = frames, size
        residual = encoder is None and architecture.startswith(("r", "mc"))
        self._colours = KINETICS if residual else IMAGENET

    def check_ready(self) -> None:
        """Raises UserError where there are no weights, or they are of another task."""
        if self.checkpoint is None and (self.encoder is None or self.new_head):
            raise UserError("model.checkpoint is not set: fit the model first, and name the run's folder")

    def load(self) -> None:
        """Builds the network with weights once; raises UserError where impossible."""
        if self.network is not None:
            return
        if not self.classes and self.checkpoint is not None:
            self.classes = stored_classes(Path(self.checkpoint).expanduser())
        own_head = self.encoder is not None and self.checkpoint is None and not self.new_head
        if not self.classes and not own_head:
            self.classes = distinct(self._asked_for)
        network = self._of_torchvision() if self.encoder is None else self._of_transformers(own_head)
        if self.checkpoint is not None:
            load_weights(network, Path(self.checkpoint).expanduser())
        self.network = network.eval()
        self.keep_names()

    def one_pass(self) -> Pass | None:
        """The classification of one clip."""
        if self.network is None or self.frames is None or self.size is None:
            return None
        return Pass(self.network, (1, 3, self.frames, self.size, self.size))

    def tensor(self, image: Image) -> Tensor:
        """Clip as network input, float32, (channel, frame, row, column); CaseError for others."""
        array = image.array
        if array.ndim != 4 or array.shape[0] not in (1, 3):
            raise CaseError(f"expected a clip (1 or 3 channels, frame, row, column), got {array.shape}")
        if self.frames is None or self.size is None:
            raise UserError("this classifier knows no task yet; call prepare()")
        indices = np.linspace(0, array.shape[1] - 1, self.frames).round().astype(int)
        clip = torch.from_numpy(np.ascontiguousarray(array[:, indices])).float().movedim(1, 0) / 255
        rows, columns = clip.shape[-2:]
        share = self.size / min(rows, columns)
        grid = (max(self.size, round(rows * share)), max(self.size, round(columns * share)))
        scaled = nn.functional.interpolate(clip, grid, mode="bilinear", antialias=True)
        top, left = (grid[0] - self.size) // 2, (grid[1] - self.size) // 2
        square = scaled[..., top : top + self.size, left : left + self.size].expand(-1, 3, -1, -1)
        mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in self._colours)
        return ((square - mean) / deviation).movedim(0, 1)

    def _of_torchvision(self) -> Any:
        library: Any = importlib.import_module("torchvision.models")
        names = library.list_models(module=importlib.import_module("torchvision.models.video"))
        UsageError.refuse_unknown("model.architecture: torchvision has no video network", names, self.architecture)
        self.frames, self.size = self.frames or 16, self.size or 112
        with UserError.about("model.architecture", f"{self.architecture!r} cannot be made", Exception):
            return library.get_model(self.architecture, weights=None, num_classes=len(self.classes))

    def _of_transformers(self, own_head: bool) -> Any:
        library: Any = importlib.import_module("transformers")
        folder = Path(str(self.encoder)).expanduser()
        if not folder.is_dir():
            raise UserError(f"model.encoder is invalid: expected a folder with config.json and weights, got {folder}")
        head = {} if own_head else {"num_labels": len(self.classes), "ignore_mismatched_sizes": True}
        with UserError.about(folder, "holds no video classifier that can be loaded", Exception):
            model = library.AutoModelForVideoClassification.from_pretrained(folder, local_files_only=True, **head)
        config = model.config
        if own_head:
            named = [config.id2label[index] for index in range(config.num_labels)]
            self.classes = self.classes or distinct(named)
            if len(self.classes) != config.num_labels:
                raise UserError(f"{folder}: has {config.num_labels} classes, model.classes names {len(self.classes)}")
            odd = next((name for name in self._asked_for if name not in self.classes), None)
            if odd is not None:
                raise UserError(
                    f"{folder}: has no class {odd!r}{nearest(odd, self.classes)}; name its classes by model.classes, "
                    "or set model.new_head=true and fit"
                )
        self.frames = self.frames or getattr(config, "num_frames", None) or getattr(config, "frames_per_clip", 16)
        self.size = self.size or getattr(config, "image_size", None) or getattr(config, "crop_size", 224)
        return _FramesFirst(model)


class _FramesFirst(nn.Module):
    """Adapter for transformers' video classifiers, which take frames before channels."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, clips: Tensor) -> Tensor:
        """(clip, channel, frame, row, column) to logits (clip, class)."""
        logits: Tensor = self.inner(**{self.inner.main_input_name: clips.movedim(1, 2)}).logits
        return logits
