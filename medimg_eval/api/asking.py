"""What a caller from Python asks for, resolved as the words of a command line are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.catalogue import searching, usual_places
from medimg_eval.configs.former_keys import present_settings
from medimg_eval.configs.overrides import composed, plain, with_changes
from medimg_eval.errors import UsageError
from medimg_eval.instantiate import spec_of, with_config
from medimg_eval.tasks import Task
from medimg_eval.trust import trusting

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec

Overrides = Sequence[str] | Mapping[str, Any]
"""Changes to a config: words as on the command line (`task.metrics=[dice]`), or keys with values."""


class Given(NamedTuple):
    """A resolved config, its words, and objects given for its parts."""

    config: dict[str, Any]
    words: list[str]
    task: Task | None
    model: ModelSpec | None
    judge: ModelSpec | None


class Asked(NamedTuple):
    """The arguments that `test`, `test_checkpoints` and `fit` share."""

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
def resolving(asked: Asked, settings: Mapping[str, Any]) -> Iterator[Given]:
    """Resolves a caller's request; its own names hold within the block."""
    from omegaconf import OmegaConf

    folders = [] if asked.config_dir is None else [str(asked.config_dir)]
    parts = {"task": asked.task, "model": asked.model, "judge": asked.judge}
    named = {"model@judge" if key == "judge" else key: part for key, part in parts.items() if isinstance(part, str)}
    named |= {
        key: setting for key, setting in settings.items() if key in ("trainer", "logger") and isinstance(setting, str)
    }
    written = isinstance(asked.overrides, Mapping)
    words = [f"{key}={setting}" for key, setting in named.items()] + ([] if written else list(asked.overrides))
    changes = {**asked.overrides} if isinstance(asked.overrides, Mapping) else {}
    changes |= {key: setting for key, setting in settings.items() if key not in named}
    changes = present_settings(asked.command, changes)
    objects = {key: part for key, part in parts.items() if part is not None and not isinstance(part, str | Mapping)}
    _refuse_changed(objects, [*words, *changes])
    config = composed(asked.command, words, folders)
    OmegaConf.set_struct(config, False)
    for key, part in parts.items():
        if key in objects or isinstance(part, Mapping):
            config[key] = part if isinstance(part, Mapping) else None  # and nothing of what stands there by default
    resolved = plain(with_changes(config, changes))
    if asked.name is not None and "model" not in objects:
        resolved["model"]["name"] = asked.name
    task = with_config(objects["task"]) if "task" in objects else None
    model = specified(objects["model"], asked.name, asked.identity) if "model" in objects else None
    judge = specified(objects["judge"]) if "judge" in objects else None
    if task is not None:
        resolved["task"] = dict(task.config)
    resolved |= {key: {"name": part.name, **part.config} for key, part in (("model", model), ("judge", judge)) if part}
    with searching(usual_places(folders)), trusting() if asked.trust else nullcontext():
        yield Given(resolved, words, task, model, judge)


def _refuse_changed(objects: Mapping[str, Any], words: Sequence[str]) -> None:
    """Raises UsageError for keys set within objects, which are no configs."""
    for key in objects:
        strange = next((word for word in words if re.match(rf"[+~]*(model@)?{key}\b", word)), None)
        if strange is not None:
            raise UsageError(f"{strange}: the {key} is an object; change it where it is made")


def specified(model: Any, name: str | None = None, identity: str = "") -> ModelSpec:
    """Model object as `spec_of` describes it; descriptions stay."""
    from medimg_eval.evaluation.model_spec import ModelSpec

    if isinstance(model, ModelSpec):
        return model if name is None else replace(model, name=name)
    return spec_of(model, name, identity)


def settings_of(
    command: str, settings: Mapping[str, Any], words: Sequence[str] = ("runs=.",), folders: Sequence[str] = ()
) -> dict[str, Any]:
    """The settings of a command, those that are not given at their defaults.

    Args:
        command: such as `table`.
        settings: keys with values.
        words: overrides, for keys that must be named and names of configs.
        folders: of configs of the user's own.
    """
    config = composed(command, words, folders)
    return plain(with_changes(config, present_settings(command, settings)))
