"""The machine: where files of our own go and how they appear, how many threads pay, which rank of a group this is."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.errors import CaseError, UsageError, UserError

if TYPE_CHECKING:
    from lightning.fabric.plugins import ClusterEnvironment

THREADS = 8
"""At most so many work on one image at once."""

SAMPLED = 1 << 20
"""Bytes hashed at each end of a compressed or large file."""

LARGE = 1 << 28
"""Bytes above which a file is sampled: tables and archives of images would take minutes to read whole."""

PIECES = 64
"""Places within a large file at which as much is hashed as at its ends."""

SLURM = "slurm"
"""Value of a trainer's `devices` and `num_nodes` that stands for what `srun` has started."""


def user_cache() -> Path:
    """The folder for what can be made again: `MEDIMG_EVAL_CACHE`, or ~/.cache/medimg_eval."""
    path = Path(os.environ.get("MEDIMG_EVAL_CACHE") or "~/.cache/medimg_eval")
    try:
        return path.expanduser()
    except RuntimeError as error:  # a user without a home, as in some containers
        raise UserError(f"{path}: {error} Name a folder for the cache: export MEDIMG_EVAL_CACHE=DIR") from error


def file_digest(path: Path) -> str:
    """Hash of a file; of gzip, size with first and last MiB.

    Compressed volumes would take longer to read than they do to evaluate, and a gzip file ends in the
    checksum of its content, so the ends see every change. So does a zip file's end, which lists the checksums of its
    members; of other large files pieces between the ends are hashed too. A missing file has a digest of its own, so
    that supplying it changes the run.
    """
    try:
        with path.open("rb") as stream:
            size = path.stat().st_size
            if path.suffix != ".gz" and size <= LARGE:
                return hashlib.file_digest(stream, "blake2b").hexdigest()
            hasher = hashlib.blake2b(b"%d" % size)
            hasher.update(stream.read(SAMPLED))
            if path.suffix != ".gz":
                for piece in range(1, PIECES):
                    stream.seek(size * piece // PIECES)
                    hasher.update(stream.read(SAMPLED))
            stream.seek(max(size - SAMPLED, min(SAMPLED, size)))
            hasher.update(stream.read(SAMPLED))
            return hasher.hexdigest()
    except OSError:
        return "missing"


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Path to write that replaces `path` on success, else vanishes."""
    # Other processes and threads may write the same file; the name keeps its ending, by which libraries go.
    partial = path.with_name(f".{os.getpid()}.{threading.get_ident()}.{path.name}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def product(path: Path) -> Iterator[Path]:
    """Path to write a command's product atomically, creating its folder.

    Raises UserError where there is no room, or no permission: in one sentence, and with no half of it left.
    """
    mend = "make room or name another folder by out=DIR, and give the same command again"
    with UserError.about(path, "cannot be written", OSError, mend=mend):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as partial:
            yield partial


def threads(pieces: int) -> int:
    """Threads to use: this process's cores, at most `THREADS`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, THREADS, pieces)


class _Frozen:
    """Whether a command has frozen what it loaded: to ask `gc` means to count it all, some 20 ms each time."""

    now = False


def freeze() -> None:
    """Leaves what is loaded out of every search for garbage."""
    _Frozen.now = True
    gc.freeze()


def unfreeze() -> None:
    """Makes what is loaded searched for garbage again."""
    _Frozen.now = False
    gc.unfreeze()


def is_frozen() -> bool:
    """Whether `freeze` was called last."""
    return _Frozen.now


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspends garbage collection within the block, halving imports and big reads.

    Where a command has frozen what it imported, what was made here is never searched, either.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_frozen():
            gc.freeze()
        if was:
            gc.enable()


def natural_order(name: str) -> list[tuple[int, int, str]]:
    """Sorting key by which 2 comes before 10."""
    parts = [part for part in re.split(r"(\d+)", name) if part]
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]


def walk(root: Path, *, hidden: bool = False) -> Iterator[tuple[str, os.stat_result | None]]:
    """All files below a folder, with stat; None for dangling links.

    Links are followed, and no folder is entered twice. Hidden files and folders are passed over unless they are
    wanted, and so is what is no file: opening a pipe would wait for ever.

    Raises:
        CaseError: a folder cannot be opened.
    """
    state = root.stat()
    waiting, visited = [(str(root), "")], {(state.st_dev, state.st_ino)}
    while waiting:
        folder, prefix = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise CaseError(f"{folder}: cannot be opened ({error.strerror}); mend its permissions") from error
        below = []
        for entry in entries:
            if entry.name.startswith(".") and not hidden:
                continue
            try:
                state = entry.stat()
            except OSError:
                yield prefix + entry.name, None
                continue
            if entry.is_file():
                yield prefix + entry.name, state
            elif entry.is_dir() and (state.st_dev, state.st_ino) not in visited:
                visited.add((state.st_dev, state.st_ino))
                below.append((entry.path, f"{prefix}{entry.name}/"))
        waiting += reversed(below)  # the first of them is looked into next


def in_group() -> bool:
    """Whether a launcher or Lightning has started this process as one of several."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")  # of this srun; a batch script has the number of its whole job
    return "LOCAL_RANK" in os.environ or ("SLURM_PROCID" in os.environ and tasks.isdecimal() and int(tasks) > 1)


def rank() -> int:
    """This process's rank by launcher or Lightning."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")  # in the order in which Lightning looks
    return int(next((os.environ[name] for name in names if name in os.environ), 0))


class Step(NamedTuple):
    """Tasks that one `srun` has started.

    Attributes:
        nodes: that they are on.
        devices: tasks on each node, with a device for each.
    """

    nodes: int
    devices: int

    @property
    def tasks(self) -> int:
        """All of them."""
        return self.nodes * self.devices


def read_step(variables: Mapping[str, str] = os.environ) -> Step | None:
    """Step of SLURM that this process belongs to; None where `srun` has not started it.

    A batch script has the numbers of its job, which say nothing of how many of its processes are at work.

    Raises:
        UserError: there are more tasks on some nodes than on others.
    """
    spread = variables.get("SLURM_STEP_TASKS_PER_NODE")  # such as 2(x3) or 2,1
    if spread is None or "SLURM_PROCID" not in variables:
        return None
    parts = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part) for part in spread.split(",")]
    counts = [int(part[1]) for part in parts if part for _ in range(int(part[2] or 1))]
    if len(set(counts)) != 1:
        raise UserError(f"expected as many tasks on each node of the SLURM step, got {spread}; give --ntasks-per-node")
    return Step(len(counts), counts[0])


def with_step(trainer: Mapping[str, Any], *, shard: bool) -> dict[str, Any]:
    """Settings of a trainer whose `devices` and `num_nodes` are numbers: those of the step, where they are "slurm".

    Args:
        trainer: settings of Lightning's Trainer.
        shard: whether this process is a shard, which knows of no other task.

    Raises:
        UsageError: `srun` has not started this process, or has started more tasks than the trainer has devices.
    """
    step = read_step()
    if SLURM not in (trainer["devices"], trainer["num_nodes"]):
        if step and step.tasks > 1 and not shard and _count_devices(trainer) not in (None, step.tasks):
            raise UsageError(
                f"srun has started {step.tasks} tasks, and the trainer has trainer.devices={trainer['devices']} on "
                f"trainer.num_nodes={trainer['num_nodes']}; each task would do all the work: add trainer=slurm"
            )
        return dict(trainer)
    if step is None:
        raise UsageError(
            "trainer=slurm takes nodes and devices from srun, which has not started this process; write srun before "
            "the command, or add -m hydra/launcher=submitit_slurm hydra.launcher.nodes=2 "
            "hydra.launcher.tasks_per_node=8"
        )
    return {**trainer, "devices": step.devices, "num_nodes": step.nodes}


def _count_devices(trainer: Mapping[str, Any]) -> int | None:
    """Devices on all nodes; None where the trainer chooses."""
    devices, nodes = str(trainer["devices"]), str(trainer["num_nodes"])
    return int(devices) * int(nodes) if devices.isdecimal() and nodes.isdecimal() else None


def cluster_environment(*, shard: bool = False) -> ClusterEnvironment | None:
    """Process group that Lightning is to join; None where it is to look for itself, which is outside of SLURM.

    Inside of a job Lightning would take any process for a task of the job's group: also shards, batch scripts, and
    those that start their ranks themselves.

    Args:
        shard: whether this process is a shard, which is in no group.
    """
    step = None if shard else read_step()
    if step is not None and step.tasks > 1:
        return _step_environment(step)
    if not shard and "SLURM_JOB_ID" not in os.environ:
        return None
    from lightning.fabric.plugins.environments.lightning import LightningEnvironment
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    return None if not shard and TorchElasticEnvironment.detect() else LightningEnvironment()


def _step_environment(step: Step) -> ClusterEnvironment:
    """Lightning's SLURM environment, by the numbers of a step in place of those of its job."""
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

    class StepEnvironment(SLURMEnvironment):
        def world_size(self) -> int:
            return step.tasks

        def validate_settings(self, num_devices: int, num_nodes: int) -> None:
            if (num_nodes, num_devices) != (step.nodes, step.devices):
                raise UsageError(
                    f"srun has started {step.devices} tasks on each of {step.nodes} nodes, and the trainer has "
                    f"{num_devices} devices on each of {num_nodes}; write trainer=slurm, and ask for a GPU per task "
                    "by --gpus-per-node, not by --gpus-per-task, which hides the others"
                )

        @staticmethod
        def _validate_srun_variables() -> None:
            """Takes steps without --ntasks-per-node, too."""

    return StepEnvironment(auto_requeue=False)  # whoever sent the job in sends it again, such as submitit
