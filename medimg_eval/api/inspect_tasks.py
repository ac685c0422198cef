"""Tasks of ours as tasks of inspect: its models and agents answer, our rules read and score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from medimg_eval.api.asking import Overrides
from medimg_eval.api.catalogue_lists import load_task
from medimg_eval.case import Case
from medimg_eval.errors import UsageError, import_optional
from medimg_eval.evidence import JUDGE
from medimg_eval.instantiate import build_task
from medimg_eval.models import as_chat_messages
from medimg_eval.question import Reply
from medimg_eval.tasks import QuestionTask, Task


def inspect_task(task: str | Mapping[str, Any] | Task, *, limit: int | None = None, overrides: Overrides = ()) -> Any:
    """A task of questions as one of inspect, for `inspect_ai.eval`.

    A case is a sample: its prompt with the images, what is right as target, attributes and `patient` as metadata. The
    scorer reads and scores a reply as `test` does; means come with standard errors over patients. Metrics that ask a
    judge, and those of the whole set, are left out: `import` a log to have them.

    Args:
        task: name of a config, a config, or a task.
        limit: so many cases, the first ones.
        overrides: further changes of a named config, such as `{"task.metrics": ["accuracy"]}`.

    Raises:
        UsageError: it asks no questions, or nothing is left to be scored.
        UserError: data are missing, or inspect is.
    """
    library, datasets = import_optional("inspect_ai"), import_optional("inspect_ai.dataset")
    built: Any = task
    if isinstance(task, str):
        built = load_task(task, overrides=overrides)
    elif isinstance(task, Mapping):
        built = build_task(task)
    if not hasattr(built, "next_turn"):
        raise UsageError(f"task {built.name!r} asks no questions; inspect knows no other tasks")
    judged = {need.provider for need in built.requirements()} & {JUDGE}
    metrics = [name for name in built.case_metrics if not (judged and _asks_judge(built, name))]
    if not metrics:
        raise UsageError(
            f"task {built.name!r}: each of its metrics asks a judge; set task.metrics to one that does not"
        )
    cases = list(built.cases("test"))[:limit]
    decoding = import_optional("inspect_ai.model").GenerateConfig(
        max_tokens=built.decoding.get("max_new_tokens"), temperature=built.decoding.get("temperature", 0.0)
    )
    return library.Task(
        dataset=datasets.MemoryDataset([_make_sample(built, case) for case in cases], name=built.name),
        scorer=_make_scorer(built, {case.id: case for case in cases}, metrics),
        name=built.name,
        config=decoding,
        metadata={"medimg_eval": built.signature()},
    )


def _asks_judge(task: QuestionTask, name: str) -> bool:
    return any(need.provider == JUDGE for need in task.alone(name).requirements())


def _make_sample(task: QuestionTask, case: Case) -> Any:
    datasets = import_optional("inspect_ai.dataset")
    prompt = task.prompt(case, task.read_images(case))
    right = case.target.read().value
    several = right if isinstance(right, Sequence) and not isinstance(right, str) else [right]
    return datasets.Sample(
        id=case.id,
        input=as_chat_messages(prompt),
        choices=list(prompt.options.values()) or None,
        target=[str(item) for item in several],
        metadata={"patient": case.patient or case.id, **case.attributes},
    )


def _make_scorer(task: QuestionTask, cases: Mapping[str, Case], metrics: Sequence[str]) -> Any:
    """Inspect scorer with our metrics' values; unjudged samples are omitted."""
    scorers = import_optional("inspect_ai.scorer")
    over = [
        _judged_metric(scorers, "mean", scorers.mean()),
        _judged_metric(scorers, "stderr", scorers.stderr(cluster="patient")),
    ]

    def score_as_ours() -> Any:
        async def score(state: Any, target: Any) -> Any:
            reply = state.output.completion
            case = cases[str(state.sample_id)]
            values = dict.fromkeys(metrics, math.nan)
            for row in task.score(case, Reply((reply,)), metrics):
                if row.label == "" or math.isnan(values[row.metric]):
                    values[row.metric] = float(row.value)
            return scorers.Score(value=values, answer=reply.strip()[-200:], metadata=dict(values))

        return score

    return scorers.scorer(metrics=dict.fromkeys(metrics, over), name="medimg_eval")(score_as_ours)()


def _judged_metric(scorers: Any, name: str, of_scores: Any) -> Any:
    """Inspect metric over the samples that our metric judges."""

    def over_judged() -> Any:
        def over(scores: Any) -> float:
            judged = [score for score in scores if not math.isnan(float(score.score.value))]
            return float(of_scores(judged)) if judged else math.nan

        # By this inspect tells that it is to be given samples, whose patients are known, and not bare scores.
        over.__annotations__ = {"scores": list[scorers.SampleScore], "return": float}
        return over

    return scorers.metric(name=name)(over_judged)()
