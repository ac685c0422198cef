"""A network that mends zero-filled images, to be tested and fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from medimg_eval.case import Array, Image, Prompts
from medimg_eval.errors import UserError
from medimg_eval.models.base import Reconstructor
from medimg_eval.models.networks import build_network, load_weights
from medimg_eval.models.reconstruction.linear import SenseCombine, zero_filled

STEP = 32
"""Rows and columns are padded to multiples of it, so that every network can halve them often enough."""


class NetworkReconstructor(nn.Module, Reconstructor):
    """Network on slices that corrects a simple reconstruction.

    Coils are combined first, so that one network serves any number of them. Each slice is divided by the largest value
    of its simple reconstruction, and multiplied by it again.

    Args:
        network: takes (batch, 1, row, column) float32 and returns the same shape; or the `name` of a MONAI network with
            its arguments.
        start: what the network is shown: `zero_filled`, or `sense` (`SenseCombine`).
        checkpoint: weights: the folder of a `fit` run, a Lightning checkpoint, or a state dict saved by torch.
        slices_per_case: slices drawn from a scan each time it is visited in training.
        batch: slices computed at once when it is tested.
    """

    def __init__(
        self,
        *,
        network: nn.Module | Mapping[str, Any],
        start: str = "zero_filled",
        checkpoint: str | None = None,
        slices_per_case: int = 2,
        batch: int = 8,
    ) -> None:
        super().__init__()
        if start not in ("zero_filled", "sense"):
            raise UserError(f"expected model.start to be zero_filled or sense, got {start!r}")
        network_ = network
        if isinstance(network, Mapping):
            network_ = build_network(network, axes=2, channels=1, classes=1, window=(256, 256))
        if not isinstance(network_, nn.Module):
            raise UserError(f"expected model.network to be a network or its name, got {type(network).__name__}")
        if checkpoint is not None:
            load_weights(network_, Path(checkpoint).expanduser())
        self.network = network_
        self.slices_per_case, self.batch = slices_per_case, batch
        self._trained = checkpoint is not None
        self._sense = SenseCombine() if start == "sense" else None

    def check_ready(self) -> None:
        """Refuses a network whose weights are random."""
        if not self._trained:
            raise UserError("this network has no weights; set model.checkpoint=PATH, or train it first with `fit`")

    @torch.no_grad()
    def reconstruct(self, prompts: Prompts) -> Sequence[Array]:
        """Returns magnitudes, float32."""
        return [self._reconstruct(prompt.image) for prompt in prompts]

    def training_samples(
        self, image: Image, target: Image, labels: Mapping[int, str], *, seed: int
    ) -> list[dict[str, Tensor]]:
        """Slices of a scan: `image` and `target`, (1, row, column) float32."""
        rng = np.random.default_rng(seed)
        start, scale = self._start(image)
        # Of an oversampled scan the reference is the middle, and only that is learnt.
        right = np.abs(target.array[0]).reshape(-1, *target.array.shape[-2:])
        rows, columns = ((full - cut) // 2 for full, cut in zip(start.shape[1:], right.shape[1:], strict=True))
        start = start[:, rows : rows + right.shape[1], columns : columns + right.shape[2]]
        drawn = rng.choice(len(start), min(self.slices_per_case, len(start)), replace=False)
        return [
            {
                "image": torch.from_numpy(start[index] / scale[index])[None],
                "target": torch.from_numpy((right[index] / scale[index]).astype(np.float32))[None],
            }
            for index in drawn
        ]

    def training_loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The mean absolute error of a batch of slices."""
        return nn.functional.l1_loss(self._mended(batch["image"]), batch["target"])

    def _reconstruct(self, image: Image) -> Array:
        start, scale = self._start(image)
        device = next(self.network.parameters()).device
        pictures = torch.from_numpy(start / scale)[:, None]
        parts = [self._mended(some.to(device)) for some in torch.split(pictures, self.batch)]
        mended = torch.cat(parts)[:, 0].clamp_min(0).float().cpu().numpy() * scale
        return mended.reshape(image.array.shape[1:])

    def _start(self, image: Image) -> tuple[Array, Array]:
        """Simple reconstruction, float32, (slice, row, column), and maxima (slice, 1, 1)."""
        combined_image = zero_filled(image) if self._sense is None else self._sense.combine(image)
        slices = combined_image.reshape(-1, *combined_image.shape[-2:])
        largest = slices.max(axis=(1, 2), keepdims=True)
        return slices, np.where(largest > 0, largest, 1).astype(np.float32)

    def _mended(self, pictures: Tensor) -> Tensor:
        rows, columns = pictures.shape[-2:]
        padded = nn.functional.pad(pictures, (0, -columns % STEP, 0, -rows % STEP))
        answer: Tensor = self.network(padded)[..., :rows, :columns]
        return pictures + answer
