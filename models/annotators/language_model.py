"""Labels of reports by a language model, in any taxonomy and language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from medimg_eval.case import Failure, Prompt
from medimg_eval.errors import UsageError
from medimg_eval.evidence import one_each
from medimg_eval.metrics.answers import split_thought
from medimg_eval.metrics.reports import LabelScheme, Reading
from medimg_eval.models.annotators.base import TextAnnotator
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.question import Decoding, Message, Turn, Usage
from medimg_eval.store import digest

Answers: TypeAlias = Callable[[Sequence[Prompt]], Sequence[str | Failure]]
"""Replies to prompts, with a Failure in the place of one that there is none to."""


@dataclass
class LabelledReport:
    """Labels of one report, with the replies that they were read in.

    Attributes:
        readings: finding -> its value; of a report that nobody was asked about, such as a blank one, none.
        replies: topic -> the reply; a rewriting is `rewrite 1` and so on.
        problem: why a model could not be asked; "" where it was.
    """

    readings: dict[str, Reading] = field(default_factory=dict)
    replies: dict[str, Turn] = field(default_factory=dict)
    problem: str = ""

    def keep(self, topic: str, reply: str | Failure) -> bool:
        """Stores a topic's reply or failure; says whether it succeeded."""
        if isinstance(reply, Failure):
            self.problem = reply.message
            return False
        self.replies[topic] = reply if isinstance(reply, Turn) else Turn(str(reply))
        return True

    def cost(self) -> Usage:
        """Tokens, seconds and price of all replies; None for what no reply tells."""
        each = [reply.usage for reply in self.replies.values()]
        stated = {
            name: [value for usage in each if (value := getattr(usage, name)) is not None] for name in Usage._fields
        }
        return Usage(**{name: sum(values) if values else None for name, values in stated.items()})


class LanguageModelLabeler(TextAnnotator):
    """Labels reports by a language model: finding -> state of a scheme.

    A report of which a finding could not be read has no labels, and counts as failed.

    Args:
        model: a model that writes.
        scheme: of `configs/labelling` by name, a YAML file, or a `LabelScheme`.
        preferred_batch: reports at once; None for as many as the model prefers.
        seed: of the model's draws, where it draws.

    Raises:
        UsageError: the model does not write; the scheme is invalid.
        UserError: there is no such scheme.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("scheme",)

    def __init__(
        self,
        model: VisionLanguageModel,
        scheme: str | LabelScheme = "chexpert",
        preferred_batch: int | None = None,
        seed: int = 0,
    ) -> None:
        if not callable(getattr(model, "generate", None)):
            raise UsageError(f"{type(model).__name__} does not write; name a model with generate() to label reports")
        self.model, self.seed = model, seed
        self.scheme = scheme if isinstance(scheme, LabelScheme) else LabelScheme.load(scheme)
        self.preferred_batch = preferred_batch or int(getattr(model, "preferred_batch", 1))
        self.remote = bool(getattr(model, "remote", False))
        self.base_url = str(getattr(model, "base_url", ""))

    def check_ready(self) -> None:
        """Raises UserError where the model is not ready."""
        getattr(self.model, "check_ready", lambda: None)()

    @property
    def revision(self) -> str:
        """Identity of class and scheme; the model's own is its config."""
        return f"{type(self.model).__name__}, scheme {digest(vars(self.scheme))}"

    def annotate(self, texts: Sequence[str]) -> Sequence[Any]:
        """Labels a batch; None for reports with an unreadable finding."""
        return [self.scheme.states_of(label.readings) for label in self.label(texts)]

    def label(self, texts: Sequence[str]) -> list[LabelledReport]:
        """Labels of reports, with their replies; raises whatever the model raises."""
        return label_texts(self.scheme, texts, self.written)

    def written(self, prompts: Sequence[Prompt]) -> list[str]:
        """Replies of the model to prompts."""
        decoding = Decoding(max_new_tokens=self.scheme.max_new_tokens, seed=self.seed)
        return one_each(self.model.generate(prompts, decoding), prompts, type(self.model).__name__)


def label_texts(scheme: LabelScheme, texts: Sequence[str], answers: Answers) -> list[LabelledReport]:
    """Labels of reports by a scheme, blank ones without asking.

    Args:
        scheme: what is asked, and how replies are read.
        texts: reports.
        answers: gives a reply, or a Failure, to each of some prompts.
    """
    labelled, remaining_texts = [LabelledReport() for _ in texts], list(texts)
    for number, instruction in enumerate(scheme.rewrites, start=1):
        open_reports = _open_reports(labelled, remaining_texts)
        replies = answers(
            [_report_prompt(f"{instruction}\nReport: <<<{remaining_texts[index]}>>>") for index in open_reports]
        )
        for index, reply in zip(open_reports, replies, strict=True):
            if labelled[index].keep(f"rewrite {number}", reply):
                remaining_texts[index] = split_thought(str(reply)).answer
    questions = [(index, topic) for index in _open_reports(labelled, remaining_texts) for topic in scheme.topics()]
    replies = answers([_report_prompt(scheme.prompt(topic, remaining_texts[index])) for index, topic in questions])
    for (index, topic), reply in zip(questions, replies, strict=True):
        if labelled[index].keep(topic, reply):
            labelled[index].readings |= scheme.read(topic, str(reply), remaining_texts[index])
    blank = next(iter(scheme.values_of("blank")), "")
    for index, report in enumerate(labelled):
        if not remaining_texts[index].strip() and not report.problem:
            report.readings = dict.fromkeys(scheme.findings, Reading(blank, problem="the report is blank"))
    return labelled


def _open_reports(labelled: Sequence[LabelledReport], shown: Sequence[str]) -> list[int]:
    """Places of the reports that are asked about: neither failed nor blank."""
    return [index for index, label in enumerate(labelled) if not label.problem and shown[index].strip()]


def _report_prompt(text: str) -> Prompt:
    return Prompt("report", (), messages=(Message("user", (text,)),))
