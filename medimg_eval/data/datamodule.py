"""The data module: cases are read in worker processes, ahead of the model, each exactly once."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.utilities.seed import pl_worker_init_function
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Sampler, default_collate

from medimg_eval.case import Case, Failure, Image, Mask
from medimg_eval.data.cache import Entry, Made, VolumeCache
from medimg_eval.data.prompts import PreparedCase, PromptBatches, PromptDataset, share
from medimg_eval.errors import CaseError
from medimg_eval.store import content_key
from medimg_eval.tasks.base import Task

Samples = list[Any]
"""Training samples of a case: of tensors by name, which are stacked, or of anything else, which is kept as a list."""


class Sample(Protocol):
    """Turns a case that was read into training samples."""

    def __call__(self, shown: Any, target: Any, *, seed: int) -> Samples:
        """Draws from a visit's seed alone, so workers never repeat.

        Shown is the image, of a question the prompt; the target is the mask, of a question the entry of the answer key.
        """


def _pack_case(images: Mapping[str, Any]) -> Made:
    """A case's images and masks as cacheable arrays and facts."""
    arrays = {name: image.labels if isinstance(image, Mask) else image.array for name, image in images.items()}
    return arrays, {name: _image_facts(image) for name, image in images.items()}


def _image_facts(image: Image | Mask) -> dict[str, Any]:
    placed = {"affine": image.affine.tolist(), "units": image.units}
    if isinstance(image, Mask):
        return placed
    return {**placed, "modality": image.modality, "attributes": dict(image.attributes)}


def _unpack_case(entry: Entry) -> dict[str, Image | Mask]:
    """The same out of the cache."""
    images: dict[str, Image | Mask] = {}
    for name, facts in entry.meta.items():
        facts_ = {**facts, "affine": np.array(facts["affine"])}
        kind = Image if "modality" in facts else Mask
        images[name] = kind(np.asarray(entry.arrays[name]), **facts_)
    return images


class _Training(Dataset[Samples | Failure]):
    """Cached cases, turned into fresh training samples at each visit."""

    def __init__(self, task: Task, cases: Sequence[Case], sample: Sample, cache: VolumeCache | None) -> None:
        self._cases, self._sample, self._cache = cases, sample, cache
        self._task = task
        self._kept: dict[int, tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, index: int) -> Samples | Failure:
        case = self._cases[index]
        try:
            images, target = self._cached(case) if self._cache is not None else self._remembered(index)
            return self._sample(images, target, seed=int(torch.randint(2**31, ())))
        except CaseError as error:  # raised in a worker, it would reach people wrapped in a traceback
            return Failure(case.id, "read", str(error))

    def _remembered(self, index: int) -> tuple[Any, Any]:
        if index not in self._kept:
            case = self._cases[index]
            self._kept[index] = self._task.training_pair(case, self._task.training_images(case))
        return self._kept[index]

    def _cached(self, case: Case) -> tuple[Any, Any]:
        assert self._cache is not None  # noqa: S101 - told apart by the caller
        key = content_key(*self._task.training_key(case))
        return self._task.training_pair(case, _unpack_case(self._cache.fetch(key, lambda: self._made(case))))

    def _made(self, case: Case) -> Made:
        images = self._task.training_images(case)
        self._task.training_pair(case, images)  # what cannot be trained on is not kept
        return _pack_case(images)


class CaseDataModule(pl.LightningDataModule):
    """Batches of prompts for `test` and validation, of training samples for `fit`.

    `batch_size` cases are asked about at once, or visited in one training step; models that need no pixels are given
    none without `read_images`. `test` visits `cases`, by default the task's test cases, but for the ids in `skip`.
    `fit` needs `sample`, which turns what was read of a case into training samples; the cache keeps the cases that it
    reads, without it each worker keeps them in its memory.
    """

    # A rank may own no case that is left to do.
    allow_zero_length_dataloader_with_multiple_devices = True

    def __init__(
        self,
        task: Task,
        *,
        batch_size: int = 1,
        num_workers: int = 0,
        read_images: bool = True,
        cases: Sequence[Case] | None = None,
        skip: frozenset[str] = frozenset(),
        sample: Sample | None = None,
        cache: VolumeCache | None = None,
    ) -> None:
        super().__init__()
        self.task = task
        self._batch_size, self._num_workers = batch_size, num_workers
        self._read_images = read_images
        self._cases = cases
        self._skip = skip
        self._sample = sample
        self._cache = cache

    def train_dataloader(self) -> DataLoader[Samples | Failure]:
        """Shuffled training samples, each case on one rank."""
        if self._sample is None:
            raise ValueError("Expected `sample` to be given for fitting, got None")
        dataset = _Training(self.task, self.task.cases("fit"), self._sample, self._cache)
        rank, world = self._place()
        sampler: Sampler[int] | None = DistributedSampler(dataset, world, rank) if world > 1 else None
        # Workers must live as long as the run, or what they keep in memory is read again every epoch.
        return DataLoader(
            dataset,
            shuffle=sampler is None,
            sampler=sampler,
            collate_fn=_collate_visits,
            persistent_workers=self._num_workers > 0,
            batch_size=self._batch_size,
            num_workers=self._num_workers,
            worker_init_fn=partial(_start_worker, rank),
        )

    def val_dataloader(self) -> DataLoader[PreparedCase]:
        """Validation cases, each once."""
        cases = self.task.cases("validate")
        dataset: Any = PromptDataset(self.task, cases, read_images=self._read_images)
        return DataLoader(
            dataset,
            sampler=share(self.task, cases, self._batch_size, self._place()),
            collate_fn=list,
            batch_size=self._batch_size,
            num_workers=self._num_workers,
            worker_init_fn=leave_with_parent,
        )

    def test_dataloader(self) -> PromptBatches:
        """Test cases that are left to do, each once.

        No `DataLoader`: while it has processes, the death of one raises in whatever runs, such as the model.
        """
        return PromptBatches(
            self.task,
            self.task.cases("test") if self._cases is None else self._cases,
            batch_size=self._batch_size,
            num_workers=self._num_workers,
            read_images=self._read_images,
            skip=self._skip,
            place=self._place(),
        )

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Moves training samples; prompts stay, as wrappers move them."""
        return (
            batch
            if isinstance(batch, list | Failure)
            else super().transfer_batch_to_device(batch, device, dataloader_idx)
        )

    def _place(self) -> tuple[int, int]:
        trainer = self.trainer
        return (trainer.global_rank, trainer.world_size) if trainer else (0, 1)


def _start_worker(rank: int, worker: int) -> None:
    """Seeds a worker as Lightning does; it ends with its parent."""
    pl_worker_init_function(worker, rank)
    leave_with_parent(worker)


def _collate_visits(visits: list[Samples | Failure]) -> Any:
    failure = next((visit for visit in visits if isinstance(visit, Failure)), None)
    if failure is not None:
        return failure
    batch = [sample for samples in visits if isinstance(samples, list) for sample in samples]
    return default_collate(batch) if all(isinstance(sample, Mapping) for sample in batch) else batch


def leave_with_parent(_: int) -> None:
    """Ends a reading process whose parent was killed."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
