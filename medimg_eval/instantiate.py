"""From a config to the object it describes; loads no more than the object needs."""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import pkgutil
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from hydra.utils import instantiate

from medimg_eval.arguments import OWN, LiveError, arguments_of, as_config, defaults_of, path_of, settled
from medimg_eval.catalogue import configs_of, merged, spelled_arguments
from medimg_eval.data.former_names import found_now
from medimg_eval.data.splits import ALL
from medimg_eval.data.stored import require_ours
from medimg_eval.errors import UsageError, UserError, invalid, missing_extra, nearest, users_frame
from medimg_eval.evaluation.identity import code_identity
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.metrics import parse
from medimg_eval.models import Model
from medimg_eval.tasks import Task
from medimg_eval.tasks.prediction import output_of, prediction_config

log = logging.getLogger(__name__)

PROTOCOLS = ("fixed", "published")


def build(config: Any, **extra: Any) -> Any:
    """Makes what a config's `_target_` names.

    Raises:
        UsageError: the target cannot be imported, or does not take an argument; the message names both.
        UserError: it needs a library of an extra that is not installed, or refuses its settings.
    """
    try:
        return instantiate(config, _convert_="all", **extra)
    except Exception as error:
        cause = error.__cause__
        if isinstance(cause, ImportError) and (missing := missing_extra(cause)):
            raise missing from error
        if isinstance(cause, ImportError) and (unknown := _unknown_target(str(cause))):
            raise unknown from error
        if cause is None or (users_frame(cause) is None and not isinstance(cause, UserError)):
            if isinstance(cause, TypeError):
                raise UsageError(f"{config['_target_']}: {cause}") from error
            raise
    # Of a class of the user's own, or a refusal of ours; here, for within the handler each would be the other's cause.
    raise cause


def _unknown_target(message: str) -> UsageError | None:
    """Error that suggests the nearest class of ours; None for a target outside."""
    stated = re.search(r"Error loading '(medimg_eval\.[\w.]+)'", message)
    parts = stated[1].split(".") if stated else []
    for end in range(len(parts) - 1, 0, -1):
        parent = ".".join(parts[:end])
        if importlib.util.find_spec(parent) is not None:
            module = importlib.import_module(parent)
            own = [name for name, held in vars(module).items() if getattr(held, "__module__", "") == parent]
            names = getattr(module, "__all__", own)
            return UsageError(invalid(f"_target_ in {parent}", parts[end], names)) if names else None
    return None


def build_task(config: Mapping[str, Any]) -> Task:
    """Makes a task.

    Raises:
        UsageError: what the config names is not a Task, its card cannot be read, or it has no such protocol.
    """
    config = under_protocol(found_now(config))
    if "accept" in config:  # which a task's method is called
        config = {"acceptance" if key == "accept" else key: value for key, value in config.items()}
    config = _without_nulls(config)
    task = build(config)
    if not isinstance(task, Task):
        raise UsageError(f"task {config.get('name')!r}: {config.get('_target_')} is not a Task")
    card = task.card if task.card is not None else {}
    if not isinstance(card, Mapping):
        raise UsageError(f"task {task.name!r}: its card is {card!r}; expected keys with values")
    task = replace(task, card=card, config=config)
    _ = task.may_leave  # refused here, and not when something is about to be sent
    for metric in {number.metric for number in task.published_numbers} - set(task.metrics):
        try:
            parse(metric)
        except UsageError as error:
            raise UsageError(f"task {task.name!r}: card.published: {error}") from error
    return task


def _without_nulls(config: Mapping[str, Any]) -> dict[str, Any]:
    """A task's config without settings that are null where its class has a default and takes no null.

    `task.expected=null` so takes back what the YAML expects, and `task.splits.validate=null` the cases to validate on.
    Raises UsageError where there is no such default.
    """
    by_part = {key: config[key] for key in ("splits", "expected") if isinstance(config.get(key), Mapping)}
    config = {
        **config,
        **{key: {part: of for part, of in held.items() if of is not None} for key, held in by_part.items()},
    }
    empty = {key for key, value in config.items() if value is None}
    try:
        made = pkgutil.resolve_name(str(config["_target_"])) if empty else None
    except (ImportError, AttributeError, ValueError):  # told when the task is made
        return config
    settings = fields(made) if isinstance(made, type) and is_dataclass(made) else ()
    empty &= {setting.name for setting in settings if "None" not in str(setting.type) and setting.name != "card"}
    for setting in settings:
        if setting.name in empty and setting.default is MISSING and setting.default_factory is MISSING:
            raise UsageError(f"task {config.get('name')!r}: {setting.name} is null; add task.{setting.name}=VALUE")
    return {key: value for key, value in config.items() if key not in empty}


def under_protocol(config: Mapping[str, Any]) -> dict[str, Any]:
    """Task config under `protocol=published`, with the authors' settings applied.

    Raises:
        UsageError: there is no such protocol.
    """
    protocol = config.get("protocol", "fixed")
    UsageError.refuse_invalid("task.protocol", PROTOCOLS, protocol)
    if protocol == "fixed":
        return dict(config)
    published = dict(config.get("published") or {})
    if not published:
        raise UsageError(f"task {config.get('name')!r} has no protocol=published; leave task.protocol out")
    notes = {"notes": published.pop("notes", [])}  # what a stored run is scored by later is not settled anew
    return {**merged(config, published), "published": notes}


def config_of_prediction(wanted: Mapping[str, Any], model: ModelSpec) -> dict[str, Any]:
    """The config of the task that a resolved config of `predict` means.

    Labels are those that are named, else those of `task`, of the run that the model was fitted in, or its own.

    Raises:
        UsageError: nothing says what is asked, or the model cannot give it.
    """
    prompt, questions = wanted["prompt"], wanted["questions"]
    if prompt and questions:
        raise UsageError("prompt= and questions= both say what is asked; leave one out")
    task = wanted.get("task") or None
    labels = wanted["labels"]
    output = output_of(model.wrapper, wanted["output"], asked=bool(prompt or questions))
    folder = Path(str(model.config.get("checkpoint") or "")).expanduser()
    if task is None and not labels and (folder / "manifest.json").is_file():
        task = stored_task(folder)
    if output == "answers" and not (prompt or questions or task):
        raise UsageError("nothing is asked; add prompt='...' for every image, or questions=FILE")
    if task is None and not labels and output in ("masks", "probabilities"):
        labels = getattr(model.model, "own_labels", dict)()
    layout = {
        "_target_": "medimg_eval.data.layouts.FoundImages",
        "root": wanted["images"],
        **({"series": wanted["series"]} if wanted["series"] is not None else {}),
        **({"question": str(prompt)} if prompt else {}),
        **({"questions": str(questions)} if questions else {}),
        **({"options": wanted["read"]} if wanted["read"] else {}),
    }
    settings = {key: wanted[key] for key in ("decoding", "template", "exclusive") if wanted[key]}
    return prediction_config(output, layout, labels, settings, under_protocol(found_now(task)) if task else None)


def build_candidate(config: Mapping[str, Any], group: str = "model") -> ModelSpec:
    """Finds a model's class; builds the model on demand.

    Raises:
        UsageError: the class cannot be imported.
    """
    config = found_now(config)
    target = config["_target_"]
    try:
        wrapper = pkgutil.resolve_name(target)
    except Exception as error:  # a user's module can fail in any way while it is imported
        location = f"; {frame.filename}, line {frame.lineno}" if (frame := users_frame(error)) else ""
        raise UsageError(
            f"{group}._target_={target} cannot be imported ({error}{location}){_nearest_class(str(target))}; install "
            "the package it is in, or run from the folder it lies in"
        ) from error
    arguments = {key: value for key, value in config.items() if key != "name"}
    return ModelSpec(
        name=config.get("name") or wrapper.__name__,
        wrapper=wrapper,
        config=arguments,
        load=lambda: cast("Model", build(arguments)),
        spelled=spelled_arguments(str(target))[0] if group == "model" else frozenset(),
    )


def _nearest_class(target: str) -> str:
    """The end of a sentence about a class that its module, which is there, does not have."""
    module, _, name = target.rpartition(".")
    names = [key for key, value in vars(sys.modules.get(module, object)).items() if isinstance(value, type)]
    hint = nearest(name, names) if module in sys.modules and names else ""
    return hint.partition(" (")[0]


def with_folds(spec: ModelSpec, numbers: Iterable[int]) -> ModelSpec:
    """Model per fold, for configs with `{fold}` or `fold-0`.

    A path with `{fold}` or a folder that holds `fold-0` has one for each.

    Raises:
        UserError: there is no file of some fold.
    """
    of_folds = {number: build_candidate({**_of_fold(spec.config, number), "name": spec.name}) for number in numbers}
    if all(of_fold.config == spec.config for of_fold in of_folds.values()):
        if spec.config.get("checkpoint"):
            log.warning("%s: the same weights answer in every fold; they must not have been fitted on any", spec.name)
        return spec
    return replace(spec, of_folds=of_folds)


def with_subsets(spec: ModelSpec, task: Task) -> ModelSpec:
    """A model with one for each subset that was fitted on: as `with_folds`.

    Raises:
        UsageError: it was fitted on other subsets, or on none.
    """
    folds = task.folds()
    spec = with_folds(spec, folds)
    if not spec.of_folds and not callable(getattr(spec.wrapper, "study", None)):
        words = " ".join(f"{key}={value}".replace(" ", "") for key, value in task.subsets.items())
        raise UsageError(
            f"{spec.name} is one model, and sizes of what is fitted on need one for each; fit it by fit {words}, and "
            "name that folder by model.checkpoint"
        )
    for number, of_fold in spec.of_folds.items():
        manifest = Path(str(of_fold.config.get("checkpoint"))).expanduser() / "manifest.json"
        if not manifest.is_file():
            continue
        stated = json.loads(manifest.read_text(encoding="utf-8")).get("config", {})
        if (held := (stated.get("task") or {}).get("subsets")) != dict(folds[number].subsets):
            raise UsageError(
                f"{manifest.parent}: was fitted on {held or 'all cases'}, not on {dict(folds[number].subsets)}"
            )
    return spec


def refuse_own_folds(spec: ModelSpec, task: Task) -> None:
    """Refuses models of folds or subsets on their own cases together.

    On other cases what the folds say is averaged, where the model can.
    """
    manifest = Path(str(spec.config.get("checkpoint") or "")).expanduser() / "fold-0" / "manifest.json"
    if not manifest.is_file():
        return
    fitted = json.loads(manifest.read_text(encoding="utf-8")).get("config", {}).get("task") or {}
    layouts = [dict(stated.get("layout") or {}, splits=None) for stated in (fitted, task.config)]
    if fitted.get("subsets") or layouts[0] == layouts[1]:
        from medimg_eval.models import refuse_folds

        refuse_folds(manifest.parents[1])


def _of_fold(value: Any, number: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _of_fold(item, number) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_of_fold(item, number) for item in value]
    if not isinstance(value, str):
        return value
    filled = value.replace("{fold}", str(number))
    folder = Path(filled).expanduser()
    if (folder / "fold-0").is_dir():
        if not (own := folder / f"fold-{number}").is_dir():
            raise UserError(f"{own}: no such folder; fit with the folds, sizes and draws of the test")
        return str(own)
    return filled


def all_folds(task: Task) -> Task:
    """Task over all folds, each tested separately; UsageError without folds."""
    stated, layout = task.config.get("layout"), task.layout
    splits = getattr(layout, "splits", None)
    if splits is None or not hasattr(splits, "fold_numbers"):
        raise UsageError(
            f"task {task.name!r}: folds=all needs splits with folds; draw them by "
            "'task.layout.splits={_target_: medimg_eval.data.splits.SplitFolds}'"
        )
    config = dict(task.config)
    if isinstance(stated, Mapping) and isinstance(stated.get("splits"), Mapping):
        config["layout"] = {**stated, "splits": {**stated["splits"], "fold": ALL}}
    layout = replace(cast("Any", layout), splits=replace(splits, fold=ALL))
    target = replace(task, layout=layout, config=config)
    target.folds()  # refused here where there are none
    return target


def spec_of(model: Any, name: str | None = None, identity: str = "") -> ModelSpec:
    """Config-like description of a model object or argument-free class.

    Args:
        model: an object with the method that the task asks, or such a class.
        name: what tables call it; its class's name without.
        identity: names it where it does not know its own arguments, or they are objects that no config can hold.
    """
    wrapper: type = model if isinstance(model, type) else type(model)
    target = path_of(wrapper)
    config: dict[str, Any] = {"_target_": target}
    spelled, always = spelled_arguments(target)
    identified = True
    if identity:
        config["identity"] = identity
    else:
        try:
            arguments = {} if wrapper is model else arguments_of(model)
            config |= {key: value for key, value in defaults_of(wrapper).items() if key in always} | arguments
            identified = wrapper.__module__.partition(".")[0] == OWN or code_identity(wrapper) is not None
        except LiveError:
            identified = False
    if not identified:
        config["unidentified"] = uuid.uuid4().hex
    return ModelSpec(
        name=name or wrapper.__name__,
        wrapper=wrapper,
        config=config,
        load=(lambda: cast("Model", wrapper())) if wrapper is model else lambda: cast("Model", model),
        spelled=spelled,
        identified=identified,
    )


def with_config(task: Task) -> Task:
    """Task with the config that recreates it, when built by class."""
    if task.config:
        return task
    try:
        config = settled({key: value for key, value in as_config(task).items() if key != "config"})
    except LiveError as error:
        raise UsageError(f"task {task.name!r}: {error}; make the layout a dataclass of plain values") from error
    return replace(task, config=config)


def changed(task: Task, **settings: Any) -> Task:
    """Task made anew with other settings; itself where there are none."""
    if not settings:
        return task
    if "'__main__." in str(task.config):  # which Hydra would look up in the program that started it
        return replace(task, **settings, config={**task.config, **settings})
    return build_task({**task.config, **settings})


def stored_task(folder: Path, root: Any = None) -> dict[str, Any]:
    """Task config of a run's manifest, with current names.

    `root`: where its data lie.

    Raises:
        UserError: it names a class that may not be made here, or there is no manifest.
    """
    from medimg_eval.results.runs import MANIFEST, read_manifest  # takes seconds: tables are read with pandas

    manifest = read_manifest(folder / MANIFEST)
    if not isinstance(manifest.get("task_config"), dict):
        raise UserError(f"{folder}: its manifest does not say how its task was made; run test again")
    stated: dict[str, Any] = found_now(manifest["task_config"])
    require_ours(stated, folder / MANIFEST)
    require_ours({"metrics": manifest.get("metrics")}, folder / MANIFEST)
    if isinstance(labels := stated.get("labels"), Mapping):  # JSON turned their integers into text
        unnamed = {label: int(label) for label in labels if str(label).lstrip("-").isdecimal()}
        stated["labels"] = {unnamed.get(label, label): name for label, name in labels.items()}
    return stated if root is None else stated | {"layout": {**stated["layout"], "root": root}}


class Annotators(Mapping[str, ModelSpec]):
    """Annotators by name, looked up on demand.

    Args:
        given: the command line's changes to the config group `annotator`, and annotators of the user's own.
    """

    group = "annotator"

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._found: dict[str, ModelSpec] = {}

    @cached_property
    def configs(self) -> dict[str, dict[str, Any]]:
        """Configs that each object is made of.

        Raises:
            UsageError: something is set of an annotator that there is not.
        """
        own = {name: config for name, config in self._given.items() if "_target_" in config}
        configs: dict[str, dict[str, Any]] = {**configs_of(self.group), **own}
        UsageError.refuse_invalid(self.group, configs, *self._given)
        return {name: {**config, **(self._given.get(name) or {}), "name": name} for name, config in configs.items()}

    def __getitem__(self, name: str) -> ModelSpec:
        if name not in self._found:
            config = {key: value for key, value in self.configs[name].items() if key != "description"}
            self._found[name] = build_candidate(config, group=f"{self.group}s.{name}")
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.configs)

    def __len__(self) -> int:
        return len(self.configs)


class Extractors(Annotators):
    """Extractors by name; `given` changes the config group `extractor`."""

    group = "extractor"
