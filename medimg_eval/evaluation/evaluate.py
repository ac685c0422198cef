"""Runs a model on a task: predict what is missing, score what is missing, put the rows together."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from medimg_eval.arguments import settled as without_defaults_within
from medimg_eval.case import Case
from medimg_eval.configs.names import catalogued
from medimg_eval.data.cache import VolumeCache
from medimg_eval.data.former_names import as_hashed
from medimg_eval.data.prompts import PromptBatches
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
from medimg_eval.evaluation.identity import (
    data_fingerprint,
    digest,
    placeless,
    provenance,
    trainer_identity,
)
from medimg_eval.evaluation.leaving import note_sent, permit_judge, permit_model, permit_readers
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.predict import Predictor, ask_here, device_of, in_use, parameter_count
from medimg_eval.evaluation.preparing import choose, in_words, prepare
from medimg_eval.evaluation.rescoring import close, judged, score_stored, scoring_id, submit_stored
from medimg_eval.evaluation.run import Run, answered, now, unanswered
from medimg_eval.evaluation.scoring import Scorer, is_settled, scoring_workers
from medimg_eval.models import Model
from medimg_eval.models.precomputed import GivenTexts
from medimg_eval.results.runs import MANIFEST, SCHEMA, read_manifest
from medimg_eval.tasks import QuestionTask, ReportTask, Task
from medimg_eval.tasks.base import split_source

if TYPE_CHECKING:  # importing it takes seconds, which a run of questions on one device can do without
    import lightning.pytorch as pl

    from medimg_eval.results import Table

log = logging.getLogger(__name__)


@dataclass
class Settings:
    """How to go about it.

    Attributes:
        runs: folder that run folders are kept in.
        run: this run's own folder, instead of one below `runs`.
        trainer: makes the Lightning trainer from the callbacks and options it is given.
        config: the resolved config, recorded in the manifest.
        overrides: the command line's part of it.
        batch_size: cases asked about at once; None for what the model prefers.
        num_workers: processes that read ahead.
        score_workers: processes that score; None chooses.
        rank: of this process.
        seed: part of a run's identity; seeding is done by the caller.
        limit: so many cases are asked about, the first ones; None for all.
        only: ids of the cases that are asked about; empty for all.
        cache: keeps the cases that `fit` reads.
        judge: is asked about answers, where the task says what.
        annotators: of reports: name -> what reads them for the metrics that name it.
        extractors: of pictures: name -> what gives them features for the metrics that name it.
        tables: takes the table of each run that is brought to its end: its intervals take long to compute twice.
    """

    runs: Path
    run: Path | None
    trainer: Callable[..., pl.Trainer]
    config: Mapping[str, Any]
    overrides: Sequence[str] = field(default_factory=list)
    batch_size: int | None = None
    num_workers: int = 0
    score_workers: int | None = None
    rank: int = 0
    seed: int = 0
    limit: int | None = None
    only: Sequence[str] = ()
    cache: VolumeCache | None = None
    judge: ModelSpec | None = None
    annotators: Mapping[str, ModelSpec] = field(default_factory=dict)
    extractors: Mapping[str, ModelSpec] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)

    @property
    def may_leave(self) -> Any:
        """What the user says of sending data to another machine; None where nothing is said."""
        return self.config.get("may_leave")


def model_info(candidate: ModelSpec) -> dict[str, Any]:
    """What a manifest says of a loaded model."""
    model = candidate.model
    return {"class": type(model).__qualname__, "parameters": parameter_count(model)} | candidate.identity


def refuse_incapable(task: Task, candidate: ModelSpec) -> None:
    """Raises UsageError when the model's class lacks the method the task asks with."""
    if not task.serves(candidate.wrapper):
        raise UsageError(
            f"task {task.name!r} asks models to {task.capability}, which model {candidate.name!r} "
            f"({candidate.wrapper.__name__}) cannot: it has no method {task.capability}()"
            + (
                "; leave metrics of probabilities out of task.metrics"
                if task.capability == "give_probabilities"
                else ""
            )
        )


def refuse_judge(task: Task, settings: Settings) -> None:
    """Raises UsageError, before a model is asked anything, when its answers could not be given to the judge."""
    judge = settings.judge
    if judge is None or not isinstance(task, QuestionTask) or not task.judge:
        return
    if not callable(getattr(judge.wrapper, "generate", None)):
        raise UsageError(f"judge {judge.name!r} ({judge.wrapper.__name__}) cannot write; name a model with generate()")
    refuse_unfit(task, judge.config, judge.name)
    if getattr(judge.wrapper, "remote", False):  # only then is it loaded, which such models are in no time
        permit_judge(task, settings.may_leave, judge.name, judge.model)


def evaluate(task: Task, candidate: ModelSpec, settings: Settings) -> Path:
    """Brings a run to its end: from nothing, or from wherever an earlier start stopped.

    Returns:
        The run folder; on rank 0 it then holds scores.parquet and summary.json.

    Raises:
        UserError: the task has no cases, the folder is in use or holds another run.
    """
    refuse_judge(task, settings)
    refuse_unready(task, settings.annotators, judge=settings.judge is not None)
    refuse_unready_sets(task, settings.extractors)
    refuse_unready_networks(task, settings.annotators)
    sent = permit_readers(task, settings.may_leave, settings.annotators, settings.extractors)
    every = task.cases("test")
    named = choose(task, every, settings.limit, settings.only)
    fingerprint = data_fingerprint(every)
    settled = {
        "task": task_identity(task, settled=True),
        "model": candidate.settled_identity,
        "trainer": trainer_identity(settings.config),
        "seed": settings.seed,
        "data": fingerprint,
    }
    run_id, folder = placed(
        [digest(settled), digest(settled | {"task": task_identity(task), "model": candidate.identity})],
        settings.run,
        settings.runs / task.name / slug(candidate.name),
    )
    with Run(folder, run_id, settings.rank) as run:
        known = run.predictions()
        # What was asked about before stays: the same run goes on from a first look to all cases, and never back.
        cases = [case for case in every if case.id in named or case.id in known]
        left = unanswered(cases, known)
        if left:  # a model that cannot be loaded must not change what the run says of itself
            task.check_data(left)
            asked = permit_model(task, settings.may_leave, candidate.name, candidate.model, left)
            for model in (*task.partners.values(), candidate.model):
                getattr(model, "check_ready", lambda: None)()
            prepare(task, candidate.model, every)
        else:
            log.info("%s: every case was answered before; the model is not asked", folder)
        finished = dict(run.manifest) if not left and run.manifest.get("status") == "finished" else None
        begin(run, "test", task, candidate, settings, fingerprint, work_left=bool(left))
        run.note(**_asked(task, candidate, cases, run, left), partial=in_words(every, [case.id for case in cases]))
        if left:
            note_sent(run, asked, len(left))
        note_sent(run, sent, len(cases))
        if settings.config.get("efficiency") and "efficiency" not in run.manifest:
            _measure(task, candidate, settings, run, every)
        asking = _predict(task, candidate, settings, run, cases, left)
        if left and task.inline and not isinstance(candidate.model, GivenTexts):  # which took no time here
            _note_time(run, candidate, *asking)
        if settings.rank == 0:
            if task.inline:
                with _as_it_was(run, finished):
                    if isinstance(task, QuestionTask):
                        _judge(task, settings, run, cases)
                    read_reports(task, run, cases, settings.annotators)
                # Verdicts, readings and others' predictions may have come since.
                heard = isinstance(task, QuestionTask) and bool(task.judged_by or task.readings)
                changed = task.together or isinstance(task, ReportTask) or heard
                scored = {} if changed else run.scores(scoring_id(task))
                score_stored(task, run, [case for case in cases if not is_settled(scored.get(case.id))], 0)
            judge_sets(task, run, cases, settings.extractors)
            perceive(task, run, cases, settings.annotators, run.scores(scoring_id(task)))
            settings.tables.append(close(task, run, cases, candidate.name))
    return folder


@contextmanager
def _as_it_was(run: Run, finished: Mapping[str, Any] | None) -> Iterator[None]:
    """Leaves a run finished that was, when a judge or an annotator that it is to be scored with now cannot be used."""
    try:
        yield
    except UserError:
        if finished is not None:
            run.note(**finished)
        raise


def task_identity(task: Task, *, settled: bool = False) -> dict[str, Any]:
    """The task's settings that decide predictions. Where the data lie is left out: their content is hashed.

    Args:
        task: whose.
        settled: without arguments that equal their default, so that a config and an object made so are alike; of
            our own catalogue they stay, as they stand in the ids of stored runs.
    """
    config = without_defaults_within(task.config) if settled and task.name not in catalogued() else task.config
    decisive = {key: value for key, value in as_hashed(config).items() if key not in task.scoring_fields}
    if isinstance(decisive.get("layout"), dict):
        decisive["layout"] = placeless(decisive["layout"])
    return decisive | dict(task.asked)


def placed(ids: Sequence[str], given: Path | None, stem: Path) -> tuple[str, Path]:
    """The id of a run and its folder: of several ways to write its settings down, the one that a stored run has.

    Args:
        ids: the one that a new run gets, and those that runs of the same settings may have been stored under.
        given: the folder that was asked for, if any.
        stem: of the folder's path, which the id completes.
    """
    folders = {one: given or stem.with_name(f"{stem.name}-{one}") for one in ids}
    for one, folder in folders.items():
        manifest = folder / MANIFEST
        if manifest.is_file() and read_manifest(manifest).get("run") == one:
            return one, folder
    return ids[0], folders[ids[0]]


def slug(name: str) -> str:
    """A name as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", name).strip("_") or "model"


def begin(
    run: Run, command: str, task: Task, candidate: ModelSpec, settings: Settings, fingerprint: str, *, work_left: bool
) -> None:
    """Notes in the manifest of any run what it is, or that work on it goes on; what was recorded stays."""
    circumstances = {"when": now(), "overrides": list(settings.overrides), "provenance": provenance()}
    if run.manifest:
        if work_left:
            run.note(resumed=[*run.manifest["resumed"], circumstances])
            log.info("%s: goes on from an earlier start", run.folder)
        run.note(status="running", ended=None)
        return
    run.note(
        schema=SCHEMA,
        run=run.run,
        command=command,
        task=task.name,
        model=candidate.name,
        status="running",
        data_fingerprint=fingerprint,
        seed=settings.seed,
        config=settings.config,
        overrides=circumstances["overrides"],
        provenance=circumstances["provenance"],
        started=circumstances["when"],
        resumed=[],
        ended=None,
    )
    run.write_config(settings.config)


def _asked(task: Task, candidate: ModelSpec, cases: Sequence[Case], run: Run, left: Sequence[Case]) -> dict[str, Any]:
    """What the manifest of a `test` run says beyond that."""
    lines = dict(task.reference_lines(cases))
    return ({"chance": lines} if lines else {}) | {
        "model": candidate.name,
        "baseline": candidate.baseline,
        "settings": candidate.settings,
        **({} if candidate.identified else {"unidentified": True}),
        "cases": len(cases),
        "split_source": split_source(task.layout),
        "predicted": len(cases) - len(left),
        "failed_cases": run.manifest.get("failed_cases", 0),
        "resampled": "patients" if any(case.patient is not None for case in cases) else "cases",
        **judged(task),
    }


def _predict(
    task: Task, candidate: ModelSpec, settings: Settings, run: Run, cases: Sequence[Case], left: Sequence[Case]
) -> tuple[float, float]:
    """Asks the model about the cases that are left, and scores those that an earlier start left unscored.

    Returns:
        Seconds that asking took, and those of them that were spent in the model's `generate` and `choose`.
    """
    if task.inline and not left:
        return 0.0, 0.0
    scored = run.scores(scoring_id(task))
    unscored = [case for case in cases if not is_settled(scored.get(case.id))] if settings.rank == 0 else []
    if not left:
        score_stored(task, run, unscored, settings.score_workers)
        return 0.0, 0.0
    model = candidate.model
    run.note(model_info=model_info(candidate))
    options: dict[str, Any] = {
        "batch_size": settings.batch_size or int(getattr(model, "preferred_batch", 1)),
        "num_workers": min(settings.num_workers, len(left)),
        "read_images": getattr(model, "reads_images", True),
        "skip": frozenset(case.id for case in cases) - {case.id for case in left},
    }
    with Scorer(task, run, scoring_id(task), scoring_workers(settings.score_workers)) as scorer:
        asker = Predictor(task, model, run, scorer)
        if task.inline and _alone(settings):
            ask_here(asker, PromptBatches(task, cases, **options), settings.config.get("trainer") or {})
        else:
            if not task.inline:
                submit_stored(scorer, run, unscored)
            _ask_by_lightning(asker, settings, cases, options)
    return asker.seconds, asker.seconds_in_model


def _alone(settings: Settings) -> bool:
    """Whether one process on one device does it all."""
    trainer = settings.config.get("trainer") or {}
    one = [str(trainer.get(key, 1)) == "1" for key in ("devices", "num_nodes")]
    return all(one) and trainer.get("strategy", "auto") == "auto"


def _ask_by_lightning(asker: Predictor, settings: Settings, cases: Sequence[Case], options: Mapping[str, Any]) -> None:
    from medimg_eval.data.datamodule import CaseDataModule
    from medimg_eval.evaluation.lightning_modules import EvaluationModule

    trainer = settings.trainer(logger=False, enable_checkpointing=False)
    data = CaseDataModule(asker.task, cases=cases, **options)
    try:
        trainer.test(EvaluationModule(asker), datamodule=data, verbose=False)
    except SystemExit as stop:  # Lightning's answer to Ctrl-C
        raise KeyboardInterrupt from stop


def _note_time(run: Run, candidate: ModelSpec, seconds: float, asking: float) -> None:
    """Notes what asking has taken, over all starts, and how much of it was not the model's."""
    before = run.manifest.get("timing", {"seconds": 0.0, "in_model": 0.0})
    whole, inside = before["seconds"] + seconds, before["in_model"] + asking
    overhead = 1 - inside / whole if whole else 0.0
    run.note(timing={"seconds": whole, "in_model": inside, "overhead": overhead})
    log.info("%s: harness overhead %.1f %% of %.1f s", run.folder, 100 * overhead, whole)
    used: Mapping[str, Any] = getattr(candidate.model, "usage", dict)()
    if used:
        run.note(usage=[*run.manifest.get("usage", []), dict(used)])


def _judge(task: QuestionTask, settings: Settings, run: Run, cases: Sequence[Case]) -> None:
    """Has the judge look at the answers; without one, verdicts that an earlier start has asked for stay."""
    judge = settings.judge
    if judge is None or not task.judge:
        task.judged_by = run.manifest.get("judge", {}).get("id", "")
        return
    trainer = settings.config.get("trainer") or {}
    precision = str(trainer.get("precision", "32-true"))
    identity = judge.identity
    if issubclass(judge.wrapper, nn.Module) and precision != "32-true":
        identity = identity | {"precision": precision}
    if settings.seed and (judge.config.get("extra") or {}).get("temperature", 0) != 0:  # it draws what it says
        identity = identity | {"seed": settings.seed}

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
    judge_answers(task, run, cases, lent, judge_id)


def _measure(task: Task, candidate: ModelSpec, settings: Settings, run: Run, cases: Sequence[Case]) -> None:
    """Notes what the model costs; a finished run that lacks it is given it too, without asking about its cases."""
    from medimg_eval.evaluation.profiling import efficiency  # importing it takes as long as a small run

    prepare(task, candidate.model, cases)
    trainer = settings.trainer(logger=False, enable_checkpointing=False)
    run.note(efficiency=efficiency(candidate.model, trainer.strategy.root_device, str(trainer.precision)))
