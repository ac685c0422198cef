"""What judges, annotators, networks and extractors say of stored predictions: the stages, one after the other."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.evidence import (
    judge_answers,
    judge_sets,
    perceive,
    read_reports,
    refuse_unfit,
    refuse_unready,
    refuse_unready_networks,
    refuse_unready_sets,
)
from medimg_eval.evaluation.identity import digest
from medimg_eval.evaluation.leaving import Sent, note_sent, permit_judge, permit_readers
from medimg_eval.evaluation.run import answered
from medimg_eval.evidence import Context, Evidence, Observation
from medimg_eval.metrics import parse
from medimg_eval.metrics.registry import Requirement
from medimg_eval.tasks import QuestionTask, ReconstructionTask, ReportTask, Task

if TYPE_CHECKING:
    from medimg_eval.evaluation.plan import Plan
    from medimg_eval.evaluation.settings import Settings
    from medimg_eval.models import Model


def refuse_unready_evidence(task: Task, settings: Settings, *, judged: bool) -> list[Sent]:
    """Raises UserError, before a model is loaded, for every provider that cannot be asked.

    Args:
        task: whose metrics need them.
        settings: the providers.
        judged: whether there is a judge to ask, or one has been asked.

    Returns:
        What providers on other machines are sent.
    """
    judge = settings.judge
    if judge is not None and isinstance(task, QuestionTask) and task.judge:
        if not callable(getattr(judge.wrapper, "generate", None)):
            raise UsageError(
                f"judge {judge.name!r} ({judge.wrapper.__name__}) cannot write; name a model with generate()"
            )
        refuse_unfit(task, judge.config, judge.name)
        if getattr(judge.wrapper, "remote", False):  # only then is it loaded, which such models are in no time
            permit_judge(task, settings.may_leave, judge.name, judge.model)
    refuse_unready(task, settings.annotators, judge=judged)
    refuse_unready_sets(task, settings.extractors)
    refuse_unready_networks(task, settings.annotators)
    return permit_readers(task, settings.may_leave, settings.annotators, settings.extractors)


def required(name: str) -> tuple[Requirement, ...]:
    """What other models must have said for a metric."""
    found, parameter = parse(name)
    topics = found.asks or (
        (str(parameter),) if found.function.__module__.startswith("medimg_eval.metrics.judges.") else ()
    )
    return (
        *(Requirement("annotation", one) for one in found.reads),
        *(Requirement("verdict", "judge", topic) for topic in topics),
    )


def gather_evidence(plan: Plan) -> Context:
    """Has every provider say what metrics need; what was said before is not asked again."""
    task, run, settings = plan.task, plan.run, plan.settings
    with run.stage("evidence", len(plan.trials)) as counts:
        if isinstance(task, QuestionTask):
            _judge(plan, task)
        read_reports(task, run, plan.cases, settings.annotators)
        judge_sets(task, run, plan.cases, settings.extractors)
        if isinstance(task, ReconstructionTask):
            perceive(task, run, plan.cases, settings.annotators, {name: [] for name in run.predictions()})
        predictions = run.predictions()
        task.take(predictions)
        counts["done"] = sum(answered(one) for one in predictions.values())
    digests = run.digests()
    depends = task.together or isinstance(task, ReportTask)
    return Context(_evidence(plan), digest=digest(sorted(digests.items()), 16) if depends else "")


def _evidence(plan: Plan) -> Evidence:
    task, said = plan.task, {}
    if not isinstance(task, QuestionTask):
        return Evidence()
    for case, verdicts in plan.run.verdicts().items():
        for topic, value in verdicts.items():
            said["judge", topic, case] = Observation(value)
    for case, readings in task.readings.items():
        for name, reading in readings.items():
            said[name, "", case] = Observation(hashlib.blake2b(pickle.dumps(reading), digest_size=8).hexdigest())
    provenance = dict(task.annotated_by) | ({"judge": task.judged_by} if task.judged_by else {})
    return Evidence(provenance, said)


def _judge(plan: Plan, task: QuestionTask) -> None:
    """Has the judge look at the answers; without one, verdicts that an earlier start has asked for stay."""
    run, settings, judge = plan.run, plan.settings, plan.settings.judge
    if judge is None or not task.judge:
        task.judged_by = run.manifest.get("judge", {}).get("id", "")
        return
    from torch import nn  # takes seconds, which scoring without a judge can do without

    from medimg_eval.evaluation.plan import slug
    from medimg_eval.evaluation.predict import device_of, in_use

    trainer = settings.config.get("trainer") or run.manifest["config"].get("trainer") or {}
    precision = str(trainer.get("precision", "32-true"))
    identity = judge.identity
    if issubclass(judge.wrapper, nn.Module) and precision != "32-true":
        identity = identity | {"precision": precision}
    seed = settings.seed or run.manifest.get("seed", 0)
    if seed and (judge.config.get("extra") or {}).get("temperature", 0) != 0:  # it draws what it says
        identity = identity | {"seed": seed}

    @contextmanager
    def lent() -> Iterator[Model]:
        sent = permit_judge(task, settings.may_leave, judge.name, judge.model)
        note_sent(run, sent, sum(answered(one) for one in run.predictions().values()))
        try:
            getattr(judge.model, "check_ready", lambda: None)()
        except UserError as error:  # whose message is about models that are asked
            raise type(error)(f"judge {judge.name!r}: {str(error).replace('model.', 'judge.')}") from error
        with in_use(judge.model, device_of(str(trainer.get("accelerator", "auto"))), precision):
            yield judge.model

    judge_id = f"{slug(judge.name)}-{digest(identity)}"
    run.note(judge={"id": judge_id, "name": judge.name, "identity": identity})
    task.judged_by = judge_id
    judge_answers(task, run, plan.cases, lent, judge_id)
