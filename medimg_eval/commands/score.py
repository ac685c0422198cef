"""`score`: judge stored predictions again; no model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.commands.common import as_list, fail_if_cases_failed, plain, show
from medimg_eval.commands.making import build_task
from medimg_eval.errors import UserError
from medimg_eval.evaluation.rescoring import rescore
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.load import read_manifest


def run(config: DictConfig) -> None:
    """Scores one run or several, with other metrics or conventions when they are given."""
    wanted = plain(config)
    folders = [Path(folder) for folder in as_list(wanted["run"])]
    changed = {key: wanted[key] for key in ("metrics", "surface", "empty") if wanted[key] is not None}
    for folder in folders:
        manifest = read_manifest(folder / "manifest.json")
        if manifest.get("command") != "test":
            raise UserError(f"{folder}: holds a {manifest.get('command')} run; only test runs can be scored again")
        stated: dict[str, Any] = manifest["task_config"]
        # JSON turned the labels' integers into text.
        labels = {int(label): name for label, name in stated.get("labels", {}).items()}
        if wanted["root"] is not None:
            stated["layout"]["root"] = wanted["root"]
        rescore(folder, build_task(stated | {"labels": labels} | changed), wanted["score_workers"])
    show(build_table(load_runs(folders)))
    fail_if_cases_failed(folders)
