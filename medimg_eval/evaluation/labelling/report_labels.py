"""Labels of reports by a language model, resumed from its kept replies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from medimg_eval.case import Failure, Prompt
from medimg_eval.data.given_reports import GivenReport
from medimg_eval.evaluation.observe import Source, judge_source
from medimg_eval.evaluation.progress import tracked
from medimg_eval.models.annotators import LabelledReport, label_texts
from medimg_eval.question import Turn, Usage
from medimg_eval.store import Stored, observation_store, prompt_key

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec
    from medimg_eval.metrics.reports import LabelScheme
    from medimg_eval.models.providers import Provider

log = logging.getLogger(__name__)

AT_ONCE = 32
"""Reports whose replies are read together."""


@dataclass(frozen=True)
class ReportLabels:
    """Labels of the reports of a table.

    Attributes:
        reports: as they were given.
        labelled: what a model said of each, in the same order.
        scheme: by which it was asked.
        identity: of the model, by which its replies are kept.
        model: its name.
        asked: replies that were asked for now; the others were kept.
    """

    reports: Sequence[GivenReport]
    labelled: Sequence[LabelledReport]
    scheme: LabelScheme
    identity: str
    model: str
    asked: int

    def values(self) -> list[dict[str, str]]:
        """Finding -> value for each report; "" where not read."""
        names = self.scheme.findings
        return [
            {name: label.readings[name].value if name in label.readings else "" for name in names}
            for label in self.labelled
        ]

    def unread(self) -> int:
        """How many pairs of report and finding have no value."""
        return sum(not value for values in self.values() for value in values.values())

    def taken_back(self) -> int:
        """How many positive values lacked evidence."""
        return sum(
            bool(reading.value and "taken back" in reading.problem)
            for label in self.labelled
            for reading in label.readings.values()
        )

    def cost(self) -> Usage:
        """Cost of all replies, stored ones included; None where untold."""
        each = [usage.cost() for usage in self.labelled]
        stated = {
            name: [value for usage in each if (value := getattr(usage, name)) is not None] for name in Usage._fields
        }
        return Usage(**{name: sum(values) if values else None for name, values in stated.items()})


def label_reports(
    reports: Sequence[GivenReport],
    scheme: LabelScheme,
    model: ModelSpec,
    *,
    permitted: Callable[[], None] = lambda: None,
    accelerator: str = "auto",
    seed: int = 0,
) -> ReportLabels:
    """Labels reports by a model, loaded for replies not stored.

    `permitted` raises, before the model is loaded, where reports must not be sent to it.

    Raises:
        UserError: the model cannot be asked at all. What one report is refused for is in its `problem`.
    """
    source, _ = judge_source(model, {"accelerator": accelerator}, seed, permitted)
    labelled: list[LabelledReport] = []
    with ExitStack() as stack:
        cache = _KeptReplies(source, scheme.max_new_tokens, stack)
        starts = range(0, len(reports), AT_ONCE)
        for start in tracked(starts, f"labelling ({model.name})"):
            labelled += label_texts(scheme, [report.text for report in reports[start : start + AT_ONCE]], cache.answers)
    return ReportLabels(reports, labelled, scheme, source.identity, model.name, cache.asked)


@dataclass
class _KeptReplies:
    """Replies of a model, each asked for once; `asked` counts how often."""

    source: Source
    most: int
    stack: ExitStack
    asked: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.store = observation_store("verdict", self.source.identity)
        self.stack.callback(self.store.close)

    @cached_property
    def batches(self) -> Any:
        """Lends the model with its preferred batch size."""
        from medimg_eval.evaluation.devices import Batches

        lend = cast("Callable[[], AbstractContextManager[Provider]]", self.source.lend)  # a judge that is there
        provider = self.stack.enter_context(lend())
        self.size = max(1, provider.preferred_batch)
        return Batches(lambda prompts: provider.observe([(prompt, self.most) for prompt in prompts], None))

    def answers(self, prompts: Sequence[Prompt]) -> list[str | Failure]:
        """A reply, or a Failure, to each prompt."""
        keys = [f"{self.source.identity}/labels/{prompt_key(prompt, self.most)}" for prompt in prompts]
        answers: dict[str, str | Failure] = {
            key: Turn.from_record(stored.value["text"], stored.value) for key, stored in self.store.get(keys).items()
        }
        missing = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in answers}
        names = list(missing)
        while names:
            batches = self.batches  # sets the size
            some, names = names[: self.size], names[self.size :]
            replies = dict(zip(some, batches.answers([missing[key] for key in some]), strict=True))
            self.asked += len(some)
            self.store.put(
                {key: Stored(_reply_record(reply)) for key, reply in replies.items() if not isinstance(reply, Failure)}
            )
            answers |= replies
        return [answers[key] for key in keys]


def _reply_record(reply: str | Failure) -> dict[str, Any]:
    return {"text": str(reply), **(reply.as_record() if isinstance(reply, Turn) else {})}
