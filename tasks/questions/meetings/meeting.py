"""A meeting: one question, agents that speak about it, and a course that says who speaks next.

A course is a generator function. It yields the speeches that are due, which need not wait for each other, receives what
was said, and returns the answer. It has no memory beside what it was told, so that an interrupted meeting is told again
what was kept and goes on.
"""

from __future__ import annotations

import importlib
import random
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import extract
from medimg_eval.question import Message
from medimg_eval.tasks.questions.templates import fill


class Speech(NamedTuple):
    """Question to one agent.

    Attributes:
        agent: its name.
        text: what it is told.
        system: its role.
        before: what it remembers of this meeting.
        shows: whether it sees the images of the question.
    """

    agent: str
    text: str
    system: str = ""
    before: tuple[Message, ...] = ()
    shows: bool = True


Course = Generator[Sequence[Speech], Sequence[str], str]
"""Yields due speeches, receives what was said, and returns the answer."""


@dataclass(frozen=True)
class Meeting:
    """A question that agents meet about.

    Attributes:
        question: its text with its options, as it would be put to one model.
        stem: its text alone.
        options: letter -> text; empty of an open question.
        texts: name -> words of the course, with fields in braces.
        settings: numbers and names that the course takes.
        case: id of the case, which decides what is drawn.
    """

    question: str
    stem: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    case: str = ""

    def say(self, name: str, /, **fields: object) -> str:
        """Words of the course with their fields; `{question}`, `{stem}` and `{choices}` are always there."""
        choices = " ".join(f"({letter}) {text}" for letter, text in self.options.items())
        known = {"question": self.question, "stem": self.stem, "choices": choices}
        return fill(self.texts[name], known | {key: str(value) for key, value in fields.items()})

    def number(self, name: str) -> int:
        """A setting that is a count."""
        return int(self.settings[name])

    @property
    def members(self) -> Sequence[Mapping[str, str]]:
        """Agents with `name` and `role`."""
        members: Sequence[Mapping[str, str]] = self.settings["members"]
        return members

    @cached_property
    def draw(self) -> random.Random:
        """Draws alike in every start."""
        return random.Random(self.case)  # noqa: S311 - no secret

    def answer_in(self, text: str) -> str:
        """The answer in a text, so that equal answers are equal texts; "" where none can be read."""
        kind = "choice" if self.options else "open"
        value = extract(kind, text, self.options, question=self.stem).value
        return "" if value is None else str(value).strip().casefold()

    def most_frequent(self, texts: Sequence[str]) -> tuple[str, int]:
        """The first text with the most frequent answer, and how often that was given; ("", 0) without any answer."""
        answers = [self.answer_in(text) for text in texts]
        counts = Counter(answer for answer in answers if answer)
        if not counts:
            return (texts[0] if texts else ""), 0
        elected, count = counts.most_common(1)[0]
        return texts[answers.index(elected)], count


class CourseRule(NamedTuple):
    """A course: what begins it, and the names of its texts and settings."""

    begin: Callable[[Meeting], Course]
    texts: tuple[str, ...]
    settings: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """A course by its dotted name, since its function's name holds the course itself."""
        return course_named, (f"{self.begin.__module__}.{self.begin.__qualname__}",)


def meeting_course(texts: str, settings: str = "") -> Callable[[Callable[[Meeting], Course]], CourseRule]:
    """Makes a course of a generator function; `texts` and `settings` name what it needs, parted by spaces."""
    return lambda begin: CourseRule(begin, tuple(texts.split()), tuple(settings.split()))


def course_named(name: str) -> CourseRule:
    """The course of a name, or of the dotted name of one's own.

    Raises:
        UsageError: there is none.
    """
    modules = [importlib.import_module(f"{__package__}.{module}") for module in ("debates", "consultations")]
    own = {key: value for module in modules for key, value in vars(module).items() if isinstance(value, CourseRule)}
    if "." not in name:
        UsageError.refuse_invalid("task.course", tuple(own), name)
        return own[name]
    module_name, _, attribute = name.rpartition(".")
    try:
        course = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"task.course: there is no {name} ({error}); it must lie where Python looks") from error
    if not isinstance(course, CourseRule):
        raise UsageError(f"task.course: {name} is no course; put @meeting_course(texts=...) above its function")
    return course
