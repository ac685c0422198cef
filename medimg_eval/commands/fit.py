"""`fit`: train a model; its best checkpoint is then a model for `test`."""

from __future__ import annotations

import itertools
import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from medimg_eval.api import train_one
from medimg_eval.configs.overrides import plain
from medimg_eval.system import rank

log = logging.getLogger(__name__)


def run(config: DictConfig) -> None:
    """Trains on the task's `fit` cases and says how to test the result."""
    overrides = HydraConfig.get().overrides.task
    folder = train_one(plain(config), overrides)
    if rank() == 0:
        log.info("to test it: python -m medimg_eval %s", shlex.join(_to_test(overrides, folder)))


_SHARED = ("task", "model", "folds=", "fraction=", "shots=", "draws=")
"""How the words begin that a test needs as the fit had them."""


def _to_test(overrides: Sequence[str], folder: Path) -> list[str]:
    """The words that test what these words fitted."""
    flags = itertools.takewhile(lambda word: word.startswith("-") or "=" not in word, sys.argv[2:])
    about = [word for word in overrides if word.lstrip("+~").startswith(_SHARED)]
    choices = HydraConfig.get().runtime.choices
    named = [f"{group}={choices[group]}" for group in ("task", "model")]
    return ["test", *flags, *named, *(word for word in about if word not in named), f"model.checkpoint={folder}"]
