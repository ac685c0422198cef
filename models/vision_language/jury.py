"""Several judges as one: each is asked once or more, and their replies are kept apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from medimg_eval.case import Prompts
from medimg_eval.errors import UsageError
from medimg_eval.evidence import one_each
from medimg_eval.lazy_torch import is_network, sees_gpu
from medimg_eval.metrics.judges import Ballot, write_ballots
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.question import Decoding, Turn, Usage


class Jury(VisionLanguageModel):
    """Asks several judges, as `model@judge=jury`; a question's verdict is their joint one.

    For grades that is the mean, for all else what more than half of them say; each judge has one voice, however often
    it was asked. `agree` tells how far each agrees with itself, with the others and with people, and what it cost.

    Args:
        judges: by name, models that write.
        repeats: how often each is asked about the same.
        temperature: at which repeats are drawn, each with a seed of its own; a judge's own `extra.temperature` counts
            before it.

    Raises:
        UsageError: there is no judge, or repeats would all be the same.
    """

    uses_torch = False
    pace_arguments = ("batch",)

    def __init__(
        self,
        judges: Mapping[str, Any],
        *,
        repeats: int = 1,
        temperature: float = 0.0,
        batch: int | None = None,
    ) -> None:
        if not judges or repeats < 1:
            raise UsageError("judge.judges holds by name the judges of a jury, and judge.repeats is at least 1")
        if bad := [name for name, model in judges.items() if not callable(getattr(model, "generate", None))]:
            raise UsageError(f"judge.judges.{bad[0]} is no model that writes")
        self.judges, self.repeats, self.temperature = dict(judges), repeats, temperature
        if repeats > 1 and temperature <= 0:
            raise UsageError("repeats of a judge that draws nothing are equal; set judge.temperature above 0")
        self.preferred_batch = batch or max(int(getattr(model, "preferred_batch", 1)) for model in judges.values())

    @property
    def remote(self) -> bool:  # type: ignore[override]
        """True where one of the judges is asked on another machine."""
        return any(bool(getattr(model, "remote", False)) for model in self.judges.values())

    def check_ready(self) -> None:
        """Raises UserError where a judge is not ready."""
        for model in self.judges.values():
            getattr(model, "check_ready", lambda: None)()

    def usage(self) -> dict[str, Any]:
        """Cost so far by judge."""
        usages = {name: dict(getattr(model, "usage", dict)()) for name, model in self.judges.items()}
        return {name: usage for name, usage in usages.items() if usage}

    def generate(self, prompts: Prompts, decoding: Decoding) -> list[Turn]:
        """Replies per prompt with the ballots of every judge; CaseError where one is missing."""
        ballots: list[list[Ballot]] = [[] for _ in prompts]
        for name, model in self.judges.items():
            with _lend_gpu(model):
                for repeat in range(self.repeats):
                    how = replace(decoding, seed=decoding.seed + repeat, temperature=self.temperature)
                    replies = one_each(model.generate(prompts, how if self.repeats > 1 else decoding), prompts, name)
                    for index, reply in enumerate(replies):
                        ballots[index].append(Ballot(name, repeat, str(reply), _known_usage(reply)))
        return [Turn(write_ballots(of_prompt), usage=_total_usage(of_prompt)) for of_prompt in ballots]


def _known_usage(reply: Any) -> dict[str, float]:
    usage = reply.usage if isinstance(reply, Turn) else Usage()
    return {name: value for name, value in usage._asdict().items() if value is not None}


def _total_usage(ballots: Sequence[Ballot]) -> Usage:
    """Sum of ballots' costs; None where any is unknown."""
    totals: dict[str, Any] = {
        name: sum(ballot.usage[name] for ballot in ballots) if all(name in ballot.usage for ballot in ballots) else None
        for name in Usage._fields
    }
    return Usage(**totals)


@contextmanager
def _lend_gpu(model: Any) -> Iterator[None]:
    """Moves a judging network to the GPU within the block."""
    if not is_network(model):
        yield
        return
    import torch

    with torch.inference_mode():
        model.to("cuda" if sees_gpu() else "cpu").eval()
        yield
        model.to("cpu")
