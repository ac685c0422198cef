"""What a run is about, settled before a model is asked: cases, trials, identity, folder."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from medimg_eval.arguments import grouped
from medimg_eval.arguments import settled as without_defaults_within
from medimg_eval.case import Case, Condition, Image, Trial
from medimg_eval.case_index import EachCase, any_patients, by_id, cases_of, ids_of, in_order, most_repeats
from medimg_eval.configs.names import catalogued
from medimg_eval.data.former_names import as_hashed
from medimg_eval.degradations import DrawKey, degradations, find_degradation, is_part_condition, refuse_unsuitable
from medimg_eval.errors import UsageError, UserError, shortened
from medimg_eval.evaluation.identity import data_fingerprint, placeless, provenance, slug, trainer_identity
from medimg_eval.evaluation.leaving import (
    Sent,
    note_sent,
    permit_judge,
    permit_model,
    permit_providers,
    permit_trackers,
)
from medimg_eval.evaluation.manifest import Manifest
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.observe import Source, former_judge, judge_source, sources_of
from medimg_eval.evaluation.readiness import missing, refuse
from medimg_eval.evaluation.run import Run, answered, now
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evaluation.shards import left_to
from medimg_eval.evidence import JUDGE
from medimg_eval.metrics import parse
from medimg_eval.metrics.own_metrics import is_ours
from medimg_eval.results.runs import MANIFEST, SCHEMA, read_manifest
from medimg_eval.store import digest
from medimg_eval.tasks import Task
from medimg_eval.tasks.base import NOBODY, split_source
from medimg_eval.tasks.subsets import described

log = logging.getLogger(__name__)


@dataclass
class Plan:
    """A run that is under way.

    Attributes:
        task: what is asked, and how it is judged.
        settings: how to go about it.
        run: the folder, open.
        every: all cases of the task.
        cases: those that the run is about, in the task's order.
        trials: the askings that the run is about; those of earlier starts stay.
        left: those without an answer.
        conditions: by key, what is done to cases before they are shown.
        asked: the model; None where stored predictions are judged.
        sent: what readers of predictions send to other machines.
        sources: providers that metrics require, beside the judge.
        folds: the task of each fold in order, whose repeats are numbered so; none where folds are no repeats.
    """

    task: Task
    settings: Settings
    run: Run
    every: Sequence[Case]
    cases: Sequence[Case]
    trials: Sequence[Trial]
    left: Sequence[Trial] = ()
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    asked: ModelSpec | None = None
    sent: Sequence[Sent] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    folds: Sequence[Task] = ()

    @cached_property
    def case_of(self) -> Mapping[str, Case]:
        """The cases by id."""
        return by_id(self.cases)

    @property
    def shown(self) -> list[Case]:
        """Cases for providers: each trial under its own id."""
        return [self.judged_as(trial) for trial in self.trials]

    def judged_as(self, trial: Trial) -> Case:
        """Case of a trial, under its id if varied."""
        case = self.case_of[trial.case]
        if (condition := self.conditions.get(trial.condition)) is not None:
            case = self.task.judged_under(case, condition, self._key(case, trial.repeat))
        return case if trial.id == case.id else replace(case, id=trial.id)

    def shown_under(self, task: Task, condition: str, repeat: int) -> Sequence[Case]:
        """Cases as shown under a condition, in a repeat."""
        condition_ = self.conditions.get(condition)
        if condition_ is None:
            return self.cases
        return [task.under(case, condition_, self._key(case, repeat)) for case in self.cases]

    def _key(self, case: Case, repeat: int) -> DrawKey:
        return DrawKey(int(self.run.manifest.get("seed", 0)), case.id, repeat)

    def rounds(self) -> dict[tuple[int, str], frozenset[str]]:
        """The cases that are done, by repeat and condition of what is left: a round is asked about together."""
        if isinstance(self.left, EachCase) and len(self.left) == len(self.cases):
            return {(0, ""): frozenset()}
        cases_by_round = grouped(((trial.repeat, trial.condition), trial.case) for trial in self.left)
        case_ids = frozenset(ids_of(self.cases))
        return {varied: case_ids.difference(cases) for varied, cases in cases_by_round.items()}

    @property
    def model(self) -> ModelSpec:
        """The model that is asked; raises TypeError where stored predictions are judged."""
        if self.asked is None:
            raise TypeError(f"{self.run.folder}: no model is asked")
        return self.asked

    def asked_in(self, repeat: int) -> tuple[Task, ModelSpec]:
        """Task and model of a repeat, or of its fold."""
        if not self.folds:
            return self.task, self.model
        specs = list(self.model.of_folds.values())
        return self.folds[repeat], specs[repeat] if specs else self.model

    @property
    def first_asked(self) -> ModelSpec:
        """First model to ask: the only one, or a fold's."""
        first = min((trial.repeat for trial in self.left), default=0) if self.folds else 0
        return self.asked_in(first)[1]

    @property
    def model_name(self) -> str:
        """Name of the model in tables."""
        return self.run.manifest["model"]


@contextmanager
def prepare(task: Task, model: ModelSpec, settings: Settings) -> Iterator[Plan]:
    """Opens a run, new or from an earlier start.

    Raises:
        UserError: the task has no cases, something is missing, or the folder is in use or holds another run.
    """
    task = task.for_model(model.wrapper)
    sent, sources = _required_providers(task, settings)
    folds, every, tested = _by_fold(task, settings.repeats)
    task.check_data(every)
    named = choose(task, every, settings.limit, settings.only)
    fingerprint = data_fingerprint(every)
    of_folds = list(model.of_folds.values())
    settled = {
        "task": task_identity(task, settled=True),
        "model": [of_fold.settled_identity for of_fold in of_folds] or model.settled_identity,
        "trainer": trainer_identity(settings.config),
        "seed": settings.seed,
        "data": fingerprint,
    }
    run_id, folder = placed(
        [
            digest(settled),
            digest(
                settled
                | {"task": task_identity(task), "model": [of_fold.identity for of_fold in of_folds] or model.identity}
            ),
        ],
        settings.run,
        settings.runs / task.name / slug(model.name),
    )
    with Run(folder, run_id, settings.rank, settings.shard) as run:
        stored_predictions = run.predictions()
        conditions = _plan_conditions(task, settings.conditions, run.manifest)
        refuse_repeats(task, model, settings.repeats)
        trials = in_order(every, _wanted_trials(named, tested, settings), run.trials().values())
        plan = Plan(task, settings, run, every, cases_of(every, trials), trials, asked=model, sent=sent)
        plan.conditions, plan.sources, plan.folds = conditions, sources, folds
        own = settings.shard.trials(every, trials) if settings.shard else trials
        plan.left = own
        if stored_predictions:
            plan.left = [trial for trial in own if not answered(stored_predictions.get(trial.id))]
        sent_ = _check_model(plan) if plan.left else []
        begin(
            run, "test" if task.has_truth else "predict", task, model, settings, fingerprint, work_left=bool(plan.left)
        )
        run.note(**_manifest_facts(plan))
        if plan.left:
            note_sent(run, sent_, len(plan.left))
        else:
            log.info("%s: every case was answered before; the model is not asked", folder)
        note_sent(run, sent, len(plan.cases))
        run.publish()
        yield plan


def _wanted_trials(named: Sequence[str], tested: Sequence[frozenset[str]], settings: Settings) -> Sequence[Trial]:
    """The askings that are meant: of named cases, in each fold those that it tests, else in each repeat."""
    if not (tested or settings.conditions) and settings.repeats == 1:
        return EachCase(named)
    return [
        Trial(case_id, repeat, condition.key if condition else "")
        for condition in (None, *settings.conditions)
        for repeat in range(len(tested) or settings.repeats)
        for case_id in named
        if not tested or case_id in tested[repeat]
    ]


@contextmanager
def reopen(folder: Path, task: Task, settings: Settings) -> Iterator[Plan]:
    """Reopens a run for scoring; UserError where its data changed, unfinished or in use."""
    manifest = read_manifest(folder / "manifest.json")
    task = task.with_view(manifest.get("view", ""))
    folds, every, tested = _by_fold(task)
    if data_fingerprint(every) != manifest["data_fingerprint"]:
        raise UserError(f"{folder}: the data of task {task.name!r} have changed since this run; run test again")
    sent, sources = _required_providers(task, settings, manifest)
    task.check_data(every)
    with Run(folder, manifest["run"]) as run:
        stored_predictions = run.predictions()
        all_trials: Sequence[Trial] = EachCase(ids_of(every))
        if folds:
            all_trials = [Trial(case.id, at) for at, held in enumerate(tested) for case in every if case.id in held]
        if manifest.get("partial"):
            all_trials = []
        trials = in_order(every, all_trials, run.trials().values())
        unasked = [trial for trial in trials if trial.id not in stored_predictions]
        if unasked:
            unfinished = left_to(folder, every, unasked)
            mend = f"ask {unfinished} again by test shard=" if unfinished else "resume it with test first"
            raise UserError(f"{folder}: {len(trials) - len(unasked)} of {len(trials)} cases were asked; {mend}")
        refuse_form(task, run)
        plan = Plan(task, settings, run, every, cases_of(every, trials), trials, sent=sent, sources=sources)
        plan.conditions = _plan_conditions(task, [], run.manifest)
        note_sent(run, sent, len(plan.cases))
        yield plan


def _by_fold(task: Task, repeats: int = 1) -> tuple[list[Task], Sequence[Case], list[frozenset[str]]]:
    """Task by fold, all tested cases, and each fold's ids; UsageError for further repeats."""
    folds = list(task.folds().values())
    if not folds:
        return [], task.cases("test"), []
    if repeats > 1:
        raise UsageError(f"task {task.name!r}: its folds are the repeats; leave repeats={repeats} out")
    held = [fold.cases("test") for fold in folds]
    every = {case.id: case for cases in held for case in cases}
    return folds, list(every.values()), [frozenset(case.id for case in cases) for cases in held]


def _required_providers(
    task: Task, settings: Settings, manifest: Mapping[str, Any] = NOBODY
) -> tuple[list[Sent], dict[str, Source]]:
    """The providers that metrics require, and what they send to other machines.

    Raises UserError, before any model is loaded, that names all that is missing.
    """
    if not task.has_truth:
        return [], {}
    requirements, providers = task.requirements(), settings.providers
    former = former_judge(manifest)
    refuse([lack for lack in missing(requirements, providers, task) if not (former and lack.key == "model@judge")])
    sent = permit_providers(task, settings.may_leave, providers)
    judge = settings.judge if any(need.provider == JUDGE for need in requirements) else None
    if judge is not None and getattr(judge.wrapper, "remote", False):  # only then is it loaded, in no time
        permit_judge(task, settings.may_leave, judge.name, judge.model)
    sent += permit_trackers(task, settings.may_leave, settings.loggers(settings.runs))
    return sent, sources_of(requirements, providers)


def judges_of(plan: Plan) -> dict[str, Source]:
    """Judge of a run; without one, earlier verdicts stay."""
    task, run, settings = plan.task, plan.run, plan.settings
    judge = settings.judge if any(need.provider == JUDGE for need in task.requirements()) else None
    if judge is None:
        return former_judge(run.manifest)

    def permitted() -> None:
        sent = permit_judge(task, settings.may_leave, judge.name, judge.model)
        note_sent(run, sent, sum(answered(prediction) for prediction in run.predictions().values()))

    trainer = settings.config.get("trainer") or run.manifest.get("config", {}).get("trainer") or {}
    source, noted = judge_source(judge, trainer, settings.seed or run.manifest.get("seed", 0), permitted)
    run.note(judge=noted)
    return {JUDGE: source}


def refuse_form(task: Task, run: Run) -> None:
    """Raises UserError where metrics need another form of predictions."""
    for form in run.forms() - {"", task.codec.form, *task.codec.also}:
        codecs = {name: task.alone(name).codec for name in task.metrics}
        names = [name for name, codec in codecs.items() if form not in (codec.form, *codec.also)]
        raise UserError(
            f"{run.folder}: each prediction was stored as a {form}, and {', '.join(names)} judge {task.codec.form}; "
            "run test again with task.metrics that hold them"
        )


def _plan_conditions(task: Task, asked: Sequence[Condition], noted: Manifest) -> dict[str, Condition]:
    """Conditions by key, of this and earlier starts; UsageError where unknown or changed."""
    by_key = {key: Condition(**fields) for key, fields in noted.get("conditions", {}).items()}
    for condition in asked:
        UsageError.refuse_unknown(f"task {task.name!r} has no condition", task.conditions(), condition.name)
        if by_key.setdefault(condition.key, condition) != condition:
            raise UsageError(
                f"condition {condition.key!r} was asked before with other settings, "
                f"{dict(by_key[condition.key].settings)}; give it another severity, or name another folder with run=DIR"
            )
    return by_key


def refuse_repeats(task: Task, model: ModelSpec, repeats: int) -> None:
    """Raises UsageError where asking again would give the same answers."""
    if repeats > 1 and not task.draws and getattr(model.wrapper, "deterministic", True):
        raise UsageError(
            f"task {task.name!r}: repeats={repeats} would give the same answers again, for decoding is greedy; set "
            "task.decoding.temperature above 0, or `deterministic = False` in the wrapper of a model that draws"
        )


def _check_model(plan: Plan) -> list[Sent]:
    """Loads the model before the run's record changes; returns what it sends elsewhere."""
    task, spec = plan.task, plan.first_asked
    cases = cases_of(plan.cases, plan.left)
    task.check_data(cases)
    sent = permit_model(task, plan.settings.may_leave, spec.name, spec.model, cases)
    _refuse_conditions(plan, cases)
    for model in (*task.partners.values(), *(() if plan.folds else (spec.model,))):
        getattr(model, "check_ready", lambda: None)()
    if not plan.folds:  # those of folds are prepared one after the other, as they are asked
        prepare_model(task, spec.model, plan.every)
    # `score` with `references=` has told them before.
    told_before = "references" in plan.settings.config
    held: Sequence[str] = () if told_before else getattr(spec.model, "held_cases", list)()
    every = by_id(plan.every) if held else {}
    if strays := [name for name in held if name not in every]:
        message = "%s: %d predictions belong to no case of task %s: %s"
        log.warning(message, spec.name, len(strays), task.name, shortened(strays))
    return sent


def _refuse_conditions(plan: Plan, cases: Sequence[Case]) -> None:
    """Raises UsageError where conditions do not suit the first readable case."""
    conditions = [plan.conditions[trial.condition] for trial in plan.left if trial.condition]
    # Others, such as a blind one, change no pixels.
    names = {condition.name for condition in conditions if not is_part_condition(condition)} & degradations().keys()
    if not names or not cases:
        return
    try:
        images = plan.task.read_images(cases[0])
    except Exception as error:  # noqa: BLE001 - a case that cannot be read fails alone, when it is asked about
        log.debug("case %s says nothing of conditions: %s", cases[0].id, error)
        return
    for name in sorted(names):
        degradation = find_degradation(name)
        if degradation.domain in ("pixels", "moves"):
            for image in images:
                refuse_unsuitable(degradation, image)


def refuse_incapable(task: Task, model: ModelSpec) -> None:
    """Raises UsageError when the model's class lacks the method the task asks with."""
    if not task.serves(model.wrapper):
        raise UsageError(
            f"task {task.name!r} asks models to {task.capability}, which model {model.name!r} "
            f"({model.wrapper.__name__}) cannot: it has no method {task.capability}()"
            + (
                "; leave metrics of probabilities out of task.metrics"
                if task.capability == "give_probabilities"
                else ""
            )
        )


def task_identity(task: Task, *, settled: bool = False) -> dict[str, Any]:
    """Settings that decide predictions, without data locations.

    Args:
        task: whose.
        settled: without arguments that equal their default, so that a config and an object made so are alike; of
            our own catalogue they stay, as they stand in the ids of stored runs.
    """
    config = without_defaults_within(task.config) if settled and task.name not in catalogued() else task.config
    decisive = {key: value for key, value in as_hashed(config).items() if key not in task.scoring_fields()}
    for key in ("layout", "corpus"):
        if isinstance(decisive.get(key), dict):
            decisive[key] = placeless(decisive[key])
    return decisive | dict(task.asked)


def placed(ids: Sequence[str], given: Path | None, stem: Path) -> tuple[str, Path]:
    """Id and folder of a run, matching a stored one.

    Args:
        ids: the one that a new run gets, and those that runs of the same settings may have been stored under.
        given: the folder that was asked for, if any.
        stem: of the folder's path, which the id completes.
    """
    folders = {case_id: given or stem.with_name(f"{stem.name}-{case_id}") for case_id in ids}
    for case_id, folder in folders.items():
        manifest = folder / MANIFEST
        if manifest.is_file() and read_manifest(manifest).get("run") == case_id:
            return case_id, folder
    return ids[0], folders[ids[0]]


def begin(
    run: Run, command: str, task: Task, model: ModelSpec, settings: Settings, fingerprint: str, *, work_left: bool
) -> None:
    """Records a run's start or continuation in its manifest."""
    start = now()
    circumstances = {"when": start, "overrides": list(settings.overrides), "provenance": provenance()}
    if run.manifest:
        if work_left:
            run.note(resumed=[*run.manifest["resumed"], circumstances], status="running", ended=None)
            log.info("%s: goes on from an earlier start", run.folder)
        return
    run.note(
        schema=SCHEMA,
        run=run.run,
        command=command,
        task=task.name,
        model=model.name,
        status="running",
        data_fingerprint=fingerprint,
        seed=settings.seed,
        config=settings.config,
        overrides=list(settings.overrides),
        provenance=provenance(),
        started=start,
        resumed=[],
        ended=None,
    )
    run.write_config(settings.config)


def _manifest_facts(plan: Plan) -> Manifest:
    """Facts of a `test` run for its manifest.

    How it is judged is noted at the end, so that what a finished run says holds for its table until there is another.
    """
    task, model, run = plan.task, plan.model, plan.run
    manifest = Manifest(
        model=model.name,
        baseline=model.baseline,
        settings=model.settings,
        split_source=split_source(task.layout),
    )
    if plan.left or run.manifest.get("status") != "finished":
        manifest |= Manifest(
            status="running",
            cases=len(plan.cases),
            predicted=len(plan.trials) - len(plan.left),
            failed_cases=run.manifest.get("failed_cases", 0),
            resampled="patients" if any_patients(plan.cases) else "cases",
            partial=in_words(plan.every, ids_of(plan.cases)),
            **(judged(task) if task.has_truth else task_facts(task)),
        )
    if not model.identified:
        manifest["unidentified"] = True
    if model.training:
        manifest["training"] = dict(model.training)
    if plan.conditions:
        manifest["conditions"] = {key: asdict(condition) for key, condition in plan.conditions.items()}
    if view := task.shown_view:
        manifest["view"] = view
        if view == "volume" and model.volume_rule:
            manifest["volume_rule"] = model.volume_rule
    if task.subsets and "subsets" not in run.manifest:
        manifest["subsets"] = described(task)
    if (repeats := most_repeats(plan.trials)) > 1:
        manifest["repeats"] = repeats
    if task.has_truth and (lines := dict(task.reference_lines(plan.cases))):
        manifest["chance"] = lines
    return manifest


def task_facts(task: Task) -> Manifest:
    """Facts of a task's questions, whether or not its answers are judged."""
    return Manifest(
        task_title=task.title or task.name, task_config=dict(task.config), noun=task.noun, output=task.output
    )


def judged(task: Task, provenance: Mapping[str, str] = NOBODY) -> Manifest:
    """How a run's answers are judged, which can change while they stay.

    Args:
        task: that judges.
        provenance: of what providers said.
    """
    protocol = f", protocol: {task.protocol}" if task.published else ""  # of two, both are named
    own = {name: parse(name)[0].higher_is_better for name in task.metrics if not is_ours(name)}
    return Manifest(
        **task_facts(task),
        **({"directions": own} if own else {}),
        metrics=list(task.metrics),
        facts=dict(task.facts),
        signature=(task.signature(provenance) if provenance else task.signature()) + protocol,
        signatures=task.definitions(provenance) if provenance else task.definitions(),
        notes=[*task.card.get("notes", []), *task.differences],
    )


NAMED = 5
"""Cases that a table names."""


def prepare_model(task: Task, model: Any, cases: Sequence[Case]) -> None:
    """Completes a model's open settings from the task, by `prepare`.

    The first case whose image can be read is the example: always the same, so that a run that is resumed goes on with
    the same model.

    Raises:
        UserError: the model cannot serve the task, or no image can be read.
    """

    def example() -> Image:
        for case in cases:
            try:
                return task.read_images(case)[0]
            except Exception as error:  # noqa: BLE001 - a case that cannot be read fails alone, when it is asked about
                log.debug("case %s is no example: %s", case.id, error)
        raise UserError(f"task {task.name!r}: none of {len(cases)} images can be read; see python -m medimg_eval check")

    getattr(model, "prepare", lambda labels, example: None)(task.numbered_labels(), example)
    study = getattr(model, "study", None)  # of a baseline, which answers from the answer key of other cases alone
    if callable(study) and not getattr(model, "studied", False):
        try:
            fit = task.cases("fit")
        except UserError as error:
            raise UserError(
                f"{type(model).__name__} learns from cases to fit on, and there are none ({error}); leave it out, or "
                "name a split for them by task.splits.fit"
            ) from error
        study(fit)


def choose(task: Task, cases: Sequence[Case], limit: Any, only: Sequence[str]) -> Sequence[str]:
    """Returns chosen case ids: `only`, then the first `limit`.

    Raises:
        UsageError: the limit is no number of cases, or there is no such case.
    """
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise UsageError(f"expected limit to be a whole number of at least 1, got {limit!r}")
    case_ids, wanted = ids_of(cases), frozenset(only)
    if wanted:
        chosen = [case_id for case_id in case_ids if case_id in wanted]
        unknown = min(wanted.difference(chosen), default=None)
        if unknown is not None:
            near = difflib.get_close_matches(unknown, case_ids, n=3, cutoff=0)
            raise UsageError(
                f"task {task.name!r} has no case {unknown!r}; the nearest of {len(case_ids)} are {', '.join(near)}"
            )
        case_ids = chosen
    return case_ids if limit is None else case_ids[:limit]


def in_words(cases: Sequence[Case], judged: Collection[str]) -> str:
    """Returns the judged subset, "the first 5 of 20 cases", or ""."""
    if len(judged) == len(cases):
        return ""
    judged_ids, case_ids = frozenset(judged), ids_of(cases)
    names = [case_id for case_id in case_ids if case_id in judged_ids]
    if names == case_ids[: len(names)]:
        return f"the first {len(names)} of {len(cases)} cases"
    further = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"only {', '.join(names[:NAMED])}{further} of {len(cases)} cases"
