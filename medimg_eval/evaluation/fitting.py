"""The Lightning module that trains a wrapper with a `training_loss`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from medimg_eval.case import Failure, Image, Mask
from medimg_eval.data.asking import Asked
from medimg_eval.data.module import Samples
from medimg_eval.errors import UserError
from medimg_eval.tasks.base import Task


@runtime_checkable
class Trainable(Protocol):
    """What `fit` needs of a wrapper beside its capability; it is an `nn.Module` as well."""

    def training_samples(self, image: Image, target: Mask, labels: Mapping[int, str], *, seed: int) -> Samples:
        """Training samples of one case, drawn anew from `seed` at each visit; runs in worker processes."""

    def training_loss(self, batch: Any) -> Tensor:
        """The loss of a batch of such samples."""


class FitModule(pl.LightningModule):
    """AdamW with a cosine schedule; validation asks the model as `test` does.

    Args:
        task: whose `monitor` metric validation follows.
        model: an `nn.Module` that is `Trainable`.
        lr: learning rate at the start.
        weight_decay: of AdamW.
        warmup: fraction of the steps over which the rate rises from zero, 0 to 1.
    """

    def __init__(self, task: Task, model: Any, *, lr: float, weight_decay: float, warmup: float) -> None:
        super().__init__()
        self.task = task
        self.model = model
        self.lr, self.weight_decay, self.warmup = lr, weight_decay, warmup
        self._scores: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Returns the model's loss."""
        if isinstance(batch, Failure):
            raise UserError(f"case {batch.case_id!r} cannot be trained on: {batch.message}")
        loss: Tensor = self.model.training_loss(batch)
        self.log("train/loss", loss, on_step=False, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch: Sequence[Asked], batch_idx: int) -> None:
        """Keeps each case's mean of the monitored metric over its labels."""
        for asked in batch:
            if isinstance(asked.prompt, Failure):
                raise UserError(f"validation case {asked.prompt.message}")
            (answer,) = self.task.ask(self.model, [asked.prompt])
            scores = [score.value for score in self.task.score(asked.case, answer, metrics=[self.task.monitor])]
            known = [value for value in scores if not math.isnan(value)]
            if known:
                self._scores.append(sum(known) / len(known))

    def on_validation_epoch_end(self) -> None:
        """Logs the mean over cases of all ranks; NaN, which is never the best, when none could be judged."""
        total = torch.tensor([sum(self._scores), len(self._scores)], dtype=torch.float32, device=self.device)
        self._scores = []
        total = self.trainer.strategy.reduce(total, reduce_op="sum")
        self.log(f"val/{self.task.monitor}", total[0] / total[1], prog_bar=True)

    def configure_optimizers(self) -> Any:
        """The schedule is stepped per batch and ends at zero with the last one."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _cosine(steps, round(self.warmup * steps)))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def require_trainable(model: Any, name: str) -> None:
    """Raises UserError when a wrapper cannot be fitted."""
    if not (isinstance(model, nn.Module) and isinstance(model, Trainable)):
        raise UserError(
            f"model {name!r} cannot be fitted: fit needs an nn.Module with training_samples and training_loss; "
            f"{type(model).__name__} can only be tested"
        )


def _cosine(steps: int, warmup: int) -> Callable[[int], float]:
    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, steps - warmup))))

    return factor
