"""Questions that a model answers with the help of tools."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from medimg_eval.arguments import grouped
from medimg_eval.case import Case, Image, Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.question import Reply
from medimg_eval.tasks.base import SCORES
from medimg_eval.tasks.questions.agent_sessions import AgentRules, Limits, Replay, run_sessions
from medimg_eval.tasks.questions.task import QuestionTask
from medimg_eval.tools import Tool
from medimg_eval.tools.journal import StepJournal
from medimg_eval.tools.protocols import PROTOCOLS
from medimg_eval.tools.recordings import Recordings

NOT_CARRIED_OUT = ("parsing", "unknown_tool", "arguments", "limit", "withdrawn", "not_recorded")
"""Kinds of errors of calls that no tool was given."""


@dataclass(frozen=True, kw_only=True)
class AgentQuestionTask(QuestionTask):
    """Questions, and tools that the model may call before it answers.

    Any task of questions becomes one by `task._target_=medimg_eval.tasks.AgentQuestionTask`.

    Attributes:
        tools: name -> a function, the dotted name of one, or settings with `function` or `command`; see `Tool`.
        limits: ends of a session, as in `Limits`.
        calling: how the model is told of tools: `native` by its server, `hermes` or `react` in words; `auto` for
            `native` where the model can, else `hermes`.
        thoughts_in_history: whether the model sees its earlier thinking, `none` of it or `all`.
        replay: `off` calls tools; `record` also keeps what they give in `recordings`, and calls none twice; `only`
            takes results from there and calls none.
        recordings: the folder of recorded results.
        session: what the model remembers: `question`, nothing but this one; `patient`, also the questions that were put
            about the patient before, by their ids, with all that was said and seen.
    """

    tools: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    calling: Literal["auto", "native", "hermes", "react"] = "auto"
    thoughts_in_history: Literal["none", "all"] = "none"
    replay: Replay = "off"
    recordings: str = field(default="", metadata=SCORES)
    session: Literal["question", "patient"] = "question"

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        super().__post_init__()
        UsageError.refuse_invalid("task.calling", ("auto", "native", *PROTOCOLS), self.calling)
        UsageError.refuse_invalid("task.thoughts_in_history", ("none", "all"), self.thoughts_in_history)
        UsageError.refuse_invalid("task.session", ("question", "patient"), self.session)
        UsageError.refuse_invalid("task.replay", ("off", "record", "only"), self.replay)
        if self.replay != "off" and not self.recordings:
            raise UsageError(f"task.replay={self.replay} needs a folder; set task.recordings=DIR")
        _ = self._tools, self._limits

    @property
    def asked(self) -> Mapping[str, Any]:
        """Versions of the tools: one whose code has changed makes another run."""
        return {**super().asked, "tool_versions": {name: tool.version for name, tool in self._tools.items()}}

    def __getstate__(self) -> dict[str, Any]:
        """Processes that read and score need no tools that were made."""
        named = {name: tool for name, tool in self.tools.items() if not callable(tool)}
        return {key: value for key, value in self.__dict__.items() if key not in ("_tools", "_earlier")} | {
            "tools": named
        }

    def conditions(self) -> frozenset[str]:
        """None where earlier questions are remembered, which would be asked as they are."""
        return super().conditions() if self.session == "question" else frozenset()

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Puts the question, and says whom tools are asked about."""
        return replace(super().prompt(case, images), patient=case.patient or "")

    def ask_recorded(self, model: Any, prompts: Prompts, journal: StepJournal) -> list[Any]:
        """Like `ask`, storing each step; sessions resume after stored ones."""
        if not callable(getattr(model, "generate", None)):
            return list(self.ask(model, prompts))
        return list(self.sessions(model, prompts, journal))

    def _conversations(self, model: Any, prompts: Prompts) -> list[Reply]:
        return self.sessions(model, prompts, StepJournal())

    def sessions(self, model: Any, prompts: Prompts, journal: StepJournal) -> list[Reply]:
        """Runs a model's sessions with tools, a batch's prompts in waves."""
        if not prompts:
            return []
        rules = self._rules_with(model)
        before = self._before(prompts)
        replies = run_sessions(model, prompts, rules, journal, _bound_arguments, self.next_turn, before)
        self._tell_faults(prompts, replies)
        return replies

    def _tell_faults(self, prompts: Prompts, replies: Sequence[Reply]) -> None:
        """Warns, once for each tool, where every call of a batch that was carried out has failed."""
        calls = grouped(
            (step["name"], (prompt.case_id, step.get("error")))
            for prompt, reply in zip(prompts, replies, strict=True)
            for step in reply.trace
            if step["kind"] == "tool" and (step.get("error") or {}).get("type") not in NOT_CARRIED_OUT
        )
        for name, errors in calls.items():
            if name not in self._told and all(error for _, error in errors):
                self._told.add(name)
                case_id, error = errors[0]
                logging.getLogger(__name__).warning(
                    "tool %r failed in %d of %d calls, such as of case %s: %s",
                    name, len(errors), len(errors), case_id, (error or {}).get("message"),
                )  # fmt: skip

    def _rules_with(self, model: Any) -> AgentRules:
        """Session rules of a model; UserError where tools lack something."""
        native = bool(getattr(model, "calls_tools", False))
        if self.calling == "native" and not native:
            raise UsageError("the model takes tools only in words; set task.calling=hermes or react")
        for tool in self._tools.values():
            tool.check_ready()
        calling = ("native" if native else "hermes") if self.calling == "auto" else self.calling
        return AgentRules(
            self._tools,
            self._limits,
            PROTOCOLS.get(calling),
            self._decoding,
            self.replay,
            Recordings(Path(self.recordings)) if self.recordings else None,
            self.thoughts_in_history == "all",
        )

    def _before(self, prompts: Prompts) -> Mapping[str, Prompts]:
        """Remembered prompts by case, also of other batches."""
        if self.session == "question":
            return {}
        put = {prompt.case_id: prompt for prompt in prompts}
        for case in chain.from_iterable(self._earlier.get(prompt.case_id, ()) for prompt in prompts):
            if case.id not in put:
                with suppress(CaseError):  # it fails where it is asked itself
                    put[case.id] = self.prompt(case, self.read_images(case))
        earlier = {prompt.case_id: self._earlier.get(prompt.case_id, ()) for prompt in tuple(put.values())}
        return {name: [put[case.id] for case in cases if case.id in put] for name, cases in earlier.items()}

    @cached_property
    def _earlier(self) -> Mapping[str, Sequence[Case]]:
        """Earlier cases of the same patient, by case id."""
        cases = sorted(self.cases("test"), key=lambda case: case.id)
        by_patient = grouped((case.patient, case) for case in cases if case.patient)
        return {case.id: some[:count] for some in by_patient.values() for count, case in enumerate(some)}

    @cached_property
    def _told(self) -> set[str]:
        """Tools whose faults were told."""
        return set()

    @cached_property
    def _tools(self) -> dict[str, Tool]:
        return {str(name): Tool.of(str(name), tool) for name, tool in self.tools.items()}

    @cached_property
    def _limits(self) -> Limits:
        return Limits.of(self.limits)

    def _choices(self, provenance: Mapping[str, str]) -> list[str]:
        tools = ", ".join(self._tools) or "no tools"
        remembered = ["all questions about a patient in one session"] * (self.session == "patient")
        return [*super()._choices(provenance), *remembered, f"with {tools} (at most {self._limits.turns} turns)"]


def _bound_arguments(prompt: Prompt) -> Mapping[str, Any]:
    """Arguments that the harness fills into a call."""
    images = prompt.images
    image = images[0] if images else None
    return {"image": image, "images": images, "case": prompt.case_id, "patient": prompt.patient}
