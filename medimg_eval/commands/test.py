"""`test`: predict what is missing, score it, print the table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.commands.building import build_settings, build_tasks
from medimg_eval.commands.console import fail_if_cases_failed, plain, show
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.evaluation import pipeline
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import refuse_incapable
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import build_candidate, build_task
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.runs import BLIND
from medimg_eval.tasks import QuestionTask, Task

log = logging.getLogger(__name__)

WAYS = ("remove", "grey")


def run(config: DictConfig) -> None:
    """Runs one model on the named task or on every task of the suite.

    Raises:
        UserError: a case failed, after all others were scored and the table was printed.
    """
    wanted = plain(config)
    tasks = [_seeded(task, wanted["seed"]) for task in build_tasks(wanted)]
    candidate = build_candidate(wanted["model"])
    blind = wanted["blind"]
    if blind is not None:
        tasks, candidate = [_blinded(task, blind) for task in tasks], _called_blind(candidate, blind)
    for task in tasks:
        refuse_incapable(task, candidate)
        if wanted["baselines"] and not task.baselines():
            raise UsageError(f"task {task.name!r} asks for no words and no classes, so there are no baselines for it")
    settings = build_settings(wanted)
    if settings.run is not None and (len(tasks) > 1 or wanted["baselines"]):
        raise UsageError(f"run={settings.run} names one folder, but there are several runs to make; use runs=DIR")
    folders = [pipeline.test(task, candidate, settings).folder for task in tasks]
    if wanted["baselines"]:
        folders += _baselines(tasks, candidate, settings, blind)
    if settings.rank == 0:
        show(build_table(load_runs(folders)))
        fail_if_cases_failed(folders)


def _seeded(task: Task, seed: int) -> Task:
    """The task whose draws follow the run's seed; 0 is what they follow by themselves."""
    changed = task.seeded(seed) if seed else {}
    return build_task({**task.config, **changed}) if changed else task


def _baselines(tasks: Sequence[Task], candidate: ModelSpec, settings: Settings, blind: str | None) -> list[Path]:
    """Asks those that models are compared with: what needs no weights and, of questions, the model blind."""
    folders = []
    for task in tasks:
        changed = task.for_baselines()
        asked = build_task({**task.config, **changed}) if changed else task
        for name, config in task.baselines().items():
            one = build_candidate({**config, "name": name})
            try:
                folders.append(pipeline.test(asked, replace(one, baseline=True), settings).folder)
            except UserError as error:  # such as one that has no answers to learn from
                log.warning("%s is left out of task %s: %s", name, task.name, error)
        if blind is None and isinstance(task, QuestionTask):
            folders.append(pipeline.test(_blinded(task, "remove"), _called_blind(candidate, "remove"), settings).folder)
    return folders


def _called_blind(candidate: ModelSpec, how: str) -> ModelSpec:
    # Tables take runs of one name for the same; the same object loads both, so that the model is loaded once.
    seen = ", grey images" if how == "grey" else ""
    return replace(candidate, name=f"{candidate.name}{seen}{BLIND}", load=lambda: candidate.model, baseline=True)


def _blinded(task: Task, how: str) -> Task:
    if how not in WAYS:
        raise UsageError(f"there is no way of being blind called {how!r}{nearest(str(how), WAYS)}")
    if not isinstance(task, QuestionTask):
        raise UsageError(f"task {task.name!r} asks no questions; blind= is for tasks that do")
    return build_task({**task.config, "blind": how})
