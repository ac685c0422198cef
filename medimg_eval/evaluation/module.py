"""The Lightning module that asks a model, for runs on several devices and for those that need Lightning's precision."""

from __future__ import annotations

from collections.abc import Sequence

import lightning.pytorch as pl

from medimg_eval.data.asking import Asked
from medimg_eval.evaluation.asking import Asker


class EvaluationModule(pl.LightningModule):
    """Lets an `Asker` ask about each batch.

    Args:
        asker: its model, when that is an `nn.Module`, is moved to the device by Lightning.
    """

    def __init__(self, asker: Asker) -> None:
        super().__init__()
        self.asker = asker
        self.model = asker.model

    def on_test_start(self) -> None:
        """The clock starts when all is set up."""
        self.asker.start()

    def test_step(self, batch: Sequence[Asked], batch_idx: int) -> None:
        """Predictions are on disk when this returns."""
        self.asker.step(batch)

    def on_test_end(self) -> None:
        """Every rank's scores are on disk before rank 0 puts them together."""
        self.asker.scorer.drain()
        self.trainer.strategy.barrier()
