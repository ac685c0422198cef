"""Steps of SLURM: the tasks that `srun` has started together, and what Lightning is told of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.errors import UsageError, UserError

if TYPE_CHECKING:
    from lightning.fabric.plugins import ClusterEnvironment

SLURM = "slurm"
"""Value of a trainer's `devices` and `num_nodes` that stands for what `srun` has started."""


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
