"""`score`: judge stored predictions, or a plain table of reports, again; the model is not loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.api import BELONGS, score
from medimg_eval.arguments import as_list
from medimg_eval.commands.console import fail_if_cases_failed, printer, show
from medimg_eval.commands.score_masks import score_masks
from medimg_eval.configs.overrides import plain
from medimg_eval.data.layouts.report_sets import ReportTable
from medimg_eval.errors import UsageError
from medimg_eval.evaluation import pipeline
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.readiness import missing, refuse
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evidence import JUDGE
from medimg_eval.instantiate import Annotators, build_candidate, build_task
from medimg_eval.models.precomputed import PrecomputedReports
from medimg_eval.results import build_table, load_runs
from medimg_eval.run_results import RunResults
from medimg_eval.settings import build_loggers
from medimg_eval.tasks import Task


def run(config: DictConfig) -> None:
    """Scores one run or several, with other metrics or conventions when they are given."""
    wanted = plain(config)
    if sum(wanted.get(key) is not None for key in ("run", "reports", "masks")) != 1:
        raise UsageError(
            "name what to score: run=DIR, a run folder; masks=DIR references=DIR, label maps; or reports=FILE, a table"
        )
    if wanted.get("masks") is not None:
        fail_if_cases_failed([one.folder for one in score_masks(wanted)])
        return
    if wanted.get("reports") is not None:
        score_reports(wanted)
        return
    keys = (
        "metrics",
        "drop",
        "judge",
        "root",
        "annotators",
        "extractors",
        "score_workers",
        "may_leave",
        "logger",
        *BELONGS,
    )
    settings: dict[str, Any] = {key: wanted.get(key) for key in keys}
    runs = [score(folder, **settings) for folder in as_list(wanted["run"])]
    _show(runs)
    fail_if_cases_failed([run.folder for run in runs])


TASK = "reports"


def score_reports(wanted: Mapping[str, Any]) -> None:
    """Scores one table or several, one row of the printed table for each.

    Args:
        wanted: the config of `score`: `reports`, `columns`, `attributes`, `separator`, `sections`, `clean`,
            `language`, `metrics`, `annotators`, `judge`.

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
        loggers=build_loggers(wanted.get("logger") or {}),
    )
    runs = [pipeline.test(task, _given(file, task.layout), settings) for file, task in zip(files, tasks, strict=True)]
    _show(runs)
    for run in runs:
        printer().print(f"scores of every report: {run.folder / 'scores.parquet'}", style="dim", soft_wrap=True)
    fail_if_cases_failed([run.folder for run in runs])


def _show(runs: Sequence[Run | RunResults]) -> None:
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
            **{key: wanted[key] for key in ("metrics", "sections", "clean", "language") if wanted[key]},
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
