"""`fit`: train a model; its best checkpoint is then a model for `test`."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from medimg_eval.commands.building import build_loggers, build_settings, build_tasks
from medimg_eval.commands.console import plain
from medimg_eval.evaluation.fit import Recipe, fit
from medimg_eval.evaluation.plan import refuse_incapable
from medimg_eval.instantiate import build_candidate

log = logging.getLogger(__name__)


def run(config: DictConfig) -> None:
    """Trains on the task's `fit` cases and says how to test the result."""
    wanted = plain(config)
    trainer = wanted["trainer"]
    every, epochs = trainer.get("check_val_every_n_epoch"), trainer.get("max_epochs")
    if every and epochs and 0 < epochs < every:
        trainer["check_val_every_n_epoch"] = epochs  # or a short run would end without having been validated
    (task,) = build_tasks(wanted)
    candidate = build_candidate(wanted["model"])
    refuse_incapable(task, candidate)
    settings = build_settings(wanted)
    folder = fit(task, candidate, Recipe(**wanted["fit"]), settings, build_loggers(wanted["logger"]))
    if settings.rank == 0:
        log.info("to test it: python -m medimg_eval %s", " ".join(_to_test(settings.overrides, folder)))


def _to_test(overrides: Sequence[str], folder: Path) -> list[str]:
    """The words that test what these words fitted."""
    flags = itertools.takewhile(lambda word: word.startswith("-") or "=" not in word, sys.argv[2:])
    about = [word for word in overrides if word.lstrip("+~").startswith(("task", "model"))]
    choices = HydraConfig.get().runtime.choices
    named = [f"{group}={choices[group]}" for group in ("task", "model")]
    return ["test", *flags, *named, *(word for word in about if word not in named), f"model.checkpoint={folder}"]
