"""`score`: judge stored predictions, or a plain table of reports, again; the model is not loaded."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.commands.console import as_list, fail_if_cases_failed, plain, printer, show, stated_task
from medimg_eval.data.layouts.report_sets import ReportTable
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.evaluation import pipeline
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.readiness import missing, refuse
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evidence import JUDGE
from medimg_eval.instantiate import Annotators, Extractors, build_candidate, build_task
from medimg_eval.metrics import as_known, present_name
from medimg_eval.models.precomputed import PrecomputedReports
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.runs import read_manifest
from medimg_eval.tasks import Task

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
    changed = {key: wanted[key] for key in BELONGS if wanted[key] is not None}
    named, dropped = as_list(wanted["metrics"] or []), as_list(wanted["drop"] or [])
    settings = Settings(
        config=wanted,
        score_workers=wanted["score_workers"],
        judge=build_candidate(wanted["judge"]) if wanted.get("judge") else None,
        annotators=Annotators(wanted["annotators"] or {}),
        extractors=Extractors(wanted["extractors"] or {}),
    )
    runs: list[Run] = []
    for folder in folders:
        manifest = read_manifest(folder / "manifest.json")
        if manifest.get("command") != "test":
            raise UserError(f"{folder}: holds a {manifest.get('command')} run; only test runs can be scored again")
        stated = stated_task(folder, wanted["root"])
        _refuse_strange(manifest["task"], str(stated.get("_target_", "")), changed)
        changed["metrics"] = columns(manifest["metrics"], named, dropped, folder)
        task = build_task(stated | changed)
        runs.append(pipeline.rescore(folder, task, settings))
    _show(runs)
    fail_if_cases_failed(folders)


def _refuse_strange(task: str, target: str, changed: Iterable[str]) -> None:
    """Raises UsageError when a key is not one of the task's."""
    made = pkgutil.resolve_name(target) if target else None
    known = {field.name for field in fields(made)} if is_dataclass(made) else set(changed)
    strange = next((key for key in changed if key not in known), None)
    if strange is not None:
        raise UsageError(f"{strange}= is for tasks of {BELONGS[strange]}, and {task!r} is none")


def columns(stored: Sequence[str], add: Iterable[Any], drop: Iterable[Any], folder: Path) -> list[str]:
    """The metrics that a run is to have: its own, those that are added, without those that are dropped.

    Raises:
        UsageError: one that is to be dropped is none of them, or none is left.
    """
    found = list(dict.fromkeys([*map(present_name, stored), *(as_known(str(name)) for name in add)]))
    for name in (as_known(str(name)) for name in drop):
        if name not in found:
            raise UsageError(f"drop={name}: {folder} has no such metric{nearest(name, found)}")
        found.remove(name)
    if not found:
        raise UsageError(f"{folder}: drop= leaves no metric; name those to keep by metrics=")
    return found


TASK = "reports"


def score_reports(wanted: Mapping[str, Any]) -> None:
    """Scores one table or several, one row of the printed table for each.

    Args:
        wanted: the config of `score`: `reports`, `columns`, `attributes`, `separator`, `sections`, `clean`, `metrics`,
            `annotators`, `judge`.

    Raises:
        UsageError: a key that is for runs alone.
        UserError: a row was not understood, after all others were scored and the table was printed.
    """
    for key in ("root", "extraction", "surface", "empty", "drop"):
        if wanted.get(key) is not None:
            raise UsageError(f"{key}= is for runs; leave it out with reports=")
    files = [str(file) for file in as_list(wanted["reports"])]
    tasks = [_task(wanted, file) for file in files]
    annotators = Annotators(wanted["annotators"] or {})
    judge = build_candidate(wanted["judge"]) if wanted.get("judge") else None
    for task in tasks:
        refuse(missing(task.requirements(), {**annotators, **({JUDGE: judge} if judge else {})}, task))
    settings = Settings(
        runs=Path(wanted["runs"]),
        config={key: value for key, value in wanted.items() if key != "runs"},
        judge=judge,
        annotators=annotators,
    )
    runs = [pipeline.test(task, _given(file, task.layout), settings) for file, task in zip(files, tasks, strict=True)]
    _show(runs)
    for run in runs:
        printer().print(f"scores of every report: {run.folder / 'scores.parquet'}", style="dim", soft_wrap=True)
    fail_if_cases_failed([run.folder for run in runs])


def _show(runs: Sequence[Run]) -> None:
    """Prints the table of one run, or of several: its intervals take long to compute twice."""
    table = runs[0].table if len(runs) == 1 else None
    show(table or build_table(load_runs([run.folder for run in runs])))


def _task(wanted: Mapping[str, Any], file: str) -> Task:
    layout = {
        "_target_": "medimg_eval.data.layouts.report_sets.ReportTable",
        "root": file,
        **{key: wanted[key] for key in ("columns", "attributes", "separator") if wanted[key]},
    }
    return build_task(
        {
            "_target_": "medimg_eval.tasks.ReportTask",
            "name": TASK,
            "title": "Reports",
            "layout": layout,
            "splits": {"test": "test"},
            **{key: wanted[key] for key in ("metrics", "sections", "clean") if wanted[key]},
        }
    )


def _given(file: str, layout: Any) -> ModelSpec:
    """What was written, as a model that answers so."""
    if not isinstance(layout, ReportTable):
        raise TypeError(f"{type(layout).__name__} is no ReportTable")
    stem = Path(file).name.removesuffix(".gz")
    config = {"file": file, "columns": dict(layout.columns)}
    return ModelSpec(
        Path(stem).stem, PrecomputedReports, config, lambda: PrecomputedReports(file, texts=layout.predictions)
    )
