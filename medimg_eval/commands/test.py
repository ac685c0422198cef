"""`test`: predict what is missing, score it, print the table."""

from __future__ import annotations

from omegaconf import DictConfig

from medimg_eval.commands.building import build_candidate, build_settings, build_tasks
from medimg_eval.commands.common import fail_if_cases_failed, plain, show
from medimg_eval.errors import UsageError
from medimg_eval.evaluation.evaluate import evaluate, refuse_incapable
from medimg_eval.results import build_table, load_runs


def run(config: DictConfig) -> None:
    """Runs one model on the named task or on every task of the suite.

    Raises:
        UserError: a case failed, after all others were scored and the table was printed.
    """
    wanted = plain(config)
    tasks = build_tasks(wanted)
    candidate = build_candidate(wanted["model"])
    for task in tasks:
        refuse_incapable(task, candidate)
    settings = build_settings(wanted)
    if settings.run is not None and len(tasks) > 1:
        raise UsageError(f"run={settings.run} names one folder, but there are {len(tasks)} tasks; use runs=DIR")
    folders = [evaluate(task, candidate, settings) for task in tasks]
    if settings.rank == 0:
        show(build_table(load_runs(folders)))
        fail_if_cases_failed(folders)
