"""The stages of a run, in order: prepare, predict, gather evidence, score, summarise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from medimg_eval.evaluation.evidence_stages import gather_evidence
from medimg_eval.evaluation.plan import Plan, prepare, reopen
from medimg_eval.evaluation.score import score
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evaluation.summarise import summarise

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec
    from medimg_eval.evaluation.run import Run
    from medimg_eval.tasks import Task


def test(task: Task, model: ModelSpec, settings: Settings) -> Run:
    """Brings a run to its end: from nothing, or from wherever an earlier start stopped.

    Returns:
        The run; on rank 0 its folder then holds scores.parquet and summary.json, and it has its table.

    Raises:
        UserError: the task has no cases, something is missing, or the folder is in use or holds another run.
    """
    from medimg_eval.evaluation.predict import predict  # imports torch, which scoring does without

    with prepare(task, model, settings) as plan:
        predict(plan)
        if settings.rank == 0:
            _judge(plan)
    return plan.run


def rescore(folder: Path, task: Task, settings: Settings) -> Run:
    """Judges the stored predictions of a run again, loading no model: what is fresh stays as it is.

    Args:
        folder: the run.
        task: as it is to be judged now, with all metrics that the run is to have; its cases must be those of the run.
        settings: of which the judge, annotators, extractors, `score_workers` and `config` count.

    Raises:
        UserError: the run's data have changed, it is not done, or it is in use.
    """
    with reopen(folder, task, settings) as plan:
        _judge(plan)
    return plan.run


def _judge(plan: Plan) -> None:
    context = gather_evidence(plan)
    keys = score(plan, context)
    summarise(plan, keys)
