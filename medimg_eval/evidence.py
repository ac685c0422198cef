"""What other models say of predictions, as values: what is needed, shown, observed, and handed to metrics.

A judge, an annotator of reports, a feature extractor and a perceptual network are all providers: each is shown
subjects and says something of each. Nothing here loads or asks one; see `evaluation/observe.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.metrics.nlp import Batch
from medimg_eval.metrics.registry import Requirement

Kind = Literal["verdict", "annotation", "comparison", "features", "distance"]
"""Of what providers say."""

JUDGE = "judge"
"""The provider that metrics name for the judge of a run, whichever model that is."""

FACTS = "facts"
"""The topic under which, without an owner, the extractor itself stands: names and thresholds of its features."""

NAMED = 3
"""Cases that a note names."""


class TextPair(NamedTuple):
    """A reference text and what was written."""

    reference: str
    prediction: str


class MissingEvidenceError(CaseError):
    """A provider has said nothing of a subject that a metric needs."""


@dataclass(frozen=True)
class Subject:
    """One thing a provider is shown.

    Attributes:
        owner: whose it is: a trial's id, `reference/CASE`, `train/CASE`, or `TRIAL/3` for a third picture or sentence.
            The first, the second and the last are what the score of a trial is handed.
        key: of its content: equal subjects are observed once, also across runs. Or what gives it, where something must
            be read for it; both may raise CaseError, which is this subject's failure. "" keeps it to itself.
        read: gives what is shown: a text, a TextPair, an Image, a pair of arrays or a Prompt; raises CaseError.
        size: like sizes are batched together.
        needless: why nobody is asked, such as for a blank text; "" for most.
        value: of one that needs no asking, what is known all the same.
    """

    owner: str
    key: str | Callable[[], str]
    read: Callable[[], Any]
    size: int = 0
    needless: str = ""
    value: Any = None


class Observation(NamedTuple):
    """Statement of a provider about one subject.

    Attributes:
        value: as the provider gave it; None where it failed.
        status: `known`; `failed`, which is asked again by the next start; `partial` where only its beginning was read;
            `unneeded` where nothing was asked.
        message: why it failed.
        key: of the subject.
        meta: facts about the subject that notes need, such as the size of a picture.
    """

    value: Any
    status: Literal["known", "failed", "partial", "unneeded"] = "known"
    message: str = ""
    key: str = ""
    meta: Mapping[str, Any] = {}


Place = tuple[str, str, str]
"""Provider, topic and owner."""


@dataclass(frozen=True)
class Evidence:
    """Provider observations of a run, passed to `Task.score` as a value.

    Attributes:
        provenance: provider -> its revision, a judge's id, or the digest of a set of real images.
        observations: by provider, topic ("" but for a judge) and owner.
    """

    provenance: Mapping[str, str] = field(default_factory=dict)
    observations: Mapping[Place, Observation] = field(default_factory=dict)

    def __or__(self, other: Evidence) -> Evidence:
        """Both together; what `other` says replaces what was there."""
        return Evidence({**self.provenance, **other.provenance}, {**self.observations, **other.observations})

    def find(self, provider: str, owner: str, topic: str = "") -> Observation | None:
        """The observation, or None where there is none."""
        return self.observations.get((provider, topic, owner))

    def of(self, provider: str, owner: str, topic: str = "") -> Any:
        """Value that a provider stated of a subject.

        Raises:
            MissingEvidenceError: it failed, or was never shown it.
        """
        observation = self.find(provider, owner, topic)
        if observation is None or observation.status == "failed":
            why = f": {observation.message}" if observation else ""
            raise MissingEvidenceError(f"{provider} has said nothing of {owner!r}{f' ({topic})' if topic else ''}{why}")
        return observation.value

    def owners(self, provider: str, topic: str = "") -> list[str]:
        """Owners of the subjects a provider was shown, in order."""
        return [owner for name, about, owner in self.observations if (name, about) == (provider, topic)]

    def rows(self, provider: str, prefix: str) -> tuple[list[str], Array]:
        """Features of matching owners: names, and float32 (owner, feature).

        An owner matches if it begins with `prefix`; what failed is left out.
        """
        values = [
            (owner, observation.value)
            for (name, _, owner), observation in self.observations.items()
            if name == provider and owner.startswith(prefix) and observation.status == "known"
        ]
        owners = [owner for owner, _ in values]
        return owners, np.stack([row for _, row in values]) if values else np.zeros((0, 1), np.float32)

    def digest(self, owner: str, needs: Sequence[Requirement]) -> str:
        """Hash of what a trial's score rests on, for score keys."""
        if not needs:
            return ""
        wanted = {need.provider for need in needs}
        case = owner.partition("#")[0].partition("~")[0]
        mine = {owner, f"reference/{owner}", f"reference/{case}"}
        entries = sorted(
            (provider, topic, whose, observation.status, observation.key, _value_key(observation.value))
            for (provider, topic, whose), observation in self.observations.items()
            if provider in wanted and (whose in mine or whose.startswith(f"{owner}/"))
        )
        made_by = sorted((name, text) for name, text in self.provenance.items() if name in wanted)
        return hashlib.blake2b(json.dumps([entries, made_by]).encode(), digest_size=8).hexdigest()

    def notes(self) -> list[str]:
        """Notes on failures and partial reads, one sentence per provider and topic."""
        needed = (
            (key, observation) for key, observation in self.observations.items() if observation.status != "unneeded"
        )
        groups = grouped(((provider, topic), (owner, observation)) for (provider, topic, owner), observation in needed)
        sentences = []
        for (provider, topic), group in groups.items():
            who = f"{provider} ({topic})" if topic else provider
            for status, words in (("failed", "failed on"), ("partial", "read only the beginning of")):
                owners = [
                    owner.removeprefix("reference/") for owner, observation in group if observation.status == status
                ]
                if owners:
                    some = ", ".join(owners[:NAMED]) + (", ..." if len(owners) > NAMED else "")
                    end = ": not judged" if status == "failed" else ""
                    sentences.append(f"{who} {words} {len(owners)} of {len(group)} ({some}){end}")
        return sentences

    def only(self, owners: Collection[str]) -> Evidence:
        """Evidence reduced to some owners and parts, for a scoring process."""
        owner_set = frozenset(owners)
        chosen = {
            key: observation
            for key, observation in self.observations.items()
            if key[2] in owner_set or key[2].rpartition("/")[0] in owner_set
        }
        return replace(self, observations=chosen)


EMPTY_EVIDENCE = Evidence()


@dataclass(frozen=True)
class Context:
    """Evidence that a score may depend on beside its own case.

    Attributes:
        evidence: what providers said.
        shared: what a family derives from all cases and predictions: a corpus, peers, ranks, a fitted grader.
        digest: hash of `shared`, part of the key of metrics whose scope is the set.
        notes: what readers of a table must know of it.
        facts: about providers, for the manifest: by the key that they stand under.
        batch: the trials that are judged one after the other; None where one is judged alone.
    """

    evidence: Evidence = EMPTY_EVIDENCE
    shared: Any = None
    digest: str = ""
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    batch: Batch | None = field(default=None, compare=False)


EMPTY = Context()


def one_each(answers: Any, prompts: Sized, who: str = "the model") -> list[Any]:
    """Answers checked to be one per prompt.

    Raises:
        CaseError: they are not.
    """
    if isinstance(answers, str | bytes | Mapping) or not isinstance(answers, Sized):
        raise CaseError(f"{who} gave one {type(answers).__name__}, expected a list of answers, one for each prompt")
    if len(answers) != len(prompts):
        raise CaseError(f"{who} gave {len(answers)} answers to {len(prompts)} prompts")
    return list(cast("Sequence[Any]", answers))


def _value_key(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=repr).encode(), digest_size=8).hexdigest()
