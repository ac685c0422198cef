"""`score reports=FILE`: scores a plain table of references and predictions, without a task and without a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.commands.common import as_list, fail_if_cases_failed, printer, show
from medimg_eval.commands.making import Annotators, build_candidate, build_task
from medimg_eval.data.layouts.report_sets import ReportTable
from medimg_eval.errors import UsageError
from medimg_eval.evaluation.candidates import Candidate
from medimg_eval.evaluation.evidence import refuse_unready
from medimg_eval.models.precomputed import GivenTexts
from medimg_eval.tasks import Task

if TYPE_CHECKING:
    from medimg_eval.results import Table

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
        "_target_": "medimg_eval.data.layouts.report_sets.tables.ReportTable",
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


def _given(file: str, layout: Any) -> Candidate:
    """What was written, as a model that answers so."""
    if not isinstance(layout, ReportTable):
        raise TypeError(f"{type(layout).__name__} is no ReportTable")
    stem = Path(file).name.removesuffix(".gz")
    config = {"file": file, "columns": dict(layout.columns)}
    return Candidate(Path(stem).stem, GivenTexts, config, lambda: GivenTexts(file, texts=layout.predictions))


def _no_trainer(**_: Any) -> Any:
    raise UsageError("texts that were written before need no trainer")
