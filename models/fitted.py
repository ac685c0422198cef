"""What models share that `fit` trains and keeps in the folder of its run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from medimg_eval.errors import UserError
from medimg_eval.models.base import Example

CHECKPOINTS = "checkpoints"
"""Where a fit run keeps what was fitted."""


def fitted_folder(checkpoint: str) -> Path:
    """Folder of fitted files: `checkpoints/` of a run, else itself.

    Raises:
        UserError: it holds a model for each fold or size.
    """
    run = Path(checkpoint).expanduser()
    refuse_folds(run)
    return run / CHECKPOINTS if (run / CHECKPOINTS).is_dir() else run


def refuse_folds(run: Path) -> None:
    """Raises UserError for a folder of several folds or sizes."""
    if (run / "fold-0").is_dir():
        raise UserError(
            f"{run}: holds a model for each fold or size; test with folds, fraction, shots and draws as they were "
            f"fitted, or name one as {run}/fold-0"
        )


class FittedNetwork:
    """Network that answers only for the classes of its `fit`.

    A model sets `checkpoint`, the folder of a `fit` run or None, and gives `_load`, which makes `_fitted` of it once.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("checkpoint",)
    checkpoint: str | None
    _fitted: Any

    def check_ready(self) -> None:
        """Raises UserError where there is no fitted network."""
        if self.checkpoint is None and self._fitted is None:
            raise UserError("model.checkpoint is not set: fit the model first, and name the run's folder")
        self._load()

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Takes nothing from the task: classes are those it was fitted on."""

    def _load(self) -> None:
        raise NotImplementedError
