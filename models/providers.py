"""Providers: judges, annotators, networks and extractors, as the stage that gathers evidence asks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol

from medimg_eval.errors import CaseError, UserError
from medimg_eval.evidence import JUDGE, Kind, one_each
from medimg_eval.question import Decoding


class Missing(NamedTuple):
    """Requirement that stands between a run and a provider.

    Attributes:
        key: the setting that mends it; "" where none does.
        message: what is missing and how to mend it, a sentence.
        metrics: that need it.
        usage: whether a word of the command is wrong.
    """

    key: str
    message: str
    metrics: tuple[str, ...] = ()
    usage: bool = False


class Provider(Protocol):
    """Says something of subjects.

    Attributes:
        kind: of what it says.
        name: what requirements and messages call it.
        preferred_batch: subjects that it likes to be given at once.
        remote: whether it is asked on another machine.
        cached: whether what it says is kept for other runs.
        abilities: beside its kind: texts, findings, choices, identity.
    """

    kind: ClassVar[Kind]
    name: str
    preferred_batch: int
    remote: bool
    cached: bool
    abilities: frozenset[str]

    def missing(self) -> Sequence[Missing]:
        """Missing weights, keys and packages, in under a second, loading none."""

    @property
    def revision(self) -> str:
        """Identity of its weights and preprocessing."""

    def observe(self, subjects: Sequence[Any], shared: Any) -> Sequence[Any]:
        """Observes each subject in order; `shared` holds their common facts."""


class Judge:
    """Language model as provider: (prompt, maximum tokens) to reply.

    Args:
        model: has `generate`.
        seed: of its decoding, where it draws.
    """

    kind: ClassVar[Kind] = "verdict"
    name = JUDGE
    cached = True
    abilities: frozenset[str] = frozenset()
    revision = ""

    def __init__(self, model: Any, seed: int = 0) -> None:
        self.model, self.seed = model, seed
        self.preferred_batch = int(getattr(model, "preferred_batch", 1))
        self.remote = bool(getattr(model, "remote", False))

    def missing(self) -> Sequence[Missing]:
        """Requirements that the model itself says that it lacks."""
        try:
            getattr(self.model, "check_ready", lambda: None)()
        except UserError as error:
            return [Missing("model@judge", str(error).replace("model.", "judge."))]
        return []

    def observe(self, subjects: Sequence[Any], shared: Any) -> Sequence[Any]:
        """Has it answer; prompts whose replies may be equally long go together."""
        replies: dict[int, str] = {}
        for most in dict.fromkeys(most for _, most in subjects):
            longest = [index for index, (_, length) in enumerate(subjects) if length == most]
            decoding = replace(Decoding(max_new_tokens=most), seed=self.seed)
            texts = self.model.generate([subjects[index][0] for index in longest], decoding)
            replies |= dict(zip(longest, one_each(texts, longest, "the judge"), strict=True))
        for reply in replies.values():
            if not isinstance(reply, str):  # None written out could pass for a verdict
                raise CaseError(f"the judge's reply is {type(reply).__name__}, expected a text")
        return [replies[index] for index in range(len(subjects))]
