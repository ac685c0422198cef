"""Progress of a trainer: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import RichProgressBar

from medimg_eval.evaluation.tracking import PAUSE

log = logging.getLogger(__name__)


def progress() -> pl.Callback:
    """The callback that suits where standard error goes."""
    return RichProgressBar() if sys.stderr.isatty() else LogProgress()


class LogProgress(pl.Callback):
    """Logs how far a loop has come, at most every `PAUSE` seconds and at its end."""

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
