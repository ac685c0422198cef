"""From a config to the object it describes; loads no more than the object needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra.utils import instantiate

from medimg_eval.errors import UsageError
from medimg_eval.tasks import Task


def build(config: Any, **extra: Any) -> Any:
    """Makes what a config's `_target_` names.

    Raises:
        UsageError: the target cannot be imported, or does not take an argument; the message names both.
    """
    try:
        return instantiate(config, _convert_="all", **extra)
    except Exception as error:
        cause = error.__cause__
        if isinstance(cause, TypeError):
            raise UsageError(f"{config['_target_']}: {cause}") from error
        raise


def build_task(config: Mapping[str, Any]) -> Task:
    """Makes a task.

    Raises:
        UsageError: what the config names is not a Task.
    """
    task = build(config)
    if not isinstance(task, Task):
        raise UsageError(f"task {config.get('name')!r}: {config.get('_target_')} is not a Task")
    task.config = config
    return task
