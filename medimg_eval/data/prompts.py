"""Cases on their way to a model: read in worker processes, ahead of it, each exactly once. Imports no Lightning."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler

from medimg_eval.case import Case, Failure, Prompt
from medimg_eval.errors import UserError
from medimg_eval.tasks.base import Task


@dataclass(frozen=True)
class Asked:
    """A case as it leaves a worker: what is asked about it, or why it could not be read."""

    case: Case
    prompt: Prompt | Failure


WINDOW = 32
"""Batches within which cases are put in order of length: few enough that reading ahead stays near."""

TOGETHER = 8
"""Cases that a reading process hands over at once, where batches are smaller: that takes longer than a small case."""


class UnpaddedDistributedSampler(Sampler[int]):
    """Deals indices out over ranks: each to exactly one rank, none repeated to make shards even.

    Args:
        wanted: indices to visit.
        rank: this process.
        world: number of processes.
    """

    def __init__(self, wanted: Sequence[int], rank: int, world: int) -> None:
        # A case belongs to the same rank however many were done before, so ranks need not agree on that.
        self._own = [index for index in wanted if index % world == rank]

    def __iter__(self) -> Iterator[int]:
        """Yields this rank's indices in order."""
        return iter(self._own)

    def __len__(self) -> int:
        """How many cases this rank visits."""
        return len(self._own)


class PromptDataset(Dataset[Asked]):
    """Cases, which become prompts where they are read.

    Args:
        task: what is asked about them.
        cases: the cases.
        read_images: False for models that need no pixels.
    """

    def __init__(self, task: Task, cases: Sequence[Case], *, read_images: bool) -> None:
        self._task, self._cases, self._read_images = task, cases, read_images

    def __len__(self) -> int:
        """How many cases there are."""
        return len(self._cases)

    def __getitem__(self, index: int) -> Asked:
        """Reads one; whatever goes wrong is its failure alone."""
        case = self._cases[index]
        try:
            images = self._task.read_images(case) if self._read_images else ()
            return Asked(case, self._task.prompt(case, images))
        except UserError as error:
            return Asked(case, Failure(case.id, "read", str(error)))
        except Exception as error:  # noqa: BLE001 - one unreadable case must not end the run
            files = ", ".join(str(path) for path in case.files)
            return Asked(case, Failure(case.id, "read", f"{files}: {type(error).__name__}: {error}"))


def prompt_loader(
    task: Task,
    cases: Sequence[Case],
    *,
    batch_size: int = 1,
    num_workers: int = 0,
    read_images: bool = True,
    skip: frozenset[str] = frozenset(),
    place: tuple[int, int] = (0, 1),
    together: int = 1,
) -> DataLoader[Asked]:
    """Batches of prompts.

    Args:
        task: what is asked.
        cases: about which.
        batch_size: cases of one batch. Of several, those of like length come together, the longest first, within
            `WINDOW` batches.
        num_workers: processes that read ahead.
        read_images: False for models that need no pixels.
        skip: ids of cases that are left out, being done already.
        place: rank of this process, and number of processes.
        together: batches that are read and handed over as one.
    """
    rank, world = place
    left = [index for index, case in enumerate(cases) if case.id not in skip]
    if batch_size > 1:  # it takes as long as its longest prompt
        step = WINDOW * batch_size * world
        windows = (left[start : start + step] for start in range(0, len(left), step))
        left = [one for some in windows for one in sorted(some, key=lambda i: -task.size_hint(cases[i]))]
    return DataLoader(
        PromptDataset(task, cases, read_images=read_images),
        sampler=UnpaddedDistributedSampler(left, rank, world),
        collate_fn=list,
        batch_size=batch_size * together,
        num_workers=num_workers,
        worker_init_fn=leave_with_parent,
    )


class Batches:
    """The batches of `prompt_loader`, of which processes that read ahead hand over several at once when they are small.

    Args:
        task: what is asked.
        cases: about which.
        batch_size: cases of one batch.
        num_workers: processes that read ahead.
        options: further ones of `prompt_loader`.
    """

    def __init__(
        self, task: Task, cases: Sequence[Case], *, batch_size: int = 1, num_workers: int = 0, **options: Any
    ) -> None:
        self._size = batch_size
        together = max(1, TOGETHER // batch_size) if num_workers else 1
        options |= {"batch_size": batch_size, "num_workers": num_workers, "together": together}
        self._parts = prompt_loader(task, cases, **options)
        self._count = len(self._parts.sampler)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """How many batches there are."""
        return math.ceil(self._count / self._size)

    def __iter__(self) -> Iterator[list[Asked]]:
        """Yields them one by one."""
        for some in self._parts:
            for start in range(0, len(some), self._size):
                yield some[start : start + self._size]


def leave_with_parent(_: int) -> None:
    """Ends a reading process when its parent is killed: it would otherwise wait for ever to hand its cases over."""
    threading.Thread(target=_leave, daemon=True).start()


def _leave() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
