"""Runs by the pipeline, as the tests name them: a task and a model in, the run folder out."""

from dataclasses import replace
from pathlib import Path

from medimg_eval.evaluation import pipeline
from medimg_eval.evaluation.settings import Settings
from medimg_eval.results import Table
from medimg_eval.tasks import Task


def evaluate(task: Task, model, settings: Settings) -> Path:
    """Brings a run to its end; returns its folder."""
    return pipeline.test(task, model, settings).folder


def rescore(folder: Path, task: Task, workers=None, annotators=None, extractors=None, may_leave=None, **more) -> Table:
    """Judges stored predictions again; returns the table."""
    settings = Settings(
        config={"may_leave": may_leave},
        score_workers=workers,
        annotators=annotators or {},
        extractors=extractors or {},
    )
    return pipeline.rescore(folder, task, replace(settings, **more)).table
