"""`test`: predict what is missing, score it, print the table."""

from __future__ import annotations

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from medimg_eval.api import run_tests
from medimg_eval.commands.console import show
from medimg_eval.commands.products.acceptance import finish_runs
from medimg_eval.configs.overrides import plain
from medimg_eval.results import build_table, load_runs
from medimg_eval.system import rank


def run(config: DictConfig) -> None:
    """Runs one model on the named task or on every task of the suite.

    Raises:
        UserError: a case failed, or a run does not meet what was asked of it, after all others were scored and the
            table was printed.
    """
    wanted = plain(config)
    done = run_tests(wanted, HydraConfig.get().overrides.task)
    if rank() == 0:
        folders = [one.folder for one in done]
        show(done[0].table if len(done) == 1 else build_table(load_runs(folders)))
        finish_runs(folders, wanted)
