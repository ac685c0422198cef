"""Questions that a model answers with the help of tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.question import Reply
from medimg_eval.tasks.base import SCORES
from medimg_eval.tasks.questions.agent_protocols import PROTOCOLS
from medimg_eval.tasks.questions.agent_sessions import AgentRules, Limits, Replay, run_sessions
from medimg_eval.tasks.questions.task import QuestionTask
from medimg_eval.tools import Tool
from medimg_eval.tools.journal import StepJournal
from medimg_eval.tools.recordings import Recordings


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
    """

    tools: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    calling: Literal["auto", "native", "hermes", "react"] = "auto"
    thoughts_in_history: Literal["none", "all"] = "none"
    replay: Replay = "off"
    recordings: str = field(default="", metadata=SCORES)

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        super().__post_init__()
        UsageError.refuse_unknown("task.calling is", ("auto", "native", *PROTOCOLS), self.calling)
        UsageError.refuse_unknown("task.thoughts_in_history is", ("none", "all"), self.thoughts_in_history)
        UsageError.refuse_unknown("task.replay is", ("off", "record", "only"), self.replay)
        if self.replay != "off" and not self.recordings:
            raise UsageError(f"task.replay={self.replay} needs a folder; set task.recordings=DIR")
        _ = self._tools, self._limits

    @property
    def asked(self) -> Mapping[str, Any]:
        """Versions of the tools: one whose code has changed makes another run."""
        return {**super().asked, "tool_versions": {name: tool.version for name, tool in self._tools.items()}}

    def __getstate__(self) -> dict[str, Any]:
        """Processes that read and score need no tools that were made."""
        named = {name: given for name, given in self.tools.items() if not callable(given)}
        return {key: value for key, value in self.__dict__.items() if key != "_tools"} | {"tools": named}

    def ask_recorded(self, model: Any, prompts: Prompts, journal: StepJournal) -> list[Any]:
        """As `ask`; each step is kept, and sessions go on after those that are."""
        if not callable(getattr(model, "generate", None)):
            return list(self.ask(model, prompts))
        return list(self.sessions(model, prompts, journal))

    def _conversations(self, model: Any, prompts: Prompts) -> list[Reply]:
        return self.sessions(model, prompts, StepJournal())

    def sessions(self, model: Any, prompts: Prompts, journal: StepJournal) -> list[Reply]:
        """Has the model answer with the help of tools; all prompts of a batch go on together."""
        if not prompts:
            return []
        native = bool(getattr(model, "calls_tools", False))
        if self.calling == "native" and not native:
            raise UsageError("the model takes tools only in words; set task.calling=hermes or react")
        calling = ("native" if native else "hermes") if self.calling == "auto" else self.calling
        rules = AgentRules(
            self._tools,
            self._limits,
            PROTOCOLS.get(calling),
            self._decoding,
            self.replay,
            Recordings(Path(self.recordings)) if self.recordings else None,
            self.thoughts_in_history == "all",
        )
        return run_sessions(model, prompts, rules, journal, _bound, self.next_turn)

    @cached_property
    def _tools(self) -> dict[str, Tool]:
        return {str(name): Tool.of(str(name), given) for name, given in self.tools.items()}

    @cached_property
    def _limits(self) -> Limits:
        return Limits.of(self.limits)

    def _choices(self, provenance: Mapping[str, str]) -> list[str]:
        tools = ", ".join(self._tools) or "no tools"
        return [*super()._choices(provenance), f"with {tools} (at most {self._limits.turns} turns)"]


def _bound(prompt: Prompt) -> Mapping[str, Any]:
    """Arguments that the harness fills into a call."""
    images = prompt.images
    return {"image": images[0] if images else None, "images": images, "case": prompt.case_id}
