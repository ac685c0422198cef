"""`score`: judge stored predictions again; no model is loaded."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.commands.common import as_list, fail_if_cases_failed, plain, show
from medimg_eval.commands.making import Annotators, Extractors, build_task
from medimg_eval.commands.score_reports import score_reports
from medimg_eval.data.former_names import found_now
from medimg_eval.data.stored import require_ours
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.rescoring import rescore
from medimg_eval.results import Table, build_table, load_runs
from medimg_eval.results.runs import read_manifest

BELONGS = {"surface": "segmentations", "empty": "segmentations", "extraction": "questions"}
"""Keys that only some tasks have -> which."""


def run(config: DictConfig) -> None:
    """Scores one run or several, with other metrics or conventions when they are given."""
    wanted = plain(config)
    if (wanted["run"] is None) == (wanted["reports"] is None):
        raise UsageError("name what to score: run=DIR, a run folder, or reports=FILE, a table of reports")
    if wanted["reports"] is not None:
        score_reports(wanted)
        return
    folders = [Path(folder) for folder in as_list(wanted["run"])]
    changed = {key: wanted[key] for key in ("metrics", *BELONGS) if wanted[key] is not None}
    annotators, extractors = Annotators(wanted["annotators"] or {}), Extractors(wanted["extractors"] or {})
    tables: list[Table] = []
    for folder in folders:
        manifest = read_manifest(folder / "manifest.json")
        if manifest.get("command") != "test":
            raise UserError(f"{folder}: holds a {manifest.get('command')} run; only test runs can be scored again")
        if not isinstance(manifest.get("task_config"), dict):
            raise UserError(f"{folder}: its manifest does not say how its task was made; run test again")
        stated: dict[str, Any] = found_now(manifest["task_config"])
        require_ours(stated, folder / "manifest.json")
        _refuse_strange(manifest["task"], str(stated.get("_target_", "")), changed)
        if "labels" in stated:  # JSON turned their integers into text
            stated["labels"] = {int(label): name for label, name in stated["labels"].items()}
        if wanted["root"] is not None:
            stated["layout"]["root"] = wanted["root"]
        task = build_task(stated | changed)
        tables.append(rescore(folder, task, wanted["score_workers"], annotators, extractors, wanted["may_leave"]))
    show(tables[0] if len(tables) == 1 else build_table(load_runs(folders)))
    fail_if_cases_failed(folders)


def _refuse_strange(task: str, target: str, changed: Iterable[str]) -> None:
    """Raises UsageError when a key is not one of the task's."""
    made = pkgutil.resolve_name(target) if target else None
    known = {field.name for field in fields(made)} if is_dataclass(made) else set(changed)
    strange = next((key for key in changed if key not in known), None)
    if strange is not None:
        raise UsageError(f"{strange}= is for tasks of {BELONGS[strange]}, and {task!r} is none")
