"""`score reports=`: tables of references and predicted reports, without a YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.file_scores.frame import Candidate, named_files, task_config
from medimg_eval.instantiate import build_task
from medimg_eval.models.precomputed import PrecomputedReports
from medimg_eval.tasks import Task

LABELLED = ("bleu@1", "bleu@4", "rouge_l", "meteor_no_synonyms", "cider_d", "rule_labeler_f1@micro-14", "length_ratio")
"""Metrics of English reports where none are named: words, and the labels of a labeller that needs no weights."""


def report_candidates(wanted: Mapping[str, Any]) -> list[Candidate]:
    """The tables as models, each with a task of its own."""
    files = named_files("reports", wanted["reports"])
    tasks = {name: _make_task(wanted, str(path)) for name, path in files.items()}
    return [Candidate(tasks[name], _report_model(name, str(path), tasks[name].layout)) for name, path in files.items()]


def _make_task(wanted: Mapping[str, Any], file: str) -> Task:
    layout = {
        "_target_": "medimg_eval.data.layouts.report_sets.ReportTable",
        "root": file,
        **{key: wanted[key] for key in ("columns", "attributes", "separator") if wanted[key]},
    }
    if wanted["by"] and wanted["by"] not in ("label", *wanted["attributes"]):
        layout["attributes"] = [*wanted["attributes"], wanted["by"]]
    metrics = wanted["metrics"] or ([*LABELLED, "unanswered"] if wanted["language"] == "en" else None)
    settings = {key: wanted[key] for key in ("sections", "clean", "language") if wanted[key]}
    settings |= {"metrics": metrics} if metrics else {}
    return build_task(task_config("ReportTask", "reports", layout, **settings))


def _report_model(name: str, file: str, layout: Any) -> ModelSpec:
    """Written reports, as a model that answers so."""
    config = {"file": file, "columns": dict(layout.columns)}
    return ModelSpec(name, PrecomputedReports, config, lambda: PrecomputedReports(file, texts=layout.predictions))
