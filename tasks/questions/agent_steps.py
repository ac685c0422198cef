"""Next steps of recorded sessions: a model is told what was done so far, and does one thing more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from medimg_eval.case import Case, Image, Prompt, Prompts
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import one_each
from medimg_eval.metrics.traces import expected_call
from medimg_eval.question import Key, Message, Reply, Turn
from medimg_eval.tasks.questions.agent import AgentQuestionTask
from medimg_eval.tasks.questions.agent_sessions import AgentRules, Session
from medimg_eval.tools.journal import StepJournal
from medimg_eval.tools.protocols import TextProtocol


@dataclass(frozen=True, kw_only=True)
class AgentStepTask(AgentQuestionTask):
    """Next step of a recorded session, without calling tools.

    The answer key of a case holds `history`, the messages so far, of which the first is the question, `expected`, the
    next one, and, where a case has tools of its own, `tools`.

    Attributes:
        offered: the tools that a model is told of: `item`, those of the case; `all` of the task.
        announced: whether a model is told to answer where an answer is due, and offered no tools, as GTA does.
    """

    offered: Literal["item", "all"] = "all"
    announced: bool = False

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        super().__post_init__()
        UsageError.refuse_invalid("task.offered", ("item", "all"), self.offered)

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Question; earlier steps wait in `later`."""
        further = _key_of(case).more
        if not isinstance(further.get("history"), list) or not isinstance(further.get("expected"), Mapping):
            raise CaseError(
                f"case {case.id!r}: its key holds no `history` and `expected`; see {{turns: ...}} of expand"
            )
        tools = [tool["name"] if isinstance(tool, Mapping) else tool for tool in further.get("tools", ())]
        fields = {
            "history": further["history"],
            "tools": tools if self.offered == "item" else list(self._tools),
            "last": self.announced and expected_call(further["expected"]) is None,
        }
        return replace(super().prompt(case, images), later=(Message("user", (json.dumps(fields),)),))

    def sessions(self, model: Any, prompts: Prompts, journal: StepJournal) -> list[Reply]:
        """Asks for one step in each session, as one batch."""
        if not prompts:
            return []
        rules = self._rules_with(model)
        due = [prompt for prompt in prompts if not journal.steps(prompt.case_id)]
        begun = [self._begun(prompt, rules) for prompt in due]
        asked_prompts = [session.next_prompt() for session in begun]
        replies = one_each(model.generate(asked_prompts, rules.decoding), asked_prompts) if asked_prompts else []
        for session, text in zip(begun, replies, strict=True):
            first = len(session.steps)
            list(session.hear(text if isinstance(text, Turn) else Turn(text)))
            entry = {**session.steps[first], "step": 0}
            journal.append([(session.prompt.case_id, step) for step in (entry, _end_of(entry))])
        return [self._reply(journal.steps(prompt.case_id)) for prompt in prompts]

    def _begun(self, prompt: Prompt, rules: AgentRules) -> Session:
        content = json.loads(prompt.later[0].text)
        tools = {name: tool for name, tool in rules.tools.items() if name in content["tools"]}
        limits = replace(rules.limits, turns=_count_turns(content["history"]) + 1 if content["last"] else None)
        journal = StepJournal({prompt.case_id: _as_steps(content["history"], rules.protocol)})
        return Session(replace(prompt, later=()), replace(rules, tools=tools, limits=limits), journal, _none_next)

    def _reply(self, steps: Sequence[Mapping[str, Any]]) -> Reply:
        entry = steps[0]
        return Reply((Turn.from_record(entry["answer"], entry),), trace=tuple(steps))


def _key_of(case: Case) -> Key:
    key: Key = case.target.read()
    return key


def _none_next(_prompt: Prompt, _replies: Sequence[str]) -> None:
    """Nothing is said after the step."""


def _end_of(said: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"step": 1, "kind": "stop", "reason": "answer" if said["calls"] or said["answer"] else "empty"}


def _count_turns(history: Sequence[Mapping[str, Any]]) -> int:
    return sum(message.get("role") == "assistant" for message in history)


def _as_steps(history: Sequence[Mapping[str, Any]], protocol: TextProtocol | None) -> list[Mapping[str, Any]]:
    """Steps from recorded messages, without the question."""
    steps: list[Mapping[str, Any]] = []
    call: dict[str, Any] = {"name": "", "arguments": {}, "id": ""}
    for message in history[1:]:
        content = message.get("content") or ""
        text = content.get("content", "") if isinstance(content, Mapping) else str(content)
        call_ = expected_call(message)
        if message.get("role") == "tool":
            about = {"name": call["name"], "arguments": call["arguments"], "call_id": call["id"]}
            step = {"kind": "tool", **about, "result": str(text)}
        elif call_ is not None:
            call = {"name": call_["name"], "arguments": call_["arguments"], "id": f"call_{len(steps)}"}
            spoken = [text, protocol.written(call["name"], call["arguments"])] if protocol else [text]
            step = {"kind": "model", "text": "\n".join(filter(None, spoken)), "answer": text, "calls": [call]}
        elif message.get("role") == "assistant":
            step = {"kind": "model", "text": text, "answer": text, "calls": []}
        else:
            step = {"kind": "user", "text": text}
        steps.append({"step": len(steps), **step})
    return steps
