"""Data and metrics looked at before anything is evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.api.catalogue_lists import load_task
from medimg_eval.errors import UsageError
from medimg_eval.tasks import Task
from medimg_eval.trust import trusting

if TYPE_CHECKING:
    import pandas as pd

PARTS = ("fit", "validate", "test")


def check(
    task: str | Task | None = None,
    *,
    path: str | Path | None = None,
    metrics: str | Sequence[str] | None = None,
    parts: Sequence[str] = PARTS,
    sample: int = 100,
    lookalikes: bool = False,
    annotators: Mapping[str, Any] | None = None,
    trust: bool = False,
    **settings: Any,
) -> pd.DataFrame:
    """Checks a task's cases, a path's images or metric requirements.

    It takes what the command `check` takes.

    Args:
        task: its name, or a task.
        path: a file or folder, instead of a task.
        metrics: `all` of reports, or names, instead of a task.
        parts: of the task.
        sample: of a task of questions, how many of each part have their images opened.
        lookalikes: of a task, whether images of different parts are compared by what they show.
        annotators: of reports, such as `{"chexbert": {"weights": "chexbert.pth"}}`.
        trust: whether what the manifest of a run names is made whose pictures are the task's cases.
        settings: of a task that is named, as for `load_task`: `root`, `config_dir`, or settings of its own.

    Returns:
        Of a task a row for each finding: `part`, `text`, and whether it is a `doubt`. Of a path a row for each image:
        `path`, `kind`, `readable`, `doubts`, and what it is. Of metrics a row for each: `metric`, `ready`, `lacks`.

    Raises:
        UsageError: none of the three is named, or several.
        UserError: there is no such task or file. Faults of data raise nothing: they are what is returned.
    """
    import pandas as pd

    from medimg_eval import checking

    if sum(argument is not None for argument in (task, path, metrics)) != 1:
        raise UsageError("check takes a task, path=FILE_OR_FOLDER, or metrics=")
    if metrics is not None:
        rows, _ = checking.check_metrics(metrics, annotators or {})
        rows_ = [(row.metric, not row.lacks, "; ".join(lack.message for lack in row.lacks)) for row in rows]
        return pd.DataFrame(rows_, columns=["metric", "ready", "lacks"])
    if path is not None:
        images = [
            {
                "path": str(description.path),
                "kind": description.kind,
                "readable": description.readable,
                "doubts": "; ".join(description.doubts),
                **description.facts,
            }
            for description in checking.describe(Path(path).expanduser())
        ]
        return pd.DataFrame.from_records(images).fillna("")
    with trusting() if trust else nullcontext():
        loaded = load_task(str(task), **settings) if task is None or isinstance(task, str) else task
        some = [
            (finding.part, finding.text, finding.doubt)
            for finding in checking.findings(loaded, parts, sample, lookalikes=lookalikes)
        ]
    return pd.DataFrame(some, columns=["part", "text", "doubt"])
