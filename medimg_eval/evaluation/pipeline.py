"""The stages of a run, in order: prepare, predict, gather evidence, score, summarise; without a truth the first two."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from medimg_eval.data.leaks import find_leaks, note_leaks
from medimg_eval.data.prompts import reading_ahead
from medimg_eval.evaluation.observe import gather_evidence
from medimg_eval.evaluation.plan import Plan, judges_of, prepare, reopen
from medimg_eval.evaluation.run import Run, answered, now
from medimg_eval.evaluation.score import score
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evaluation.shards import Shard, left_to
from medimg_eval.evaluation.summarise import conclude, summarise, track

if TYPE_CHECKING:
    from medimg_eval.evaluation.manifest import Manifest
    from medimg_eval.evaluation.model_spec import ModelSpec
    from medimg_eval.evidence import Context
    from medimg_eval.tasks import Task

log = logging.getLogger(__name__)


def test(task: Task, model: ModelSpec, settings: Settings) -> Run:
    """Completes a run, from nothing or an earlier start.

    Returns:
        The run; on rank 0 its folder then holds scores.parquet and summary.json, and it has its table.

    A task without a truth ends with its answers: there is no table.

    Raises:
        UserError: the task has no cases, something is missing, or the folder is in use or holds another run.
    """
    with prepare(task, model, settings) as plan:
        if task.leaks == "refuse":
            _look_for_leaks(plan)
        num_workers = settings.num_workers if getattr(model.wrapper, "reads_images", True) else 0
        with reading_ahead(task, [plan.case_of[trial.case] for trial in plan.left], num_workers):
            from medimg_eval.evaluation.predict import predict  # imports torch, which scoring does without

            predict(plan)
        if settings.shard is not None:
            plan.run.note(ended=now())
        elif settings.rank == 0:
            if len(plan.cases) == len(plan.every):  # after the answers: to list other parts may take longer than one
                _look_for_leaks(plan)
            (_ask_judges if task.has_truth else conclude)(plan)
    return plan.run if settings.shard is None else _merge_shards(plan, settings.shard)


def _merge_shards(plan: Plan, shard: Shard) -> Run:
    """Completes a run after its last shard; else reports what is left."""
    run, task = plan.run, plan.task
    stored_predictions = run.predictions()
    if unasked := [trial for trial in plan.trials if trial.id not in stored_predictions]:
        unfinished = left_to(run.folder, plan.every, unasked)
        done = f"shard {shard} is done, and {len(unasked)} of {len(plan.trials)} cases are left"
        log.warning("%s: %s%s", run.folder, done, f" to {unfinished}" if unfinished else "")
        return run
    if run.has_shards_at_work():
        log.warning("%s: shard %s is done; another one is at work yet, and merges", run.folder, shard)
        return run
    with Run(run.folder, run.run, beside_shards=True) as merged:
        plan = replace(plan, run=merged)
        if len(plan.cases) == len(plan.every):
            _look_for_leaks(plan)
        (_ask_judges if task.has_truth else conclude)(plan)
    return merged


def rescore(folder: Path, task: Task, settings: Settings) -> Run:
    """Scores stored predictions again, without a model; fresh ones stay.

    The task is as it is to be judged now, with all metrics that the run is to have; its cases must be those of the run.
    Of the settings the judge, annotators, extractors, `score_workers` and `config` count.

    Raises:
        UserError: the run's data have changed, it is not done, or it is in use.
    """
    with reopen(folder, task, settings) as plan:
        _ask_judges(plan)
    return plan.run


def _look_for_leaks(plan: Plan) -> None:
    """Notes shared cases of a task's parts; warns or refuses."""
    noted, wanted = plan.run.manifest.get("leaks"), plan.settings.lookalikes
    if noted is None or (wanted and not noted.get("lookalikes")):
        leaks = find_leaks(plan.task, lookalikes=wanted)
        note_leaks(plan.task, leaks, plan.run.folder)
        plan.run.note(leaks=leaks.as_record(lookalikes=wanted))


def _ask_judges(plan: Plan) -> None:
    context = _gather_context(plan)
    keys = score(plan, context)
    summarise(plan, keys, context)
    track(plan)


def _gather_context(plan: Plan) -> Context:
    """Observations of all providers, and the context of scores."""
    task, run = plan.task, plan.run
    with run.stage("evidence", len(plan.trials)) as counts:
        evidence = gather_evidence(task, run, plan.shown, {**plan.sources, **judges_of(plan)})
        context = task.context(plan.cases, run.predictions(), evidence)
        if context.facts:
            noted: dict[str, Any] = {**run.manifest}
            run.note(**cast("Manifest", {key: {**noted.get(key, {}), **facts} for key, facts in context.facts.items()}))
        task.artefacts(context, run.folder)
        counts["done"] = sum(answered(prediction) for prediction in run.predictions().values())
    return context
