"""Trains a wrapper on a task; the best checkpoint is then a model for `test`."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medimg_eval.case import Case
from medimg_eval.data.leaks import find_leaks, note_leaks
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.fitting.fit_at_once import learn_at_once
from medimg_eval.evaluation.identity import data_fingerprint, slug
from medimg_eval.evaluation.leaving import note_sent, permit, permit_trackers
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import begin, placed, task_identity
from medimg_eval.evaluation.run import Run, now
from medimg_eval.evaluation.settings import Settings
from medimg_eval.metrics import parse
from medimg_eval.metrics.registry import required
from medimg_eval.store import digest
from medimg_eval.tasks import Task

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes:
        lr: AdamW's learning rate.
        weight_decay: of AdamW.
        warmup: fraction of the steps in which the rate rises, 0 to 1; a cosine takes it to zero after.
        ema: decay of an exponential moving average of the weights, or None for none.
        patience: validations without a better score before training stops, or None to go to the end.
    """

    lr: float = 1e-3
    weight_decay: float = 1e-5
    warmup: float = 0.0
    ema: float | None = None
    patience: int | None = None


def fit(
    task: Task,
    candidate: ModelSpec,
    recipe: Recipe,
    settings: Settings,
    loggers: Callable[[Path], Sequence[Logger]],
) -> Path:
    """Trains to the last epoch, resuming checkpoints; returns the folder.

    The task needs cases to `fit` and to `validate`, the candidate `training_samples` and `training_loss` of
    `Trainable`. `settings.config["trainer"]` holds the number of epochs; `checkpoints/best.ckpt` has the best
    validation score.

    Raises:
        UsageError: the metric to follow is not named, has no direction, or needs another model.
        UserError: the model cannot be fitted, the task has no such cases, or the folder is in use.
    """
    at_once = callable(getattr(candidate.wrapper, "learn", None))
    if not at_once:
        _refuse_unfollowable(task)
    cases = {part: task.cases(part) for part in ("fit", "validate") if part in task.splits or not at_once}
    _keep_apart(task, cases)
    fingerprint = data_fingerprint([case for some in cases.values() for case in some])
    settled = {
        "task": task_identity(task),
        "monitor": [task.monitor, task.signature()],
        "model": candidate.identity,
        "data": fingerprint,
        "fit": settings.config.get("fit"),
        "batch_size": settings.batch_size or 1,
        "seed": settings.seed,
        # The number of processes multiplies the batch, so places count here.
        "trainer": settings.config.get("trainer"),
    }
    run_id, folder = placed(
        [digest(settled | {"model": candidate.settled_identity}), digest(settled)],
        settings.run,
        settings.runs / "fit" / task.name / slug(candidate.name),
    )
    with Run(folder, run_id, settings.rank) as run:
        if run.manifest.get("status") == "finished":
            best_before = run.manifest.get("best_score")
            scored = "" if best_before is None else f", with val/{task.monitor} {best_before:.4f}"
            log.info("%s: was fitted before%s", folder, scored)
            return folder
        loggers_ = [] if at_once else list(loggers(folder))  # of epochs, which a head that is fitted at once has not
        sent = permit(task, settings.may_leave, "model", candidate.name, candidate.model, ["images", "questions"])
        sent += permit_trackers(task, settings.may_leave, loggers_)
        begin(run, "fit", task, candidate, settings, fingerprint, work_left=True)
        run.note(cases={part: len(part_cases) for part, part_cases in cases.items()}, task_config=dict(task.config))
        parts = dict(cases)
        with contextlib.suppress(UserError):
            parts["test"] = task.cases("test")
        leaks = find_leaks(task, parts, lookalikes=settings.lookalikes)
        note_leaks(task, leaks, folder)
        run.note(leaks=leaks.as_record(lookalikes=settings.lookalikes))
        note_sent(run, sent, sum(map(len, cases.values())))
        if at_once:
            best = learn_at_once(task, candidate, cases, settings, run)
        else:
            from medimg_eval.evaluation.fitting.fit_over_epochs import train_over_epochs

            best = train_over_epochs(task, candidate, recipe, settings, run, loggers_)
        if best is not None:
            run.note(best_score=best)
        run.note(status="finished", ended=now())
    return folder


def _refuse_unfollowable(task: Task) -> None:
    directed = [name for name in task.case_metrics if parse(name)[0].higher_is_better is not None]
    choice = f"set task.monitor to one with a direction, such as {directed[0] if directed else 'dice'}"
    if not task.monitor:
        raise UsageError(f"task {task.name!r} names no metric for fit to follow; {choice}")
    metric = parse(task.monitor)[0]
    if metric.higher_is_better is None:
        raise UsageError(f"task.monitor is {task.monitor}, of which neither more nor less is better; {choice}")
    if needs := [need.topic or need.provider for need in required(task.monitor)]:
        raise UsageError(
            f"task.monitor is {task.monitor}, which needs {' and '.join(needs)}; fit follows metrics that take no "
            "other model, such as rouge_l"
        )


def _keep_apart(task: Task, cases: Mapping[str, Sequence[Case]]) -> None:
    """Refuses patients or cases that parts share, but under a published protocol, where it is warned of."""
    if task.protocol == "published":
        return
    parts = dict(cases)
    with contextlib.suppress(UserError):  # a dataset to train on need not hold test cases, or all of them
        parts["test"] = task.cases("test")
    # Without patient ids, cases of one name are one case only if they are read from the same files.
    patients = {
        name: {case.patient or f"{case.id} ({case.files[0]})" for case in part_cases}
        for name, part_cases in parts.items()
    }
    for first, second in itertools.combinations(patients, 2):
        if shared := sorted(patients[first] & patients[second]):
            raise UserError(
                f"task {task.name!r}: {len(shared)} patients are in both {first} and {second}, such as {shared[0]!r}; "
                "a split to fit on must keep patients apart, whatever layout.allow_overlap accepts"
            )
