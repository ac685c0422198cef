"""The nouns of asking in words: what is asked, how a model is spoken to, what it replied, what is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

Role = Literal["system", "user", "assistant", "tool"]
Kind = Literal[
    "choice", "choices", "yes_no", "open", "number", "box", "boxes3d", "point", "regions", "grades", "report"
]
"""What an answer is: a letter, letters, yes or no, free text, a number, a place, names of regions, grades, a report."""


class ToolCall(NamedTuple):
    """A call of a tool that a model asks for.

    Attributes:
        name: of the tool, as the model wrote it.
        arguments: by name; empty where they could not be read.
        id: by which the result is told to the model; "" in protocols without.
        raw: what the model wrote.
        error: why the call cannot be read; "" where it can.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    raw: str = ""
    error: str = ""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as a model is told of it.

    Attributes:
        name: letters, digits, `_` and `-`.
        description: what it does, for the model.
        parameters: JSON schema of its arguments, an object.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: who says it.
        parts: texts, and images as their place in the prompt's `images`, in the order in which they are shown.
        calls: of a model's turn, the tools that it called.
        call_id: of a tool's turn, the call that it answers.
        name: of a tool's turn, the tool.
    """

    role: Role
    parts: tuple[str | int, ...]
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        """The texts, put together."""
        return "".join(part for part in self.parts if isinstance(part, str))


@dataclass(frozen=True)
class Decoding:
    """How a model is to write.

    Attributes:
        max_new_tokens: after which it is cut off.
        temperature: 0 for greedy decoding, which is the same every time.
        top_p: the share of probability that is drawn from, where the temperature is above 0.
        seed: of the draws.
        stop: texts at which it stops.
    """

    max_new_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Question about a case, before a template has made a prompt of it.

    Attributes:
        text: the question, without its options; marks such as `<image 1>` stand where an image belongs.
        kind: what an answer is.
        options: letter -> text, in their order; empty where there are none to choose from.
        fields: what templates may name beside, such as a hint or the patient's age.
    """

    text: str
    kind: Kind = "open"
    options: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Key:
    """Right answer: the entry of a case in the answer key.

    Attributes:
        value: by the question's kind: a letter (`choice`); letters (`choices`); `yes` or `no` (`yes_no`); a text or
            several that are all right (`open`); a float (`number`); (x1, y1, x2, y2) in pixels, the far edges outside
            (`box`, and `point` for a point that must lie inside); region id -> name (`regions`); name -> grade
            (`grades`); the reference report, or several that are all right (`report`).
        more: what rules of scoring need beside it, such as the size of the image or a range of right values.
    """

    value: Any
    more: Mapping[str, Any] = field(default_factory=dict)


class Usage(NamedTuple):
    """Cost of one reply; None where unreported, which is not 0.

    Attributes:
        input: tokens of the prompt, those from a prompt cache included.
        cached: those of them that came from a prompt cache.
        output: tokens written, those of the thought included.
        thought: those of them that are the thought's.
        seconds: from the request to its last token; of a batch, its seconds over its prompts.
        cost: in the currency of the prices that were given.
    """

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    thought: int | None = None
    seconds: float | None = None
    cost: float | None = None


class Turn(str):
    """Text of a reply with its facts, usable as text.

    Attributes:
        thought: what a server sent apart from the text as the model's thinking; None where it sent none. Thinking that
            stands in the text stays there: `split_thought` of `metrics.answers` parts it.
        finish: why it ended: `stop`, `length`, `calls`, `filter`, or as the server says it; "" where nothing is known.
        usage: what it cost.
        calls: of tools, where the server read them.
        steps: that led to the text, of a model that is an agent itself: they become the trace of the `Reply`.
    """

    thought: str | None
    finish: str
    usage: Usage
    calls: tuple[ToolCall, ...]
    steps: tuple[Mapping[str, Any], ...]

    def __new__(
        cls,
        text: str,
        *,
        thought: str | None = None,
        finish: str = "",
        usage: Usage | None = None,
        calls: Sequence[ToolCall] = (),
        steps: Sequence[Mapping[str, Any]] = (),
    ) -> Self:
        """A text with what is known beside it."""
        turn = super().__new__(cls, text)
        turn.steps = tuple(steps)
        turn.thought, turn.finish, turn.usage, turn.calls = thought, finish, usage or Usage(), tuple(calls)
        return turn

    def as_record(self) -> dict[str, Any]:
        """Record beside the text; what is not known is left out."""
        usage_fields = {name: value for name, value in self.usage._asdict().items() if value is not None}
        record = {"thought": self.thought, "finish": self.finish or None, "usage": usage_fields or None}
        return {name: value for name, value in record.items() if value is not None}

    @classmethod
    def from_record(cls, text: str, record: Mapping[str, Any]) -> Self:
        """Reads what `as_record` gave."""
        usage = Usage(**record.get("usage", {}))
        return cls(text, thought=record.get("thought"), finish=record.get("finish", ""), usage=usage)


@dataclass(frozen=True)
class Reply:
    """Answer of a model.

    Attributes:
        texts: what it wrote, turn by turn; the last is the answer. Empty for a model that chose without writing.
        preferences: of a model that chose: letter -> a number that is largest for the option it prefers. Equal numbers
            mean that it has no preference among them.
        messages: of a conversation that went on: all of it, for people to read.
        confidence: how sure the model is of the answer, 0 to 1; None where it does not say.
        trace: of a model that calls tools: the steps that led to the answer, in order; see docs/evaluate/agents.md.
    """

    texts: tuple[str, ...] = ()
    preferences: Mapping[str, float] | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    confidence: float | None = None
    trace: tuple[Mapping[str, Any], ...] = ()

    @property
    def text(self) -> str:
        """The last text, or "" where nothing was written."""
        return self.texts[-1] if self.texts else ""

    def as_record(self) -> dict[str, Any]:
        """Record that a run keeps; what there is none of is left out."""
        record: dict[str, Any] = {"texts": list(self.texts)}
        if self.confidence is not None:
            record["confidence"] = self.confidence
        if self.preferences is not None:
            record["preferences"] = dict(self.preferences)
        if self.messages:
            record["messages"] = list(self.messages)
        if self.trace:
            record["trace"] = list(self.trace)
        turns = [text.as_record() if isinstance(text, Turn) else {} for text in self.texts]
        if any(turns):
            record["turns"] = turns
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads what `as_record` gave."""
        messages, confidence = tuple(record.get("messages", ())), record.get("confidence")
        texts = tuple(record["texts"])
        if turns := record.get("turns"):
            texts = tuple(Turn.from_record(text, turn) for text, turn in zip(texts, turns, strict=True))
        return cls(texts, record.get("preferences"), messages, confidence, tuple(record.get("trace", ())))


Messages = Sequence[Message]
