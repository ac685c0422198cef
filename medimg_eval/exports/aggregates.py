"""Means of runs: Hugging Face's evaluation results, and Grand Challenge's `metrics.json` with a container."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from medimg_eval import __version__
from medimg_eval.errors import UsageError
from medimg_eval.evaluation.leaving import permit
from medimg_eval.run_results import RunResults
from medimg_eval.system import product
from medimg_eval.tasks import Task

HUB = "https://huggingface.co"


def export_hugging_face(
    run: RunResults,
    task: Task,
    out: Path,
    *,
    dataset: str | None,
    task_id: str | None,
    publish: str | None,
    may_leave: Any,
) -> list[Path]:
    """Writes `.eval_results/TASK.yaml` and model card metadata: aggregates only.

    With `publish=OWNER/NAME` they go to that model's repository as a pull request, where the task's card, or
    `may_leave=yes`, lets them.

    Raises:
        UsageError: the benchmark's data set on the hub is not named.
        LeaveError: what the run says may not leave this machine.
    """
    import yaml
    from huggingface_hub import EvalResult, EvalResultEntry, HfApi, ModelCardData
    from huggingface_hub import eval_result_entries_to_yaml as entries_to_yaml

    if not dataset:
        raise UsageError("to=hugging_face needs dataset=OWNER/NAME, the benchmark's data set on the hub")
    sent = SimpleNamespace(remote=True, base_url=HUB)
    if publish:
        permit(task, may_leave, "hub", "Hugging Face", sent, ["scores"])
    entries, results = [], []
    for row in run.summary.to_dict("records"):
        if math.isnan(row["value"]):
            continue
        about = (
            f"{row['metric']}; {_interval(row)}n = {row['n']}, failed {row['failed']}; {run.manifest['signature']}; "
        )
        about += f"medimg_eval {__version__}, run {run.id}"
        kind = str(task_id or run.manifest["task"])
        entries.append(EvalResultEntry(dataset_id=str(dataset), task_id=kind, value=row["value"], notes=about))
        results.append(
            EvalResult(
                task_type=task.capability,
                dataset_type=str(dataset),
                dataset_name=run.manifest["task_title"],
                metric_type=row["metric"],
                metric_value=row["value"],
                metric_name=f"{row['metric']} ({about})",
            )
        )
    held = yaml.safe_dump(entries_to_yaml(entries), sort_keys=False, allow_unicode=True)
    card = ModelCardData(model_name=run.manifest["model"], eval_results=results).to_yaml()
    stem = f"{run.manifest['task']}.yaml"
    written = {out / ".eval_results" / stem: held, out / "model-card.yaml": card + "\n"}
    for file, text in written.items():
        with product(file) as partial:
            partial.write_text(text, encoding="utf-8")
    if publish:
        HfApi().upload_file(
            path_or_fileobj=held.encode(),
            path_in_repo=f".eval_results/{stem}",
            repo_id=str(publish),
            create_pr=True,
            commit_message=f"Results on {run.manifest['task_title']}",
        )
    return list(written)


def export_grand_challenge(run: RunResults, task: Task, out: Path) -> list[Path]:
    """Writes `metrics.json`, Dockerfile and program for an evaluation container."""
    rows = run.scores[run.scores["condition"] == ""]
    rows = rows[rows["repeat"] == rows.groupby("case")["repeat"].transform("min")]  # of folds, that of the case
    cases: dict[str, dict[str, Any]] = {}
    records: list[dict[Any, Any]] = rows.to_dict("records")
    for row in records:
        name = row["metric"] if row["label"] in ("", "all") else f"{row['metric']}/{row['label']}"
        cases.setdefault(row["case"], {"case": row["case"]})[name] = _finite_value(row["value"])
    aggregates = {
        row["metric"]: {part: _finite_value(row[part]) for part in ("value", "low", "high", "n", "failed")}
        for row in run.summary.to_dict("records")
    }
    metrics = {"results": list(cases.values()), "aggregates": aggregates, "version": __version__}
    written = {"metrics.json": json.dumps(metrics, indent=1, allow_nan=False)}
    for name in ("Dockerfile", "evaluate.py"):
        written[name] = (files("medimg_eval.exports") / "static" / f"grand_challenge_{name}.txt").read_text("utf-8")
    for name, text in written.items():
        with product(out / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return [out / name for name in written]


def _interval(row: Mapping[Any, Any]) -> str:
    return "" if math.isnan(row["low"]) else f"95 % interval {row['low']:.4g} to {row['high']:.4g}; "


def _finite_value(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
