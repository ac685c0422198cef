"""The half of a report generator that sees: encoders of timm and open_clip, as grids of features."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Image
from medimg_eval.errors import UserError, nearest
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.models.checkpoints import load_weights
from medimg_eval.models.vision_language import OpenClip

HUB = "hf-hub:"
"""How timm marks a model on the Hugging Face hub."""

OPEN_CLIP = "open_clip:"
"""What stands before the name of a model of open_clip, or before the folder of one."""


class Encoder(nn.Module):
    """An image encoder whose last features are used, with the pictures that it takes.

    Args:
        name: timm's, or `hf-hub:OWNER/NAME`; `open_clip:` and open_clip's name, or a folder.
        weights: a file; of open_clip also its tag.
        options: further arguments of `timm.create_model`.
        size: edge of the pictures; None is the encoder's own.

    Raises:
        UserError: there is no such encoder, its library is missing, or it cannot be loaded.
    """

    def __init__(self, name: str, weights: str | None, options: Mapping[str, Any], size: int | None) -> None:
        super().__init__()
        self._clip = name.startswith(OPEN_CLIP)
        self._mean, self._deviation = (0.5,) * 3, (0.25,) * 3  # of encoders that were never trained
        if self._clip:
            self.network, own = self._open_clip(name.removeprefix(OPEN_CLIP), weights)
        else:
            self.network, own = self._timm(name, weights, options, size)
        if not callable(getattr(self.network, "forward_intermediates", None)):
            raise UserError(f"model.encoder: {name!r} does not give its features; name another encoder")
        self.edge = size or own
        with torch.inference_mode():
            self.places, self.features = self.eval()(torch.zeros(1, 3, self.edge, self.edge)).shape[1:]

    def forward(self, pictures: Tensor) -> Tensor:
        """Features of pictures, (picture, 3, row, column), as (picture, place, feature)."""
        network: Any = self.network
        if self._clip:
            grid = network.forward_intermediates(pictures, indices=1, output_fmt="NCHW")["image_intermediates"][-1]
        else:
            (grid,) = network.forward_intermediates(pictures, indices=1, intermediates_only=True, output_fmt="NCHW")
        features: Tensor = grid.flatten(2).transpose(1, 2)
        return features

    def picture(self, image: Image, rng: np.random.Generator | None = None, strength: float = 0) -> Tensor:
        """A picture as the encoder takes it, float32, (3, row, column): scaled, on a square of black.

        Args:
            image: (channel, row, column).
            rng: for training: crops the edges and varies the contrast.
            strength: by which part of them at most.

        Raises:
            CaseError: it is no picture of 1 to 4 channels.
        """
        from PIL import Image as Pictures
        from PIL import ImageOps

        shown = as_picture(image)
        whole = max(shown.size)
        square = ImageOps.pad(shown, (whole, whole))
        left, top, right, bottom = np.zeros(4) if rng is None else rng.uniform(0, strength * whole, 4)
        box = (left, top, whole - right, whole - bottom)
        scaled = square.resize((self.edge, self.edge), Pictures.Resampling.BILINEAR, box)
        pixels = np.asarray(scaled, np.float32) / 255
        if rng is not None:
            pixels = pixels * (1 + rng.uniform(-strength, strength)) + rng.uniform(-strength, strength)
        plain = (pixels - np.array(self._mean)) / np.array(self._deviation)
        return torch.from_numpy(np.ascontiguousarray(plain.transpose(2, 0, 1), np.float32))

    def _timm(
        self, name: str, weights: str | None, options: Mapping[str, Any], size: int | None
    ) -> tuple[nn.Module, int]:
        timm: Any = importlib.import_module("timm")
        hub = name.startswith(HUB)
        if not hub and not timm.is_model(name):
            close = nearest(name, timm.list_models()).partition(" (")[0]
            raise UserError(f"model.encoder: timm has no {name!r}{close}")
        try:
            network = timm.create_model(name, pretrained=hub, num_classes=0, **options)
            if size is not None and callable(getattr(network, "set_input_size", None)):
                network.set_input_size(img_size=size)  # transformers are made for one size
        except Exception as error:  # the library fails in many ways over settings, files and the network
            raise UserError(f"model.encoder: {name!r} cannot be made by timm ({error})") from error
        if weights is not None:
            load_weights(network, Path(weights).expanduser())
        settings = timm.data.resolve_model_data_config(network)
        if hub or weights is not None:
            self._mean, self._deviation = settings["mean"], settings["std"]
        return network, int(settings["input_size"][-1])

    def _open_clip(self, name: str, weights: str | None) -> tuple[nn.Module, int]:
        folder = Path(name).expanduser()
        if folder.is_dir():
            clip = OpenClip(checkpoint=str(folder))
        elif weights is not None and Path(weights).expanduser().exists():
            clip = OpenClip(model_name=name, checkpoint=weights)
        else:
            clip = OpenClip(model_name=name, pretrained=weights)
        clip.embed_texts([])  # loads it
        visual = clip.clip.visual
        self._mean = getattr(visual, "image_mean", None) or self._mean
        self._deviation = getattr(visual, "image_std", None) or self._deviation
        size = visual.image_size
        return visual, int(size[0] if isinstance(size, Sequence) else size)
