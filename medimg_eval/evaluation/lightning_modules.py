"""What Lightning runs: the modules that ask a model and that train a wrapper, and how far either has come."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import RichProgressBar
from torch import Tensor, nn

from medimg_eval.case import Case, Failure
from medimg_eval.data.datamodule import Samples
from medimg_eval.data.prompts import PreparedCase
from medimg_eval.errors import UserError
from medimg_eval.evaluation.predict import Predictor
from medimg_eval.evaluation.progress import PAUSE
from medimg_eval.evidence import EMPTY
from medimg_eval.tasks.base import Task


@runtime_checkable
class Trainable(Protocol):
    """Methods that `fit` needs of an `nn.Module` wrapper."""

    def training_samples(self, shown: Any, target: Any, labels: Mapping[int, str], *, seed: int) -> Samples:
        """Training samples of a case, drawn by `seed`, in workers.

        Args:
            shown: the `Image`; of a question or a classification the `Prompt`.
            target: the `Mask`; of a question the `Key`, of a classification the `Findings`.
            labels: of the task; empty where it has none.
            seed: of this visit.
        """

    def training_loss(self, batch: Any) -> Tensor:
        """Loss of a batch: stacked tensors by name, or lists."""


class FitModule(pl.LightningModule):
    """AdamW with a cosine schedule; validation asks the model as `test` does.

    It follows the task's `monitor`, and logs the metrics of `also`.
    """

    def __init__(
        self, task: Task, model: Any, *, lr: float, weight_decay: float, warmup: float, also: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.task = task
        self.model = model
        self.lr, self.weight_decay, self.warmup = lr, weight_decay, warmup
        self.context = EMPTY
        """What scores depend on beside their own case, such as the references of all."""
        self._followed = list(dict.fromkeys((task.monitor, *also)))
        self._scores: dict[str, list[float]] = {name: [] for name in self._followed}

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Returns the model's loss."""
        if isinstance(batch, Failure):
            raise UserError(f"case {batch.case_id!r} cannot be trained on: {batch.message}")
        loss: Tensor = self.model.training_loss(batch)
        size = len(batch) if isinstance(batch, list) else None  # which Lightning would take from the lengths of texts
        self.log("train/loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=size)
        return loss

    def validation_step(self, batch: Sequence[PreparedCase], batch_idx: int) -> None:
        """Keeps each case's mean of each metric over its labels."""
        unread = next((prepared.prompt for prepared in batch if isinstance(prepared.prompt, Failure)), None)
        if unread is not None:
            raise UserError(f"validation case {unread.message}")
        # Masks are large, and are judged one by one.
        for some in [[prepared] for prepared in batch] if self.task.codec.heavy else [batch]:
            prompts: Any = [prepared.prompt for prepared in some]
            for prepared, answer in zip(some, self.task.ask(self.model, prompts), strict=True):
                self._judge(prepared.case, answer)

    def _judge(self, case: Case, answer: Any) -> None:
        arguments: Any = {} if self.context == EMPTY else {"context": self.context}  # which not every task knows
        scores = self.task.score(case, answer, self._followed, **arguments)
        for name, values in self._scores.items():
            values_ = [score.value for score in scores if score.metric == name and not math.isnan(score.value)]
            if values_:
                values.append(sum(values_) / len(values_))

    def on_validation_epoch_end(self) -> None:
        """Logs means over all ranks' cases; NaN where none is judged."""
        sums = [[sum(values), len(values)] for values in self._scores.values()]
        self._scores = {name: [] for name in self._followed}
        total = self.trainer.strategy.reduce(
            torch.tensor(sums, dtype=torch.float32, device=self.device), reduce_op="sum"
        )
        for name, (total_, count) in zip(self._followed, total, strict=True):
            if name == self.task.monitor or count > 0:
                self.log(f"val/{name}", total_ / count, prog_bar=name == self.task.monitor)

    def configure_optimizers(self) -> Any:
        """Per-batch schedule that ends at zero with the last batch."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _cosine_schedule(steps, round(self.warmup * steps)))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def require_trainable(model: Any, name: str) -> None:
    """Raises UserError when a wrapper cannot be fitted."""
    if not (isinstance(model, nn.Module) and isinstance(model, Trainable)):
        raise UserError(
            f"model {name!r} cannot be fitted: fit needs an nn.Module with training_samples and training_loss; "
            f"{type(model).__name__} can only be tested"
        )


def _cosine_schedule(steps: int, warmup: int) -> Callable[[int], float]:
    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, steps - warmup))))

    return factor


class EvaluationModule(pl.LightningModule):
    """Lets a `Predictor` ask about each batch; Lightning moves its model to the device."""

    def __init__(self, asker: Predictor) -> None:
        super().__init__()
        self.asker = asker
        self.model = asker.model

    def on_test_start(self) -> None:
        """The clock starts when all is set up."""
        self.asker.start()

    def test_step(self, batch: Sequence[PreparedCase], batch_idx: int) -> None:
        """Predictions are on disk when this returns."""
        self.asker.step(batch)

    def on_test_end(self) -> None:
        """Every rank's scores are on disk before rank 0 puts them together."""
        self.asker.scorer.drain()
        self.trainer.strategy.barrier()


log = logging.getLogger(__name__)


def progress() -> pl.Callback:
    """The callback that suits where standard error goes."""
    return RichProgressBar() if sys.stderr.isatty() else LogProgress()


class LogProgress(pl.Callback):
    """Logs a loop's progress, every `PAUSE` seconds and finally."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Counts batches of this rank."""
        self._say("predicted", batch_idx + 1, int(trainer.num_test_batches[dataloader_idx]))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Counts epochs, with what was logged."""
        values = ", ".join(f"{name} {float(value):.4f}" for name, value in trainer.callback_metrics.items())
        self._say(f"epoch ({values})", trainer.current_epoch + 1, trainer.max_epochs or 0)

    def _say(self, what: str, done: int, total: int) -> None:
        if done == total or time.monotonic() - self._last > PAUSE:
            self._last = time.monotonic()
            log.info("%s %d/%d", what, done, total)
