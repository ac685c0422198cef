"""`score`: judge stored predictions again; no model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.commands.building import build_task, plain
from medimg_eval.commands.showing import fail_if_cases_failed, show
from medimg_eval.evaluation.evaluate import rescore
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.load import read_manifest


def run(config: DictConfig) -> None:
    """Scores one run or several, with other metrics or conventions when they are given."""
    wanted = plain(config)
    named = wanted["run"] if isinstance(wanted["run"], list) else [wanted["run"]]
    folders = [Path(folder) for folder in named]
    changed = {key: wanted[key] for key in ("metrics", "surface", "penalty") if wanted[key] is not None}
    for folder in folders:
        manifest = read_manifest(folder / "manifest.json")
        rescore(folder, build_task(_task(manifest) | changed), wanted["score_workers"])
    show(build_table(load_runs(folders)))
    fail_if_cases_failed(folders)


def _task(manifest: dict[str, Any]) -> dict[str, Any]:
    config = manifest["config"]
    task: dict[str, Any] = config.get("task") or config["tasks"][manifest["task"]]
    # JSON turned the labels' integers into text.
    if "labels" in task:
        task["labels"] = {int(label): name for label, name in task["labels"].items()}
    return task
