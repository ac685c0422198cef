"""Logs of other programs as runs, scored by our rules beside their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.arguments import grouped
from medimg_eval.configs.overrides import composed, plain
from medimg_eval.data.logs import Log, is_nnunet, matched, read_logs, write_disagreements, write_nnunet, write_records
from medimg_eval.errors import UserError, shortened
from medimg_eval.evaluation.identity import slug
from medimg_eval.file_scores.answers import answer_task
from medimg_eval.file_scores.frame import Candidate, answering, score_candidates
from medimg_eval.instantiate import build_task, changed
from medimg_eval.models.precomputed import LoggedReplies
from medimg_eval.results import build_table, load_scores
from medimg_eval.run_results import RunResults, RunSet
from medimg_eval.tasks import Task

if TYPE_CHECKING:
    from medimg_eval.results import Table

RIGHT = ("accuracy", "accuracy_or_exact_match", "exact_match")
"""Metrics that say whether an answer is right, the first one that a run has."""


class Difference(NamedTuple):
    """Disagreements of a program and us on yes/no scores."""

    program: str
    model: str
    theirs: str
    their_mean: float
    ours: str
    our_mean: float
    replies: int
    cases: tuple[str, ...]
    """Those on which the two differ."""
    file: Path | None
    """Where the replies to these are; None where there is none."""

    def lines(self) -> list[str]:
        """The difference in words."""
        comparison = f"{self.program}'s {self.theirs} {self.their_mean:.3f}, our {self.ours} {self.our_mean:.3f}"
        lines = [f"{self.model}: {comparison}, of {self.replies} replies; {len(self.cases)} differ"]
        return lines + ([f"  {shortened(self.cases)}: {self.file}"] if self.cases else [])


@dataclass(frozen=True, eq=False)
class Imported:
    """Runs made of the logs of one data set.

    Attributes:
        dataset: what the program calls it.
        runs: one for each log; none of nnU-Net's summary, which holds scores alone.
        differences: between the scores of the program and ours.
        scores: of nnU-Net's summary, the table of scores that was written.
    """

    dataset: str
    runs: RunSet
    differences: Sequence[Difference] = field(default_factory=list)
    scores: Path | None = None

    @cached_property
    def table(self) -> Table:
        """Means with intervals."""
        return self.runs.table if self.scores is None else build_table(load_scores(self.scores), by="label")

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"<{self.dataset}: {len(self.runs)} runs>",
                *(line for difference in self.differences for line in difference.lines()),
            ]
        )

    def _repr_html_(self) -> str:
        from html import escape

        notes = "".join(f"<p>{escape(line)}</p>" for difference in self.differences for line in difference.lines())
        return (self.runs._repr_html_() if self.scores is None else self.table._repr_html_()) + notes


def import_logs(wanted: Mapping[str, Any], warn: Callable[[str], None]) -> list[Imported]:
    """Reads logs and scores their replies, one result for each data set.

    Args:
        wanted: the config of `import`.
        warn: is told what the logs lack.

    Raises:
        UserError: no log can be read, or one has no question of the task.
    """
    path, out = Path(str(wanted["log"])).expanduser(), Path(str(wanted["out"])).expanduser()
    if is_nnunet(path):
        # Whatever nnU-Net's evaluator says of each case becomes a table of scores.
        return [Imported("nnU-Net", RunSet([]), scores=write_nnunet(path, out / "nnU-Net", wanted["name"]))]
    logs = [replace(log, model=str(wanted["name"] or log.model)) for log in read_logs(path)]
    task = build_task(wanted["task"]) if wanted.get("task") else None
    keys = ("metrics", "extraction", "may_leave", "runs")
    settings = plain(composed("score", [])) | {key: wanted[key] for key in keys} | {"judge": wanted.get("judge")}
    datasets = grouped((log.dataset, log) for log in logs)
    return [_score_logs(dataset, some, task, out, settings, warn) for dataset, some in datasets.items()]


def _score_logs(
    dataset: str,
    logs: Sequence[Log],
    task: Task | None,
    out: Path,
    settings: Mapping[str, Any],
    warn: Callable[[str], None],
) -> Imported:
    """Scores logs of equal questions and compares with their program."""
    candidates = []
    matched_logs = logs if task is None else [matched(log, task.cases("test")) for log in logs]
    for log in matched_logs:
        notes = list(log.notes)
        if failed := [record for record in log.records if record.failure]:
            complaint = f"{len(failed)} of {len(log.records)} questions have no reply, such as {failed[0].case!r}"
            notes.append(f"{complaint}: {failed[0].failure[:200]}")
        if len(failed) == len(log.records):
            raise UserError(f"{log.file}: {notes[-1]}")
        questions, replies = write_records(log, out / log.program / dataset)
        judged = task
        if judged is None:
            judged = changed(answer_task(settings, questions), name=slug(dataset), title=dataset)
        candidates.append(_make_candidate(log, judged, replies))
        for note in notes:
            warn(f"! {log.file}: {note}")
    runs = score_candidates(settings, "answers", candidates, warn)
    compared = [
        _compare_scores(log, run, out / log.program / dataset) for log, run in zip(matched_logs, runs, strict=True)
    ]
    return Imported(dataset, runs, [difference for of_log in compared for difference in of_log])


def _make_candidate(log: Log, task: Task, replies: Path) -> Candidate:
    first_seed = int((task.config.get("decoding") or {}).get("seed", 0))
    model = answering(log.model, LoggedReplies, {"file": str(replies), "first_seed": first_seed})
    repeats = 1 + max((record.repeat for record in log.records), default=0)
    return Candidate(task, model, dict.fromkeys(record.case for record in log.records), repeats=repeats)


def _compare_scores(log: Log, run: RunResults, folder: Path) -> list[Difference]:
    """Compares yes/no scores with ours; writes the disagreements."""
    scores = run.scores
    ours = next((metric for metric in RIGHT if (scores["metric"] == metric).any()), None)
    if ours is None:
        return []
    rows = scores[scores["metric"] == ours]
    values = dict(zip(zip(rows["case"], rows["repeat"], strict=True), rows["value"], strict=True))
    differences = []
    for theirs in dict.fromkeys(name for record in log.records for name in record.scores):
        pairs = [
            (record, value)
            for record in log.records
            if theirs in record.scores and not math.isnan(value := values.get((record.case, record.repeat), math.nan))
        ]
        if not pairs or any(record.scores[theirs] not in (0, 1) for record, _ in pairs):
            continue
        differing = [(record, value) for record, value in pairs if record.scores[theirs] != value]
        differences.append(
            Difference(
                log.program,
                log.model,
                theirs,
                sum(record.scores[theirs] for record, _ in pairs) / len(pairs),
                ours,
                sum(value for _, value in pairs) / len(pairs),
                len(pairs),
                tuple(record.case for record, _ in differing),
                write_disagreements(log, theirs, ours, differing, folder) if differing else None,
            )
        )
    return differences
