"""Scores stored predictions and puts the rows of a run together; loads neither a model nor torch."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case, Failure, Score
from medimg_eval.errors import UserError
from medimg_eval.evaluation.identity import data_fingerprint
from medimg_eval.evaluation.leaving import note_sent, permit_providers
from medimg_eval.evaluation.observe import Source, gather_evidence
from medimg_eval.evaluation.preparing import in_words
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.readiness import missing, refuse
from medimg_eval.evaluation.run import Run, Stored, answered, now, write_json
from medimg_eval.evaluation.scoring import Scorer, score_parts, scoring_workers, worst_of
from medimg_eval.evaluation.sources import former_judge, sources_of
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.registry import required
from medimg_eval.metrics.scores import RAISED
from medimg_eval.results import Table, build_table, load_runs
from medimg_eval.results.runs import read_manifest
from medimg_eval.store import digest
from medimg_eval.tasks import ReportTask, Task
from medimg_eval.tasks.base import NOBODY, SetScore

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
    sources = former_judge(manifest)
    requirements = task.requirements()
    providers: Mapping[str, ModelSpec] = ChainMap(annotators, extractors)  # type: ignore[arg-type]
    lacks = missing(requirements, providers, task)
    refuse([lack for lack in lacks if not (sources and lack.key == "model@judge")])
    task.check_data(every)
    sent = permit_providers(task, may_leave, providers)
    sources |= sources_of(requirements, providers)
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
        context = gather_context(task, run, cases, sources)
        score_stored(task, run, cases, workers, context)
        return close(task, run, cases, manifest["model"], context)


def gather_context(task: Task, run: Run, cases: Sequence[Case], sources: Mapping[str, Source]) -> Context:
    """Has providers say what metrics require; what scores then depend on, of which the manifest takes note."""
    evidence = gather_evidence(task, run, cases, sources)
    context = task.context(cases, run.predictions(), evidence)
    run.note(**{key: {**run.manifest.get(key, {}), **facts} for key, facts in context.facts.items()})
    task.artefacts(context, run.folder)
    return context


def score_stored(task: Task, run: Run, cases: Sequence[Case], wanted: int | None, context: Context = EMPTY) -> None:
    """Scores the stored predictions of cases, on all cores unless a number of processes is wanted."""
    if task.inline:
        _score_here(task, run, cases, context)
        return
    workers = min(scoring_workers(wanted, beside_model=False), len(cases))
    with Scorer(task, run, scoring_id(task), workers, patient=True) as scorer:
        submit_stored(scorer, run, tracked(cases, "scoring"))


def _score_here(task: Task, run: Run, cases: Sequence[Case], context: Context) -> None:
    """Scores predictions that are so small that handing them to another process takes longer than judging them.

    Only many reports are worth the seconds that further processes take to start: each takes some milliseconds.
    """
    predictions = run.predictions()
    given = [(case, stored) for case in cases if isinstance(stored := predictions.get(case.id), Mapping)]
    workers = scoring_workers(None, beside_model=False) if isinstance(task, ReportTask) and len(given) > MANY else 1
    step = TOGETHER if workers == 1 else min(TOGETHER, -(-len(given) // (4 * workers)))
    parts = [given[start : start + step] for start in range(0, len(given), step)]
    for scored in score_parts(task, parts, workers, context):
        run.append_scores(scored, scoring_id(task, context.evidence.provenance))


def submit_stored(scorer: Scorer, run: Run, cases: Iterable[Case]) -> None:
    """Queues those of the cases that have a prediction."""
    predictions = run.predictions()
    for case in cases:
        prediction = predictions.get(case.id)
        if isinstance(prediction, Path):
            scorer.submit(case, prediction)


def close(task: Task, run: Run, cases: Sequence[Case], model: str, context: Context = EMPTY) -> Table:
    """Writes the Score rows in the task's order of cases, and the summary; returns the run's table."""
    provenance = context.evidence.provenance
    predictions, scores = run.predictions(), run.scores(scoring_id(task, provenance if task.inline else NOBODY))
    rows: list[Score] = []
    failures: list[Failure] = []
    raised: list[dict[str, str]] = []
    for case in cases:
        answer, result = predictions.get(case.id), scores.get(case.id)
        if answered(answer) and isinstance(result, list):
            result = [*result, *late_scores(task, case, answer, context)]
            raised += _raised(case, result)
            kept = [one._replace(status="error") if one.status.startswith(RAISED) else one for one in result]
            rows += task.rows(case, kept, run=run.run, model=model)
            continue
        unknown = Failure(case.id, "answer", "no answer was recorded")
        failures.append(next((entry for entry in (answer, result) if isinstance(entry, Failure)), unknown))
        rows += task.rows(case, worst_of(task, case, context), run=run.run, model=model)
    of_sets = task.score_set(cases, predictions, context)
    run.write_scores([*rows, *task.rows_of_all(of_sets, run=run.run, model=model)])
    read_with = run.read_with()
    said = judged(task, provenance)
    said["notes"] += [*task.notes(cases, context), *_told(raised, len(cases))]
    if left_out := getattr(task.layout, "left_out", {}):
        name, why = next(iter(left_out.items()))
        said["notes"] += [f"{len(left_out):,} left out of the data for what they lack, such as {name}: {why}"]
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
            "raised": [*raised, *_raised_of_sets(of_sets)],
            "read_with": read_with,
        },
    )
    return table


def late_scores(task: Task, case: Case, prediction: Stored, context: Context) -> list[LabelScore]:
    """Scores by metrics that rest on what providers say, of predictions that are scored beside the model."""
    late = [name for name in task.case_metrics if required(name)]
    return task.score(case, prediction, late, context=context) if late and not task.inline else []


def _raised(case: Case, scores: Sequence[LabelScore]) -> list[dict[str, str]]:
    """What metrics raised over a case, each once."""
    messages = {one.metric: one.status.removeprefix(RAISED) for one in scores if one.status.startswith(RAISED)}
    return [{"case": case.id, "metric": metric, "message": message} for metric, message in messages.items()]


def _raised_of_sets(scores: Sequence[SetScore]) -> list[dict[str, str]]:
    """What metrics of sets raised, by the part of the set that they were to judge."""
    return [
        {"case": ", ".join([one.label, *one.where.values()]), "metric": one.metric, "message": one.value[len(RAISED) :]}
        for one in scores
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


def judged(task: Task, provenance: Mapping[str, str] = NOBODY) -> dict[str, Any]:
    """How a run's answers are judged, which can change while they stay."""
    return {
        "task_title": task.title or task.name,
        "task_config": dict(task.config),
        "metrics": list(task.metrics),
        "facts": dict(task.facts),
        "signature": signature_of(task, provenance),
        "definitions": task.definitions(provenance),
        "scoring": scoring_id(task, provenance),
        "notes": list(task.card.get("notes", [])),
    }


def scoring_id(task: Task, provenance: Mapping[str, str] = NOBODY) -> str:
    """Hash of the settings that decide scores, given predictions."""
    return digest([list(task.metrics), signature_of(task, provenance)])


def signature_of(task: Task, provenance: Mapping[str, str]) -> str:
    """What decides the numbers; a task that rests on no other model need not take any provenance."""
    return task.signature(provenance) if provenance else task.signature()
