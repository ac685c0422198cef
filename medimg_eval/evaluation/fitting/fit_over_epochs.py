"""Trains a network over epochs with Lightning, which takes longer to import than many a head to be fitted."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import Logger

from medimg_eval.data.datamodule import CaseDataModule
from medimg_eval.errors import UserError, interruptions
from medimg_eval.evaluation.lightning_modules import FitModule, require_trainable
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import prepare_model
from medimg_eval.evaluation.predict import model_info
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evidence import EMPTY_EVIDENCE
from medimg_eval.metrics import parse
from medimg_eval.metrics.registry import required
from medimg_eval.tasks import Task

if TYPE_CHECKING:
    from medimg_eval.evaluation.fitting.fit import Recipe


def train_over_epochs(
    task: Task, candidate: ModelSpec, recipe: Recipe, settings: Settings, run: Run, loggers: Sequence[Logger]
) -> float:
    """Trains on from the last checkpoint; returns the best score of the monitor.

    Raises:
        UserError: the model cannot be trained, or no validation could be judged.
    """
    model: Any = candidate.model
    require_trainable(model, candidate.name)
    prepare_model(task, model, task.cases("fit"))
    model.train()  # what was loaded may come as it is used
    context = task.context(task.cases("validate"), {}, EMPTY_EVIDENCE)
    run.note(model_info=model_info(candidate))
    data = CaseDataModule(
        task,
        batch_size=settings.batch_size or 1,
        num_workers=settings.num_workers,
        sample=partial(model.training_samples, labels=task.numbered_labels()),
        cache=settings.cache,
    )
    best, callbacks = _make_callbacks(task, recipe, run.folder)
    trainer = settings.trainer(callbacks=callbacks, logger=list(loggers), enable_model_summary=False)
    # What is logged beside the monitored metric takes no time, and no further model; metrics of masks take longer than
    # training does.
    quick = () if task.codec.heavy else task.case_metrics
    also = [name for name in quick if not (required(name) or parse(name)[0].intermediate)]
    module = FitModule(task, model, lr=recipe.lr, weight_decay=recipe.weight_decay, warmup=recipe.warmup, also=also)
    module.context = context
    last = run.folder / "checkpoints" / "last.ckpt"
    try:
        with interruptions():
            trainer.fit(module, datamodule=data, ckpt_path=str(last) if last.is_file() else None, weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{last}: holds objects, which a checkpoint of fit does not, and is not loaded; remove {run.folder}"
        ) from error
    if best.best_model_score is None or not best.best_model_score.isfinite():
        raise UserError(f"{run.folder}: no validation could be judged by {task.monitor}; look at the cases to validate")
    keep = getattr(model, "keep_fitted", None)
    if callable(keep) and settings.rank == 0:
        run.note(fitted=keep(run.folder / "checkpoints" / "best.ckpt", run.folder))
    return float(best.best_model_score)


def _make_callbacks(task: Task, recipe: Recipe, folder: Path) -> tuple[ModelCheckpoint, list[pl.Callback]]:
    higher = parse(task.monitor)[0].higher_is_better
    watched: dict[str, Any] = {"monitor": f"val/{task.monitor}", "mode": "max" if higher else "min"}
    best, last = (
        ModelCheckpoint(folder / "checkpoints", filename=name, enable_version_counter=False, **options)
        # `save_last` would only follow the best one; training goes on from the end of any epoch.
        for name, options in (("best", watched), ("last", {"every_n_epochs": 1, "save_on_train_epoch_end": True}))
    )
    callbacks: list[pl.Callback] = [best, last, LearningRateMonitor("epoch")]
    if recipe.patience is not None:
        callbacks.append(EarlyStopping(patience=recipe.patience, check_finite=False, **watched))
    if recipe.ema is not None:
        callbacks.append(EMAWeightAveraging(decay=recipe.ema))
    return best, callbacks
