"""Questions that agents meet about; what is said decides who is asked next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.evidence import one_each
from medimg_eval.metrics.answers import split_thought
from medimg_eval.question import Decoding, Message, Reply, Turn
from medimg_eval.tasks.base import NOBODY
from medimg_eval.tasks.questions.meetings.meeting import Course, CourseRule, Meeting, Speech, course_named
from medimg_eval.tasks.questions.task import QuestionTask
from medimg_eval.tools.journal import Step, StepJournal


@dataclass(frozen=True, kw_only=True)
class MeetingQuestionTask(QuestionTask):
    """Agents, all played by the model that is asked, meet about each question.

    Attributes:
        course: how they meet: `autogen`, `colacare`, `discussion`, `dylan`, `mdagents`, `mdteamgpt`, `medagents`,
            `meta_prompting`, `reconcile`, or the dotted name of one's own.
        texts: what agents are told, by the course's names, with fields in braces.
        meeting: settings of the course, such as `rounds` and `members`.
    """

    course: str
    texts: Mapping[str, str] = field(default_factory=dict)
    meeting: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses texts and settings that the course does not have, or lacks."""
        super().__post_init__()
        for key, given, needed in (
            ("texts", self.texts, self._course.texts),
            ("meeting", self.meeting, self._course.settings),
        ):
            UsageError.refuse_unknown(f"task.{key} holds", needed, *given)
            if lacking := [name for name in needed if name not in given]:
                raise UsageError(f"task.{key} of the course {self.course!r} lacks {', '.join(lacking)}")
        if bad := [name for name, value in self.meeting.items() if isinstance(value, int) and value < 1]:
            raise UsageError(f"task.meeting: expected numbers above 0, got {bad[0]}={self.meeting[bad[0]]}")

    @cached_property
    def _course(self) -> CourseRule:
        return course_named(self.course)

    def ask_recorded(self, model: Any, prompts: Prompts, journal: StepJournal) -> list[Any]:
        """As `ask`; each speech is kept, and a meeting goes on after those that are."""
        if self.answer_by == "likelihood" or not callable(getattr(model, "generate", None)):
            return list(self.ask(model, prompts))
        return self._meet(model, prompts, journal)

    def _conversations(self, model: Any, prompts: Prompts) -> list[Reply]:
        return self._meet(model, prompts, StepJournal())

    def _meet(self, model: Any, prompts: Prompts, journal: StepJournal) -> list[Reply]:
        """Lets meetings go on together: speeches that are due in any of them share a batch."""
        sessions = [_Session(prompt, self._begin(prompt), journal.steps(prompt.case_id)) for prompt in prompts]
        while due := [speech for session in sessions for speech in session.due()]:
            for some, decoding in self._draws_of(due):
                asked_prompts = [session.put(speech) for session, speech, _ in some]
                replies = one_each(model.generate(asked_prompts, decoding), asked_prompts)
                entries = [session.hear(speech, text) for (session, speech, _), text in zip(some, replies, strict=True)]
                journal.append(entries)
        return [session.reply() for session in sessions]

    def _draws_of(self, due: Sequence[_Due]) -> Iterator[tuple[Sequence[_Due], Decoding]]:
        """Parts speeches by their number where replies are drawn, so that equal prompts are not drawn alike."""
        if not self.draws:
            yield due, self._decoding
            return
        for number, some in groupby(sorted(due, key=itemgetter(2)), key=itemgetter(2)):
            yield list(some), replace(self._decoding, seed=self._decoding.seed + number)

    def _begin(self, prompt: Prompt) -> Course:
        question = prompt.messages[-1].text
        meeting = Meeting(
            question, prompt.question or question, prompt.options, self.texts, self.meeting, prompt.case_id
        )
        return self._course.begin(meeting)

    def _choices(self, provenance: Mapping[str, str] = NOBODY) -> list[str]:
        numbers = [f"{name} {value}" for name, value in self.meeting.items() if isinstance(value, int)]
        return [*super()._choices(provenance), ", ".join([f"agents meet as in {self.course}", *numbers])]


class _Session:
    """A meeting about one prompt: its course, the speeches that are due, and what was said."""

    def __init__(self, prompt: Prompt, course: Course, kept: Sequence[Step]) -> None:
        self.prompt, self.course, self.steps = prompt, course, list(kept)
        self.answer: str | None = None
        self.wave: list[Speech] = []
        self.begun, self.round = 0, -1
        self._proceed(None)

    def _proceed(self, texts: list[str] | None) -> None:
        """Has the course name its next speeches, over all that are kept."""
        while self.answer is None:
            try:
                speeches = self.course.send(texts) if texts is not None else next(self.course)
            except StopIteration as end:
                self.answer = str(end.value)
                return
            self.wave, self.round = list(speeches), self.round + 1
            kept = self.steps[self.begun : self.begun + len(self.wave)]
            if len(kept) < len(self.wave):
                return
            self.begun += len(self.wave)
            texts = [_answer_in(step["text"]) for step in kept]

    def due(self) -> list[_Due]:
        """The speeches that wait for the model, each with its number in the meeting."""
        if self.answer is not None:
            return []
        first = len(self.steps) - self.begun
        return [(self, speech, self.begun + number) for number, speech in enumerate(self.wave) if number >= first]

    def put(self, speech: Speech) -> Prompt:
        """A speech as a prompt; the images stand where they stood in the question."""
        *before, question = self.prompt.messages
        system = "\n\n".join(part for part in (*(message.text for message in before), speech.system) if part)
        talk = [*speech.before, Message("user", (speech.text,))]
        if speech.shows and self.prompt.images:
            places = tuple(part for part in question.parts if isinstance(part, int))
            is_first = isinstance(question.parts[0], int)
            words = talk[0].parts
            talk[0] = replace(talk[0], parts=(*places, *words) if is_first else (*words, *places))
        messages = ([Message("system", (system,))] if system else []) + talk
        images = self.prompt.images if speech.shows else ()
        return replace(self.prompt, images=images, messages=tuple(messages), later=())

    def hear(self, speech: Speech, text: str) -> tuple[str, Step]:
        """Takes what was said; returns the step to keep."""
        record = text.as_record() if isinstance(text, Turn) else {}
        step = {"kind": "model", "agent": speech.agent, "round": self.round, "text": str(text), **record}
        self.steps.append(step)
        if len(self.steps) == self.begun + len(self.wave):
            self.begun = len(self.steps)
            self._proceed([_answer_in(step["text"]) for step in self.steps[-len(self.wave) :]])
        return self.prompt.case_id, step

    def reply(self) -> Reply:
        """The answer of the meeting, with all that was said."""
        answer = self.answer or ""
        last = next((step for step in reversed(self.steps) if _answer_in(step["text"]) == answer), {})
        turn = Turn.from_record(answer, {"finish": last.get("finish", ""), "usage": last.get("usage", {})})
        end = {"step": len(self.steps), "kind": "stop", "reason": "answer" if answer else "empty"}
        return Reply((turn,), trace=(*self.steps, end))


_Due = tuple[_Session, Speech, int]


def _answer_in(text: str) -> str:
    return split_thought(text).answer.strip()
