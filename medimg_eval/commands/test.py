"""`test`: predict what is missing, score it, print the table; of one model, or of each checkpoint of a training."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from medimg_eval.api import estimate_sheet, run_checkpoints, run_estimates, run_tests
from medimg_eval.commands.console import say, say_written, show, show_sheets
from medimg_eval.commands.products.acceptance import check_criteria, finish_runs
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.shards import tells
from medimg_eval.results import build_table, load_runs
from medimg_eval.system import rank

PAUSE = 30.0
"""Seconds between two looks into a folder that is watched."""


def run(config: DictConfig) -> None:
    """Tests a model on a task or a suite's tasks.

    Raises:
        UserError: a case or a checkpoint failed, or a run does not meet what was asked of it, after all others were
            scored and the table was printed.
    """
    if config.checkpoints is not None:
        if OmegaConf.is_missing(config.model, "checkpoint"):
            config.model.checkpoint = str(config.checkpoints)
        _test_checkpoints(plain(config))
        return
    if config.watch:
        raise UsageError("watch=true looks for new checkpoints; name their folder by checkpoints=FOLDER")
    wanted = plain(config)
    if wanted["estimate"]:
        show_sheets([estimate_sheet(run_estimates(wanted, HydraConfig.get().overrides.task))])
        return
    check_criteria(wanted)
    done = run_tests(wanted, HydraConfig.get().overrides.task)
    if done := [result for result in done if tells(result.manifest, wanted["shard"], rank())]:
        folders = [result.folder for result in done]
        show(done[0].table if len(done) == 1 else build_table(load_runs(folders)))
        finish_runs(folders, wanted)


def _test_checkpoints(wanted: Mapping[str, Any]) -> None:
    """Evaluates new checkpoints, printing rows and curves; optionally waits for more."""
    check_criteria(wanted)
    aside, first = Console(stderr=True), True
    while True:
        done = run_checkpoints(wanted, HydraConfig.get().overrides.task)
        for scores in done if first or any(scores.new for scores in done) else ():
            if len(scores.runs):
                show(scores.table)
                say_written(scores.write())
            for path in scores.waiting:
                say(
                    aside,
                    f"! {path}: is not whole, and left until it is",
                )
        if not wanted["watch"]:
            break
        first = False
        time.sleep(PAUSE)
    failed = {path: error for scores in done for path, error in scores.failures.items()}
    if failed:
        lines = [f"{len(failed)} checkpoints could not be evaluated; the same command tries them again:"]
        raise UserError("\n".join([*lines, *(f"  {path}: {error}" for path, error in failed.items())]))
    finish_runs([run.folder for scores in done for run in scores.runs], wanted)
