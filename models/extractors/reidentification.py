"""A re-identification network as a feature extractor: whether two chest X-rays are of one patient."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from medimg_eval.models.extractors.base import Network
from medimg_eval.models.hub import Weights

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array

MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, as the network was trained with."""


class PatientSiamese(Network):
    """The Siamese network of Packhäuser et al. 2022 (Scientific Reports): two branches, one set of weights.

    A branch is a ResNet-50 whose last layer has 128 outputs, through a sigmoid. A pair's score is a linear layer of the
    absolute difference: the logit of being of one patient. The network is rebuilt here; its weights are the authors',
    or those that somebody trained with their code.

    Args:
        weights: a file with the tensors of `model` (the branch) and `fc_end`.
        backbone: timm's name of the branch.
        features: outputs of a branch.
        edge: of the square that pictures are stretched to.
        device: of torch; `auto` takes a GPU where there is one.
        preferred_batch: pictures at once.
    """

    tells_patients: ClassVar[bool] = True
    needs: ClassVar[Sequence[Weights]] = (
        Weights(
            "weights",
            "verification_approach_final_model.pth, or weights that were trained with the authors' code",
            "kaipackhaeuser/CXR-Patient-ReID on GitHub (Git LFS)",
            "GPL-3.0; trained on ChestX-ray14",
        ),
    )

    def __init__(
        self,
        weights: str | None = None,
        backbone: str = "resnet50",
        features: int = 128,
        edge: int = 256,
        device: str = "auto",
        preferred_batch: int = 32,
    ) -> None:
        self.weights, self.backbone, self.features, self.edge = weights, backbone, features, edge
        self.device, self.preferred_batch = device, preferred_batch

    @property
    def preprocessing(self) -> str:
        """Stretched, with ImageNet's mean and spread."""
        return f"stretched to {self.edge} x {self.edge} by PIL's bilinear filter, ImageNet's mean and spread"

    def load(self) -> Any:
        """Loads both parts."""
        import torch
        from torch import nn

        from medimg_eval.models.checkpoints import load_weights

        timm: Any = importlib.import_module("timm")
        branch = timm.create_model(self.backbone, pretrained=False, num_classes=self.features)
        network = nn.ModuleDict({"model": branch, "fc_end": nn.Linear(self.features, 1)})
        load_weights(network, self.find(self.needs[0]))
        return network.eval().to(torch.device(self.on))

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Returns what a branch makes of each, 0 to 1, (picture, feature)."""
        import torch
        from PIL.Image import Resampling

        scaled = [one.resize((self.edge, self.edge), Resampling.BILINEAR) for one in pictures]
        pixels = (np.stack([np.asarray(one, np.float32) for one in scaled]) / 255 - MEAN) / SPREAD
        shown = torch.from_numpy(pixels.astype(np.float32).transpose(0, 3, 1, 2))
        with torch.inference_mode():
            found: Array = self.loaded["model"](shown.to(self.on)).sigmoid().float().cpu().numpy()
        return found

    def compare(self, one: Array, other: Array) -> Array:
        """Returns logits of being of one patient, float64, by features (..., feature) that are broadcast."""
        last = self.loaded["fc_end"]
        weight, bias = (part.detach().double().cpu().numpy() for part in (last.weight, last.bias))
        found: Array = np.abs(one.astype(np.float64) - other) @ weight[0] + bias[0]
        return found
