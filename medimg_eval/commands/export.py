"""`export`: runs in the formats of other programs, leaderboards and challenges."""

from __future__ import annotations

from omegaconf import DictConfig

from medimg_eval.api import export
from medimg_eval.arguments import as_list
from medimg_eval.commands.console import say_written
from medimg_eval.configs.overrides import plain

KEYS = ("root", "trust", "dataset", "task_id", "publish", "may_leave")


def run(config: DictConfig) -> None:
    """Writes each run in the format that is named.

    Raises:
        UsageError: there is no such format, or a key is not for it.
        UserError: a run holds nothing that can be written so.
    """
    wanted = plain(config)
    settings = {key: wanted[key] for key in KEYS}
    for folder in as_list(wanted["run"]):
        say_written(export(str(folder), str(wanted["to"]), str(wanted["out"]), **settings))
