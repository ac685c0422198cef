"""The Python API: what `import medimg_eval as me` offers, and all that the commands of the same names do but print."""

from __future__ import annotations

import logging
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.case import NO_IMAGE, Condition
from medimg_eval.catalogue import configs_of, searching, usual_places
from medimg_eval.configs.former_keys import present_settings
from medimg_eval.configs.overrides import composed, plain, with_changes
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.instantiate import (
    Annotators,
    Extractors,
    build_candidate,
    build_task,
    changed,
    spec_of,
    stored_task,
    with_config,
)
from medimg_eval.metrics import as_known, present_name
from medimg_eval.results import RunScores, load_runs
from medimg_eval.results.runs import MANIFEST, read_manifest
from medimg_eval.run_results import RunResults, folder_of
from medimg_eval.tasks import Task
from medimg_eval.trust import trusting

if TYPE_CHECKING:
    import pandas as pd

    from medimg_eval.evaluation.model_spec import ModelSpec
    from medimg_eval.evaluation.run import Run
    from medimg_eval.evaluation.settings import Settings
    from medimg_eval.results import Comparison, Table
    from medimg_eval.results.figures import Drawn

log = logging.getLogger(__name__)

Runs = RunResults | RunScores | str | Path | Sequence[RunResults | RunScores | str | Path]
"""A run or several: results of `test`, run folders, or folders that hold run folders."""

Overrides = Sequence[str] | Mapping[str, Any]
"""Changes to a config: words as on the command line (`task.metrics=[dice]`), or keys with values."""

BELONGS = {"surface": "segmentations", "empty": "segmentations", "extraction": "questions"}
"""Keys that only some tasks have -> which."""


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
    """Asks a model what an earlier start has not, stores its answers and scores them, as the command `test` does.

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
    asked = _Asked("test", task, model, judge, name, identity, overrides, config_dir, trust)
    with _resolving(asked, settings) as given:
        first, *others = run_tests(
            given.config | {"runs": str(runs)}, given.words, given.task, given.model, given.judge
        )
    first.baselines = others
    return first


def run_tests(
    wanted: Mapping[str, Any],
    overrides: Sequence[str] = (),
    task: Task | None = None,
    model: ModelSpec | None = None,
    judge: ModelSpec | None = None,
) -> list[RunResults]:
    """Runs a model on a task or on every task of a suite, then what it is compared with."""
    from medimg_eval.evaluation import pipeline
    from medimg_eval.evaluation.plan import refuse_incapable
    from medimg_eval.settings import build_loggers, build_settings, build_tasks, undisturbed

    made = build_tasks(wanted) if task is None else [with_config(task)]
    # Draws follow the run's seed; 0 is what they follow by themselves.
    tasks = [changed(one, **one.seeded(wanted["seed"])) if wanted["seed"] else one for one in made]
    spec = build_candidate(wanted["model"]) if model is None else model
    for one in tasks:
        refuse_incapable(one, spec)
        if wanted["baselines"] and not one.baselines():
            raise UsageError(f"task {one.name!r} asks for no words and no classes, so there are no baselines for it")
    with undisturbed():
        settings = build_settings(wanted, overrides, judge)
        settings.loggers = build_loggers(wanted.get("logger") or {})
        if settings.run is not None and (len(tasks) > 1 or wanted["baselines"]):
            raise UsageError(f"run={settings.run} names one folder, but there are several runs to make; use runs=DIR")
        blind = [Condition(NO_IMAGE)] if wanted["baselines"] else []
        asked = replace(settings, conditions=[*settings.conditions, *blind])
        done = [(one, pipeline.test(one, spec, asked if NO_IMAGE in one.conditions() else settings)) for one in tasks]
        if wanted["baselines"]:
            done += _baselines(tasks, settings)
    return [RunResults(run.folder, task=one, table=run.table) for one, run in done]


def _baselines(tasks: Sequence[Task], settings: Settings) -> list[tuple[Task, Run]]:
    """Asks those that models are compared with and that need no weights."""
    from medimg_eval.evaluation import pipeline

    done: list[tuple[Task, Run]] = []
    for task in tasks:
        asked = changed(task, **task.for_baselines())
        for name, config in task.baselines().items():
            one = build_candidate({**config, "name": name})
            try:
                done.append((asked, pipeline.test(asked, replace(one, baseline=True), settings)))
            except UserError as error:  # such as one that has no answers to learn from
                log.warning("%s is left out of task %s: %s", name, task.name, error)
    return done


def score(  # noqa: PLR0913 - one argument for each choice
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
    """Scores stored predictions again, as the command `score` does; loads no model.

    Args:
        run: what `test` returned, or a run folder.
        metrics: further ones, beside the run's own.
        drop: metrics that the run is to have no longer.
        judge: of open answers, where the task asks one: as for `test`.
        root: where the data lie now, when they have moved.
        annotators: of reports, for metrics that need one, such as `{"chexbert": {"weights": "chexbert.pth"}}`.
        extractors: of pictures, the same.
        score_workers: processes that score; None chooses.
        may_leave: `yes` lets data go to a server, if their terms allow that.
        logger: the tracker that the scores are reported to, as for `test`: wandb, mlflow or tensorboard.
        trust: whether what the run's manifest names is made even where it is neither of ours nor of a plug-in.
        conventions: other settings of the task's scores, such as `surface="voxel"`.

    Raises:
        UserError: the run is not done, or its data have changed.
    """
    from medimg_eval.evaluation import pipeline
    from medimg_eval.evaluation.settings import Settings
    from medimg_eval.settings import build_loggers

    folder = folder_of(run)
    manifest = read_manifest(folder / MANIFEST)
    if manifest.get("command") != "test":
        raise UserError(f"{folder}: holds a {manifest.get('command')} run; only test runs can be scored again")
    changes = {key: value for key, value in conventions.items() if value is not None}
    with trusting() if trust else nullcontext():
        known = run.task if isinstance(run, RunResults) else None
        stated = known.config if known is not None and root is None else stored_task(folder, root)
        _refuse_strange(manifest["task"], type(known) if known is not None else stated.get("_target_"), changes)
        changes["metrics"] = _columns(manifest["metrics"], _names(metrics), _names(drop), folder)
        task = changed(known, **changes) if known is not None and root is None else build_task({**stated, **changes})
        settings = Settings(
            config={"may_leave": may_leave},
            score_workers=score_workers,
            judge=None if judge is None else _judge(judge),
            annotators=Annotators(annotators or {}),
            extractors=Extractors(extractors or {}),
            loggers=build_loggers(_loggers(logger)),
        )
        done = pipeline.rescore(folder, task, settings)
    return RunResults(folder, task=task, table=done.table)


def _judge(judge: Any) -> ModelSpec:
    """A judge that is named, or stated by its config, or there already."""
    if isinstance(judge, str):
        judge = plain(composed("score", [f"model@judge={judge}"]))["judge"]
    return build_candidate(judge) if isinstance(judge, Mapping) else _spec(judge)


def _loggers(logger: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The configs of trackers, by name of a config or as they are."""
    return (plain(composed("score", [f"logger={logger}"]))["logger"] if isinstance(logger, str) else logger) or {}


def _names(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or [])


def _columns(stored: Sequence[str], add: Iterable[str], drop: Iterable[str], folder: Path) -> list[str]:
    """The metrics that a run is to have: its own, those that are added, without those that are dropped.

    Raises:
        UsageError: one that is to be dropped is none of them, or none is left.
    """
    found = list(dict.fromkeys([*map(present_name, stored), *map(as_known, add)]))
    for name in map(as_known, drop):
        if name not in found:
            raise UsageError(f"drop={name}: {folder} has no such metric{nearest(name, found)}")
        found.remove(name)
    if not found:
        raise UsageError(f"{folder}: drop= leaves no metric; name those to keep by metrics=")
    return found


def _refuse_strange(task: str, made: Any, changes: Mapping[str, Any]) -> None:
    """Raises UsageError when a key is not one of the task's."""
    found = pkgutil.resolve_name(made) if isinstance(made, str) else made
    known = {field.name for field in fields(found)} if is_dataclass(found) else set(changes)
    strange = next((key for key in changes if key not in known), None)
    if strange in BELONGS:
        raise UsageError(f"{strange}= is for tasks of {BELONGS[strange]}, and {task!r} is none")
    if strange is not None:
        raise UsageError(f"task {task!r} has no setting {strange!r}{nearest(strange, known)}")


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
    """Trains a model on a task's `fit` cases, as the command `fit` does; returns the run folder.

    That folder is a `checkpoint` for the same model. Arguments are as for `test`; the model is an `nn.Module` that can
    be trained, and `settings` are keys of the command `fit`, such as `fit={"lr": 1e-4}`, `trainer={"max_epochs": 10}`.
    """
    asked = _Asked("fit", task, model, None, name, identity, overrides, config_dir, trust)
    with _resolving(asked, settings) as given:
        return train_one(given.config | {"runs": str(runs)}, given.words, given.task, given.model)


def train_one(
    wanted: Mapping[str, Any],
    overrides: Sequence[str] = (),
    task: Task | None = None,
    model: ModelSpec | None = None,
) -> Path:
    """Trains the model of a resolved config of `fit`; arguments as of `run_tests`."""
    from medimg_eval.evaluation.fit import Recipe
    from medimg_eval.evaluation.fit import fit as train
    from medimg_eval.evaluation.plan import refuse_incapable
    from medimg_eval.settings import build_loggers, build_settings, build_tasks, undisturbed, validating

    wanted = validating(wanted)
    (made,) = build_tasks(wanted) if task is None else [with_config(task)]
    spec = build_candidate(wanted["model"]) if model is None else model
    refuse_incapable(made, spec)
    with undisturbed():
        settings = build_settings(wanted, overrides)
        return train(made, spec, Recipe(**wanted["fit"]), settings, build_loggers(wanted["logger"]))


def load_run(folder: str | Path) -> RunResults:
    """Opens a run folder; its scores are read when they are asked for.

    Raises:
        UserError: it holds no run of `test`.
    """
    run = RunResults(Path(folder).expanduser())
    if run.manifest.get("command") != "test":
        raise UserError(f"{folder}: holds a {run.manifest.get('command')} run; only test runs have scores")
    return run


def load_task(
    name: str,
    *,
    root: str | Path | None = None,
    overrides: Overrides = (),
    config_dir: str | Path | None = None,
    **settings: Any,
) -> Task:
    """Makes a task of the catalogue.

    Args:
        name: of its config, such as `slake`.
        root: folder of its data, in place of the config's.
        overrides: as for `test`.
        config_dir: as for `test`.
        settings: of the task, such as `metrics=["dice"]`.
    """
    folders = [] if config_dir is None else [str(config_dir)]
    words = [] if isinstance(overrides, Mapping) else list(overrides)
    config = composed("check", [f"task={name}", *words], folders)
    placed = {} if root is None else {"task.layout.root": str(Path(root).expanduser())}
    changes = overrides if isinstance(overrides, Mapping) else {}
    changes = {**changes, **placed, **{f"task.{key}": value for key, value in settings.items()}}
    with searching(usual_places(folders)):
        return build_task(plain(with_changes(config, changes))["task"])


def list_tasks(tag: str = "", *, config_dir: str | Path | None = None) -> pd.DataFrame:
    """The tasks of the catalogue: a row for each, with `title`, `family`, `description`, `access` and `may_leave`.

    Args:
        tag: only those of a family (`vqa`, `segmentation`, `reports`, ...), or with this word in name or description.
        config_dir: as for `test`.
    """
    import pandas as pd

    from medimg_eval.catalogue import families

    with searching(usual_places([] if config_dir is None else [config_dir])):
        of_family, found = families("task"), configs_of("task")
    rows = []
    for name, config in sorted(found.items()):
        card = config.get("card") or {}
        told = str(card.get("description") or config["description"])
        if tag and tag != of_family[name] and tag.lower() not in f"{name} {config.get('title', '')} {told}".lower():
            continue
        said = {key: str(card.get(key, "")) for key in ("access", "may_leave")}
        rows.append(
            {"task": name, "title": config.get("title", ""), "family": of_family[name], "description": told} | said
        )
    if not rows:
        raise UsageError(f"there are no tasks of {tag!r}{nearest(tag, of_family.values())}")
    return pd.DataFrame(rows).set_index("task")


def table(runs: Runs = "runs", **settings: Any) -> Table:
    """The paper table of runs, with intervals; `to_latex()`, `to_markdown()`, `to_html()`, `to_csv()` write it.

    Args:
        runs: which.
        settings: keys of the command `table`, such as `metrics`, `by`, `mean`, `marks`, `percent`, `form`.

    Raises:
        UsageError: a setting does not exist, or the runs are of several tasks whose papers print a table each.
    """
    from medimg_eval.results.tables import tables_of

    tables = tables_of(_scores_of(runs), _settings("table", settings))
    if len(tables) > 1:
        raise UsageError(f"table={settings['table']} makes {len(tables)} tables; give the runs of one task")
    return next(iter(tables.values()))


def compare(runs: Runs = "runs", metric: str = "", **settings: Any) -> Comparison:
    """Whether models differ by more than chance: settings are keys of the command `compare`, such as `baseline`."""
    from medimg_eval.results.tables import comparison_of

    return comparison_of(_scores_of(runs), _settings("compare", {**settings, "metric": metric}))


def figure(kind: str, runs: Runs = "runs", metric: str | None = None, **settings: Any) -> dict[str, Drawn]:
    """Figures for a paper by their names, one for each task where its kind asks for that.

    Args:
        kind: such as `forest`, `box` or `reliability`.
        runs: which.
        metric: whose values are drawn.
        settings: keys of the command `figure`; with `out` the files are written.
    """
    from medimg_eval.results.figures import figures_of, write_figure

    out = settings.pop("out", None)
    wanted = _settings("figure", {**settings, "kind": kind, "metric": metric, "out": str(out)})
    drawn = dict(figures_of(_scores_of(runs), wanted))
    for stem, one in drawn.items() if out is not None else ():
        write_figure(one, Path(out), stem)
    return drawn


def report(runs: Runs, out: str | Path, *, trust: bool = False, **settings: Any) -> Path:
    """Writes pages with tables, cases and images; returns their index. Settings are keys of the command `report`."""
    from medimg_eval.catalogue import task_facts
    from medimg_eval.viewer import write_pages

    wanted = _settings("report", {**settings, "out": str(out)})
    with trusting() if trust else nullcontext():
        return write_pages(lambda: _scores_of(runs), wanted, lambda *at: build_task(stored_task(*at)), task_facts)


class _Given(NamedTuple):
    """What a caller asked for: a resolved config, the words behind it, and the objects in place of its parts."""

    config: dict[str, Any]
    words: list[str]
    task: Task | None
    model: ModelSpec | None
    judge: ModelSpec | None


class _Asked(NamedTuple):
    """What `test` and `fit` are called with alike."""

    command: str
    task: Any
    model: Any
    judge: Any
    name: str | None
    identity: str
    overrides: Overrides
    config_dir: str | Path | None
    trust: bool


@contextmanager
def _resolving(asked: _Asked, settings: Mapping[str, Any]) -> Iterator[_Given]:
    """Resolves what a caller asked for; names and configs of the caller's own are found as long as this lasts."""
    from omegaconf import OmegaConf

    folders = [] if asked.config_dir is None else [str(asked.config_dir)]
    parts = {"task": asked.task, "model": asked.model, "judge": asked.judge}
    named = {"model@judge" if key == "judge" else key: one for key, one in parts.items() if isinstance(one, str)}
    named |= {key: one for key, one in settings.items() if key in ("trainer", "logger") and isinstance(one, str)}
    written = isinstance(asked.overrides, Mapping)
    words = [f"{key}={one}" for key, one in named.items()] + ([] if written else list(asked.overrides))
    changes = {**asked.overrides} if isinstance(asked.overrides, Mapping) else {}
    changes |= {key: one for key, one in settings.items() if key not in named}
    changes = present_settings(asked.command, changes)
    objects = {key: one for key, one in parts.items() if one is not None and not isinstance(one, str | Mapping)}
    _refuse_changed(objects, [*words, *changes])
    config = composed(asked.command, words, folders)
    OmegaConf.set_struct(config, False)
    for key, one in parts.items():
        if key in objects or isinstance(one, Mapping):
            config[key] = one if isinstance(one, Mapping) else None  # and nothing of what stands there by default
    found = plain(with_changes(config, changes))
    if asked.name is not None and "model" not in objects:
        found["model"]["name"] = asked.name
    task = with_config(objects["task"]) if "task" in objects else None
    model = _spec(objects["model"], asked.name, asked.identity) if "model" in objects else None
    judge = _spec(objects["judge"]) if "judge" in objects else None
    if task is not None:
        found["task"] = dict(task.config)
    found |= {key: {"name": one.name, **one.config} for key, one in (("model", model), ("judge", judge)) if one}
    with searching(usual_places(folders)), trusting() if asked.trust else nullcontext():
        yield _Given(found, words, task, model, judge)


def _refuse_changed(objects: Mapping[str, Any], words: Sequence[str]) -> None:
    """Raises UsageError where keys are set within what is an object, and no config."""
    for key in objects:
        strange = next((word for word in words if re.match(rf"[+~]*(model@)?{key}\b", word)), None)
        if strange is not None:
            raise UsageError(f"{strange}: the {key} is an object; change it where it is made")


def _spec(model: Any, name: str | None = None, identity: str = "") -> ModelSpec:
    from medimg_eval.evaluation.model_spec import ModelSpec

    if isinstance(model, ModelSpec):
        return model if name is None else replace(model, name=name)
    return spec_of(model, name, identity)


def _scores_of(runs: Runs) -> list[RunScores]:
    """Runs as their tables read them, in the order given."""
    given = list(runs) if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    read = [one for one in given if isinstance(one, RunScores)]
    folders = [folder_of(one) for one in given if not isinstance(one, RunScores)]
    return read + (load_runs(folders) if folders else [])


def _settings(command: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a command, those that are not given at their defaults."""
    return plain(with_changes(composed(command, ["runs=."]), present_settings(command, settings)))
