"""Shows stored predictions to judges, annotators, networks and extractors: the only caller of `Provider.observe`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from medimg_eval.evaluation.identity import slug
from medimg_eval.evaluation.readiness import made_of
from medimg_eval.evidence import JUDGE
from medimg_eval.lazy_torch import import_seeded, is_network, uses_torch
from medimg_eval.metrics.registry import Requirement
from medimg_eval.models.providers import Judge, Provider
from medimg_eval.store import digest

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec


import gc
import logging
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from medimg_eval.case import Case
from medimg_eval.errors import CaseError, ToldCauses, UserError, error_in_words
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.run import Run
from medimg_eval.evidence import FACTS, Evidence, Kind, Observation, Place, Subject, one_each
from medimg_eval.store import ContentStore, Stored, observation_store
from medimg_eval.tasks.base import Task

log = logging.getLogger(__name__)

CUT = "cut"
"""The key under which an annotator says that a text was longer than what it reads."""

TOGETHER = 256
"""Lines that are written at once of what was known before."""


@dataclass(frozen=True)
class Source:
    """Provider of a run, loaded when it meets something new.

    Attributes:
        name: what requirements call it.
        kind: of what it says.
        identity: what decides what it says; keys of the store begin with it.
        revision: what provenance says of it.
        lend: loads it, puts it on its device and takes it back; None of a judge that an earlier start had, of which
            only what it said then is known.
        cached: whether what it says is kept for other runs.
        uses_corpus: whether what it says depends on the whole set of references.
        facts: an extractor itself, unloaded, for the names and thresholds of its features; None of others.
    """

    name: str
    kind: Kind
    identity: str
    revision: str
    lend: Callable[[], AbstractContextManager[Provider]] | None
    cached: bool = True
    uses_corpus: bool = False
    facts: Any = None


def gather_evidence(task: Task, run: Run, cases: Sequence[Case], sources: Mapping[str, Source]) -> Evidence:
    """Asks providers what metrics need, appending it to the run.

    What was said before, in this run or another, is not asked again; what failed is. Requirements are met in the task's
    order, in which each comes after those that it goes on from.

    Raises:
        UserError: a provider cannot be asked at all, such as one whose key is refused.
    """
    facts = {
        (name, FACTS, ""): Observation(source.facts, "unneeded")
        for name, source in sources.items()
        if source.facts is not None
    }
    evidence = Evidence({name: source.revision for name, source in sources.items()}, facts)
    requirements = [need for need in task.requirements() if need.provider in sources]
    if not requirements:
        return evidence
    predictions = run.predictions()
    counts: dict[str, int] = {}
    with ExitStack() as stack:
        stages = {name: _Stage(source, run, stack) for name, source in sources.items()}
        for need in requirements:
            stage = stages[need.provider]
            need = replace(need, kind=stage.source.kind)  # noqa: PLW2901 - it says itself whether it reads or compares
            if stage.source.uses_corpus and stage.shared is None:
                stage.share(task.context(cases, {}, Evidence()).shared)
            subjects = task.subjects(need, cases, predictions, evidence)
            evidence |= Evidence(observations=stage.observe(need.topic, subjects))
            counts[need.provider] = stage.asked
    log.info("evidence: %s", ", ".join(f"{name} was shown {count}" for name, count in counts.items()))
    return evidence


class _Left(NamedTuple):
    """Something that has not been seen before, and all whose it is."""

    key: str
    subjects: list[Subject]


@dataclass
class _Stage:
    """One provider at work on one run.

    `most` is how many subjects it takes at once, once more did not fit into memory; `words` are, by key, what a judge
    was asked; `causes` those of failures that were told.
    """

    source: Source
    run: Run
    stack: ExitStack
    asked: int = 0
    most: int | None = None
    shared: Any = None
    identity: str = field(init=False)
    words: dict[str, str] = field(default_factory=dict)
    causes: ToldCauses = field(default_factory=ToldCauses)

    def __post_init__(self) -> None:
        self.identity = self.source.identity

    def share(self, shared: Any) -> None:
        """Takes what all subjects have in common, which then decides what is said."""
        self.shared = shared
        references = getattr(shared, "corpus", shared).references
        self.identity = digest([self.source.identity, [list(texts) for texts in references]], 16)

    @cached_property
    def provider(self) -> Provider:
        """The provider, lent until the end."""
        provider: Provider = self.stack.enter_context(self.source.lend())  # type: ignore[misc]
        return provider

    @cached_property
    def lines(self) -> dict[Place, tuple[str, Any]]:
        """Place -> key and value of what was said in this run."""
        return {
            (line["provider"], line["topic"], line["owner"]): (line["key"], line.get("value"))
            for line in self.run.evidence()
            if line["provider"] == self.source.name and line["by"] == self.identity and line["key"]
        }

    @cached_property
    def store(self) -> ContentStore:
        """Store of its observations of any run."""
        store = observation_store(self.source.kind, self.source.identity)
        self.stack.callback(store.close)
        return store

    def observe(self, topic: str, subjects: Iterable[Subject]) -> dict[Place, Observation]:
        """Observations of subjects: from the run, from the store, or asked now."""
        observations: dict[Place, Observation] = {}
        unsettled: dict[str, _Left] = {}
        provided = {key: value for key, value in self.lines.values() if value is not None}
        for subject in subjects:
            key_ = (self.source.name, topic, subject.owner)
            if subject.needless:
                observations[key_] = Observation(subject.value, "unneeded", subject.needless)
                continue
            if self.source.lend is None:
                if key_ in self.lines:
                    observations[key_] = _given_observation(*self.lines[key_])
                continue
            try:
                key = subject.key if isinstance(subject.key, str) else subject.key()
                if not key:
                    subject.read()  # may say what is wrong with it
            except Exception as error:  # noqa: BLE001 - whatever goes wrong is this subject's failure
                _raise_refused(error)
                observations[key_] = Observation(None, "failed", self._told(subject.owner, error))
                continue
            if key in provided:
                observations[key_] = _given_observation(key, provided[key])
                if self.lines.get(key_, ("",))[0] != key:
                    unsettled.setdefault(key, _Left(key, [])).subjects.append(subject)
                continue
            observations[key_] = Observation(None, "failed", "not asked", key)
            shared = key if self.source.cached else ""  # a table may say other things of files of equal content
            unsettled.setdefault(shared or f"\0{subject.owner}", _Left(key, [])).subjects.append(subject)
        observations |= self._settle(topic, unsettled, provided)
        return observations

    def _settle(self, topic: str, left: Mapping[str, _Left], said: Mapping[str, Any]) -> dict[Place, Observation]:
        """Takes stored observations; asks about the rest by batch, storing each."""
        keys = [item.key for item in left.values() if item.key and self.source.cached and item.key not in said]
        stored = self.store.get([self._full(key) for key in keys]) if keys else {}
        stored_values = ((key, stored.get(self._full(key))) for key in keys)
        observed = {**said, **{key: Observation(value.value, meta=value.meta) for key, value in stored_values if value}}
        observations: dict[Place, Observation] = {}
        unseen: list[_Left] = []
        earlier: list[dict[str, Any]] = []
        for item in left.values():
            if item.key not in observed:
                unseen.append(item)
                continue
            observations |= self._keep(topic, item, _given_observation(item.key, observed[item.key]), earlier)
            if len(earlier) >= TOGETHER:
                self.run.append_evidence(earlier)
                earlier = []
        self.run.append_evidence(earlier)
        unseen.sort(key=lambda item: item.subjects[0].size)  # texts of like length together, so that little is padded
        # Volumes come one by one: a network takes as many of their slices at once as it likes.
        size = max(1, self.provider.preferred_batch) if unseen and self.source.kind != "distance" else 1
        batches = [unseen[start : start + size] for start in range(0, len(unseen), size)]
        for batch in tracked(batches, f"{self.source.name} ({topic})" if topic else self.source.name):
            lines: list[dict[str, Any]] = []
            for item, observation in zip(batch, self._shown(batch), strict=True):
                observations |= self._keep(topic, item, observation, lines)
            fresh = {
                item.key: observations[self.source.name, topic, item.subjects[0].owner] for item in batch if item.key
            }
            if self.source.cached:
                to_store = {
                    key: Stored(observation.value, observation.meta)
                    for key, observation in fresh.items()
                    if observation.status != "failed"
                }
                self.store.put({self._full(key): value for key, value in to_store.items()})
            self.run.append_evidence(lines)
            self.asked += len(batch)
        return observations

    def _shown(self, batch: Sequence[_Left]) -> list[Observation]:
        """Observations of a batch, halved on failure down to the culprit."""
        if self.most is not None and len(batch) > self.most:
            return [*self._shown(batch[: self.most]), *self._shown(batch[self.most :])]
        try:
            read = [item.subjects[0].read() for item in batch]
            if self.source.kind == "verdict":
                self.words |= {item.key: prompt.text for item, (prompt, _) in zip(batch, read, strict=True)}
            values = one_each(self.provider.observe(read, self.shared), batch, f"{self.source.name}")
            return [_given_observation(item.key, value) for item, value in zip(batch, values, strict=True)]
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is asked again in halves
            _raise_refused(error)
            short = out_of_memory(error)
            if len(batch) == 1:
                message = self._told(batch[0].subjects[0].owner, error)
                return [Observation(None, "failed", message, batch[0].key)]
        half = len(batch) // 2
        if short:  # only here is the error gone, and with it what it holds of the device's memory
            self.most = half
            log.warning("%s is out of memory with %d at once; goes on with %d", self.source.name, len(batch), half)
            gc.collect()
        return [*self._shown(batch[:half]), *self._shown(batch[half:])]

    def _keep(
        self, topic: str, item: _Left, observation: Observation, lines: list[dict[str, Any]]
    ) -> dict[Place, Observation]:
        """Stores an observation for all owners of its subject."""
        observations = {(self.source.name, topic, subject.owner): observation for subject in item.subjects}
        for key in observations:
            if observation.status != "failed" and self.lines.get(key, ("",))[0] == observation.key != "":
                continue
            line = {"provider": self.source.name, "by": self.identity, "topic": topic, "owner": key[2]}
            if self.source.kind == "verdict":
                line["prompt"] = self._asked(item)
            if observation.status == "failed":  # without a key: it is asked again by the next start
                lines.append(line | {"key": "", "error": observation.message})
                continue
            value_fields = {} if self.source.kind == "features" else {"value": observation.value}
            lines.append(line | {"key": observation.key} | value_fields)
            self.lines[key] = observation.key, value_fields.get("value")
        return observations

    def _asked(self, item: _Left) -> str:
        """Question to the judge, word for word."""
        if item.key not in self.words:
            self.words[item.key] = item.subjects[0].read()[0].text
        return self.words[item.key]

    def _full(self, key: str) -> str:
        return key if self.source.kind == "features" else f"{self.identity}/{key}"

    def _told(self, owner: str, error: Exception) -> str:
        log.debug("%s", owner, exc_info=error)
        message = error_in_words(error)
        log.log(self.causes.level(message, owner), "%s failed on %s (%s)", self.source.name, owner, message)
        return message


def _given_observation(key: str, value: Any) -> Observation:
    """Observation of a value; nothing counts as failure."""
    meta: Mapping[str, Any] = {}
    if isinstance(value, Observation):
        value, meta = value.value, value.meta
    if value is None:
        return Observation(None, "failed", "nothing was said of it", key)
    partial = isinstance(value, Mapping) and bool(value.get(CUT))
    return Observation(value, "partial" if partial else "known", "", key, meta)


def _raise_refused(error: Exception) -> None:
    """Raises errors that no other subject could avoid, as refused keys."""
    if isinstance(error, UserError) and not isinstance(error, CaseError):
        raise error


def out_of_memory(error: Exception) -> bool:
    """Whether an error means lack of memory, without importing torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # that is torch's
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def sources_of(requirements: Sequence[Requirement], providers: Mapping[str, ModelSpec]) -> dict[str, Source]:
    """Annotators, networks and extractors as unloaded sources, by name."""
    return {
        need.provider: _make_source(need, providers[need.provider])
        for need in requirements
        if need.provider != JUDGE and need.provider in providers
    }


def judge_source(
    judge: ModelSpec, trainer: Mapping[str, Any], seed: int, permitted: Callable[[], None]
) -> tuple[Source, dict[str, Any]]:
    """Judge as source of evidence, with its identity for the manifest.

    `permitted` raises before it is loaded where it must not be asked, and notes what it is sent.
    """
    precision = str(trainer.get("precision", "32-true"))
    identity = judge.identity
    if is_network(judge.wrapper) and precision != "32-true":
        identity = identity | {"precision": precision}
    if seed and (judge.config.get("extra") or {}).get("temperature", 0) != 0:
        identity = identity | {"seed": seed}

    @contextmanager
    def lend() -> Iterator[Provider]:
        from medimg_eval.evaluation.devices import device_of, in_use

        permitted()
        if uses_torch(judge.wrapper):
            import_seeded()
        provider = Judge(judge.model, identity.get("seed", 0))
        if lacks := provider.missing():
            raise UserError(f"judge {judge.name!r}: {lacks[0].message}")
        if not uses_torch(judge.wrapper):
            yield provider
            return
        with in_use(judge.model, device_of(str(trainer.get("accelerator", "auto"))), precision):
            yield provider

    judge_id = f"{slug(judge.name)}-{digest(identity)}"
    noted = {"id": judge_id, "name": judge.name, "identity": identity}
    return Source(JUDGE, "verdict", judge_id, judge_id, lend), noted


def former_judge(manifest: Mapping[str, Any]) -> dict[str, Source]:
    """Earlier start's judge, known by its verdicts; none without."""
    judge_id = manifest.get("judge", {}).get("id", "")
    return {JUDGE: Source(JUDGE, "verdict", judge_id, judge_id, None)} if judge_id else {}


def _make_source(need: Requirement, spec: ModelSpec) -> Source:
    provider = made_of(need, spec, fresh=False)
    revision = provider.revision
    if provider.kind == "features":
        identity = f"{need.provider}-{digest([spec.identity, revision], 16)}"
    else:
        identity = digest([need.provider, spec.identity, revision], 16)
    lend: Callable[[], AbstractContextManager[Provider]] = lambda: nullcontext(provider)  # noqa: E731
    return Source(
        need.provider,
        provider.kind,
        identity,
        revision or "rules",
        lend,
        provider.cached,
        getattr(provider, "uses_corpus", False),
        provider if provider.kind == "features" else None,
    )
