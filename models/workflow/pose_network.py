"""A graph convolutional network over joints and time, of the size of ST-GCN."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

SKELETONS = {
    17: "15-13 13-11 16-14 14-12 11-12 5-11 6-12 5-6 5-7 6-8 7-9 8-10 1-2 0-1 0-2 1-3 2-4 3-5 4-6",
    18: "4-3 3-2 7-6 6-5 13-12 12-11 10-9 9-8 11-5 8-2 5-1 2-1 0-1 15-0 14-0 17-15 16-14",
    25: "4-3 3-2 2-1 7-6 6-5 5-1 8-1 9-8 10-9 11-10 12-8 13-12 14-13 0-1 15-0 16-0 17-15 18-16 "
    "19-14 20-19 21-14 22-11 23-22 24-11",
}
"""Bones of COCO, of OpenPose's 18 and of its BODY_25, by the number of joints."""

CENTRES = {17: 0, 18: 1, 25: 1}
"""The joint that others lie nearer to or farther from."""

CHANNELS = (1, 1, 1, 2, 2, 2, 4, 4, 4)
"""Channels of ST-GCN's nine blocks, in multiples of the width."""


def read_bones(joints: int, edges: Sequence[Sequence[int]] = ()) -> list[tuple[int, int]]:
    """Joint pairs of the skeleton; ValueError for unknown joint numbers."""
    if edges:
        return [(int(a), int(b)) for a, b in edges]
    if joints not in SKELETONS:
        skeletons = ", ".join(map(str, SKELETONS))
        raise ValueError(
            f"model.edges is invalid: expected the bones of {joints} joints ({skeletons} are known), got none"
        )
    pairs = (bone.split("-") for bone in SKELETONS[joints].split())
    return [(int(a), int(b)) for a, b in pairs]


def spatial_partitions(joints: int, bones: Sequence[tuple[int, int]], centre: int) -> Tensor:
    """ST-GCN's three normalised adjacencies, float32, (3, joint, joint)."""
    linked = np.eye(joints, dtype=bool)
    for a, b in bones:
        linked[a, b] = linked[b, a] = True
    hops = np.full(joints, joints)
    hops[centre] = 0
    for _ in range(joints):
        hops = np.minimum(hops, np.where(linked, hops[None] + 1, joints).min(1))
    share = linked / linked.sum(0)
    nearer, is_same_distance = hops[:, None] < hops[None], hops[:, None] == hops[None]
    return torch.from_numpy(
        np.stack([share * is_same_distance, share * nearer, share * ~(is_same_distance | nearer)]).astype(np.float32)
    )


class Block(nn.Module):
    """A convolution over the graph, one over nine frames, and a residual."""

    def __init__(self, before: int, after: int, parts: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.graph = nn.Conv2d(before, after * parts, 1)
        self.time = nn.Sequential(
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, (9, 1), (stride, 1), (4, 0)),
            nn.BatchNorm2d(after),
            nn.Dropout(dropout),
        )
        plain = before == after and stride == 1
        self.residual = nn.Identity() if plain else nn.Conv2d(before, after, 1, (stride, 1))

    def forward(self, poses: Tensor, adjacency: Tensor) -> Tensor:
        """Maps (sequence, channel, frame, joint); strided blocks halve the frames."""
        size, _, frames, joints = poses.shape
        parts = self.graph(poses).view(size, len(adjacency), -1, frames, joints)
        mixed = torch.einsum("npctv,pvw->nctw", parts, adjacency)
        return torch.relu(self.time(mixed) + self.residual(poses))


class PoseNetwork(nn.Module):
    """ST-GCN: nine blocks over poses, and a linear layer on their mean."""

    def __init__(
        self, joints: int, bones: Sequence[tuple[int, int]], outputs: int, width: int = 64, dropout: float = 0.5
    ) -> None:
        super().__init__()
        adjacency = spatial_partitions(joints, bones, CENTRES.get(joints, 0))
        self.register_buffer("adjacency", adjacency)
        self.first = nn.BatchNorm1d(3 * joints)
        sizes = [3, *(width * many for many in CHANNELS)]
        self.blocks = nn.ModuleList(
            Block(before, after, len(adjacency), 2 if 3 < before < after else 1, dropout if index else 0.0)
            for index, (before, after) in enumerate(pairwise(sizes))
        )
        self.weights = nn.ParameterList(torch.ones_like(adjacency) for _ in CHANNELS)
        self.last = nn.Linear(sizes[-1], outputs)

    def forward(self, poses: Tensor) -> Tensor:
        """(sequence, 3, frame, joint) to logits (sequence, class)."""
        size, channels, frames, joints = poses.shape
        flat = poses.permute(0, 1, 3, 2).reshape(size, channels * joints, frames)
        held = self.first(flat).view(size, channels, joints, frames).permute(0, 1, 3, 2)
        for block, weight in zip(self.blocks, self.weights, strict=True):
            held = block(held, self.adjacency * weight)
        logits: Tensor = self.last(held.mean((2, 3)))
        return logits
