"""Cases on their way to a model: read in processes of their own, ahead of it, each exactly once. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from medimg_eval.case import Case, Failure, Prompt
from medimg_eval.errors import UserError
from medimg_eval.tasks.base import Task
from medimg_eval.workers import Workers, started_ahead


@dataclass(frozen=True)
class PreparedCase:
    """Read case: its prompt, or why reading failed."""

    case: Case
    prompt: Prompt | Failure


WINDOW = 32
"""Batches within which cases are put in order of length: few enough that reading ahead stays near."""

TOGETHER = 8
"""Small cases that a reading process hands over at once, where batches are smaller: that takes longer than one case."""

SHARE = 1 << 25
"""Bytes of files that are worth a further reading process: what is read in a second or so is not."""

OPENING = 1 << 16
"""Bytes that are read in the time in which a file is opened: no file counts for less."""

AHEAD = 2
"""Parts that are read ahead for each reading process."""


def reading_ahead(task: Task, cases: Sequence[Case], num_workers: int) -> AbstractContextManager[None]:
    """Has reading processes started while the model is loaded."""
    return started_ahead(_read_header, (task, cases[:1]), _count_processes(cases, num_workers))


def _count_processes(cases: Sequence[Case], wanted: int) -> int:
    """Worker processes worth starting: none without images, few for small files."""
    if not any(case.images or case.files for case in cases):
        return 0
    size = 0
    for image in (image for case in cases for image in case.images):
        size += sum(map(_file_size, image.files)) if image.files else SHARE
        if size >= wanted * SHARE:
            break
    return min(wanted, len(cases), 1 + size // SHARE)


def _file_size(path: Path) -> int:
    """Estimated bytes of a file; folders count as many."""
    return max(path.stat().st_size, OPENING) if path.is_file() else SHARE


def _read_header(shown: tuple[Task, Sequence[Case]]) -> None:
    """Reads a header, to import the format's reader early."""
    for image in shown[1][0].images[:1]:
        image.geometry()


class UnpaddedDistributedSampler(list[int]):
    """Distributes indices over ranks, each once, without padding."""

    def __init__(self, wanted: Sequence[int], rank: int, world: int) -> None:
        # A case belongs to the same rank however many were done before, so ranks need not agree on that.
        super().__init__(index for index in wanted if index % world == rank)


class PromptDataset:
    """Cases becoming prompts when read, without pixels unless `read_images`."""

    def __init__(self, task: Task, cases: Sequence[Case], *, read_images: bool) -> None:
        self._cases, self._state = cases, (task, read_images)

    def __len__(self) -> int:
        """How many cases there are."""
        return len(self._cases)

    def __getitem__(self, index: int) -> PreparedCase:
        """Reads one; whatever goes wrong is its failure alone."""
        case = self._cases[index]
        return PreparedCase(case, _read_prompt(self._state, case))


def _read_prompt(state: tuple[Task, bool], case: Case) -> Prompt | Failure:
    task, read_images = state
    try:
        return task.prompt(case, task.read_images(case) if read_images else ())
    except UserError as error:
        return Failure(case.id, "read", str(error))
    except Exception as error:  # noqa: BLE001 - one unreadable case must not end the run
        return _read_failure(case, f"{type(error).__name__}: {error}")


def _read_failure(case: Case, why: str) -> Failure:
    return Failure(case.id, "read", f"{', '.join(map(str, case.files))}: {why}")


def share(
    task: Task, cases: Sequence[Case], batch_size: int, place: tuple[int, int], skip: frozenset[str] = frozenset()
) -> UnpaddedDistributedSampler:
    """Indices of the cases that one rank visits, in order.

    Of several cases of one batch, those of like length come together, the longest first, within `WINDOW` batches. The
    place is the rank of this process, and the number of processes; `skip` are ids of cases that are done already.
    """
    due = [index for index, case in enumerate(cases) if case.id not in skip]
    if batch_size > 1:  # it takes as long as its longest prompt
        step = WINDOW * batch_size * place[1]
        windows = (due[start : start + step] for start in range(0, len(due), step))
        due = [index for window in windows for index in sorted(window, key=lambda i: -task.size_hint(cases[i]))]
    return UnpaddedDistributedSampler(due, *place)


class PromptBatches:
    """Ordered batches of prompts, read ahead by replaceable processes.

    A case whose process died is read again by itself; one that dies then too is a failure of stage `read`. Without
    workers this process reads, without `read_images` no pixels; `skip` and `place` are those of `share`.
    """

    def __init__(
        self,
        task: Task,
        cases: Sequence[Case],
        *,
        batch_size: int = 1,
        num_workers: int = 0,
        read_images: bool = True,
        skip: frozenset[str] = frozenset(),
        place: tuple[int, int] = (0, 1),
    ) -> None:
        self._task, self._size, self._read_images = task, batch_size, read_images
        self._cases = [cases[index] for index in share(task, cases, batch_size, place, skip)]
        self._count = _count_processes(self._cases, num_workers)

    def __len__(self) -> int:
        """How many batches there are."""
        return math.ceil(len(self._cases) / self._size)

    def __iter__(self) -> Iterator[list[PreparedCase]]:
        """Yields them one by one."""
        small = not self._task.codec.heavy and self._count
        step = self._size * (max(1, TOGETHER // self._size) if small else 1)
        parts = [self._cases[start : start + step] for start in range(0, len(self._cases), step)]
        state = (self._task, self._read_images)
        workers = Workers(_read_prompt, state, self._count, name="reading", setting="num_workers")
        for part, prompts in zip(parts, workers.ordered(parts, AHEAD * self._count), strict=True):
            prepared = [
                PreparedCase(case, prompt or _read_failure(case, "the reading process died twice (out of memory?)"))
                for case, prompt in zip(part, prompts, strict=True)
            ]
            for start in range(0, len(prepared), self._size):
                yield prepared[start : start + self._size]
