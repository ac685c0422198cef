"""Puts the scores of a run together: Score rows, notes, the manifest's last word, and the table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from medimg_eval.arguments import grouped
from medimg_eval.case import Failure, Score, Trial
from medimg_eval.codecs import Stored
from medimg_eval.degradations import UNCHANGED
from medimg_eval.evaluation.manifest import Manifest
from medimg_eval.evaluation.plan import in_words, judged, task_facts
from medimg_eval.evaluation.run import TrialScores, answered, now, write_json
from medimg_eval.evaluation.score import ScoreKeys, stored_scores
from medimg_eval.evaluation.scoring import worst_of
from medimg_eval.evidence import Context
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.scores import RAISED
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.runs import SCHEMA
from medimg_eval.results.tracking import report_to
from medimg_eval.system import uncollected
from medimg_eval.tasks import Task
from medimg_eval.tasks.base import SetScore, left_out

if TYPE_CHECKING:
    from medimg_eval.evaluation.plan import Plan

Raised = dict[str, str]
"""What a metric raised: `case`, `metric` and `message`."""


class _Written(NamedTuple):
    """Facts of the written rows, for the manifest and the summary."""

    failures: dict[Trial, Failure]
    raised: list[Raised]
    raised_of_sets: list[Raised]
    judged: int
    """Cases; one may be judged as several, such as the stages of a conversation."""
    predicted: int
    """Cases with an answer."""


def summarise(plan: Plan, keys: ScoreKeys, context: Context) -> None:
    """Writes Score rows in case order, summary and manifest."""
    task, run = plan.task, plan.run
    with uncollected():
        written = _write_scores(plan, keys, context)
    manifest = judged(task, context.evidence.provenance)
    manifest |= Manifest(
        schema=SCHEMA,
        notes=[
            *manifest["notes"],
            *run.manifest.get("leaks", {}).get("found", ()),
            *_table_notes(plan, written.raised, context),
        ],
        status="finished",
        partial=in_words(plan.every, [case.id for case in plan.cases]),
        cases=max(len(plan.cases), written.judged),
        predicted=written.predicted,
        failed_cases=len({trial.case for trial in written.failures if not trial.condition}),
        ended=now(),
    )
    run.note(**manifest)
    run.table = build_table(load_runs([run.folder]))
    own = run.table.frame().query("model == @plan.model_name")  # without the line of condition no_image
    write_json(
        run.folder / "summary.json",
        {
            "metrics": json.loads(own.to_json(orient="records")),  # NaN, which JSON lacks, becomes null
            "failures": [{"case": t.id, "stage": f.stage, "message": f.message} for t, f in written.failures.items()],
            "raised": [*written.raised, *written.raised_of_sets],
            "read_with": run.read_with(),
        },
    )


def conclude(plan: Plan) -> None:
    """Writes summary and manifest of a run without references."""
    run, predictions = plan.run, plan.run.predictions()
    stored_predictions = {trial: predictions.get(trial.id) for trial in plan.trials}
    missing = {
        trial: stored if isinstance(stored, Failure) else Failure(trial.case, "answer", "no answer was recorded")
        for trial, stored in stored_predictions.items()
        if not answered(stored)
    }
    run.note(**task_facts(plan.task))
    run.note(
        notes=[],
        status="finished",
        partial=in_words(plan.every, [case.id for case in plan.cases]),
        cases=len(plan.cases),
        predicted=len(plan.trials) - len(missing),
        failed_cases=len(missing),
        ended=now(),
    )
    write_json(
        run.folder / "summary.json",
        {
            "metrics": [],
            "failures": [{"case": t.id, "stage": f.stage, "message": f.message} for t, f in missing.items()],
            "left_out": dict(left_out(plan.task.layout)),
            "read_with": run.read_with(),
        },
    )


def track(plan: Plan) -> None:
    """Reports a scored run to trackers; the manifest notes refusals."""
    run, trackers = plan.run, plan.settings.loggers(plan.run.folder)
    if trackers and run.table is not None:
        facts = {key: str(run.manifest.get(key)) for key in ("task", "model", "seed", "run")}
        run.note(untracked=report_to(trackers, run.table, facts, run.folder))
    elif run.manifest.get("untracked"):
        run.note(untracked={})


def _write_scores(plan: Plan, keys: ScoreKeys, context: Context) -> _Written:
    """Writes score rows, freeing their memory before the table."""
    task, run = plan.task, plan.run
    predictions, stored = run.predictions(), stored_scores(task, run)
    rows: list[Score] = []
    failures: dict[Trial, Failure] = {}
    raised: list[Raised] = []
    for trial in plan.trials:
        case, prediction = plan.case_of[trial.case], predictions.get(trial.id)
        scores = stored.get(trial.id) or TrialScores()
        worst = partial(worst_of, task, plan.judged_as(trial), context)
        rows_, failure = _complete_scores(task, worst, trial, prediction, scores, keys)
        if failure is not None:
            failures[trial] = failure
        messages = {
            score.metric: score.status.removeprefix(RAISED) for score in rows_ if score.status.startswith(RAISED)
        }
        if messages:
            raised += [{"case": trial.id, "metric": metric, "message": message} for metric, message in messages.items()]
            rows_ = [score._replace(status="error") if score.status.startswith(RAISED) else score for score in rows_]
        of_case = task.rows(case, rows_, run=run.run, model=plan.model_name)
        if trial.repeat or trial.condition:
            of_case = [row._replace(repeat=trial.repeat, condition=trial.condition) for row in of_case]
        rows += of_case
    of_sets = task.score_set(plan.cases, predictions, context)
    run.write_scores([*rows, *task.rows_of_all(of_sets, run=run.run, model=plan.model_name)])
    predicted = {trial.case for trial in plan.trials if answered(predictions.get(trial.id))}
    return _Written(failures, raised, _raised_of_sets(of_sets), len({row.case for row in rows}), len(predicted))


def _complete_scores(
    task: Task,
    worst: Callable[[], Sequence[LabelScore]],
    trial: Trial,
    prediction: Stored | Failure | None,
    scores: TrialScores,
    keys: ScoreKeys,
) -> tuple[list[LabelScore], Failure | None]:
    """Scores of a trial, missing ones at their worst, with failure."""
    if not answered(prediction):
        unknown = scores.failure or Failure(trial.case, "answer", "no answer was recorded")
        return list(worst()), prediction if isinstance(prediction, Failure) else unknown
    current = keys.current(trial, scores)
    current_scores = [score for score in scores.scores if score.metric in current or score.metric not in scores.keys]
    missing = [name for name in task.case_metrics if name not in current]
    if not missing:
        return current_scores, None
    worst_scores = [score for score in worst() if score.metric in missing or not current]
    return current_scores + worst_scores, scores.failure or Failure(trial.case, "score", "no score was recorded")


def _table_notes(plan: Plan, raised: Sequence[Raised], context: Context) -> list[str]:
    """Run's notes for table readers, beside the card's."""
    task, run, cases = plan.task, plan.run, plan.cases
    notes = [*task.notes(cases, context), *_raised_note(raised, len(cases))]
    if lacking := left_out(task.layout):
        name, why = next(iter(lacking.items()))
        notes += [f"{len(lacking):,} left out of the data for what they lack, such as {name}: {why}"]
    if run.manifest.get("unidentified"):
        notes += [f"{plan.model_name} is unidentified: it was made of objects that no config can name"]
    of_trial = run.read_with().values()
    unchanged = Counter(note for notes in of_trial for note in set(notes) if note.endswith(UNCHANGED))
    notes += [f"{note}: answers that are about cases as published: {count}" for note, count in unchanged.items()]
    if doubted := sum(any(not note.endswith(UNCHANGED) for note in notes) for notes in of_trial):
        notes += [f"{doubted} of {len(cases)} cases were read with a repair or doubt: see summary.json"]
    return notes


def _raised_of_sets(scores: Sequence[SetScore]) -> list[Raised]:
    """Errors of set metrics, by the judged part."""
    return [
        {
            "case": ", ".join([score.label, *score.where.values()]),
            "metric": score.metric,
            "message": score.value[len(RAISED) :],
        }
        for score in scores
        if isinstance(score.value, str) and score.value.startswith(RAISED)
    ]


def _raised_note(raised: Sequence[Raised], cases: int) -> list[str]:
    """Note on metrics that raised, and on which cases."""
    by_metric = grouped((failure["metric"], failure) for failure in raised)
    return [
        f"{metric} raised an error on {len(some)} of {cases} cases, left out of its mean, such as {some[0]['case']}: "
        f"{some[0]['message']}"
        for metric, some in by_metric.items()
    ]
