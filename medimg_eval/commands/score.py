"""`score`: judge stored predictions, or a plain table of reports, again; no model is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.api import BELONGS, score
from medimg_eval.arguments import as_list
from medimg_eval.commands.console import fail_if_cases_failed, printer, show
from medimg_eval.configs.overrides import plain
from medimg_eval.data.layouts.report_sets import ReportTable
from medimg_eval.errors import UsageError
from medimg_eval.evaluation.evidence import refuse_unready
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.instantiate import Annotators, build_candidate, build_task
from medimg_eval.models.precomputed import GivenTexts
from medimg_eval.results import Table, build_table, load_runs
from medimg_eval.tasks import Task


def run(config: DictConfig) -> None:
    """Scores one run or several, with other metrics or conventions when they are given."""
    wanted = plain(config)
    if (wanted["run"] is None) == (wanted["reports"] is None):
        raise UsageError("name what to score: run=DIR, a run folder, or reports=FILE, a table of reports")
    if wanted["reports"] is not None:
        score_reports(wanted)
        return
    keys = ("metrics", "root", "annotators", "extractors", "score_workers", "may_leave", *BELONGS)
    done = [score(folder, **{key: wanted[key] for key in keys}) for folder in as_list(wanted["run"])]
    folders = [one.folder for one in done]
    show(done[0].table if len(done) == 1 else build_table(load_runs(folders)))
    fail_if_cases_failed(folders)


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
    for key in ("root", "extraction", "surface", "empty"):
        if wanted[key] is not None:
            raise UsageError(f"{key}= is for runs; leave it out with reports=")
    files = [str(file) for file in as_list(wanted["reports"])]
    tasks = [_task(wanted, file) for file in files]
    annotators = Annotators(wanted["annotators"] or {})
    for task in tasks:
        refuse_unready(task, annotators, judge=bool(wanted.get("judge")))
    # Only here: it imports torch, which takes seconds, and what cannot be scored is to be said at once.
    from medimg_eval.evaluation.evaluate import Settings, evaluate

    folders: list[Path] = []
    tables: list[Table] = []
    for file, task in zip(files, tasks, strict=True):
        folders.append(
            evaluate(
                task,
                _given(file, task.layout),
                Settings(
                    runs=Path(wanted["runs"]),
                    run=None,
                    trainer=_no_trainer,
                    config={key: value for key, value in wanted.items() if key != "runs"},
                    judge=build_candidate(wanted["judge"]) if wanted.get("judge") else None,
                    annotators=annotators,
                    tables=tables,
                ),
            )
        )
    from medimg_eval.results import build_table, load_runs

    show(tables[0] if len(tables) == 1 else build_table(load_runs(folders)))
    for folder in folders:
        printer().print(f"scores of every report: {folder / 'scores.parquet'}", style="dim", soft_wrap=True)
    fail_if_cases_failed(folders)


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
    return ModelSpec(Path(stem).stem, GivenTexts, config, lambda: GivenTexts(file, texts=layout.predictions))


def _no_trainer(**_: Any) -> Any:
    raise UsageError("texts that were written before need no trainer")
