"""A classifier of pictures and volumes by a network of MONAI or of one's own, to be tested and fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Image
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.models.base import Example, Pass
from medimg_eval.models.classification.base import NetworkClassifier, distinct, stored_classes
from medimg_eval.models.explanations import Box
from medimg_eval.models.networks import build_network, load_weights


class ImageClassifier(NetworkClassifier):
    """Classifier of resized images, standardised one by one.

    Args:
        network: takes (batch, channel, *size) float32 and returns (batch, class); or the `name` of a MONAI network with
            its arguments, of which channels and classes follow from the task.
        size: voxels along each axis that images are scaled to; two for pictures, three for volumes.
        checkpoint: weights: the folder of a `fit` run, a Lightning checkpoint, or a state dict saved by torch.

    Raises:
        UsageError: invalid settings.
    """

    def __init__(
        self,
        *,
        network: nn.Module | Mapping[str, Any],
        size: Sequence[int],
        checkpoint: str | None = None,
        classes: Sequence[str] | None = None,
        augment: Mapping[str, Any] | None = None,
        several: str = "mean",
        batch: int = 32,
        explain: str | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(classes=classes, augment=augment, several=several, batch=batch, explain=explain)
        self.size = tuple(int(edge) for edge in size)
        if len(self.size) not in (2, 3) or min(self.size) < 1:
            raise UsageError(f"model.size: expected two or three numbers of voxels, got {list(size)}")
        if not isinstance(network, nn.Module | Mapping):
            raise UsageError(f"model.network: expected a network or its name, got {type(network).__name__}")
        self._wanted: Any = dict(network) if isinstance(network, Mapping) else None
        if isinstance(network, nn.Module):
            self.network = network
        self.checkpoint = checkpoint
        self.channels = 0

    def check_ready(self) -> None:
        """Refuses a network whose weights are random."""
        if self.checkpoint is None and self._wanted is not None:
            raise UserError("this classifier has no weights; set model.checkpoint=PATH, or train it first with `fit`")

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Takes classes, of checkpoint or task, and channels, then builds the network."""
        if self.channels:
            return
        path = None if self.checkpoint is None else Path(self.checkpoint).expanduser()
        self.channels = len(self._planes(example()))
        if not self.classes and path is not None:
            self.classes = stored_classes(path)
        if not self.classes:
            self.classes = distinct(list(labels.values()))
        if not self.classes:
            raise UserError("set model.classes to the names of the classes, in the order of the network's head")
        if self._wanted is not None:
            self.network = build_network(
                self._wanted,
                axes=len(self.size),
                channels=self.channels,
                classes=len(self.classes),
                window=self.size,
            )
        if path is not None:
            load_weights(self.network, path)
        self.network.eval()
        self.keep_names()

    def one_pass(self) -> Pass | None:
        """The classification of one image."""
        if not self.channels:
            return None
        return Pass(self.network, (1, self.channels, *self.size))

    def load(self) -> None:
        """Refuses to go on without `prepare`, which makes the network."""
        if not self.channels:
            raise UserError("this classifier knows no task yet; call prepare()")

    def tensor(self, image: Image) -> Tensor:
        """Resized image, channels standardised, float32, (channel, *size)."""
        planes = self._planes(image)
        if len(planes) != self.channels:
            raise CaseError(f"an image has {len(planes)} channels, the network was made for {self.channels}")
        scaled = _scale_planes(torch.from_numpy(planes), self.size)
        flat = scaled.flatten(1)
        shape = (-1, *[1] * len(self.size))
        deviation = flat.std(1, correction=0).clamp(min=1e-6)
        return (scaled - flat.mean(1).reshape(shape)) / deviation.reshape(shape)

    def input_box(self, image: Image) -> Box:
        """The whole picture; raises UserError of volumes, whose maps would be no pictures."""
        if len(self.size) != 2:
            raise UserError("model.explain is of pictures, and model.size has three axes; leave it out")
        rows, columns = image.array.shape[1:]
        return 0.0, 0.0, float(rows), float(columns)

    def _planes(self, image: Image) -> np.ndarray[Any, Any]:
        """Channels of an image, float32; CaseError for other axes."""
        if image.array.ndim - 1 != len(self.size):
            raise CaseError(f"an image of shape {image.array.shape} has not {len(self.size)} axes, as model.size says")
        if not image.array.size:
            raise CaseError(
                f"an image of shape {image.array.shape} holds nothing; mend the file, or leave the case out"
            )
        return np.ascontiguousarray(np.nan_to_num(image.array.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0))


def _scale_planes(planes: Tensor, size: tuple[int, ...]) -> Tensor:
    """Brings (channel, *spatial) to a size; what shrinks is averaged."""
    if len(size) == 2:
        resized = nn.functional.interpolate(planes[None], size, mode="bilinear", antialias=True)
    else:
        first, second, third = (min(have, want) for have, want in zip(planes.shape[1:], size, strict=True))
        resized = nn.functional.interpolate(
            nn.functional.adaptive_avg_pool3d(planes[None], (first, second, third)), size, mode="trilinear"
        )
    return resized[0]
