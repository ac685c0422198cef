"""Sessions of a model with tools: all of a batch go on together, and each step is kept before the next is taken.

What a session is follows from its steps alone, so that one that was interrupted goes on where its last step left it. A
step is a mapping with a `kind`:

- `model`: what the model wrote: `text`, `calls`, and where they are known `thought`, `finish`, `usage`;
- `tool`: a call and what came of it: `name`, `arguments`, `result`, `images`, `error`, `seconds`, `version`;
- `user`: the next turn of a task that asks in several;
- `stop`: the end, with its `reason`: `answer`, `length`, `empty`, or the limit that was met.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Literal

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.evidence import one_each
from medimg_eval.metrics.answers import split_thought
from medimg_eval.question import Decoding, Message, Reply, ToolCall, Turn, Usage
from medimg_eval.tasks.questions.conversation import NextTurn
from medimg_eval.tasks.questions.templates import moved
from medimg_eval.tools import Tool, ToolCalls, ToolResult, failed_call, recording_key
from medimg_eval.tools.journal import Entry, StepJournal
from medimg_eval.tools.protocols import TextProtocol
from medimg_eval.tools.recordings import Recordings

IDLE_S = 0.01
"""Seconds between two looks at tools that are at work."""

PATIENCE, PATIENCE_S = 0.1, 0.05
"""How long a batch waits for tools before it goes on without their sessions: a share of the last one, or seconds."""

Replay = Literal["off", "record", "only"]

LAST_TURN = "You can call no more tools. Answer the question now."
NOT_CALLED = "this call was not carried out, for the limit of {limit} is reached"


@dataclass(frozen=True)
class Limits:
    """Limits of a session, each a stop reason; None is unlimited.

    At the limits `turns`, `calls` and `repeated` the model is asked once more, without tools; at the others whatever it
    said last is its answer.

    Attributes:
        turns: replies of the model, the answer included.
        calls: calls of tools.
        calls_per_turn: calls in one reply; further ones are not carried out.
        repeated: times that a call is made with the same arguments.
        tokens: written by the model, of replies that report them.
        seconds: of the model and its tools.
        cost: of the model's replies.
    """

    turns: int | None = 8
    calls: int | None = None
    calls_per_turn: int | None = 8
    repeated: int | None = 3
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Limits:
        """Limits from a config; UsageError for unknown names or invalid numbers."""
        UsageError.refuse_unknown("task.limits holds", tuple(cls.__dataclass_fields__), *given)
        if bad := {name: value for name, value in given.items() if value is not None and not value > 0}:
            raise UsageError(f"task.limits: expected numbers above 0, got {bad}")
        return cls(**given)


@dataclass(frozen=True)
class AgentRules:
    """How sessions go on.

    Attributes:
        tools: by name.
        limits: ends of a session.
        protocol: words for tools, for a model that only writes; None where the model calls tools itself.
        replay: `off` calls tools; `record` keeps what they give, and calls none twice; `only` calls none.
        recordings: where results are kept.
        keeps_thoughts: whether a model sees its earlier thinking.
        decoding: how the model writes.
    """

    tools: Mapping[str, Tool]
    limits: Limits
    protocol: TextProtocol | None
    decoding: Decoding
    replay: Replay = "off"
    recordings: Recordings | None = None
    keeps_thoughts: bool = False


def run_sessions(
    model: Any,
    prompts: Prompts,
    rules: AgentRules,
    journal: StepJournal,
    bound: Callable[[Prompt], Mapping[str, Any]],
    next_turn: NextTurn,
    before: Mapping[str, Prompts] = MappingProxyType({}),
) -> list[Reply]:
    """Has a model answer prompts with the help of tools.

    Sessions that wait for the model share its next batch; a batch does not wait for tools that are still at work.

    Args:
        model: writes, and calls tools itself where `rules` has no protocol.
        prompts: one for each session.
        rules: how they go on.
        journal: keeps every step, and knows those of an earlier start.
        bound: what the harness fills into calls about a prompt.
        next_turn: of a task that asks in several turns.
        before: case id -> prompts that the model remembers when it is asked about that case; they are put first.
    """
    calls = ToolCalls()
    by_case = {
        prompt.case_id: Session(prompt, rules, journal, next_turn)
        for prompt in (*chain.from_iterable(before.values()), *prompts)
    }
    sessions = list(by_case.values())
    for case_id, earlier in before.items():
        by_case[case_id].earlier = tuple(by_case[prompt.case_id] for prompt in earlier)
    try:
        journal.append([step for session in sessions for step in session.conclude()])
        while going := [session for session in sessions if not session.stopped]:
            began = time.perf_counter()
            if ready := [session for session in going if session.is_ready]:
                asked_prompts = [session.next_prompt() for session in ready]
                turns = one_each(model.generate(asked_prompts, rules.decoding), asked_prompts)
                share = (time.perf_counter() - began) / len(asked_prompts)
                timed = [_add_seconds(turn, share) for turn in turns]
                heard = [step for session, turn in zip(ready, timed, strict=True) for step in session.hear(turn)]
                journal.append(heard)
            for session in going:
                session.start_calls(calls, bound)
            deadline = time.perf_counter() + max(PATIENCE_S, PATIENCE * (time.perf_counter() - began))
            while waiting := [session for session in going if session.waits]:
                journal.append([step for session in waiting for step in session.finish_calls()])
                if time.perf_counter() > deadline and any(session.is_ready for session in going):
                    break
                waiting[0].wait(IDLE_S)
    finally:
        calls.close()
    return [by_case[prompt.case_id].reply() for prompt in prompts]


@dataclass
class _Waiting:
    """A call whose result is not there yet."""

    call: ToolCall
    result: Callable[[float | None], ToolResult | None]


@dataclass
class Session:
    """One prompt and the steps to its answer, asked after the `earlier` sessions."""

    prompt: Prompt
    rules: AgentRules
    journal: StepJournal
    next_turn: NextTurn
    earlier: tuple[Session, ...] = ()
    _waiting: list[_Waiting] = field(default_factory=list)

    @cached_property
    def steps(self) -> list[Mapping[str, Any]]:
        """All steps so far; those of an earlier start come from the journal."""
        return self.journal.steps(self.prompt.case_id)

    @property
    def stopped(self) -> bool:
        """Whether it is at its end."""
        return bool(self.steps) and self.steps[-1]["kind"] == "stop"

    @property
    def is_ready(self) -> bool:
        """Whether it is the model's turn."""
        return not self.stopped and not self._open_calls() and all(session.stopped for session in self.earlier)

    # what the model is shown

    def next_prompt(self) -> Prompt:
        """Conversation so far, for the model's next reply."""
        images: list[Any] = []
        messages = [message for session in (*self.earlier, self) for message in session.told(images)]
        first, *following = messages
        messages = [first, *(message for message in following if message.role != "system")]
        tools = () if self.rules.protocol else tuple(tool.spec for tool in self.rules.tools.values())
        if self._ending(self.steps):
            messages.append(Message("user", (LAST_TURN,)))
            tools = ()
        return replace(self.prompt, messages=tuple(messages), images=tuple(images), tools=tools, later=())

    def told(self, images: list[Any]) -> list[Message]:
        """Text so far; collects shown images with those of earlier sessions."""
        messages = [moved(message, len(images)) for message in self._opening()]
        images += self.prompt.images
        for kind, group in groupby(self.steps, key=itemgetter("kind")):
            if kind == "model":
                messages += [self._as_assistant(step) for step in group]
            elif kind == "user":
                messages += [Message("user", (str(step["text"]),)) for step in group]
            elif kind == "tool":
                messages += self._as_results(group, images)
        return messages

    def _opening(self) -> Sequence[Message]:
        if self.rules.protocol is None:
            return self.prompt.messages
        instructions = self.rules.protocol.instructions([tool.spec for tool in self.rules.tools.values()])
        first, *following = self.prompt.messages
        if first.role == "system":
            return (Message("system", (*first.parts, f"\n\n{instructions}")), *following)
        return (Message("system", (instructions,)), *self.prompt.messages)

    def _as_assistant(self, step: Mapping[str, Any]) -> Message:
        text = step["text"] if self.rules.keeps_thoughts else split_thought(step["text"]).answer.strip()
        calls = () if self.rules.protocol else tuple(ToolCall(**call) for call in step["calls"])
        return Message("assistant", (text,), calls)

    def _as_results(self, steps: Iterable[Mapping[str, Any]], images: list[Any]) -> list[Message]:
        messages = []
        for step in steps:
            image_indices = tuple(range(len(images), len(images) + len(step.get("images", ()))))
            images += [self.journal.image(name) for name in step.get("images", ())]
            text = step["result"]
            if self.rules.protocol is not None:
                text = self.rules.protocol.result(step["name"], text)
            messages.append(Message("tool", (text, *image_indices), (), step.get("call_id", ""), step["name"]))
        if self.rules.protocol is None:
            return messages
        parts = [part for message in messages for part in (*message.parts, "\n")]
        return [Message("user", tuple(parts[:-1]))]

    # what the model says

    def hear(self, turn: Turn) -> Iterator[Entry]:
        """Takes a reply; yields the steps that follow at once."""
        answer = split_thought(turn, turn.thought).answer
        written: Sequence[ToolCall] = turn.calls
        if self.rules.protocol is not None:
            answer, written = self.rules.protocol.read(answer)
        number = sum(step["kind"] == "tool" for step in self.steps)
        written = [call._replace(id=call.id or f"call_{number + index}") for index, call in enumerate(written)]
        calls = [call._asdict() | {"arguments": dict(call.arguments)} for call in written]
        entry = {"text": str(turn), "answer": answer.strip(), "calls": calls}
        yield self._add({"kind": "model", **entry, **turn.as_record()})
        yield from self.conclude()

    def conclude(self) -> Iterator[Entry]:
        """Yields missing steps that follow the last reply at once."""
        last_index = max((index for index, step in enumerate(self.steps) if step["kind"] == "model"), default=-1)
        if last_index < 0 or any(step["kind"] != "tool" for step in self.steps[last_index + 1 :]):
            return
        last_reply, ending, met = self.steps[last_index], self._ending(self.steps[:last_index]), self._met()
        if not last_reply["calls"]:
            is_complete = last_reply["answer"] and last_reply.get("finish") != "length"
            following = self.next_turn(self.prompt, self._answers()) if is_complete and not (ending or met) else None
            if following is not None:
                yield self._add({"kind": "user", "text": following.text})
                return
            reason = "length" if last_reply.get("finish") == "length" else "answer" if last_reply["answer"] else "empty"
            yield self._add({"kind": "stop", "reason": reason, **({"forced": ending} if ending else {})})
        elif limit := ending or met:
            for call in self._open_calls():
                yield self._result(call, failed_call("withdrawn", NOT_CALLED.format(limit=limit)))
            yield self._add({"kind": "stop", "reason": limit})

    def _answers(self) -> list[str]:
        return [step["answer"] for step in self.steps if step["kind"] == "model" and not step["calls"]]

    def _ending(self, steps: Sequence[Mapping[str, Any]]) -> str:
        """Limit that makes the next reply the last; "" without."""
        limits, calls = self.rules.limits, [step for step in steps if step["kind"] == "tool"]
        turns = sum(step["kind"] == "model" for step in steps)
        if limits.turns is not None and turns + 1 >= limits.turns:
            return "turns"
        if limits.calls is not None and len(calls) >= limits.calls:
            return "calls"
        counts = Counter(_call_key(step["name"], step["arguments"]) for step in calls)
        if limits.repeated is not None and max(counts.values(), default=0) >= limits.repeated:
            return "repeated"
        return ""

    def _met(self) -> str:
        """Limit that ends asking; "" without."""
        models = [Usage(**step.get("usage", {})) for step in self.steps if step["kind"] == "model"]
        tools = sum(step.get("seconds", 0.0) for step in self.steps if step["kind"] == "tool")
        used = {
            "tokens": sum(usage.output or 0 for usage in models),
            "seconds": sum(usage.seconds or 0.0 for usage in models) + tools,
            "cost": sum(usage.cost or 0.0 for usage in models),
        }
        limits = self.rules.limits
        return next((name for name, value in used.items() if value >= (getattr(limits, name) or float("inf"))), "")

    # calls

    def _open_calls(self) -> list[ToolCall]:
        """Calls of the last reply that have no result yet."""
        done = 0
        for step in reversed(self.steps):
            if step["kind"] == "model":
                return [ToolCall(**call) for call in step["calls"][done:]]
            done += step["kind"] == "tool"
        return []

    def start_calls(self, calls: ToolCalls, bound: Callable[[Prompt], Mapping[str, Any]]) -> None:
        """Starts the calls of the last reply that are not under way."""
        if self._waiting:
            return
        models = next((step for step in reversed(self.steps) if step["kind"] == "model"), None)
        first = 0 if models is None else len(models["calls"]) - len(self._open_calls())
        call_count = sum(step["kind"] == "tool" for step in self.steps)
        for index, call in enumerate(self._open_calls()):
            refusal = self._refusal(call, first + index, call_count + index)
            if refusal is not None:
                self._waiting.append(_Waiting(call, lambda _, refusal=refusal: refusal))  # type: ignore[misc]
                continue
            tool = self.rules.tools[call.name]
            about = {name: value for name, value in bound(self.prompt).items() if name in tool.bound}
            self._waiting.append(_Waiting(call, self._start(calls, tool, call, about)))

    def _refusal(self, call: ToolCall, place: int, made: int) -> ToolResult | None:
        """Why a call is not carried out; None where it is."""
        limits = self.rules.limits
        if call.error:
            return failed_call("parsing", call.error)
        if call.name not in self.rules.tools:
            return failed_call(
                "unknown_tool", f"there is no tool {call.name!r}; there are {', '.join(self.rules.tools)}"
            )
        if misfit := self.rules.tools[call.name].check(call.arguments):
            return failed_call("arguments", misfit)
        if limits.calls_per_turn is not None and place >= limits.calls_per_turn:
            return failed_call("limit", f"no more than {limits.calls_per_turn} calls are carried out at once")
        if limits.calls is not None and made >= limits.calls:
            return failed_call("limit", f"no more than {limits.calls} calls are carried out")
        return None

    def _start(
        self, calls: ToolCalls, tool: Tool, call: ToolCall, about: Mapping[str, Any]
    ) -> Callable[[float | None], ToolResult | None]:
        rules = self.rules
        key = recording_key(tool.name, tool.version, call.arguments, self.prompt.case_id if about else "")
        if rules.recordings is not None and rules.replay != "off":
            recorded = rules.recordings.get(key)
            if recorded is not None or rules.replay == "only":
                result = recorded or failed_call("not_recorded", "no result of this call was recorded")
                return lambda _: result
        running = calls.start(tool, {**call.arguments, **about})

        def finished(wait: float | None) -> ToolResult | None:
            result = running(wait)
            if result is not None and rules.replay == "record" and rules.recordings is not None:
                rules.recordings.put(key, tool.name, dict(call.arguments), result)
            return result

        return finished

    @property
    def waits(self) -> bool:
        """Whether a call is under way."""
        return bool(self._waiting)

    def wait(self, seconds: float) -> None:
        """Waits for the call that is under way, up to some seconds."""
        if self._waiting:
            self._waiting[0].result(seconds)

    def finish_calls(self) -> Iterator[Entry]:
        """Yields the results that are there, in the order of the calls."""
        while self._waiting:
            result = self._waiting[0].result(0.0)
            if result is None:
                return
            yield self._result(self._waiting.pop(0).call, result)

    def _result(self, call: ToolCall, result: ToolResult) -> Entry:
        tool = self.rules.tools.get(call.name)
        step: dict[str, Any] = {
            "kind": "tool",
            "name": call.name,
            "arguments": dict(call.arguments),
            "call_id": call.id,
            "result": result.text,
            "seconds": round(result.seconds, 6),
        }
        step |= {"version": tool.version} if tool is not None and tool.version else {}
        step |= {"images": [self.journal.keep_image(image) for image in result.images]} if result.images else {}
        step |= {"error": dict(result.error)} if result.error else {}
        return self._add(step)

    def _add(self, step: Mapping[str, Any]) -> Entry:
        numbered = {"step": len(self.steps), **step}
        self.steps.append(numbered)
        return self.prompt.case_id, numbered

    def reply(self) -> Reply:
        """The answers, turn by turn, and the steps that led to them.

        Of a session that ended at a limit, the answer is what the model said last beside its calls.
        """
        model_steps = [step for step in self.steps if step["kind"] == "model"]
        answers = [step for step in model_steps if not step["calls"]]
        if model_steps[-1:] != answers[-1:]:
            spoken = [step for step in model_steps if step["answer"]]
            answers = [*answers, *(spoken or model_steps)[-1:]]
        texts = tuple(Turn.from_record(step["answer"], step) for step in answers)
        return Reply(texts, trace=tuple(self.steps))


def _add_seconds(reply: str, seconds: float) -> Turn:
    """Reply with its seconds, unless the model stated them."""
    turn = reply if isinstance(reply, Turn) else Turn(reply)
    if turn.usage.seconds is None:
        turn.usage = turn.usage._replace(seconds=round(seconds, 6))
    return turn


def _call_key(name: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps([name, arguments], sort_keys=True, default=str)
