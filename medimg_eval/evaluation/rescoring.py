"""Scores stored predictions and puts the rows of a run together; loads neither a model nor torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case, Failure, Score
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.evidence import (
    judge_remarks,
    judge_sets,
    perceive,
    read_reports,
    refuse_unready,
    refuse_unready_networks,
    refuse_unready_sets,
)
from medimg_eval.evaluation.identity import data_fingerprint, digest
from medimg_eval.evaluation.leaving import note_sent, permit_readers
from medimg_eval.evaluation.preparing import in_words
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.run import Run, Stored, answered, now, write_json
from medimg_eval.evaluation.scoring import RAISED, Scorer, score_parts, scoring_workers
from medimg_eval.metrics import LabelScore
from medimg_eval.results import Table, build_table, load_runs
from medimg_eval.results.runs import read_manifest
from medimg_eval.tasks import QuestionTask, ReportTask, Task
from medimg_eval.tasks.base import left_out

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec

MANY = 1000
"""Reports that are judged in one process."""

TOGETHER = 1000
"""Cases whose scores are written at once, where judging one takes less time than a disk needs to confirm it."""


def rescore(
    folder: Path,
    task: Task,
    workers: int | None = None,
    annotators: Mapping[str, ModelSpec] = MappingProxyType({}),
    extractors: Mapping[str, ModelSpec] = MappingProxyType({}),
    may_leave: Any = None,
) -> Table:
    """Scores the stored predictions of a run again, loading no model, and returns the run's table.

    Args:
        folder: the run.
        task: as it is to be judged now; its cases must be those of the run.
        workers: scoring processes; None chooses.
        annotators: of reports: name -> what it is made of.
        extractors: of pictures: the same.
        may_leave: what the user says of sending data to another machine.

    Raises:
        UserError: the run's data have changed, it is not done, or it is in use.
    """
    manifest = read_manifest(folder / "manifest.json")
    every = task.cases("test")
    if data_fingerprint(every) != manifest["data_fingerprint"]:
        raise UserError(f"{folder}: the data of task {task.name!r} have changed since this run; run test again")
    if isinstance(task, QuestionTask):
        task.judged_by = manifest.get("judge", {}).get("id", "")
    refuse_unready(task, annotators, judge=bool(manifest.get("judge")))
    refuse_unready_sets(task, extractors)
    refuse_unready_networks(task, annotators)
    sent = permit_readers(task, may_leave, annotators, extractors)
    with Run(folder, manifest["run"]) as run:
        predictions = run.predictions()
        cases = [case for case in every if case.id in predictions] if manifest.get("partial") else every
        if len(predictions) < len(cases):
            raise UserError(f"{folder}: {len(predictions)} of {len(cases)} cases were asked; resume it with test first")
        for prediction in predictions.values():
            if isinstance(prediction, Path):  # none is, of an inline task
                task.check_stored(prediction)
        run.note(status="running", ended=None, partial=in_words(every, [case.id for case in cases]))
        note_sent(run, sent, len(cases))
        read_reports(task, run, cases, annotators)
        score_stored(task, run, cases, workers)
        judge_sets(task, run, cases, extractors)
        perceive(task, run, cases, annotators, run.scores(scoring_id(task)))
        return close(task, run, cases, manifest["model"])


def score_stored(task: Task, run: Run, cases: Sequence[Case], wanted: int | None) -> None:
    """Scores the stored predictions of cases, on all cores unless a number of processes is wanted."""
    if task.inline:
        _score_here(task, run, cases)
        return
    workers = min(scoring_workers(wanted, beside_model=False), len(cases))
    with Scorer(task, run, scoring_id(task), workers, patient=True) as scorer:
        submit_stored(scorer, run, tracked(cases, "scoring"))


def _score_here(task: Task, run: Run, cases: Sequence[Case]) -> None:
    """Scores predictions that are so small that handing them to another process takes longer than judging them.

    Only many reports are worth the seconds that further processes take to start: each takes some milliseconds.
    """
    predictions, verdicts = run.predictions(), _verdicts(task, run)
    task.take(predictions)
    given = [
        (case, {**stored, "judged": verdicts.get(case.id, {})})
        for case in cases
        if isinstance(stored := predictions.get(case.id), Mapping)
    ]
    workers = scoring_workers(None, beside_model=False) if isinstance(task, ReportTask) and len(given) > MANY else 1
    step = TOGETHER if workers == 1 else min(TOGETHER, -(-len(given) // (4 * workers)))
    parts = [given[start : start + step] for start in range(0, len(given), step)]
    for scored in score_parts(task, parts, workers):
        run.append_scores(scored, scoring_id(task))


def _verdicts(task: Task, run: Run) -> dict[str, dict[str, Any]]:
    """By case, what the judge said to the questions that the task still has."""
    still = task.judge if isinstance(task, QuestionTask) else {}
    return {
        case: {name: value for name, value in said.items() if name in still} for case, said in run.verdicts().items()
    }


def _unjudged(task: Task, run: Run, cases: Sequence[Case], predictions: Mapping[str, Stored | Failure]) -> list[str]:
    """Says how many questions the judge has never been asked: of a start that was stopped, or by another rule."""
    if not isinstance(task, QuestionTask) or not task.judged_by:
        return []
    verdicts, count = run.verdicts(), 0
    for case in cases:
        stored = predictions.get(case.id)
        if isinstance(stored, Mapping):
            with suppress(CaseError):
                count += sum(one.name not in verdicts.get(case.id, {}) for one in task.judge_wanted(case, stored))
    if not count:
        return []
    return [f"the judge has not been asked {count:,} of its questions; run test again with it"]


def submit_stored(scorer: Scorer, run: Run, cases: Iterable[Case]) -> None:
    """Queues those of the cases that have a prediction."""
    predictions = run.predictions()
    for case in cases:
        prediction = predictions.get(case.id)
        if isinstance(prediction, Path):
            scorer.submit(case, prediction)


def close(task: Task, run: Run, cases: Sequence[Case], model: str) -> Table:
    """Writes the Score rows in the task's order of cases, and the summary; returns the run's table."""
    predictions, scores = run.predictions(), run.scores(scoring_id(task))
    rows: list[Score] = []
    failures: list[Failure] = []
    raised: list[dict[str, str]] = []
    for case in cases:
        answer, result = predictions.get(case.id), scores.get(case.id)
        if answered(answer) and isinstance(result, list):
            raised += _raised(case, result)
            kept = [one._replace(status="error") if one.status.startswith(RAISED) else one for one in result]
            rows += task.rows(case, kept, run=run.run, model=model)
            continue
        unknown = Failure(case.id, "answer", "no answer was recorded")
        failures.append(next((entry for entry in (answer, result) if isinstance(entry, Failure)), unknown))
        rows += task.rows(case, task.worst(case), run=run.run, model=model)
    run.write_scores([*rows, *task.rows_of_all(run=run.run, model=model)])
    read_with = run.read_with()
    said = judged(task)
    if isinstance(task, QuestionTask):
        said["notes"] += judge_remarks(task, run)
    said["notes"] += [*task.remarks, *_unjudged(task, run, cases, predictions), *_told(raised, len(cases))]
    if lacking := left_out(task.layout):
        name, why = next(iter(lacking.items()))
        said["notes"] += [f"{len(lacking):,} left out of the data for what they lack, such as {name}: {why}"]
    if run.manifest.get("unidentified"):
        said["notes"] += [f"{model} is unidentified: it was made of objects that no config can name"]
    if read_with:
        said["notes"] += [f"{len(read_with)} of {len(cases)} cases were read with a repair or doubt: see summary.json"]
    run.note(
        **said,
        status="finished",
        # A case may be judged as several, such as the stages of a conversation; tables count those.
        cases=max(len(cases), len({row.case for row in rows})),
        predicted=sum(answered(answer) for answer in predictions.values()),
        failed_cases=len(failures),
        ended=now(),
    )
    table = build_table(load_runs([run.folder]))
    write_json(
        run.folder / "summary.json",
        {
            "metrics": json.loads(table.frame().to_json(orient="records")),  # NaN, which JSON lacks, becomes null
            "failures": [{"case": f.case_id, "stage": f.stage, "message": f.message} for f in failures],
            "raised": [*raised, *_raised_of_sets(task)],
            "read_with": read_with,
        },
    )
    return table


def _raised(case: Case, scores: Sequence[LabelScore]) -> list[dict[str, str]]:
    """What metrics raised over a case, each once."""
    messages = {one.metric: one.status.removeprefix(RAISED) for one in scores if one.status.startswith(RAISED)}
    return [{"case": case.id, "metric": metric, "message": message} for metric, message in messages.items()]


def _raised_of_sets(task: Task) -> list[dict[str, str]]:
    """What metrics of sets raised, by the part of the set that they were to judge."""
    return [
        {"case": ", ".join([one.label, *one.where.values()]), "metric": one.metric, "message": one.value[len(RAISED) :]}
        for one in getattr(task, "of_sets", ())
        if isinstance(one.value, str) and one.value.startswith(RAISED)
    ]


def _told(raised: Sequence[Mapping[str, str]], cases: int) -> list[str]:
    """What a table says below of metrics that raised, and on which cases."""
    by_metric: dict[str, list[Mapping[str, str]]] = {}
    for one in raised:
        by_metric.setdefault(one["metric"], []).append(one)
    return [
        f"{metric} raised an error on {len(some)} of {cases} cases, left out of its mean, such as {some[0]['case']}: "
        f"{some[0]['message']}"
        for metric, some in by_metric.items()
    ]


def judged(task: Task) -> dict[str, Any]:
    """How a run's answers are judged, which can change while they stay."""
    return {
        "task_title": task.title or task.name,
        "task_config": dict(task.config),
        "noun": task.noun,
        "output": task.output,
        "metrics": list(task.metrics),
        "facts": dict(task.facts),
        "signature": task.signature(),
        "definitions": task.definitions(),
        "scoring": scoring_id(task),
        "notes": list(task.card.get("notes", [])),
    }


def scoring_id(task: Task) -> str:
    """Hash of the settings that decide scores, given predictions."""
    return digest([list(task.metrics), task.signature()])
