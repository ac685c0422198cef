"""Networks that make one answer of a bag of tiles."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from medimg_eval.models.heads.bags import Batch


class Answer(NamedTuple):
    """Outputs of a network for some bags.

    Attributes:
        logits: (bag, output).
        attention: (tile,) of all bags, which sum to 1 in each; None where a network has none.
        extra: a loss of its own beside that of the logits; None for none.
    """

    logits: Tensor
    attention: Tensor | None = None
    extra: Tensor | None = None


class Dropout(nn.Module):
    """Dropout by 16-bit draws, to 1e-5 of its share, six times as fast as `nn.Dropout`."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, rows: Tensor) -> Tensor:
        """Leaves out features while learning, and scales the others up."""
        if not self.training or not self.share:
            return rows
        drawn = torch.empty(-(-rows.numel() // 4), dtype=torch.int64, device=rows.device).random_(-(2**63), None)
        is_kept = drawn.view(torch.int16)[: rows.numel()].view(rows.shape) >= round(self.share * 2**16) - 2**15
        return rows * is_kept.to(rows.dtype).div_(1 - self.share)


class PoolingNetwork(nn.Module):
    """Mean or maximum of projected tiles."""

    def __init__(self, width: int, outputs: int, *, hidden: int, dropout: float, how: str) -> None:
        super().__init__()
        self.how = how
        self.project = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), Dropout(dropout))
        self.classify = nn.Linear(hidden, outputs)

    def forward(self, batch: Batch, truth: Tensor | None = None) -> Answer:
        """Answers for bags."""
        rows = self.project(batch.rows)
        pooled = [part.mean(0) if self.how == "mean" else part.amax(0) for part in batch.parts(rows)]
        return Answer(self.classify(torch.stack(pooled)))


class AttentionNetwork(nn.Module):
    """Attention pooling (Ilse et al. 2018), gated or not, or CLAM.

    CLAM (Lu et al. 2021) adds instance losses.

    Args:
        width: features of a tile.
        outputs: of the head.
        hidden: features that tiles are projected to; 0 leaves them as they are.
        attention: hidden features of the attention.
        gated: whether a sigmoid gates it.
        dropout: share of features left out while learning.
        branches: 1, or `outputs` for an attention of each class.
        instances: tiles of most and least attention that the instance loss takes; 0 for none.
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        hidden: int,
        attention: int,
        gated: bool,
        dropout: float,
        branches: int = 1,
        instances: int = 0,
    ) -> None:
        super().__init__()
        self.gated, self.branches, self.instances = gated, branches, instances
        self.project: nn.Module = nn.Identity()
        if hidden:
            self.project = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), Dropout(dropout))
        inner = hidden or width
        # The two parts of a gate are one product.
        self.attend = nn.Linear(inner, attention * (2 if gated else 1))
        self.forget = Dropout(dropout if instances else 0.0)
        self.weigh = nn.Linear(attention, branches)
        if branches == 1:
            self.classify: nn.Module = nn.Linear(inner, outputs)
        else:
            self.classify = nn.ModuleList(nn.Linear(inner, 1) for _ in range(branches))
        self.inspect = nn.ModuleList(nn.Linear(inner, 2) for _ in range(outputs)) if instances else None

    def forward(self, batch: Batch, truth: Tensor | None = None) -> Answer:
        """Answers for bags; with the truth (bag, output), the instance loss as well."""
        rows = self.project(batch.rows)
        turned = self.attend(rows)
        if self.gated:
            value, gate = turned.chunk(2, 1)
            turned = self.forget(value.tanh()) * self.forget(gate.sigmoid())
        else:
            turned = turned.tanh()
        shares = batch.softmax(self.weigh(turned))
        pooled = batch.weighted(shares, rows)
        if self.branches == 1:
            logits = self.classify(pooled[:, 0])
        else:
            heads: Any = self.classify
            logits = torch.cat([part(some) for part, some in zip(heads, pooled.unbind(1), strict=True)], 1)
        extra = None if truth is None or self.inspect is None else self._instance_loss(batch, rows, shares, truth)
        return Answer(logits, shares.mean(1), extra)

    def _instance_loss(self, batch: Batch, rows: Tensor, shares: Tensor, truth: Tensor) -> Tensor:
        """Instance loss: most attended tiles are positive, least attended negative."""
        losses = []
        for part, some, classes in zip(batch.parts(rows), batch.parts(shares), truth, strict=True):
            count = min(self.instances, len(part))
            for index, inspect in enumerate(self.inspect or ()):
                weights = some[:, index if self.branches > 1 else 0]
                top = part[weights.topk(count).indices]
                present = bool(classes[index] >= 0.5)
                instances = torch.cat([top, part[(-weights).topk(count).indices]]) if present else top
                wanted = torch.zeros(len(instances), dtype=torch.long, device=rows.device)
                wanted[:count] = int(present)
                losses.append(nn.functional.cross_entropy(inspect(instances), wanted))
        return torch.stack(losses).mean()


class DualStreamNetwork(nn.Module):
    """DSMIL (Li et al. 2021): critical instances and attention by similarity."""

    def __init__(self, width: int, outputs: int, *, attention: int, dropout: float) -> None:
        super().__init__()
        self.tell = nn.Linear(width, outputs)
        self.query = nn.Sequential(nn.Linear(width, attention), nn.ReLU(), nn.Linear(attention, attention), nn.Tanh())
        self.value = nn.Sequential(Dropout(dropout), nn.Linear(width, width), nn.ReLU())
        self.classify = nn.Conv1d(outputs, outputs, width)

    def forward(self, batch: Batch, truth: Tensor | None = None) -> Answer:
        """Answers for bags by the mean of both streams."""
        scores, queries, values = self.tell(batch.rows), self.query(batch.rows), self.value(batch.rows)
        logits, attention = [], []
        for some, query, value in zip(batch.parts(scores), batch.parts(queries), batch.parts(values), strict=True):
            critical = query[some.argmax(0)]
            shares = (query @ critical.T / math.sqrt(query.shape[1])).softmax(0)
            bag = self.classify((shares.T @ value)[None])[0, :, 0]
            logits.append(torch.stack([some.amax(0), bag]))
            attention.append(shares.mean(1))
        both = torch.stack(logits)
        return Answer(both.mean(1), torch.cat(attention))


class TransformerNetwork(nn.Module):
    """TransMIL (Shao et al. 2021): Nystrom attention and a positional convolution."""

    def __init__(self, width: int, outputs: int, *, hidden: int, heads: int, landmarks: int, dropout: float) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(width, hidden), nn.ReLU())
        self.token = nn.Parameter(torch.randn(1, hidden))
        layers = [NystromAttention(hidden, heads=heads, landmarks=landmarks, dropout=dropout) for _ in range(2)]
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in layers)
        self.layers = nn.ModuleList(layers)
        self.positions = nn.ModuleList(
            nn.Conv2d(hidden, hidden, edge, padding=edge // 2, groups=hidden) for edge in (7, 5, 3)
        )
        self.end = nn.LayerNorm(hidden)
        self.classify = nn.Linear(hidden, outputs)

    def forward(self, batch: Batch, truth: Tensor | None = None) -> Answer:
        """Answers for bags, one after another."""
        rows = self.project(batch.rows)
        return Answer(torch.stack([self._one(part) for part in batch.parts(rows)]))

    def _one(self, tiles: Tensor) -> Tensor:
        edge = math.isqrt(len(tiles) - 1) + 1
        tiles = tiles[torch.arange(edge * edge, device=tiles.device) % len(tiles)]  # repeated to fill a square
        rows = torch.cat([self.token, tiles])
        rows = rows + self.layers[0](self.norms[0](rows))
        square = rows[1:].T.reshape(1, -1, edge, edge)
        square = square + sum(part(square) for part in self.positions)
        rows = torch.cat([rows[:1], square.reshape(square.shape[1], -1).T])
        rows = rows + self.layers[1](self.norms[1](rows))
        answer: Tensor = self.classify(self.end(rows[0]))
        return answer


class NystromAttention(nn.Module):
    """Nystrom attention (Xiong et al. 2021), with a convolution of values."""

    def __init__(self, width: int, *, heads: int, landmarks: int, dropout: float, kernel: int = 33) -> None:
        super().__init__()
        self.heads, self.landmarks = heads, landmarks
        self.split = nn.Linear(width, 3 * width, bias=False)
        self.join = nn.Sequential(nn.Linear(width, width), Dropout(dropout))
        self.along = nn.Conv1d(heads, heads, kernel, padding=kernel // 2, groups=heads, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        """(row, feature) -> the same."""
        count = len(rows)
        # The sequence is filled with zeros in front, to a multiple of the landmarks.
        lead = -count % self.landmarks
        padded = torch.cat([rows.new_zeros(lead, rows.shape[1]), rows])
        query, key, value = (
            part.reshape(len(padded), self.heads, -1).transpose(0, 1) for part in self.split(padded).chunk(3, 1)
        )
        query = query / math.sqrt(query.shape[2])
        near, far = (part.reshape(self.heads, self.landmarks, -1, part.shape[2]).mean(2) for part in (query, key))
        left_softmax = (query @ far.transpose(1, 2)).softmax(2)
        right = (near @ key.transpose(1, 2)).softmax(2)
        middle = pseudo_inverse((near @ far.transpose(1, 2)).softmax(2))
        attended = (left_softmax @ middle) @ (right @ value)
        moved = self.along(value.permute(2, 0, 1)).permute(1, 2, 0)
        joined: Tensor = self.join((attended + moved).transpose(0, 1).reshape(len(padded), -1))
        return joined[-count:]


def pseudo_inverse(matrices: Tensor, steps: int = 6) -> Tensor:
    """Moore-Penrose inverse of (..., n, n), by third-order iterations."""
    sizes = matrices.abs()
    inverse = matrices.transpose(-1, -2) / (sizes.sum(-1).amax() * sizes.sum(-2).amax())
    eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    for _ in range(steps):
        both = matrices @ inverse
        inverse = 0.25 * inverse @ (13 * eye - both @ (15 * eye - both @ (7 * eye - both)))
    return inverse
