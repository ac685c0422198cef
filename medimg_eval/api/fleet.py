"""`gpus=`: many runs on the GPUs of one machine, packed by what five cases of each took, started again when they die.

Each run is a program of its own that sees one GPU. It is first estimated, alone on its GPU; then it shares one with
others whose memory fits beside it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medimg_eval.errors import UsageError, UserError

log = logging.getLogger(__name__)

MARGIN, CONTEXT_GIB = 1.1, 0.6
"""What a run is allowed beyond the most that five cases took: a factor, and what CUDA takes for itself."""

RESTARTS = 2
LOOK_S = 0.2
GRACE_S = 15.0
LAST_LINES = 3

FAULTS = (1, 2, 3, 4)
"""Exit codes of runs that came to an end; the same words would come to the same end again."""


@dataclass
class Job:
    """One run.

    Attributes:
        name: what is said of it.
        words: of its command line, without `python -m medimg_eval`.
        gib: GPU memory that it needs; None for a whole GPU.
        hours: that it will take, as far as is known.
        is_estimate: whether it only asks a few cases yet.
        deaths: how often it died.
        device: where it is at work.
    """

    name: str
    words: list[str]
    gib: float | None = None
    hours: float = 0.0
    is_estimate: bool = True
    deaths: int = 0
    device: str = ""


@dataclass
class Fleet:
    """Jobs on the GPUs of a machine.

    Args:
        devices: id of a GPU, as `CUDA_VISIBLE_DEVICES` names it -> its memory in GiB.
        folder: where what runs print is kept.
        program: that each is started by.
        most: runs at once, on all GPUs together.
    """

    devices: Mapping[str, float]
    folder: Path
    program: Sequence[str] = (sys.executable, "-m", "medimg_eval")
    most: int = field(default_factory=lambda: os.cpu_count() or 1)
    at_work: dict[int, tuple[Job, subprocess.Popen[bytes]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def run(self, jobs: Sequence[Job]) -> None:
        """Runs all jobs until each has ended.

        Raises:
            UserError: some failed, after all others were done; the message has their last words.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        waiting = list(jobs)
        try:
            while waiting or self.at_work:
                waiting.sort(key=lambda job: (job.gib is not None, -(job.gib or 0.0), -job.hours))
                for job in list(waiting):
                    if (device := self._device_for(job)) is not None:
                        waiting.remove(job)
                        self._start(job, device)
                time.sleep(LOOK_S)
                for pid, (job, process) in list(self.at_work.items()):
                    if (code := process.poll()) is not None:
                        del self.at_work[pid]
                        waiting += self._after(job, code)
        finally:
            self._end_all()
        if self.failed:
            lines = [f"{len(self.failed)} of {len(jobs)} runs failed; the same command goes on with all:"]
            raise UserError("\n".join([*lines, *(f"  {name}: {words}" for name, words in self.failed.items())]))

    def _device_for(self, job: Job) -> str | None:
        """Fullest GPU that still fits a job; None to wait."""
        if len(self.at_work) >= max(self.most, len(self.devices)):
            return None
        room = {name: self._room(name) for name in self.devices}
        if job.gib is None or job.gib > max(self.devices.values()):
            empty = [name for name in self.devices if not any(job.device == name for job, _ in self.at_work.values())]
            return empty[0] if empty else None
        fitting = [name for name, gib in room.items() if gib >= job.gib]
        return min(fitting, key=lambda name: (room[name], self._count(name)), default=None)

    def _room(self, name: str) -> float:
        taken = [job.gib for job, _ in self.at_work.values() if job.device == name]
        return 0.0 if None in taken else self.devices[name] - sum(gib or 0.0 for gib in taken)

    def _count(self, name: str) -> int:
        return sum(job.device == name for job, _ in self.at_work.values())

    def _start(self, job: Job, device: str) -> None:
        job.device = device
        words = list(job.words)
        if job.is_estimate:
            words += ["estimate=true", f"estimate_out={json.dumps(str(self._figures(job)))}"]
        with self._log(job).open("ab") as stream:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [*self.program, *words],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": device},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.at_work[process.pid] = (job, process)
        log.info("GPU %s: %s%s", device, job.name, " (five cases)" if job.is_estimate else "")

    def _after(self, job: Job, code: int) -> list[Job]:
        """Follow-up jobs of one that ended."""
        if code == 0 and job.is_estimate:
            return [self._estimated(job)]
        if code == 0:
            log.info("GPU %s: %s is done", job.device, job.name)
            return []
        job.deaths += 1
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code in FAULTS or job.deaths > RESTARTS:
            self.failed[job.name] = f"{ended}; {self._last_words(job)}"
            log.warning("GPU %s: %s %s", job.device, job.name, ended)
            return []
        log.warning("GPU %s: %s %s and is started again, alone on a GPU", job.device, job.name, ended)
        job.gib = None
        return [job]

    def _estimated(self, job: Job) -> Job:
        """The job itself, after its estimate."""
        content = json.loads(self._figures(job).read_text(encoding="utf-8"))
        most = max((float(figure["gpu_memory"]) for figure in content), default=0.0)
        job.gib = MARGIN * most + CONTEXT_GIB if most else 0.0
        job.hours = sum((figure["load_seconds"] + figure["left"] * figure["seconds"]) / 3600 for figure in content)
        job.is_estimate, job.deaths = False, 0
        log.info("%s: %.2f h, %.1f GiB on a GPU", job.name, job.hours, most)
        return job

    def _end_all(self) -> None:
        """Terminates running jobs; kills those that linger."""
        for _, process in self.at_work.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGINT)
        until = time.monotonic() + GRACE_S
        for _, process in self.at_work.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.at_work.clear()

    def _log(self, job: Job) -> Path:
        return self.folder / f"{_file_slug(job.name)}.log"

    def _figures(self, job: Job) -> Path:
        return self.folder / f"{_file_slug(job.name)}.json"

    def _last_words(self, job: Job) -> str:
        lines = self._log(job).read_text(encoding="utf-8", errors="replace").splitlines()
        last_lines = [line.strip() for line in lines if line.strip()][-LAST_LINES:]
        return f"its last words in {self._log(job)}: {' | '.join(last_lines)}"


def jobs_of(words: Sequence[str], tasks: Sequence[str]) -> list[Job]:
    """Jobs of a command line, one per task of a suite.

    Args:
        words: of the command line, from the command on.
        tasks: names of the suite's tasks; none where one is named.
    """
    kept_words = [word for word in words if not re.match(r"\+{0,2}(gpus|gpu_memory)=", word)]
    if not tasks:
        return [Job(shlex.join(kept_words[1:]) or "test", kept_words)]
    jobs = []
    for task in tasks:
        other_tasks = [other_task for other_task in tasks if other_task != task]
        own = [
            word
            for word in kept_words
            if not any(re.match(rf"[+~]*tasks\.{re.escape(other_task)}\.", word) for other_task in other_tasks)
        ]
        jobs.append(Job(shlex.join([task, *own[1:]]), [*own, *(f"~tasks.{other_task}" for other_task in other_tasks)]))
    return jobs


def run_fleet(asked: Sequence[tuple[list[str], Any]]) -> None:
    """Runs command lines on their named GPUs, task by task.

    Args:
        asked: the words of each from the command on, and its config.

    Raises:
        UserError: some failed, after all others were done.
    """
    jobs: list[Job] = []
    for words, config in asked:
        tasks = [] if config.get("task") else list(config.get("tasks") or {})
        jobs += jobs_of(words, tasks if len(tasks) > 1 else [])
    config = asked[0][1]
    gpus = config.gpus if isinstance(config.gpus, int) else list(config.gpus)
    devices = named_devices(gpus, config.get("gpu_memory"))
    log.info("%d runs on %d GPUs", len(jobs), len(devices))
    Fleet(devices, Path(str(config.runs)) / "fleet").run(jobs)


def named_devices(gpus: Any, gib: float | None = None) -> dict[str, float]:
    """Memory of chosen GPUs in GiB; `8` or a list of numbers.

    `8` for the first eight.

    Raises:
        UsageError: none is meant, or there are fewer.
        UserError: nothing says how much memory they have.
    """
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if isinstance(gpus, int) and not isinstance(gpus, bool) and gpus > 0:
        if visible and len(visible) < gpus:
            raise UsageError(f"gpus={gpus}: CUDA_VISIBLE_DEVICES shows {len(visible)} ({','.join(visible)})")
        names = visible[:gpus] or [str(number) for number in range(gpus)]
    elif isinstance(gpus, list | tuple) and gpus:
        names = [str(gpu) for gpu in gpus]
    else:
        raise UsageError(f"expected gpus to be how many, or a list of their numbers, got {gpus!r}")
    if gib is not None:
        return dict.fromkeys(names, float(gib))
    sizes = _memory_by_driver()
    if lacking := [name for name in names if name not in sizes]:
        raise UserError(
            f"gpus: nvidia-smi knows no GPU {', '.join(lacking)} (it has {', '.join(sizes) or 'none'}); of other makes "
            "gpu_memory=GIB says how much memory each has"
        )
    return {name: sizes[name] for name in names}


def _memory_by_driver() -> dict[str, float]:
    words = ["nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return {}
    memory: dict[str, float] = {}
    for line in output.splitlines():
        index, uuid, mib = (part.strip() for part in line.split(","))
        memory |= {index: float(mib) / 1024, uuid: float(mib) / 1024}
    return memory


def _file_slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:120]
