"""Questions that several agents answer together: each alone, after each other, or in rounds; one answer comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.evidence import one_each
from medimg_eval.metrics.answers import extract, split_thought
from medimg_eval.question import Decoding, Message, Reply, Turn
from medimg_eval.tasks.base import NOBODY
from medimg_eval.tasks.questions.task import QuestionTask
from medimg_eval.tasks.questions.templates import fill
from medimg_eval.tools.journal import Step, StepJournal

CHAIR = "chair"
"""The name of the agent that decides, where one does."""

SOLUTIONS = "These are the solutions to the problem from other agents: {solutions}"
DECIDES = f"{SOLUTIONS}\n\nReason over them carefully, and give a final answer to the question."


_Due = tuple[Prompt, tuple[int, str]]


@dataclass(frozen=True, kw_only=True)
class TeamQuestionTask(QuestionTask):
    """Team of agents, one model in all roles, answering together.

    Attributes:
        members: of each agent `name` and `role`, which it is told before the question; or how many there are.
        rounds: how often each speaks.
        order: `together`: in a round nobody hears of it before it is over; `in_turn`: each hears who spoke before.
        heard: what an agent is told of others before it speaks again; `{solutions}` are theirs.
        solution: of each other agent, with `{name}` and `{text}`.
        decide: whose answer counts: that of the `last` agent, the most frequent one (`vote`; of as many the first), or
            that of a `chair`, who is given all last answers.
        last: what the last agent is told beside, before it speaks for the last time.
        chair: what the chair is told; `{solutions}` are those of all.
    """

    members: int | Sequence[Mapping[str, str]] = 3
    rounds: int = 1
    order: Literal["together", "in_turn"] = "together"
    heard: str = SOLUTIONS
    solution: str = "\n\n One agent solution: ```{text}```"
    decide: Literal["last", "vote", "chair"] = "vote"
    last: str = ""
    chair: str = field(default=DECIDES)

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        super().__post_init__()
        UsageError.refuse_invalid("task.order", ("together", "in_turn"), self.order)
        UsageError.refuse_invalid("task.decide", ("last", "vote", "chair"), self.decide)
        if self.rounds < 1 or not self._names:
            raise UsageError(
                f"task.rounds is invalid: expected rounds and members, got {self.rounds} and {self.members}"
            )
        if self.rounds > 1 and len(self._names) == 1:
            raise UsageError("task.rounds is invalid: expected 1 of one agent, who hears of nobody")
        if len(set(self._names)) < len(self._names) or CHAIR in self._names:
            raise UsageError(
                f"task.members is invalid: expected a name for each, and none {CHAIR!r}, got {self._names}"
            )

    @property
    def _names(self) -> list[str]:
        if isinstance(self.members, int):
            return [f"agent {number}" for number in range(1, self.members + 1)]
        return [str(member["name"]) for member in self.members]

    @property
    def _turns(self) -> list[tuple[int, str]]:
        """All turns in order: the round, from 0, and who speaks."""
        turns = [(number, name) for number in range(self.rounds) for name in self._names]
        return [*turns, *([(self.rounds, CHAIR)] if self.decide == "chair" else [])]

    def ask_recorded(self, model: Any, prompts: Prompts, journal: StepJournal) -> list[Any]:
        """Like `ask`, storing each turn; teams resume after stored ones."""
        if self.answer_by == "likelihood" or not callable(getattr(model, "generate", None)):
            return list(self.ask(model, prompts))
        return list(self._meet(model, prompts, journal))

    def _conversations(self, model: Any, prompts: Prompts) -> list[Reply]:
        return self._meet(model, prompts, StepJournal())

    def _meet(self, model: Any, prompts: Prompts, journal: StepJournal) -> list[Reply]:
        """Lets teams speak, batching prompts that are independent."""
        for wave in self._waves():
            due = [
                (prompt, turn)
                for prompt in prompts
                for turn in wave
                if turn not in _texts_by_turn(journal.steps(prompt.case_id))
            ]
            if not due:
                continue
            for some, decoding in self._draws_of(due):
                asked_prompts = [
                    self._put(prompt, turn, _texts_by_turn(journal.steps(prompt.case_id))) for prompt, turn in some
                ]
                texts = one_each(model.generate(asked_prompts, decoding), asked_prompts)
                journal.append(
                    [_make_step(prompt, turn, text) for (prompt, turn), text in zip(some, texts, strict=True)]
                )
        return [self._reply(prompt, journal.steps(prompt.case_id)) for prompt in prompts]

    def _draws_of(self, due: Sequence[_Due]) -> Iterator[tuple[Sequence[_Due], Decoding]]:
        """Separates sampled turns by agent, so equal prompts differ."""
        if not self.draws:
            yield due, self._decoding
            return
        for index, name in enumerate([*self._names, CHAIR]):
            if some := [(prompt, turn) for prompt, turn in due if turn[1] == name]:
                yield some, replace(self._decoding, seed=self._decoding.seed + index)

    def _waves(self) -> Iterator[list[tuple[int, str]]]:
        """Turns that are asked for at once."""
        if self.order == "in_turn":
            yield from ([turn] for turn in self._turns)
            return
        for number in range(self.rounds + 1):
            if wave := [turn for turn in self._turns if turn[0] == number]:
                yield wave

    def _put(self, prompt: Prompt, turn: tuple[int, str], spoken: Mapping[tuple[int, str], str]) -> Prompt:
        """Prompt of an agent: role, question, earlier statements."""
        number, name = turn
        *before, question = prompt.messages
        role = "" if isinstance(self.members, int) or name == CHAIR else self.members[self._names.index(name)]["role"]
        messages = [*before, *([Message("system", (role,))] if role and not before else []), question]
        if role and before:
            messages[0] = Message("system", (*before[0].parts, f"\n\n{role}"))
        if name == CHAIR:
            messages[-1] = _append_text(question, fill(self.chair, {"solutions": self._solutions(spoken, number, "")}))
            return replace(prompt, messages=tuple(messages), later=())
        for earlier in range(number + 1):
            other_solutions = self._solutions(spoken, earlier, name)
            if other_solutions:
                heard = fill(self.heard, {"solutions": other_solutions})
                messages = (
                    [*messages, Message("user", (heard,))]
                    if messages[-1].role == "assistant"
                    else _with_last(messages, heard)
                )
            if earlier < number:
                messages.append(Message("assistant", (_answer_in(spoken[earlier, name]),)))
        if self.last and turn == self._turns[-1]:
            messages = _with_last(messages, self.last)
        return replace(prompt, messages=tuple(messages), later=())

    def _solutions(self, spoken: Mapping[tuple[int, str], str], number: int, name: str) -> str:
        """Others' latest statements for an agent, by round or turn."""
        heard = []
        for other_name in self._names:
            before = self.order == "in_turn" and name and self._names.index(other_name) < self._names.index(name)
            text = spoken.get((number if before else number - 1, other_name))
            if other_name != name and text is not None:
                heard.append(fill(self.solution, {"name": other_name, "text": _answer_in(text)}))
        return "".join(heard)

    def _reply(self, prompt: Prompt, steps: Sequence[Step]) -> Reply:
        turns = {(step["round"], step["agent"]): Turn.from_record(step["text"], step) for step in steps}
        finals = [turns[self.rounds - 1, name] for name in self._names]
        if self.decide == "chair":
            chosen = turns[self.rounds, CHAIR]
        else:
            chosen = finals[-1] if self.decide == "last" else self._elected(prompt, finals)
        return Reply((chosen,), trace=(*steps, {"step": len(steps), "kind": "stop", "reason": "answer"}))

    def _elected(self, prompt: Prompt, finals: Sequence[Turn]) -> Turn:
        """First text with the most frequent answer; earlier ones win ties."""
        kind = "choice" if prompt.options else "open"
        values = [extract(kind, text, prompt.options, question=prompt.question).value for text in finals]
        named = [str(value).strip().casefold() for value in values if value is not None]
        if not named:
            return finals[0]
        elected = Counter(named).most_common(1)[0][0]
        return next(
            text for text, value in zip(finals, values, strict=True) if str(value).strip().casefold() == elected
        )

    def _choices(self, provenance: Mapping[str, str] = NOBODY) -> list[str]:
        spoken = f"{len(self._names)} agents in {self.rounds} rounds, {self.order.replace('_', ' ')}"
        return [*super()._choices(provenance), f"{spoken}, decided by {self.decide}"]


def _texts_by_turn(steps: Sequence[Step]) -> dict[tuple[int, str], str]:
    return {(step["round"], step["agent"]): step["text"] for step in steps}


def _make_step(prompt: Prompt, turn: tuple[int, str], text: str) -> tuple[str, Step]:
    record = text.as_record() if isinstance(text, Turn) else {}
    about = {"kind": "model", "agent": turn[1], "round": turn[0]}
    return prompt.case_id, {**about, "text": str(text), **record}


def _answer_in(text: str) -> str:
    return split_thought(text).answer.strip()


def _append_text(message: Message, text: str) -> Message:
    return replace(message, parts=(*message.parts, f"\n\n{text}"))


def _with_last(told: Sequence[Message], text: str) -> list[Message]:
    return [*told[:-1], _append_text(told[-1], text)]
