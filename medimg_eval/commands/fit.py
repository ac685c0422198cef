"""`fit`: train a model; its best checkpoint is then a model for `test`."""

from __future__ import annotations

import logging

from omegaconf import DictConfig

from medimg_eval.commands.building import build_candidate, build_loggers, build_settings, build_tasks, plain
from medimg_eval.evaluation.evaluate import refuse_incapable
from medimg_eval.evaluation.fit import Recipe, fit

log = logging.getLogger(__name__)


def run(config: DictConfig) -> None:
    """Trains on the task's `fit` cases and says how to test the result."""
    wanted = plain(config)
    (task,) = build_tasks(wanted)
    candidate = build_candidate(wanted["model"])
    refuse_incapable(task, candidate)
    settings = build_settings(wanted)
    folder = fit(task, candidate, Recipe(**wanted["fit"]), settings, build_loggers(wanted["logger"]))
    if settings.rank == 0:
        choice = next((word for word in settings.overrides if word.startswith("model=")), "model=unet_small")
        log.info("to test it: python -m medimg_eval test task=%s %s model.checkpoint=%s", task.name, choice, folder)
