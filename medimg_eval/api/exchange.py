"""What goes to other programs, and what comes from them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from medimg_eval.api.asking import settings_of
from medimg_eval.api.runs import load_run
from medimg_eval.catalogue import searching, usual_places
from medimg_eval.errors import MissingDataError
from medimg_eval.exports import write_export
from medimg_eval.file_scores.logs import Imported, import_logs
from medimg_eval.instantiate import build_task, stored_task
from medimg_eval.run_results import RunResults, folder_of
from medimg_eval.trust import trusting

logger = logging.getLogger(__name__)


def export(
    run: RunResults | str | Path,
    to: str,
    out: str | Path = "exported",
    *,
    root: str | Path | None = None,
    trust: bool = False,
    **settings: Any,
) -> list[Path]:
    """Exports a run for another program, leaderboard or challenge.

    It takes what the command `export` takes.

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
        MissingDataError: the task's data do not lie where the run names them, and the format needs them.
    """
    exported = load_run(folder_of(run))
    task_ = run.task if isinstance(run, RunResults) and root is None else None
    try:
        with trusting() if trust else nullcontext():
            task = task_ or build_task(stored_task(exported.folder, None if root is None else str(root)))
        return write_export(exported, task, to, Path(out).expanduser(), settings)
    except MissingDataError as error:
        raise MissingDataError(
            f"{error}, seen from {Path.cwd()}; export from the folder where the run was made, or name the data by root="
        ) from error


def import_log(
    log: str | Path,
    task: str | Mapping[str, Any] | None = None,
    *,
    config_dir: str | Path | None = None,
    **settings: Any,
) -> list[Imported]:
    """Imports another program's log as scored runs, as `import` does.

    Args:
        log: a file or folder of lm-eval, lmms-eval, VLMEvalKit, MedEvalKit, inspect or HELM, or nnU-Net's summary.
        task: whose questions these are, by the name of a config or a config; None for the log's own.
        config_dir: a folder of configs of your own.
        settings: keys of the command, such as `name`, `metrics`, `out`, `runs`, `judge`.

    Returns:
        One result for each data set of the logs: its runs, and where their program and ours differ.

    Raises:
        UserError: no log can be read, or one has no question of the task.
    """
    folders = [] if config_dir is None else [str(config_dir)]
    named = {"task": task, "model@judge": settings.get("judge")}
    words = [
        f"log={json.dumps(str(log))}",
        *(f"{key}={setting}" for key, setting in named.items() if isinstance(setting, str)),
    ]
    arguments = {key: str(setting) if isinstance(setting, Path) else setting for key, setting in settings.items()}
    changes = {key: setting for key, setting in arguments.items() if not (key == "judge" and isinstance(setting, str))}
    changes |= {"task": task} if isinstance(task, Mapping) else {}
    with searching(usual_places(folders)):
        return import_logs(settings_of("import", changes, words, folders), logger.warning)
