"""Runs: asked, scored, trained, opened again."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from medimg_eval.api.asking import Asked, Overrides, resolving, settings_of, specified
from medimg_eval.arguments import as_list
from medimg_eval.case import NO_IMAGE, Condition
from medimg_eval.configs.overrides import composed, plain
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.file_scores import KINDS, score_files
from medimg_eval.instantiate import (
    Annotators,
    Extractors,
    all_folds,
    build_candidate,
    build_task,
    changed,
    config_of_prediction,
    refuse_own_folds,
    stored_task,
    with_config,
    with_folds,
    with_subsets,
)
from medimg_eval.metrics import as_known, present_name
from medimg_eval.results.runs import MANIFEST, read_manifest
from medimg_eval.run_results import RunResults, RunSet, folder_of
from medimg_eval.tasks import Task
from medimg_eval.tasks.subsets import DRAWS, SIZES, checked, size_and_draw
from medimg_eval.trust import trusting

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec
    from medimg_eval.evaluation.run import Run
    from medimg_eval.evaluation.settings import Settings
    from medimg_eval.products import Products

log = logging.getLogger(__name__)

BELONGS = {"surface": "segmentations", "empty": "segmentations", "extraction": "questions"}
"""Keys that only some tasks have -> which."""

NAMED = {"judge": "model@judge", "logger": "logger"}
"""Settings that may be the name of a config -> the word that names it on a command line."""


def test(  # noqa: PLR0913 - one argument for each choice
    task: str | Mapping[str, Any] | Task,
    model: Any,
    *,
    judge: Any = None,
    runs: str | Path = "runs",
    name: str | None = None,
    identity: str = "",
    overrides: Overrides = (),
    config_dir: str | Path | None = None,
    trust: bool = False,
    **settings: Any,
) -> RunResults:
    """Evaluates a model on a task, resuming earlier starts, as `test`.

    Args:
        task: name of a config, a config, or a task.
        model: name of a config, a config with `_target_`, or an object (or class) with the method that the task asks.
        judge: of open answers, where the task asks one: the same.
        runs: folder that run folders are kept in.
        name: what tables call the model.
        identity: names a model that was made of objects which no config can hold, such as a loaded network; without
            it such a run is never gone on with.
        overrides: further changes, such as `{"task.metrics": ["dice"]}`.
        config_dir: a folder of configs of your own.
        trust: whether code that a folder brings may run.
        settings: keys of the command `test`, such as `limit=20`, `seed=1`, `baselines=True`.

    Returns:
        The run. Cases that failed are in its `failures`; they raise nothing.

    Raises:
        UserError: nothing can be done: a name does not exist, data are missing, the model lacks a method.
    """
    if settings.get("accept") or settings.get("plan"):
        raise UsageError(
            "a run is judged once it is there: medimg_eval.results.acceptance.judge_runs(load_runs([folder]))"
        )
    request = Asked("test", task, model, judge, name, identity, overrides, config_dir, trust)
    with resolving(request, settings) as resolved:
        first, *further = run_tests(
            resolved.config | {"runs": str(runs)}, resolved.words, resolved.task, resolved.model, resolved.judge
        )
    first.baselines = further
    return first


def predict(  # noqa: PLR0913 - one argument for each choice
    model: Any,
    images: str | Path | Sequence[str | Path],
    *,
    task: str | Mapping[str, Any] | Task | None = None,
    out: str | Path | None = None,
    runs: str | Path = "runs",
    name: str | None = None,
    identity: str = "",
    overrides: Overrides = (),
    config_dir: str | Path | None = None,
    trust: bool = False,
    **settings: Any,
) -> RunResults:
    """Predicts images without references, as the command `predict` does.

    Args:
        model: as for `test`.
        images: a folder that is searched for images, a file, or several of them.
        task: a benchmark whose labels, classes or template are asked for; without it `labels=`, `prompt=` say what is.
        out: folder of the run and of what is written: masks, DICOM-SEG, tables. Without it one below `runs`.
        runs: folder that run folders are kept in.
        name: what the model is called.
        identity: as for `test`.
        overrides: as for `test`.
        config_dir: as for `test`.
        trust: whether code that a folder brings may run.
        settings: keys of the command `predict`, such as `series=3`, `labels={1: "liver"}`, `prompt="..."`.

    Returns:
        The run: its `predictions`, `failures` and `usage`; it has no scores.

    Raises:
        UserError: nothing can be done: there is no image, nothing says what is asked, the model lacks a method.
    """
    request = Asked("predict", task, model, None, name, identity, overrides, config_dir, trust)
    several = [images] if isinstance(images, str | Path) else list(images)
    paths = {"images": [str(image) for image in several], "out": None if out is None else str(out), "runs": str(runs)}
    with resolving(request, {**settings, **paths}) as resolved:
        return run_predictions(resolved.config, resolved.words, resolved.model)[0]


def run_predictions(
    wanted: Mapping[str, Any], overrides: Sequence[str] = (), model: ModelSpec | None = None
) -> tuple[RunResults, Products]:
    """Runs a resolved `predict` config and writes its predictions."""
    from medimg_eval.evaluation import pipeline
    from medimg_eval.evaluation.plan import refuse_incapable
    from medimg_eval.evaluation.shards import tells
    from medimg_eval.products import Products, refuse_without_highdicom, write_products
    from medimg_eval.settings import build_settings, undisturbed

    if model is None and not wanted.get("model"):
        raise UsageError("no model is named; add model=NAME (see python -m medimg_eval list models)")
    refuse_without_highdicom(wanted["dicom_seg"])
    out = wanted["out"] or wanted["run"]
    _refuse_within(out or wanted["runs"], wanted["images"])
    spec = build_candidate(wanted["model"]) if model is None else model
    task = build_task(config_of_prediction(wanted, spec))
    refuse_incapable(task, spec)
    with undisturbed():
        settings = build_settings({**wanted, "run": out}, overrides)
        run = pipeline.test(task, spec, settings)
    result = RunResults(run.folder, task=task)
    if not tells(result.manifest, settings.shard, settings.rank):
        return result, Products({}, {})
    return result, write_products(run.folder, task, dicom_seg=wanted["dicom_seg"])


def _refuse_within(out: str, images: Any) -> None:
    """Raises UsageError for outputs inside the image folder."""
    target = Path(out).expanduser().resolve()
    for root in (Path(image).expanduser().resolve() for image in as_list(images)):
        if root.is_dir() and target.is_relative_to(root):
            raise UsageError(
                f"out={out} lies in {root}, where images are looked for; name a folder elsewhere by out=DIR"
            )


def run_tests(
    wanted: Mapping[str, Any],
    overrides: Sequence[str] = (),
    task: Task | None = None,
    model: ModelSpec | None = None,
    judge: ModelSpec | None = None,
) -> list[RunResults]:
    """Tests a model on a task or suite, then compares."""
    from medimg_eval.evaluation import pipeline
    from medimg_eval.evaluation.plan import refuse_incapable
    from medimg_eval.settings import build_loggers, build_settings, build_tasks, undisturbed

    tasks_ = build_tasks(wanted) if task is None else [with_config(task)]
    # Draws follow the run's seed; 0 is what they follow by themselves.
    tasks = [changed(task, **task.seeded(wanted["seed"])) if wanted["seed"] else task for task in tasks_]
    spec = build_candidate(wanted["model"]) if model is None else model
    tasks, spec = _by_repeat(wanted, tasks, spec)
    for task_ in tasks:
        refuse_incapable(task_, spec)
        if not task_.has_truth:
            raise UsageError(f"task {task_.name!r} knows no truth, so nothing can be scored; use predict")
        if wanted["baselines"] and not task_.baselines():
            raise UsageError(f"task {task_.name!r} asks for no words and no classes, so there are no baselines for it")
    with undisturbed():
        settings = build_settings(wanted, overrides, judge)
        settings.loggers = build_loggers(wanted.get("logger") or {})
        if settings.run is not None and (len(tasks) > 1 or wanted["baselines"]):
            raise UsageError(f"run={settings.run} names one folder, but there are several runs to make; use runs=DIR")
        blind = [Condition(NO_IMAGE)] if wanted["baselines"] else []
        task_settings = replace(settings, conditions=[*settings.conditions, *blind])
        done = [
            (task, pipeline.test(task, spec, task_settings if NO_IMAGE in task.conditions() else settings))
            for task in tasks
        ]
        if wanted["baselines"]:
            done += _run_baselines(tasks, settings)
    return [RunResults(run.folder, task=task, table=run.table) for task, run in done]


def _by_repeat(wanted: Mapping[str, Any], tasks: list[Task], spec: ModelSpec) -> tuple[list[Task], ModelSpec]:
    """Tasks with folds or subsets as repeats, and models for each."""
    if in_folds(wanted):
        tasks = [all_folds(task) for task in tasks]
        if len({tuple(task.folds()) for task in tasks}) > 1:
            raise UsageError("folds=all of a suite needs tasks of as many folds; test them one after the other")
    if drawn := subsets_wanted(wanted):
        if wanted["baselines"] or wanted["conditions"] or len(tasks) > 1:
            raise UsageError(f"{', '.join(drawn)}: is of one task, without baselines and conditions; leave these out")
        tasks = [tasks[0].in_subsets(drawn)]
        spec = with_subsets(spec, tasks[0])
    elif numbers := list(tasks[0].folds()):
        spec = with_folds(spec, numbers)
    else:
        for task in tasks:
            refuse_own_folds(spec, task)
    return tasks, spec


def _run_baselines(tasks: Sequence[Task], settings: Settings) -> list[tuple[Task, Run]]:
    """Asks those that models are compared with and that need no weights."""
    from medimg_eval.evaluation import pipeline

    done: list[tuple[Task, Run]] = []
    for task in tasks:
        blind_task = changed(task, **task.for_baselines())
        for name, config in task.baselines().items():
            candidate = build_candidate({**config, "name": name})
            try:
                done.append((blind_task, pipeline.test(blind_task, replace(candidate, baseline=True), settings)))
            except UserError as error:  # such as one that has no answers to learn from
                log.warning("%s is left out of task %s: %s", name, task.name, error)
    return done


@overload
def score(run: RunResults | str | Path, **settings: Any) -> RunResults: ...
@overload
def score(run: None = None, **settings: Any) -> RunSet: ...
def score(run: RunResults | str | Path | None = None, **settings: Any) -> RunResults | RunSet:
    """Scores stored predictions or prediction files again, loading no model.

    It takes what the command `score` takes.

    Args:
        run: what `test` returned, or a run folder; left out where files are scored.
        settings: of a run: `metrics`, further ones beside its own; `drop`, those that it is to have no longer; `judge`,
            `annotators`, `extractors`, `logger`, `may_leave`, `score_workers` as for `test`; `root`, where the data lie
            now; `trust=True` makes what its manifest names even where it is neither of ours nor of a plug-in; others
            are settings of the task's scores, such as `surface="voxel"`. Of files one of `masks`, `pictures`, `boxes`,
            `points`, `classes`, `answers` and `reports`, a path or several by name; `references`; and further keys of
            the command, such as `labels={1: "liver"}`, `columns={"case": "id"}`, `by="site"`, `runs="runs"`.

    Returns:
        The run; of files a run for each model, with a table of all and their comparison.

    Raises:
        UserError: the run is not done, or its data have changed; or no file belongs to a case.
    """
    if run is not None:
        return _score_run(run, **settings)
    named = [kind for kind in KINDS if settings.get(kind) is not None]
    if len(named) != 1:
        raise UsageError(f"score takes a run, or files by one of {', '.join(f'{kind}=' for kind in KINDS)}")
    trust = settings.pop("trust", False)
    words = [
        f"{key}={settings.pop(argument)}" for argument, key in NAMED.items() if isinstance(settings.get(argument), str)
    ]
    if settings.get("judge") is not None and not isinstance(settings["judge"], Mapping):
        raise UsageError("judge= of files is the name of a config, or a config with _target_")
    wanted = settings_of("score", {key: _as_text(value) for key, value in settings.items()}, words)
    with trusting() if trust else nullcontext():
        return score_files(wanted, named[0], log.warning)


def _as_text(value: Any) -> Any:
    """Paths as texts, which a config holds."""
    if isinstance(value, Mapping):
        return {key: _as_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _score_run(  # noqa: PLR0913 - one argument for each choice
    run: RunResults | str | Path,
    *,
    metrics: str | Sequence[str] | None = None,
    drop: str | Sequence[str] | None = None,
    judge: Any = None,
    root: str | Path | None = None,
    annotators: Mapping[str, Any] | None = None,
    extractors: Mapping[str, Any] | None = None,
    score_workers: int | None = None,
    may_leave: Any = None,
    logger: str | Mapping[str, Any] | None = None,
    trust: bool = False,
    **conventions: Any,
) -> RunResults:
    from medimg_eval.evaluation import pipeline
    from medimg_eval.evaluation.settings import Settings
    from medimg_eval.settings import build_loggers

    folder = folder_of(run)
    manifest = read_manifest(folder / MANIFEST)
    if manifest.get("command") != "test":
        raise UserError(f"{folder}: holds a {manifest.get('command')} run; only test runs can be scored again")
    changes = {key: value for key, value in conventions.items() if value is not None}
    trackers = plain(composed("score", [f"logger={logger}"]))["logger"] if isinstance(logger, str) else logger
    with trusting() if trust else nullcontext():
        task_ = run.task if isinstance(run, RunResults) else None
        stated = task_.config if task_ is not None and root is None else stored_task(folder, root)
        _refuse_strange(manifest["task"], type(task_) if task_ is not None else stated.get("_target_"), changes)
        changes["metrics"] = _choose_metrics(manifest["metrics"], _list_names(metrics), _list_names(drop), folder)
        task = changed(task_, **changes) if task_ is not None and root is None else build_task({**stated, **changes})
        settings = Settings(
            config={"may_leave": may_leave},
            score_workers=score_workers,
            judge=None if judge is None else _make_judge(judge),
            annotators=Annotators(annotators or {}),
            extractors=Extractors(extractors or {}),
            loggers=build_loggers(trackers or {}),
        )
        done = pipeline.rescore(folder, task, settings)
    return RunResults(folder, task=task, table=done.table)


def _make_judge(judge: Any) -> ModelSpec:
    """A judge that is named, or stated by its config, or there already."""
    if isinstance(judge, str):
        judge = plain(composed("score", [f"model@judge={judge}"]))["judge"]
    return build_candidate(judge) if isinstance(judge, Mapping) else specified(judge)


def _list_names(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or [])


def _choose_metrics(stored: Sequence[str], add: Iterable[str], drop: Iterable[str], folder: Path) -> list[str]:
    """Metrics of a run: the task's, plus added, minus dropped.

    Raises:
        UsageError: one that is to be dropped is none of them, or none is left.
    """
    metrics = list(dict.fromkeys([*map(present_name, stored), *map(as_known, add)]))
    for name in map(as_known, drop):
        if name not in metrics:
            raise UsageError(f"drop={name}: {folder} has no such metric{nearest(name, metrics)}")
        metrics.remove(name)
    if not metrics:
        raise UsageError(f"{folder}: drop= leaves no metric; name those to keep by metrics=")
    return metrics


def _refuse_strange(task: str, made: Any, changes: Mapping[str, Any]) -> None:
    """Raises UsageError when a key is not one of the task's."""
    target = pkgutil.resolve_name(made) if isinstance(made, str) else made
    names = {field.name for field in fields(target)} if is_dataclass(target) else set(changes)
    strange = next((key for key in changes if key not in names), None)
    if strange in BELONGS:
        raise UsageError(f"{strange}= is for tasks of {BELONGS[strange]}, and {task!r} is none")
    if strange is not None:
        raise UsageError(f"task {task!r} has no setting {strange!r}{nearest(strange, names)}")


def fit(
    task: str | Mapping[str, Any] | Task,
    model: Any,
    *,
    runs: str | Path = "runs",
    name: str | None = None,
    identity: str = "",
    overrides: Overrides = (),
    config_dir: str | Path | None = None,
    trust: bool = False,
    **settings: Any,
) -> Path:
    """Trains a model on a task's `fit` cases; returns the run folder.

    It takes what the command `fit` takes.

    That folder is a `checkpoint` for the same model. Arguments are as for `test`; the model is an `nn.Module` that can
    be trained, and `settings` are keys of the command `fit`, such as `fit={"lr": 1e-4}`, `trainer={"max_epochs": 10}`.
    """
    request = Asked("fit", task, model, None, name, identity, overrides, config_dir, trust)
    with resolving(request, settings) as resolved:
        return train_one(resolved.config | {"runs": str(runs)}, resolved.words, resolved.task, resolved.model)


def train_one(
    wanted: Mapping[str, Any],
    overrides: Sequence[str] = (),
    task: Task | None = None,
    model: ModelSpec | None = None,
) -> Path:
    """Trains the model of a resolved config of `fit`; arguments as of `run_tests`."""
    from medimg_eval.evaluation.fitting.fit import Recipe
    from medimg_eval.evaluation.fitting.fit import fit as train
    from medimg_eval.evaluation.plan import refuse_incapable
    from medimg_eval.settings import build_loggers, build_settings, build_tasks, undisturbed, validating

    wanted = validating(wanted)
    (task_,) = build_tasks(wanted) if task is None else [with_config(task)]
    spec = build_candidate(wanted["model"]) if model is None else model
    refuse_incapable(task_, spec)
    if in_folds(wanted):
        return _train_folds(wanted, overrides, all_folds(task_), spec, given=model is not None)
    if drawn := subsets_wanted(wanted):
        return _train_folds(wanted, overrides, task_.in_subsets(drawn), spec, given=model is not None)
    with undisturbed():
        settings = build_settings(wanted, overrides)
        return train(task_, spec, Recipe(**wanted["fit"]), settings, build_loggers(wanted["logger"]))


def in_folds(wanted: Mapping[str, Any]) -> bool:
    """Whether a config asks for all folds; UsageError unless `all`."""
    if wanted.get("folds") not in (None, "all"):
        raise UsageError(f"folds={wanted['folds']}: expected all; a single one is task.layout.splits.fold=0")
    return wanted.get("folds") == "all"


def subsets_wanted(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Subset sizes and draws to fit on; empty for all cases."""
    sizes = {kind: wanted[kind] for kind in SIZES if wanted.get(kind) is not None}
    return checked({**sizes, DRAWS: wanted[DRAWS]}) if sizes else {}


def _train_folds(
    wanted: Mapping[str, Any], overrides: Sequence[str], task: Task, model: ModelSpec, *, given: bool
) -> Path:
    """Trains each fold into `fold-0`, ...; returns the parent folder.

    Draws of subsets have seeds of their own, counted from the run's. A model that is `given` as an object is copied for
    each fold; others are made anew.
    """
    from medimg_eval.evaluation.identity import slug
    from medimg_eval.evaluation.plan import task_identity
    from medimg_eval.store import digest

    about = {key: wanted.get(key) for key in ("fit", "batch_size", "seed", "trainer")}
    about |= {"task": task_identity(task), "model": model.settled_identity, "monitor": task.monitor}
    what = "subset" if task.subsets else "fold"
    stem = Path(wanted["runs"]) / "fit" / task.name / f"{slug(model.name)}-{what}s-{digest(about)}"
    folder = Path(wanted["run"]) if wanted.get("run") else stem
    untrained = model.model if given else None
    for number, fold in task.folds().items():
        log.info("%s %d of %s", what, number, task.name)
        config = {**wanted, "task": dict(fold.config), "run": str(folder / f"fold-{number}"), "folds": None}
        if task.subsets:
            config |= {**dict.fromkeys(SIZES), "seed": (wanted["seed"] or 0) + size_and_draw(fold.subsets)[1]}
        fresh = replace(model)  # which has nothing loaded: no fold goes on from what another one learnt
        if untrained is not None:
            fresh = replace(model, load=partial(deepcopy, untrained))
        train_one(config, overrides, fold, fresh)
    return folder


def load_run(folder: str | Path) -> RunResults:
    """Opens a run folder; its scores are read when they are asked for.

    Raises:
        UserError: it holds no run of `test` or `predict`.
    """
    run = RunResults(Path(folder).expanduser())
    if run.manifest.get("command") not in ("test", "predict"):
        raise UserError(f"{folder}: holds a {run.manifest.get('command')} run; only test runs have scores")
    return run
