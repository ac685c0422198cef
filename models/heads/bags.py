"""Bags of features, and several of them one after another in one array, computed at once, each as if it were alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from medimg_eval.case import Array
from medimg_eval.errors import UserError
from medimg_eval.models.heads.base import as_vectors

IN_MEMORY = 2**31
"""Bytes of features that are kept in memory; more go to a file that is mapped."""


@dataclass(frozen=True, eq=False)
class PackedBags(Sequence[Array]):
    """Bags of tiles, in memory or memory-mapped.

    Attributes:
        parts: float32, (tile, feature), of each bag.
    """

    parts: Sequence[Array]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, place: Any) -> Any:
        return self.parts[place]

    @property
    def width(self) -> int:
        """Features of a tile."""
        return int(self.parts[0].shape[1])

    @property
    def lengths(self) -> Array:
        """Tiles of each bag, int64, (bag,)."""
        return np.array([len(part) for part in self.parts])

    @classmethod
    def of(cls, bags: Iterable[Array], spill: Path | None = None) -> PackedBags:
        """Packs bags, reading each once.

        Args:
            bags: float arrays (tile, feature).
            spill: a file that features go to where they are more than `IN_MEMORY`.

        Raises:
            UserError: a bag is empty or not finite, or its features are of another length than those before.
        """
        if isinstance(bags, PackedBags):
            return bags
        parts: list[Array] = []
        file: Any = None
        lengths, width, held = [], 0, 0
        for index, bag in enumerate(bags):
            try:
                some = as_vectors(bag, expected=width or None).astype(np.float32, copy=False)
            except UserError as error:
                raise UserError(f"bag {index}: {error}") from error
            width = some.shape[1]
            lengths.append(len(some))
            held += some.nbytes
            if file is None and spill is not None and held > IN_MEMORY:
                file = spill.open("wb")
                for part in parts:
                    file.write(part.tobytes())
                parts = []
            if file is None:
                parts.append(some)
            else:
                file.write(some.tobytes())
        if file is None:
            return cls(parts)
        file.close()
        assert spill is not None  # noqa: S101 - it was opened
        rows = np.memmap(spill, np.float32, "r", shape=(sum(lengths), width))
        return cls(np.split(rows, np.cumsum(lengths)[:-1]))


class Batch:
    """Some bags as tensors.

    Attributes:
        rows: (tile, feature).
        starts: where bags begin in it, and the end.
        owner: int64, (tile,), the bag that each tile is of.
    """

    def __init__(self, bags: Sequence[Array], device: torch.device) -> None:
        rows = np.concatenate(bags) if len(bags) > 1 else bags[0]
        # torch warns of arrays that cannot be written to, such as those mapped from a file.
        self.rows = torch.from_numpy(rows if rows.flags.writeable else np.array(rows)).to(device)
        lengths = torch.tensor([len(bag) for bag in bags])
        self.starts = [0, *lengths.cumsum(0).tolist()]
        self.owner = torch.repeat_interleave(torch.arange(len(bags)), lengths).to(device)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def parts(self, rows: Tensor) -> Iterator[Tensor]:
        """The rows of each bag."""
        for begin, end in zip(self.starts, self.starts[1:], strict=False):
            yield rows[begin:end]

    def softmax(self, scores: Tensor) -> Tensor:
        """Softmax of scores within each bag, (tile, branch)."""
        if len(self) == 1:
            return scores.softmax(0)
        owner = self.owner[:, None].expand_as(scores)
        top = scores.new_full((len(self), scores.shape[1]), -torch.inf).scatter_reduce(0, owner, scores, "amax")
        raised = (scores - top.detach()[self.owner]).exp()
        total = raised.new_zeros(top.shape).index_add(0, self.owner, raised)
        return raised / total[self.owner]

    def weighted(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Sums of each bag's rows, (bag, branch, feature), by weights (tile, branch)."""
        if len(self) == 1:
            return (weights.T @ rows)[None]
        return torch.stack([some.T @ part for some, part in zip(self.parts(weights), self.parts(rows), strict=True)])


def sampled(bag: Array, tiles: int | None, rng: np.random.Generator) -> Array:
    """At most so many tiles, drawn without replacement, in order."""
    if tiles is None or len(bag) <= tiles:
        return bag
    return bag[np.sort(rng.choice(len(bag), tiles, replace=False))]
