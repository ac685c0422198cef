"""What goes to other programs, and what comes from them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from medimg_eval.api.runs import load_run
from medimg_eval.exports import write_export
from medimg_eval.instantiate import build_task, stored_task
from medimg_eval.run_results import RunResults, folder_of
from medimg_eval.trust import trusting


def export(
    run: RunResults | str | Path,
    to: str,
    out: str | Path = "exported",
    *,
    root: str | Path | None = None,
    trust: bool = False,
    **settings: Any,
) -> list[Path]:
    """Writes a run as another program, a leaderboard or a challenge takes it, as the command `export` does.

    Args:
        run: what `test` returned, or a run folder.
        to: the format, such as `inspect`, `nnunet`, `rexrank` or `croissant`.
        out: folder that is written into.
        root: where the data lie now, when they have moved.
        trust: whether what the run's manifest names is made even where it is neither of ours nor of a plug-in.
        settings: of the format, such as `dataset=` of `hugging_face`.

    Returns:
        The files.

    Raises:
        UsageError: there is no such format, or a setting is not for it.
        UserError: the run holds nothing that can be written so.
    """
    exported = load_run(folder_of(run))
    known = run.task if isinstance(run, RunResults) and root is None else None
    with trusting() if trust else nullcontext():
        task = known or build_task(stored_task(exported.folder, None if root is None else str(root)))
    return write_export(exported, task, to, Path(out).expanduser(), settings)
