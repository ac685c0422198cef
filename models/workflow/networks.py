"""Networks over time: causal dilated convolutions in stages, and a GRU; whole films at once, or frame by frame."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as torch's documentation writes it


class DilatedLayer(nn.Module):
    """Residual convolution of three frames, `dilation` apart, optionally causal."""

    def __init__(self, width: int, dilation: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.taps = nn.Conv1d(width, width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)
        self.dilation, self.causal, self.dropout = dilation, causal, dropout

    def forward(self, frames: Tensor) -> Tensor:
        """(film, width, frame) to the same."""
        before = 2 * self.dilation if self.causal else self.dilation
        taken = torch.relu(self.taps(F.pad(frames, (before, 2 * self.dilation - before))))
        mixed: Tensor = self.mix(taken)
        return frames + F.dropout(mixed, self.dropout, self.training)


class Stage(nn.Module):
    """Layers whose dilation doubles, between a projection and logits."""

    def __init__(self, features: int, width: int, outputs: int, layers: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.first = nn.Conv1d(features, width, 1)
        self.layers = nn.ModuleList(DilatedLayer(width, 2**k, causal, dropout) for k in range(layers))
        self.last = nn.Conv1d(width, outputs, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """(film, feature, frame) to logits (film, output, frame)."""
        held = self.first(frames)
        for layer in self.layers:
            held = layer(held)
        logits: Tensor = self.last(held)
        return logits


class TemporalConvolutions(nn.Module):
    """Multi-stage dilated convolutions: MS-TCN, or causal TeCNO.

    The first outputs are `phases`, of which each frame has one; the last layer sees 2^layers frames apart.
    """

    def __init__(
        self,
        features: int,
        phases: int,
        outputs: int,
        width: int,
        layers: int,
        stages: int,
        causal: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.phases = phases
        sizes = [features, *[outputs] * (stages - 1)]
        self.stages = nn.ModuleList(Stage(size, width, outputs, layers, causal, dropout) for size in sizes)

    def forward(self, frames: Tensor) -> list[Tensor]:
        """(film, feature, frame) to the logits of each stage, (film, output, frame)."""
        outputs: list[Tensor] = []
        for stage in self.stages:
            outputs.append(stage(self.probabilities(outputs[-1]) if outputs else frames))
        return outputs

    def probabilities(self, logits: Tensor) -> Tensor:
        """Softmax of phases beside sigmoids of presence."""
        parts = logits[:, : self.phases].softmax(1), logits[:, self.phases :].sigmoid()
        return torch.cat(parts, 1)

    def stepper(self) -> Stepper:
        """Function that answers frame by frame, as `forward` would of the whole film."""
        return Stepper(self)


class Stepper:
    """Causal convolutions frame by frame, with buffered inputs per layer."""

    def __init__(self, network: TemporalConvolutions) -> None:
        self._network = network
        self._held: list[list[deque[Tensor]]] = []
        for stage in network.stages:
            layers: Any = stage.layers
            self._held.append([deque(maxlen=2 * layer.dilation) for layer in layers])

    def step(self, frame: Tensor) -> Tensor:
        """Features of the next frame, (feature,), to its logits, (output,)."""
        logits = frame
        for number, (stage, held) in enumerate(zip(self._network.stages, self._held, strict=True)):
            if number:
                logits = self._network.probabilities(logits[None, :, None])[0, :, 0]
            logits = self._stage(stage, held, logits)
        return logits

    def _stage(self, stage: Any, held: list[deque[Tensor]], frame: Tensor) -> Tensor:
        now = _dense_frames(stage.first, frame)
        for layer, former in zip(stage.layers, held, strict=True):
            taps: Tensor = layer.taps.weight
            total = layer.taps.bias + taps[:, :, 2] @ now
            if len(former) >= layer.dilation:
                total = total + taps[:, :, 1] @ former[-layer.dilation]
            if len(former) == 2 * layer.dilation:
                total = total + taps[:, :, 0] @ former[0]
            former.append(now)
            now = now + _dense_frames(layer.mix, torch.relu(total))
        return _dense_frames(stage.last, now)


def _dense_frames(layer: Any, frame: Tensor) -> Tensor:
    output: Tensor = layer.weight[:, :, 0] @ frame + layer.bias
    return output


class Recurrent(nn.Module):
    """A GRU, forward alone if causal, whose state is all it keeps of frames."""

    def __init__(self, features: int, outputs: int, width: int, layers: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.gru = nn.GRU(width, width, layers, batch_first=True, bidirectional=not causal)
        self.last = nn.Linear(width * (1 if causal else 2), outputs)
        self.dropout = dropout

    def forward(self, frames: Tensor) -> list[Tensor]:
        """(film, feature, frame) to logits, (film, output, frame), as the one stage."""
        held = F.dropout(self.first(frames.transpose(1, 2)), self.dropout, self.training)
        return [self.last(self.gru(held)[0]).transpose(1, 2)]

    def stepper(self) -> RecurrentStepper:
        """Function that answers frame by frame."""
        return RecurrentStepper(self)


class RecurrentStepper:
    """A GRU a frame at a time."""

    def __init__(self, network: Recurrent) -> None:
        self._network = network
        self._state: Tensor | None = None

    def step(self, frame: Tensor) -> Tensor:
        """Features of the next frame, (feature,), to its logits, (output,)."""
        output, self._state = self._network.gru(self._network.first(frame)[None, None], self._state)
        logits: Tensor = self._network.last(output[0, 0])
        return logits
