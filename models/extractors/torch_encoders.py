"""Encoders of torchvision, and TorchScript programs."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.models.extractors.base import Encoder, outside_inference
from medimg_eval.models.hub import Weights

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array

HEADS = ("fc", "classifier", "heads", "head")
"""What torchvision's networks call their last part."""

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class TorchvisionEncoder(Encoder):
    """Classifier of torchvision without its last layer, with its preprocessing.

    Args:
        network: torchvision's name, such as `densenet121` or `vit_b_16`.
        weights: a file of weights of it.
        prefix: what stands before the names of its tensors, in a file that holds other networks, too.
        precision: of what is computed: `float32`, `bfloat16` or `float16`.
    """

    needs: ClassVar[Sequence[Weights]] = (
        Weights("weights", "a file of the network's weights", "torchvision's page of it", "see its page", on_hub=False),
    )

    def __init__(
        self,
        network: str = "resnet50",
        weights: str | None = None,
        prefix: str = "",
        device: str = "auto",
        preferred_batch: int = 32,
        precision: str = "float32",
    ) -> None:
        self.network, self.weights, self.prefix = network, weights, prefix
        self.device, self.preferred_batch, self.precision = device, preferred_batch, precision

    @property
    def preprocessing(self) -> str:
        """The network's own."""
        return f"torchvision's {self.network}, its own preprocessing, features before the last layer"

    def load(self) -> Any:
        """Loads the network without its last layer, and its preprocessing."""
        from torch import nn

        models: Any = importlib.import_module("torchvision.models")
        names = models.list_models(module=models)
        if self.network not in names:
            raise UserError(
                f"{self.setting('network')}: torchvision has no {self.network!r}{nearest(self.network, names)}"
            )
        network = models.get_model(self.network, weights=None)
        last = [
            name
            for name, part in network.named_modules()
            if isinstance(part, nn.Linear) and name.partition(".")[0] in HEADS
        ]
        if not last:
            raise UserError(f"{self.setting('network')}: {self.network} has no last layer that is known here")
        module_path, _, part = last[-1].rpartition(".")
        setattr(network.get_submodule(module_path), part, nn.Identity())
        network = self.filled(network, self.needs[0], prefix=self.prefix)
        return network, models.get_model_weights(self.network).DEFAULT.transforms()

    def network_and_transform(self) -> tuple[Any, Any]:
        """Network giving the vector, and its transform, for gradient maps."""
        with outside_inference():
            network, transform = self.loaded
        return network, transform

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns what the last layer would be given, (picture, feature)."""
        network, transform = self.loaded
        batch = self.prepared(pictures, transform)
        with self.computing():
            features = network(batch)
        vectors: Array = features.flatten(1).float().cpu().numpy()
        return vectors


class TorchScriptEncoder(Encoder):
    """TorchScript encoder from (picture, 3, row, column) to (picture, feature).

    Args:
        weights: the file that `torch.jit.save` wrote. It is a program: take it from whom you trust.
        size: edge of the square that pictures are scaled to, by their shorter edge, and cut to.
        mean: of the three colours, from 0 to 1, that is subtracted.
        spread: that is divided by then.
        precision: of what is computed: `float32`, `bfloat16` or `float16`.
    """

    needs: ClassVar[Sequence[Weights]] = (
        Weights("weights", "a TorchScript program", "whoever exported it", "see its page", on_hub=False),
    )

    def __init__(
        self,
        weights: str | None = None,
        size: int = 224,
        mean: Sequence[float] = IMAGENET[0],
        spread: Sequence[float] = IMAGENET[1],
        device: str = "auto",
        preferred_batch: int = 32,
        precision: str = "float32",
    ) -> None:
        if len(mean) != 3 or len(spread) != 3 or min(spread) <= 0:
            raise UsageError("mean and spread: expected three numbers each, spread above 0")
        self.weights, self.size, self.mean, self.spread = weights, size, tuple(mean), tuple(spread)
        self.device, self.preferred_batch, self.precision = device, preferred_batch, precision

    @property
    def preprocessing(self) -> str:
        """Preprocessing as the settings say."""
        return (
            f"shorter edge {self.size} by PIL's bicubic filter, middle {self.size} x {self.size}, "
            f"mean {self.mean}, spread {self.spread}"
        )

    def load(self) -> Any:
        """Loads the program."""
        import torch

        path = self.find(self.needs[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch advises others than TorchScript
            with UserError.about(path, "is no TorchScript program that can be loaded", Exception):
                return torch.jit.load(str(path), map_location=self.on).eval()

    def encode(self, pictures: Sequence[Picture]) -> Array:
        """Returns what the program does, (picture, feature)."""
        batch = self.prepared(pictures, self._tensor)
        with self.computing():
            features = self.loaded(batch)
        if features.ndim != 2:
            raise UserError(f"{self.who}: the program gives {tuple(features.shape)}, expected (picture, feature)")
        vectors: Array = features.float().cpu().numpy()
        return vectors

    def _tensor(self, picture: Picture) -> Any:
        import torch
        from PIL.Image import Resampling

        scale = self.size / min(picture.size)
        wide, high = (max(self.size, round(edge * scale)) for edge in picture.size)
        left, top = (wide - self.size) // 2, (high - self.size) // 2
        scaled = picture.resize((wide, high), Resampling.BICUBIC)
        pixels: Array = np.asarray(scaled.crop((left, top, left + self.size, top + self.size)), np.float32) / 255
        pixels = (pixels - np.array(self.mean, np.float32)) / np.array(self.spread, np.float32)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
