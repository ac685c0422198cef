"""`score`: judge stored predictions again, or files that hold predictions; the model is not loaded."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from medimg_eval.api import BELONGS, score
from medimg_eval.arguments import as_list
from medimg_eval.commands.console import show, show_scored, warn_in_yellow
from medimg_eval.commands.products.acceptance import check_criteria, finish_runs
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UsageError
from medimg_eval.file_scores import KINDS, score_files
from medimg_eval.results import build_table, load_runs

RUN = ("metrics", "drop", "judge", "root", "annotators", "extractors", "score_workers", "may_leave", "logger", *BELONGS)


def run(config: DictConfig) -> None:
    """Scores runs or files again, with given metrics or conventions."""
    wanted = plain(config)
    named = [key for key in ("run", *KINDS) if wanted.get(key) is not None]
    if len(named) != 1:
        raise UsageError(
            "name what to score: run=DIR, a run folder; or files: " + ", ".join(f"{kind}=" for kind in KINDS)
        )
    check_criteria(wanted)
    if named == ["run"]:
        settings: dict[str, Any] = {key: wanted.get(key) for key in RUN}
        runs = [score(str(folder), **settings) for folder in as_list(wanted["run"])]
        show(runs[0].table if len(runs) == 1 else build_table(load_runs([run.folder for run in runs])))
        finish_runs([run.folder for run in runs], wanted)
        return
    results = score_files(wanted, named[0], warn_in_yellow)
    show_scored(results)
    finish_runs([result.folder for result in results], wanted)
