"""`unknown`: whether outputs of a model, or features, tell unknown inputs from known ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from medimg_eval.api import embed
from medimg_eval.commands.console import say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UsageError
from medimg_eval.results import Comparison, RunScores, load_runs, load_scores, write_comparison
from medimg_eval.results.table import Settings, check_numbers
from medimg_eval.results.unknown_inputs import Scored, feature_scores, judge_drop, judge_unknown, output_scores

if TYPE_CHECKING:
    from medimg_eval.results.table import Sheet


def run(config: DictConfig) -> None:
    """Prints detection of unknowns and the metric's drop; writes `out`.

    Raises:
        UsageError: a side is no run and no task, or the runs are of different models.
        UserError: there is no score of both sides.
    """
    wanted = plain(config)
    check_numbers(wanted["resamples"], wanted["level"], wanted["seed"])
    settings = Settings(wanted["resamples"], wanted["level"], wanted["seed"])
    sheets = _of_runs(wanted, settings) if wanted["encoder"] is None else [_of_features(wanted, settings)]
    show_sheets(sheets)
    if wanted["out"] is not None:
        say_written(write_comparison(Comparison("Unknown inputs", tuple(sheets)), Path(wanted["out"]), stem="unknown"))


def _of_runs(wanted: dict[str, Any], settings: Settings) -> list[Sheet]:
    known_run, unknown = (_load_run(str(wanted[side]), side) for side in ("known", "unknown"))
    if known_run.model != unknown.model:
        raise UsageError(
            f"unknown is invalid: expected a run of {known_run.model}, as known= is, got one of {unknown.model}"
        )
    here, there = output_scores(known_run), output_scores(unknown)
    sides = {name: (here[name], there[name]) for name in here if name in there}
    names = (known_run.task_title or known_run.task, unknown.task_title or unknown.task)
    sheets = [judge_unknown(sides, names, settings, [f"Scores of what {known_run.model} says."])]
    comparable = set(known_run.scores["metric"]) & set(unknown.scores["metric"])
    if wanted["metric"] or any(name not in _EVIDENCE for name in comparable):
        sheets.append(judge_drop(known_run, unknown, str(wanted["metric"] or ""), settings))
    return sheets


_EVIDENCE = ("probability", "confidence", "option_probability")


def _load_run(path: str, side: str) -> RunScores:
    file = Path(path).expanduser()
    if not file.exists():
        raise UsageError(f"{side} is invalid: expected a run folder or a CSV, got {path}; of tasks, add encoder=NAME")
    runs = load_scores(file) if file.suffix == ".csv" else [run for run in load_runs([file]) if run.finished]
    if len(runs) != 1:
        raise UsageError(f"{side} is invalid: expected one finished run, got {len(runs)} in {path}; name one of them")
    return runs[0]


def _of_features(wanted: dict[str, Any], settings: Settings) -> Sheet:
    """Embeds both tasks and the known fit cases, averaging by case."""
    if wanted["known"] == wanted["unknown"]:
        raise UsageError(f"unknown is invalid: expected another task than known={wanted['known']}, got the same")
    parts = {"known": "test", "unknown": "test", "reference": "fit"}
    features = {}
    for side, part in parts.items():
        task = str(wanted["unknown" if side == "unknown" else "known"])
        embedded = embed(task, str(wanted["encoder"]), parts=part, limit=wanted["limit"])
        names = list(embedded.keys)
        rows = np.stack([np.asarray(embedded.rows(case), dtype=np.float64).mean(axis=0) for case in names])
        features[side] = np.array(names), rows
    (here, known_features), (there, unknown), (_, reference) = (
        features["known"],
        features["unknown"],
        features["reference"],
    )
    scores = feature_scores(known_features, unknown, reference)
    sides = {
        name: (Scored(inside, here, here), Scored(outside, there, there)) for name, (inside, outside) in scores.items()
    }
    note = (
        f"Features of {wanted['encoder']}, a case's being the mean of its rows; the reference are "
        f"{len(features['reference'][1])} cases to fit on of {wanted['known']}. Cases count as independent."
    )
    return judge_unknown(sides, (str(wanted["known"]), str(wanted["unknown"])), settings, [note])
