"""`confidence`: calibration before and after scaling, and conformal sets, intervals and thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import runs_of, say_written, show, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UserError
from medimg_eval.results import Comparison, RunScores, build_table, load_runs, load_scores, write_all, write_comparison
from medimg_eval.results.confidence import (
    ConformalSettings,
    confidence_metrics,
    cover_runs,
    pair_runs,
    scale_runs,
    vote_runs,
)
from medimg_eval.results.table import check_numbers


def run(config: DictConfig) -> None:
    """Prints calibration and coverage; writes them to `out`.

    Raises:
        UsageError: a setting cannot be used, or a validation run shares patients with its test run.
        UserError: no run has confidences, volumes, measurements or shares that are missed.
    """
    wanted = plain(config)
    check_numbers(wanted["resamples"], wanted["level"], wanted["seed"])
    runs = [run for run in runs_of(wanted) if run.finished]
    validation = _load_validation(wanted["validation"])
    pairs = pair_runs(runs, validation)
    how = ConformalSettings(
        **{key: wanted[key] for key in ("alpha", "method", "per_group", "splits", "level", "seed", "resamples")},
        by=str(wanted["by"] or ""),
    )
    table = _confidence_table(pairs, vote_runs(runs), wanted)
    sheets = cover_runs(pairs, how)
    if table is None and not sheets:
        raise UserError(
            "No run has confidences: score it with task.metrics=[ece_mass@15] of classes or answers, "
            "[volume_reference, volume_predicted] of masks, or [missed_share@0.1, missed_share@0.5] of voxels' "
            "probabilities; docs/evaluate/confidence.md says which"
        )
    if table is not None:
        show(table)
    show_sheets(sheets)
    if wanted["out"] is not None:
        folder = Path(wanted["out"])
        written = [] if table is None else write_all(table, folder, "confidence")
        if sheets:
            written += write_comparison(Comparison("Coverage", tuple(sheets)), folder, stem="conformal")
        say_written(written)


def _load_validation(given: Any) -> list[RunScores]:
    if given is None:
        return []
    paths = [Path(str(path)).expanduser() for path in as_list(given)]
    tables = [run for path in paths if path.suffix == ".csv" for run in load_scores(path)]
    folders = [path for path in paths if path.suffix != ".csv"]
    return tables + ([run for run in load_runs(folders) if run.finished] if folders else [])


def _confidence_table(pairs: Any, votes: list[RunScores], wanted: dict[str, Any]) -> Any:
    """Returns calibration of each run, raw and scaled; None without confidences."""
    rows = []
    for run, validation in pairs:
        rows += [run, *([] if validation is None else scale_runs(run, validation))]
    rows += votes
    columns: dict[str, list[str]] = {}
    for run in rows:
        columns.setdefault(run.task, []).extend(confidence_metrics(run))
    columns = {task: list(dict.fromkeys(names)) for task, names in columns.items() if names}
    if not columns:
        return None
    metrics = columns if wanted["metrics"] is None else [str(name) for name in as_list(wanted["metrics"])]
    settings = {key: wanted[key] for key in ("resamples", "level", "seed")}
    return build_table([run for run in rows if run.task in columns], metrics=metrics, **settings)
