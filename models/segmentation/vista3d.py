"""Networks that are told which classes to look for, as MONAI's VISTA3D is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from medimg_eval.errors import UserError, nearest
from medimg_eval.models.base import Example
from medimg_eval.models.class_mapping import plain
from medimg_eval.models.segmentation.monai import MonaiSegmenter


class VistaSegmenter(MonaiSegmenter):
    """VISTA3D, or a network of its kind, asked for the task's labels by its class prompts; without points.

    A voxel is background where every class has a negative logit, and else of the class with the largest, as the
    network's authors decide; probabilities are the softmax of these logits and a 0 for background.

    Args:
        bundle: folder of a MONAI bundle whose network takes `class_vector`.
        prompts: name of a label -> the network's number for it; by default the channels that the bundle's
            `metadata.json` names as the label is called.
        settings: as for `MonaiSegmenter`: the window, `preprocess`, `flips`, ...

    Raises:
        UserError: it is no such bundle.
    """

    def __init__(self, *, bundle: str, prompts: Mapping[str, int] | None = None, **settings: Any) -> None:
        super().__init__(bundle=bundle, **settings)
        known = prompts or {name: number for number, name in self.named.items()}
        self.prompts = {plain(name): int(number) for name, number in known.items()}
        self.named = {}  # channels are those of the labels asked for
        self._adopt(ClassPrompted(self._networks()[0]))

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Looks up the prompt of each label.

        Raises:
            UserError: a label has none.
        """
        for name in labels.values():
            if plain(name) not in self.prompts:
                raise UserError(
                    f"the bundle names no class {name!r}{nearest(name, self.prompts)}; set model.prompts to the "
                    "network's number for each label"
                )
        for network in self._networks():
            network.prompts = [self.prompts[plain(labels[label])] for label in sorted(labels)]  # type: ignore[assignment]
        super().prepare(labels, example)


class ClassPrompted(nn.Module):
    """Shows a network one window at a time, with the classes to look for; background has the logit 0.

    Args:
        network: takes `input_images` (1, channel, *spatial) and `class_vector` (class, 1), and returns logits
            (class, 1, *spatial).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.prompts: list[int] = []

    def forward(self, windows: Tensor) -> Tensor:
        """Returns logits (window, 1 + class, *spatial) of windows (window, channel, *spatial)."""
        wanted = torch.tensor(self.prompts, device=windows.device)[:, None]
        logits = [self.network(input_images=window[None], class_vector=wanted)[:, 0] for window in windows]
        return torch.stack([torch.cat([torch.zeros_like(one[:1]), one]) for one in logits])
