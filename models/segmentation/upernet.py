"""UPerNet: masks from the features of an encoder that stays as it is (Xiao et al. 2018, as BenchX uses it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.networks import build_timm

LEVELS = 4
"""Maps of features that the decoder reads."""

SCALES = (4.0, 2.0, 1.0, 0.5)
"""By which the maps of a transformer, all of one size, are resized."""

GROUPS = 8
"""Groups of channels that are normalised."""

POOLED = (1, 2, 3, 6)
"""Grids that the coarsest map is averaged to, for what the whole picture shows."""


class UPerNet(nn.Module):
    """UPerNet: mask decoder on frozen features of a timm encoder.

    It reads the last four stages of a convolutional network, or four blocks of a transformer, whose maps are brought to
    4, 2, 1 and a half times their size. Only the decoder learns. Batches of one patch are allowed: groups of channels
    are normalised where the original normalises batches. It has no auxiliary head.

    Args:
        in_channels: of the picture, 1 or 3, in [0, 1]; a grey one is shown as three equal channels.
        out_channels: classes.
        img_size: rows and columns of what is shown at once, to which transformers are made.
        encoder: timm's name, or `hf-hub:OWNER/NAME` for a model of timm on the Hugging Face hub with its weights.
        encoder_weights: file of weights of the encoder.
        encoder_options: further arguments of `timm.create_model`.
        channels: of the decoder, a multiple of 8, from 16.

    Raises:
        UsageError: the picture or the decoder has other channels.
        UserError: timm has no such encoder, or it cannot be loaded or does not give its features.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        img_size: Sequence[int],
        *,
        encoder: str = "resnet18",
        encoder_weights: str | None = None,
        encoder_options: Mapping[str, Any] | None = None,
        channels: int = 256,
    ) -> None:
        super().__init__()
        if in_channels not in (1, 3) or len(img_size) != 2:
            raise UsageError(f"model.network: UPerNet is for pictures of 1 or 3 channels, got {in_channels} channels")
        if channels < 16 or channels % GROUPS:
            raise UsageError(f"model.network.channels is {channels}, expected a multiple of {GROUPS} from 16 on")
        weights = None if encoder_weights is None else Path(encoder_weights).expanduser()
        self.encoder, settings = build_timm(encoder, weights, encoder_options or {}, (img_size[0], img_size[1]))
        if not callable(getattr(self.encoder, "forward_intermediates", None)):
            raise UserError(f"model.network.encoder: {encoder!r} does not give its features; name another encoder")
        self.encoder.requires_grad_(requires_grad=False)
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(settings[name]).view(1, 3, 1, 1))
        self.eval()
        maps = self._maps(torch.zeros(1, 3, *img_size))
        widths = [int(level.shape[1]) for level in maps]
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(edge), _convolution_block(widths[-1], channels, 1)) for edge in POOLED
        )
        self.whole = _convolution_block(widths[-1] + len(POOLED) * channels, channels, 3)
        self.sides = nn.ModuleList(_convolution_block(width, channels, 1) for width in widths[:-1])
        self.smooth = nn.ModuleList(_convolution_block(channels, channels, 3) for _ in widths[:-1])
        self.fuse = nn.Sequential(_convolution_block(len(widths) * channels, channels, 3), nn.Dropout2d(0.1))
        self.classify = nn.Conv2d(channels, out_channels, 1)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Sets the decoder's mode; the encoder never trains, so that its statistics stay."""
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits, (picture, class, row, column), of pictures (picture, channel, row, column)."""
        maps = self._maps(pictures.expand(-1, 3, -1, -1))
        top = maps[-1]
        pooled = [top, *(_resize_like(pool(top), top) for pool in self.pools)]
        levels = [
            *(side(level) for side, level in zip(self.sides, maps, strict=False)),
            self.whole(torch.cat(pooled, 1)),
        ]
        for index in range(len(levels) - 2, -1, -1):
            levels[index] = levels[index] + _resize_like(levels[index + 1], levels[index])
        levels[:-1] = [smooth(level) for smooth, level in zip(self.smooth, levels, strict=False)]
        fused = self.fuse(torch.cat([_resize_like(level, levels[0]) for level in levels], 1))
        return _resize_like(self.classify(fused), pictures)

    @torch.no_grad()
    def _maps(self, pictures: Tensor) -> list[Tensor]:
        """The encoder's maps of features, fine to coarse."""
        network: Any = self.encoder
        maps = network.forward_intermediates(
            (pictures - self.mean) / self.std, indices=self._indices(), intermediates_only=True, output_fmt="NCHW"
        )
        if len({level.shape[-2:] for level in maps}) > 1:
            return list(maps)
        return [
            nn.functional.interpolate(level, scale_factor=scale, mode="bilinear")
            for level, scale in zip(maps, SCALES, strict=True)
        ]

    def _indices(self) -> list[int] | int:
        """Evenly spaced transformer blocks, or the last stages of other networks."""
        blocks = getattr(self.encoder, "blocks", None)
        if blocks is None:
            return LEVELS
        return [max(0, (index + 1) * len(blocks) // LEVELS - 1) for index in range(LEVELS)]


def _convolution_block(width: int, channels: int, edge: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, channels, edge, padding=edge // 2, bias=False), nn.GroupNorm(GROUPS, channels), nn.ReLU()
    )


def _resize_like(rows: Tensor, like: Tensor) -> Tensor:
    """A map brought to the size of another, bilinearly."""
    return nn.functional.interpolate(rows, like.shape[-2:], mode="bilinear", align_corners=False)
