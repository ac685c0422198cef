"""All that stands between a run and the providers that its metrics require, before a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.evaluation.identity import slug
from medimg_eval.evaluation.observe import Source
from medimg_eval.evidence import JUDGE, Kind
from medimg_eval.metrics.registry import Requirement, required
from medimg_eval.models.providers import Judge, Missing, Provider
from medimg_eval.store import digest
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
    "identity": "tells no patients apart; name one that does, as patient_reid",
}
"""What a message says of an extractor that lacks an ability."""

NO_JUDGE = "needs a judge; add model@judge=NAME (docs/metrics-judges.md)"


def missing(requirements: Sequence[Requirement], providers: Mapping[str, ModelSpec], task: Task) -> list[Missing]:
    """What must be set, fetched or named before the requirements can be met; empty where nothing must.

    Args:
        requirements: of the task.
        providers: by name, the judge under "judge".
        task: whose metrics name them.
    """
    found: dict[Missing, None] = {}
    seen: set[str] = set()
    for need in requirements:
        metrics = tuple(name for name in task.metrics if need in required(name))
        if need.provider == JUDGE:
            found |= dict.fromkeys(_of_judge(need, providers, task, metrics))
            continue
        users = tuple(name for name in task.metrics if any(other.provider == need.provider for other in required(name)))
        if need.provider not in seen:
            seen.add(need.provider)
            found |= dict.fromkeys(of_provider(need, providers, users))
        elif not any(need.provider in lack.key.split(".") for lack in found):
            found |= dict.fromkeys(_unable(need, providers, metrics))
    lacks = list(found)
    unjudged = [name for lack in lacks if lack.message == NO_JUDGE for name in lack.metrics]
    if unjudged:  # once for all of them
        lacks = [lack for lack in lacks if lack.message != NO_JUDGE]
        lacks.append(Missing("model@judge", NO_JUDGE, tuple(dict.fromkeys(unjudged))))
    return lacks


def refuse(lacks: Sequence[Missing]) -> None:
    """Raises UserError that names all of it, a line for each; UsageError where words of the command are wrong."""
    if not lacks:
        return
    lines = [f"{', '.join(lack.metrics)}: {lack.message}" if lack.metrics else lack.message for lack in lacks]
    if all(lack.usage for lack in lacks):
        raise UsageError("\n".join(lines))
    lists = any(lack.key.startswith(("annotators", "model@")) for lack in lacks)
    hint = "; python -m medimg_eval check metrics=all lists" if lists else ""
    raise UserError("\n".join(lines) + f"\nor leave such metrics out{hint}")


def sources_of(requirements: Sequence[Requirement], providers: Mapping[str, ModelSpec]) -> dict[str, Source]:
    """Annotators, networks and extractors as sources of evidence, by name; none is loaded, only made."""
    return {
        need.provider: _source(need, providers[need.provider])
        for need in requirements
        if need.provider != JUDGE and need.provider in providers
    }


def judge_source(
    judge: ModelSpec, trainer: Mapping[str, Any], seed: int, permitted: Callable[[], None]
) -> tuple[Source, dict[str, Any]]:
    """A judge as a source of evidence, and what identifies it, for the manifest.

    Args:
        judge: what it is made of.
        trainer: settings of which `accelerator` and `precision` count.
        seed: of the run, for a judge that draws what it says.
        permitted: raises before it is loaded where it must not be asked, and notes what it is sent.
    """
    from torch import nn

    precision = str(trainer.get("precision", "32-true"))
    identity = judge.identity
    if issubclass(judge.wrapper, nn.Module) and precision != "32-true":
        identity = identity | {"precision": precision}
    if seed and (judge.config.get("extra") or {}).get("temperature", 0) != 0:
        identity = identity | {"seed": seed}

    @contextmanager
    def lend() -> Iterator[Provider]:
        from medimg_eval.evaluation.predict import device_of, in_use

        permitted()
        provider = Judge(judge.model, identity.get("seed", 0))
        if lacks := provider.missing():
            raise UserError(f"judge {judge.name!r}: {lacks[0].message}")
        with in_use(judge.model, device_of(str(trainer.get("accelerator", "auto"))), precision):
            yield provider

    judge_id = f"{slug(judge.name)}-{digest(identity)}"
    noted = {"id": judge_id, "name": judge.name, "identity": identity}
    return Source(JUDGE, "verdict", judge_id, judge_id, lend), noted


def former_judge(manifest: Mapping[str, Any]) -> dict[str, Source]:
    """The judge of an earlier start, of which only what it said then is known; nothing where there was none."""
    judge_id = manifest.get("judge", {}).get("id", "")
    return {JUDGE: Source(JUDGE, "verdict", judge_id, judge_id, None)} if judge_id else {}


def of_provider(need: Requirement, providers: Mapping[str, ModelSpec], metrics: tuple[str, ...]) -> Iterator[Missing]:
    """What one annotator, network or extractor lacks."""
    role = "extractor" if need.kind == "features" else "annotator"
    key = f"{role}s.{need.provider}"
    if need.provider not in providers:
        like = nearest(need.provider, providers)
        told = f"there is no {role} {need.provider!r}{like}; or add {key}._target_=YOUR.CLASS"
        yield Missing(f"{key}._target_", told, metrics, usage=role == "extractor")
        return
    try:
        provider = _made(need, providers[need.provider])
        lacks = [*_unable(need, providers, metrics)] or [lack._replace(metrics=metrics) for lack in provider.missing()]
    except UserError as error:
        yield Missing(key, str(error), metrics)
        return
    yield from lacks


def _unable(need: Requirement, providers: Mapping[str, ModelSpec], metrics: tuple[str, ...]) -> Iterator[Missing]:
    provider = _made(need, providers[need.provider])
    if need.ability and need.ability not in provider.abilities:
        told = f"extractor {need.provider!r} {ABILITIES.get(need.ability, f'cannot give {need.ability}')}"
        yield Missing(f"extractors.{need.provider}", told, metrics)


def _of_judge(
    need: Requirement, providers: Mapping[str, ModelSpec], task: Task, metrics: tuple[str, ...]
) -> Iterator[Missing]:
    judge = providers.get(JUDGE)
    if judge is None:
        if not task.dispensable(need):
            yield Missing("model@judge", NO_JUDGE, metrics)
        return
    if not callable(getattr(judge.wrapper, "generate", None)):
        told = f"judge {judge.name!r} ({judge.wrapper.__name__}) cannot write; name a model with generate()"
        yield Missing("model@judge", told, usage=True)
        return
    if told := task.unfit(need, judge.config, judge.name):
        yield Missing("model@judge", told, usage=True)


def _made(need: Requirement, spec: ModelSpec) -> Any:
    """What a config makes, under its name; raises UserError if it is of another kind."""
    made: Any = spec.model
    kinds = TEXTS if need.kind in TEXTS else (need.kind,)
    if getattr(made, "kind", None) not in kinds:
        group = "extractors" if need.kind == "features" else "annotators"
        raise UserError(f"{group}.{need.provider}: {type(made).__name__} is {BASES[need.kind]}")
    made.name = need.provider
    return made


def _source(need: Requirement, spec: ModelSpec) -> Source:
    made = _made(need, spec)
    revision = made.revision
    if made.kind == "features":
        identity = f"{need.provider}-{digest([spec.identity, revision], 16)}"
    else:
        identity = digest([need.provider, spec.identity, revision], 16)
    lend: Callable[[], AbstractContextManager[Provider]] = lambda: nullcontext(made)  # noqa: E731
    return Source(
        need.provider,
        made.kind,
        identity,
        revision or "rules",
        lend,
        made.cached,
        getattr(made, "uses_corpus", False),
        made if made.kind == "features" else None,
    )
