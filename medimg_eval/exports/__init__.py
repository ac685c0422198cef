"""Runs in the formats of other programs, leaderboards and challenges, a module per kind of what is given away."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import UsageError

if TYPE_CHECKING:
    from medimg_eval.run_results import RunResults
    from medimg_eval.tasks import Task

FORMATS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "inspect": ("replies", ()),
    "lm_eval": ("replies", ()),
    "vlmevalkit": ("replies", ()),
    "rexrank": ("replies", ()),
    "chexpert": ("classes", ()),
    "nnunet": ("masks", ()),
    "croissant": ("croissant", ()),
    "hugging_face": ("aggregates", ("dataset", "task_id", "publish", "may_leave")),
    "grand_challenge": ("aggregates", ()),
}
"""What can be written -> the module that does, by its function `export_NAME`, and the keys that it takes."""


def write_export(run: RunResults, task: Task, to: str, out: Path, settings: Mapping[str, Any]) -> list[Path]:
    """Writes a run in a format; returns the files.

    Args:
        run: which.
        task: that it is of.
        to: name of the format.
        out: folder that is written into, made if needed.
        settings: keys of formats, those that are not set None.

    Raises:
        UsageError: there is no such format, or a key is not for it.
        UserError: the run holds nothing that can be written so.
    """
    UsageError.refuse_invalid("format", FORMATS, to)
    module, takes = FORMATS[to]
    UsageError.refuse_unknown("export has no setting", [key for _, keys in FORMATS.values() for key in keys], *settings)
    for form, (_, keys) in FORMATS.items():
        for key in keys:
            if settings.get(key) and key not in (*takes, "may_leave"):
                raise UsageError(f"{key}= is for to={form}; leave it out")
    write = getattr(importlib.import_module(f"medimg_eval.exports.{module}"), f"export_{to}")
    written: list[Path] = write(run, task, out, **{key: settings.get(key) for key in takes})
    return written
