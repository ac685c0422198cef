"""The providers of a run, each to be loaded when it is shown something that it has not seen before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from medimg_eval.errors import UserError
from medimg_eval.evaluation.identity import slug
from medimg_eval.evaluation.observe import Source
from medimg_eval.evaluation.readiness import made_of
from medimg_eval.evidence import JUDGE
from medimg_eval.metrics.registry import Requirement
from medimg_eval.models.providers import Judge, Provider
from medimg_eval.store import digest

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec


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


def _source(need: Requirement, spec: ModelSpec) -> Source:
    made = made_of(need, spec, fresh=False)
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
