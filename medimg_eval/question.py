"""The nouns of asking in words: what is asked, how a model is spoken to, what it replied, what is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

Role = Literal["system", "user", "assistant"]
Kind = Literal[
    "choice", "choices", "yes_no", "open", "number", "box", "boxes3d", "point", "regions", "grades", "report"
]
"""What an answer is: a letter, letters, yes or no, free text, a number, a place, names of regions, grades, a report."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: who says it.
        parts: texts, and images as their place in the prompt's `images`, in the order in which they are shown.
    """

    role: Role
    parts: tuple[str | int, ...]

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


@dataclass(frozen=True)
class Question:
    """What is asked about a case, before a template has made a prompt of it.

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
    """What is right: the entry of a case in the answer key.

    Attributes:
        value: by the question's kind: a letter (`choice`); letters (`choices`); `yes` or `no` (`yes_no`); a text or
            several that are all right (`open`); a float (`number`); (x1, y1, x2, y2) in pixels, the far edges outside
            (`box`, and `point` for a point that must lie inside); region id -> name (`regions`); name -> grade
            (`grades`); the reference report, or several that are all right (`report`).
        more: what rules of scoring need beside it, such as the size of the image or a range of right values.
    """

    value: Any
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What a model answered.

    Attributes:
        texts: what it wrote, turn by turn; the last is the answer. Empty for a model that chose without writing.
        preferences: of a model that chose: letter -> a number that is largest for the option it prefers. Equal numbers
            mean that it has no preference among them.
        messages: of a conversation that went on: all of it, for people to read.
        confidence: how sure the model is of the answer, 0 to 1; None where it does not say.
    """

    texts: tuple[str, ...] = ()
    preferences: Mapping[str, float] | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    confidence: float | None = None

    @property
    def text(self) -> str:
        """The last text, or "" where nothing was written."""
        return self.texts[-1] if self.texts else ""

    def as_record(self) -> dict[str, Any]:
        """What a run keeps; what there is none of is left out."""
        record: dict[str, Any] = {"texts": list(self.texts)}
        if self.confidence is not None:
            record["confidence"] = self.confidence
        if self.preferences is not None:
            record["preferences"] = dict(self.preferences)
        if self.messages:
            record["messages"] = list(self.messages)
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads what `as_record` gave."""
        messages, confidence = tuple(record.get("messages", ())), record.get("confidence")
        return cls(tuple(record["texts"]), record.get("preferences"), messages, confidence)


Messages = Sequence[Message]
