"""Runs by the pipeline, as the tests name them: a task and a model in, the run folder out; the task stays as it was."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from medimg_eval.evaluation import pipeline
from medimg_eval.evaluation.settings import Settings
from medimg_eval.results import Table
from medimg_eval.tasks import Task


def evaluate(task: Task, model, settings: Settings) -> Path:
    """Brings a run to its end; returns its folder."""
    with unchanged(task):
        return pipeline.test(task, model, settings).folder


def rescore(folder: Path, task: Task, workers=None, annotators=None, extractors=None, may_leave=None, **more) -> Table:
    """Judges stored predictions again; returns the table."""
    settings = Settings(
        config={"may_leave": may_leave},
        score_workers=workers,
        annotators=annotators or {},
        extractors=extractors or {},
    )
    with unchanged(task):
        return pipeline.rescore(folder, task, replace(settings, **more)).table


@contextmanager
def unchanged(task: Task) -> Iterator[None]:
    """Whatever happens to a task: its fields stay the same, and equal their copies; it keeps what it computes alone."""
    held = {one.name: getattr(task, one.name) for one in fields(task)}
    before: dict[str, Any] = {}
    for name, value in held.items():
        with suppress(Exception):  # models and layouts of tests can hold what has no copy
            copy = deepcopy(value)
            before |= {name: copy} if copy == value else {}
    assert {"metrics", "facts", "splits"} <= set(before)
    attributes = {*vars(task), *(name for kind in type(task).__mro__ for name in vars(kind))}
    yield
    assert [name for name, value in held.items() if getattr(task, name) is not value] == []
    assert {name: getattr(task, name) for name in before} == before
    assert set(vars(task)) <= attributes
