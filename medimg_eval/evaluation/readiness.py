"""All that stands between a run and the providers that its metrics require, before a model is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.evidence import JUDGE, Kind
from medimg_eval.metrics.registry import Requirement, required
from medimg_eval.models.providers import Missing
from medimg_eval.tasks.base import Task

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec

TEXTS: tuple[Kind, ...] = ("annotation", "comparison")
"""Of which a provider says itself which it does: a metric that rests on it is told of both alike."""

BASES: Mapping[Kind, str] = {
    "annotation": "no TextAnnotator and no PairAnnotator",
    "comparison": "no TextAnnotator and no PairAnnotator",
    "features": "no FeatureExtractor",
    "distance": "no PerceptualDistance",
}

ABILITIES: Mapping[str, str] = {
    "texts": "reads no texts; name one that does, as biomedclip",
    "findings": "tells no findings; name a classifier of them, as finding_classifier",
    "choices": "chooses no view; name a classifier of them, as view_classifier",
    "pixels": "gives no grey values of squares; name pixels_128",
    "identity": "tells no patients apart; name one that does, as patient_reid",
}
"""What a message says of an extractor that lacks an ability."""

NO_JUDGE = "needs a judge; add model@judge=NAME (docs/definitions/judges.md)"


def missing(requirements: Sequence[Requirement], providers: Mapping[str, ModelSpec], task: Task) -> list[Missing]:
    """Settings, files or names that the requirements lack; empty where they lack nothing.

    Args:
        requirements: of the task.
        providers: by name, the judge under "judge".
        task: whose metrics name them.
    """
    missing: dict[Missing, None] = {}
    names: set[str] = set()
    for need in requirements:
        metrics = tuple(name for name in task.metrics if need in required(name))
        if type(task).subjects is Task.subjects:
            message = f"task {task.name!r} shows nothing of its predictions to {need.provider!r}"
            missing[Missing("metrics", message, metrics, usage=True)] = None
            continue
        if need.provider == JUDGE:
            missing |= dict.fromkeys(_of_judge(need, providers, task, metrics))
            continue
        users = tuple(name for name in task.metrics if any(need_.provider == need.provider for need_ in required(name)))
        if need.provider not in names:
            names.add(need.provider)
            missing |= dict.fromkeys(of_provider(need, providers, users))
        elif not any(need.provider in lack.key.split(".") for lack in missing):
            missing |= dict.fromkeys(_missing_abilities(need, providers, metrics))
    lacks = list(missing)
    unjudged = [name for lack in lacks if lack.message == NO_JUDGE for name in lack.metrics]
    if unjudged:  # once for all of them
        lacks = [lack for lack in lacks if lack.message != NO_JUDGE]
        lacks.append(Missing("model@judge", NO_JUDGE, tuple(dict.fromkeys(unjudged))))
    return lacks


def refuse(lacks: Sequence[Missing]) -> None:
    """Raises UserError listing all; UsageError for wrong command words."""
    if not lacks:
        return
    lines = [f"{', '.join(lack.metrics)}: {lack.message}" if lack.metrics else lack.message for lack in lacks]
    if all(lack.usage for lack in lacks):
        raise UsageError("\n".join(lines))
    lists = any(lack.key.startswith(("annotators", "model@")) for lack in lacks)
    hint = "; python -m medimg_eval check metrics=all lists" if lists else ""
    raise UserError("\n".join(lines) + f"\nor leave such metrics out{hint}")


def of_provider(need: Requirement, providers: Mapping[str, ModelSpec], metrics: tuple[str, ...]) -> Iterator[Missing]:
    """Requirements that one annotator, network or extractor lacks."""
    role = "extractor" if need.kind == "features" else "annotator"
    key = f"{role}s.{need.provider}"
    if need.provider not in providers:
        like = nearest(need.provider, providers)
        message = f"there is no {role} {need.provider!r}{like}; or add {key}._target_=YOUR.CLASS"
        yield Missing(f"{key}._target_", message, metrics, usage=role == "extractor")
        return
    try:
        provider = made_of(need, providers[need.provider])
        lacks = [*_missing_abilities(need, providers, metrics)] or [
            lack._replace(metrics=metrics) for lack in provider.missing()
        ]
    except UserError as error:
        yield Missing(key, str(error), metrics)
        return
    yield from lacks


def _missing_abilities(
    need: Requirement, providers: Mapping[str, ModelSpec], metrics: tuple[str, ...]
) -> Iterator[Missing]:
    provider = made_of(need, providers[need.provider])
    if need.ability and need.ability not in provider.abilities:
        message = f"extractor {need.provider!r} {ABILITIES.get(need.ability, f'cannot give {need.ability}')}"
        yield Missing(f"extractors.{need.provider}", message, metrics)


def _of_judge(
    need: Requirement, providers: Mapping[str, ModelSpec], task: Task, metrics: tuple[str, ...]
) -> Iterator[Missing]:
    judge = providers.get(JUDGE)
    if judge is None:
        if not task.dispensable(need):
            yield Missing("model@judge", NO_JUDGE, metrics)
        return
    if not callable(getattr(judge.wrapper, "generate", None)):
        message = f"judge {judge.name!r} ({judge.wrapper.__name__}) cannot write; name a model with generate()"
        yield Missing("model@judge", message, usage=True)
        return
    if message := task.unfit(need, judge.config, judge.name):
        yield Missing("model@judge", message, usage=True)


def made_of(need: Requirement, spec: ModelSpec, *, fresh: bool = True) -> Any:
    """Object of a config, by name, cached; UserError for another kind."""
    provider: Any = spec.load() if fresh else spec.model
    kinds = TEXTS if need.kind in TEXTS else (need.kind,)
    if getattr(provider, "kind", None) not in kinds:
        group = "extractors" if need.kind == "features" else "annotators"
        raise UserError(f"{group}.{need.provider}: {type(provider).__name__} is {BASES[need.kind]}")
    provider.name = need.provider
    return provider
