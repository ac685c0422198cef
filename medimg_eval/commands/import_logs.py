"""`import`: logs of other programs become runs, scored by our rules beside their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.arguments import grouped
from medimg_eval.commands.console import fail_if_cases_failed, printer, say, show
from medimg_eval.commands.scoring.answers import answer_task
from medimg_eval.commands.scoring.frame import Candidate, answering, score_candidates
from medimg_eval.configs.overrides import composed, plain
from medimg_eval.data.logs import Log, is_nnunet, matched, read_logs, write_disagreements, write_nnunet, write_records
from medimg_eval.errors import UserError, shortened
from medimg_eval.evaluation.identity import slug
from medimg_eval.evaluation.run import Run
from medimg_eval.instantiate import build_task, changed
from medimg_eval.models.precomputed import LoggedReplies
from medimg_eval.results import build_table, load_scores
from medimg_eval.run_results import RunResults
from medimg_eval.tasks import Task

RIGHT = ("accuracy", "accuracy_or_exact_match", "exact_match")
"""Metrics that say whether an answer is right, the first one that a run has."""


def run(config: DictConfig) -> None:
    """Reads logs, scores their replies, and says where their program and ours differ.

    Raises:
        UserError: no log can be read, or one has no question of the task.
    """
    wanted = plain(config)
    path, out = Path(str(wanted["log"])).expanduser(), Path(str(wanted["out"])).expanduser()
    if is_nnunet(path):
        _show_nnunet(path, out, wanted["name"])
        return
    logs = [replace(log, model=str(wanted["name"] or log.model)) for log in read_logs(path)]
    task = build_task(wanted["task"]) if wanted.get("task") else None
    keys = ("metrics", "extraction", "may_leave", "runs")
    settings = plain(composed("score", [])) | {key: wanted[key] for key in keys} | {"judge": wanted.get("judge")}
    runs: list[Run] = []
    for dataset, of_dataset in grouped((log.dataset, log) for log in logs).items():
        runs += _score(dataset, of_dataset, task, out, settings)
    fail_if_cases_failed([run.folder for run in runs])


def _score(dataset: str, logs: Sequence[Log], task: Task | None, out: Path, settings: Mapping[str, Any]) -> list[Run]:
    """Scores logs of the same questions: one row of the table for each, then the differences to their program."""
    candidates = []
    known = logs if task is None else [matched(log, task.cases("test")) for log in logs]
    for log in known:
        notes = list(log.notes)
        if failed := [record for record in log.records if record.failure]:
            told = f"{len(failed)} of {len(log.records)} questions have no reply, such as {failed[0].case!r}"
            notes.append(f"{told}: {failed[0].failure[:200]}")
        if len(failed) == len(log.records):
            raise UserError(f"{log.file}: {notes[-1]}")
        questions, replies = write_records(log, out / log.program / dataset)
        judged = task
        if judged is None:
            judged = changed(answer_task(settings, questions), name=slug(dataset), title=dataset)
        candidates.append(_candidate(log, judged, replies))
        for note in notes:
            say(printer(), f"! {log.file}: {note}")
    runs = score_candidates(settings, "answers", candidates)
    for log, run in zip(known, runs, strict=True):
        _compare(log, run, out / log.program / dataset)
    return runs


def _candidate(log: Log, task: Task, replies: Path) -> Candidate:
    first_seed = int((task.config.get("decoding") or {}).get("seed", 0))
    model = answering(log.model, LoggedReplies, {"file": str(replies), "first_seed": first_seed})
    repeats = 1 + max((record.repeat for record in log.records), default=0)
    return Candidate(task, model, dict.fromkeys(record.case for record in log.records), repeats=repeats)


def _compare(log: Log, run: Run, folder: Path) -> None:
    """Says of each yes/no score of the program how often ours differs, and writes the replies that it differs on."""
    scores = RunResults(run.folder).scores
    ours = next((metric for metric in RIGHT if (scores["metric"] == metric).any()), None)
    if ours is None:
        return
    rows = scores[scores["metric"] == ours]
    values = dict(zip(zip(rows["case"], rows["repeat"], strict=True), rows["value"], strict=True))
    for theirs in dict.fromkeys(name for record in log.records for name in record.scores):
        pairs = [
            (record, value)
            for record in log.records
            if theirs in record.scores and not math.isnan(value := values.get((record.case, record.repeat), math.nan))
        ]
        if not pairs or any(record.scores[theirs] not in (0, 1) for record, _ in pairs):
            continue
        differing = [(record, value) for record, value in pairs if record.scores[theirs] != value]
        mean = sum(record.scores[theirs] for record, _ in pairs) / len(pairs)
        our_mean = sum(value for _, value in pairs) / len(pairs)
        told = f"{log.program}'s {theirs} {mean:.3f}, our {ours} {our_mean:.3f}"
        say(printer(), f"{log.model}: {told}, of {len(pairs)} replies; {len(differing)} differ")
        if differing:
            file = write_disagreements(log, theirs, ours, differing, folder)
            say(printer(), f"  {shortened([record.case for record, _ in differing])}: {file}")


def _show_nnunet(file: Path, out: Path, name: str | None) -> None:
    """Writes what nnU-Net's evaluator says of each case as a table of scores, and prints their means."""
    scores = write_nnunet(file, out / "nnU-Net", name)
    show(build_table(load_scores(scores), by="label"))
    say(printer(), f"scores of every case: {scores}; table, compare, rank and figure take it by scores={scores}")
