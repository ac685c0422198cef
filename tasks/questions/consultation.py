"""Consultations: a doctor, the model that is asked, and a patient who talks back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from medimg_eval.arguments import make_model
from medimg_eval.case import Case, Image, Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.question import Decoding, Message, Reply
from medimg_eval.tasks.base import NOBODY
from medimg_eval.tasks.questions.answers import question_of
from medimg_eval.tasks.questions.task import QuestionTask
from medimg_eval.tasks.questions.templates import fill


@dataclass(frozen=True, kw_only=True)
class ConsultationQuestionTask(QuestionTask):
    """Consultation: the model as doctor, another as patient, then a diagnosis.

    The patient begins; the doctor sees the images with the first thing that the patient says. It ends when the patient
    says the closing word, or after so many turns of the doctor. The diagnosis is that of the last turn in which one is
    found. Without a patient the template's prompt is put, and the reply to it is the answer.

    Attributes:
        patient: the model that plays the patient: a wrapper, or a function without arguments that makes one, as Hydra
            does of a config with `_partial_: true`. Nothing for a diagnosis without a dialogue.
        script: what the patient is told; its fields are those of the case, and `character`.
        characters: text for the field `character` of the script, by the case's field `personality`.
        patient_decoding: how the patient writes, as in `Decoding`.
        turns: the most that the doctor may say.
        closing: the word by which the patient ends the dialogue.
        synonyms: what a diagnosis is also called -> its name among the options.
    """

    patient: Any = None
    script: str = ""
    characters: Mapping[str, str] = field(default_factory=dict)
    patient_decoding: Mapping[str, Any] = field(default_factory=dict)
    turns: int = 14
    closing: str = "BREAK"
    synonyms: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        super().__post_init__()
        if isinstance(self.patient, Mapping):  # the place for one, in which none is named
            self.complete(patient=None)
        if self.patient is not None and not self.script:
            raise UsageError(f"task {self.name!r}: a patient needs a script; set task.script")
        if self.turns < 1:
            raise UsageError(f"expected task.turns to be at least 1, got {self.turns}")

    def seeded(self, seed: int) -> Mapping[str, Any]:
        """The run's seed as that of both who talk."""
        return {**super().seeded(seed), "patient_decoding": {"seed": seed, **self.patient_decoding}}

    def __getstate__(self) -> dict[str, Any]:
        """Processes that read prompts need no patient."""
        return {key: value for key, value in self.__dict__.items() if key not in ("_patient", "_made")}

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Question; a patient's script waits in `later` before the opening."""
        prompt = super().prompt(case, images)
        if self.patient is None:
            return prompt
        fields = {**case.attributes, **question_of(case).fields}
        character = self.characters.get(fields.get("personality", ""), "")
        return replace(prompt, later=(Message("user", (fill(self.script, fields | {"character": character}),)),))

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Settings that decide the numbers beside the questions themselves."""
        if self.patient is None:
            return super().signature(provenance)
        return f"{super().signature(provenance)}, dialogue with a patient of at most {self.turns} turns"

    def told_to_judge(self, case: Case, packed: Mapping[str, Any]) -> Reply:
        """A consultation as a judge sees it: all that was said."""
        messages = packed.get("messages") or ()
        dialogue = "\n".join(f"{message['role']}: {message['text']}" for message in messages) or "".join(
            packed["texts"][-1:]
        )
        return Reply((dialogue,))

    @property
    def partners(self) -> Mapping[str, Any]:
        """The patient, where there is one."""
        return {} if self.patient is None else {"patient": self._made}

    @cached_property
    def _patient(self) -> Any:
        self._made.check_ready()
        return self._made

    @cached_property
    def _made(self) -> Any:
        return make_model(self.patient)

    def _conversations(self, model: Any, prompts: Prompts) -> list[Reply]:
        """Lets doctor and patient talk; all consultations of a batch go on together."""
        if self.patient is None or not prompts:
            return super()._conversations(model, prompts)
        decoding = Decoding(**self.patient_decoding)
        talks = [_Talk(prompt) for prompt in prompts]
        self._hear(talks, decoding)
        for _ in range(self.turns):
            going = [talk for talk in talks if not talk.ended]
            if not going:
                break
            replies = model.generate([talk.to_doctor() for talk in going], self._decoding)
            for talk, reply in zip(going, replies, strict=True):
                talk.doctor.append(reply)
            self._hear(going, decoding)
        return [talk.reply() for talk in talks]

    def _hear(self, talks: Sequence[_Talk], decoding: Decoding) -> None:
        """Has the patient of each consultation speak."""
        replies = self._patient.generate([talk.to_patient() for talk in talks], decoding)
        for talk, reply in zip(talks, replies, strict=True):
            talk.patient.append(reply)
            talk.ended = bool(talk.doctor) and self.closing in reply

    def _pair(self, case: Case, packed: Mapping[str, Any], context: Context = EMPTY) -> AnsweredQuestion:
        pair = super()._pair(case, packed, context)
        if pair.preferences is not None:
            return pair
        pairs = [replace(pair, output=self._named(text)) for text in pair.outputs]
        return next((pair for pair in reversed(pairs) if pair.extraction.value is not None), pair)

    def _named(self, text: str) -> str:
        """A text in which diagnoses are called as the options call them."""
        for synonym, name in self.synonyms.items():
            text = re.sub(rf"\b{re.escape(synonym)}\b", name, text, flags=re.IGNORECASE)
        return text


@dataclass
class _Talk:
    """Ongoing consultation; turns alternate, patient first."""

    prompt: Prompt
    patient: list[str] = field(default_factory=list)
    doctor: list[str] = field(default_factory=list)
    ended: bool = False

    def to_doctor(self) -> Prompt:
        """Messages to the doctor: the patient is the user."""
        *before, opening = self.prompt.messages
        images = tuple(part for part in opening.parts if isinstance(part, int))
        first, *following = self.patient
        messages = [Message("user", (*images, first))]
        for reply, answer in zip(self.doctor, following, strict=True):
            messages += [Message("assistant", (reply,)), Message("user", (answer,))]
        return replace(self.prompt, messages=(*before, *messages), later=())

    def to_patient(self) -> Prompt:
        """Messages to the patient: the script and the doctor are the user."""
        messages = list(self.prompt.later)
        for reply, answer in zip(self.patient, self.doctor, strict=True):
            messages += [Message("assistant", (reply,)), Message("user", (answer,))]
        return Prompt(self.prompt.case_id, (), messages=tuple(messages))

    def reply(self) -> Reply:
        """The doctor's turns, and all that was said."""
        messages: list[Mapping[str, str]] = []
        for index, text in enumerate(self.patient):
            messages.append({"role": "Patient", "text": text})
            messages += [{"role": "Doctor", "text": text} for text in self.doctor[index : index + 1]]
        return Reply(tuple(self.doctor), messages=tuple(messages))
