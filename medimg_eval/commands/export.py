"""`export`: runs in the formats of other programs, leaderboards and challenges."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.api import load_run
from medimg_eval.arguments import as_list
from medimg_eval.commands.console import say_written
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UsageError
from medimg_eval.instantiate import build_task, stored_task
from medimg_eval.trust import trusting

FORMATS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "inspect": ("replies", ()),
    "lm_eval": ("replies", ()),
    "vlmevalkit": ("replies", ()),
    "rexrank": ("replies", ()),
    "nnunet": ("masks", ()),
    "hugging_face": ("aggregates", ("dataset", "task_id", "publish", "may_leave")),
    "grand_challenge": ("aggregates", ()),
}
"""What can be written -> the module that does, by its function `export_NAME`, and the keys that it takes."""


def run(config: DictConfig) -> None:
    """Writes each run in the format that is named.

    Raises:
        UsageError: there is no such format, or a key is not for it.
        UserError: a run holds nothing that can be written so.
    """
    wanted = plain(config)
    kind = str(wanted["to"])
    UsageError.refuse_unknown("there is no format", FORMATS, kind, end=f"; there are {', '.join(FORMATS)}")
    module, takes = FORMATS[kind]
    for form, (_, keys) in FORMATS.items():
        for key in keys:
            if wanted[key] and key not in (*takes, "may_leave"):
                raise UsageError(f"{key}= is for to={form}; leave it out")
    write = getattr(importlib.import_module(f"medimg_eval.commands.exporting.{module}"), f"export_{kind}")
    for folder in as_list(wanted["run"]):
        exported = load_run(str(folder))
        with trusting(wanted["trust"]):
            task = build_task(stored_task(exported.folder, wanted["root"]))
        settings = {key: wanted[key] for key in takes}
        say_written(write(exported, task, Path(str(wanted["out"])).expanduser(), **settings))
