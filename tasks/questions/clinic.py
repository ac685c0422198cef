"""Visits to a clinic: a doctor, the model that is asked, questions a patient, has tests read, and diagnoses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from medimg_eval.case import Case, Image, Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.evidence import one_each
from medimg_eval.question import Decoding, Message, Reply, Turn
from medimg_eval.tasks.base import NOBODY
from medimg_eval.tasks.questions.answers import question_of
from medimg_eval.tasks.questions.consultation import ConsultationQuestionTask
from medimg_eval.tasks.questions.templates import fill


@dataclass(frozen=True, kw_only=True)
class ClinicQuestionTask(ConsultationQuestionTask):
    """Dialogue of a doctor with patient and tests, as in AgentClinic.

    The doctor begins. The model named as `patient` plays the patient and also reads tests. A doctor without a diagnosis
    after the last turn has answered nothing.

    Attributes:
        reader: what whoever reads tests is told; its fields are those of the case.
        told: how each is given the dialogue: `doctor`, `patient` and `reader` -> a text with `{history}` and `{said}`.
        marks: by which the doctor asks for a test (`test`), for images (`image`), and says the diagnosis (`ready`).
        last: what is said before the last turn.
        images_on_request: whether images are shown only in the turn after the doctor has asked for them.
        bias: `doctor` and `patient` -> the name of a bias, of those in `biases`.
        biases: `doctor` and `patient` -> name -> the sentence that is added where `{bias}` stands.
    """

    reader: str = ""
    told: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, str] = field(
        default_factory=lambda: {"test": "REQUEST TEST", "image": "REQUEST IMAGES", "ready": "DIAGNOSIS READY"}
    )
    last: str = "This is the final question. Please provide a diagnosis.\n"
    images_on_request: bool = False
    bias: Mapping[str, str] = field(default_factory=dict)
    biases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        super().__post_init__()
        for who, name in self.bias.items():
            UsageError.refuse_unknown("task.bias holds", ("doctor", "patient"), who)
            if name:
                UsageError.refuse_invalid(f"task.bias.{who}", tuple(self.biases.get(who, {})), name)
        if lacking := [who for who in ("doctor", "patient", "reader") if who not in self.told]:
            raise UsageError(
                f"task.told is invalid: expected texts for doctor, patient and reader, got none for {lacking}"
            )

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Puts the opening; what patient and reader are told stands in `later`."""
        sentences = {who: self.biases.get(who, {}).get(self.bias.get(who, ""), "") for who in ("doctor", "patient")}
        question = question_of(case)
        biased = replace(question, fields={**question.fields, "bias": sentences["doctor"], "most": str(self.turns)})
        prompt = super(ConsultationQuestionTask, self).prompt(replace(case, question=biased), images)
        fields = {**case.attributes, **question.fields, "bias": sentences["patient"]}
        scripts = (Message("system", (fill(text, fields),)) for text in (self.script, self.reader))
        return replace(prompt, later=tuple(scripts))

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Settings that decide the numbers beside the questions."""
        biased = ", ".join(f"{who} biased by {name}" for who, name in self.bias.items() if name)
        return ", ".join(filter(None, (super().signature(provenance), biased)))

    def told_to_judge(self, case: Case, packed: Mapping[str, Any]) -> Reply:
        """The doctor's last words, in which the diagnosis stands."""
        return Reply(tuple(packed["texts"][-1:]))

    def _pair(self, case: Case, packed: Mapping[str, Any], *context: Any) -> Any:
        return super(ConsultationQuestionTask, self)._pair(case, packed, *context)  # no diagnosis is no answer

    def _conversations(self, model: Any, prompts: Prompts) -> list[Reply]:
        """Lets doctors see their patients; all visits of a batch go on together."""
        if self.patient is None:
            raise UsageError(f"task {self.name!r}: nobody plays the patient; add +model@task.patient=MODEL")
        visits = [_Visit(prompt, self) for prompt in prompts]
        for number in range(self.turns):
            going = [visit for visit in visits if not visit.ready]
            asked_prompts = [visit.to_doctor(number) for visit in going]
            for visit, text in zip(
                going, one_each(model.generate(asked_prompts, self._decoding), asked_prompts), strict=True
            ):
                visit.hear_doctor(text)
            answering = [visit for visit in going if not visit.ready]
            if not answering or number == self.turns - 1:
                break
            put = [visit.to_other() for visit in answering]
            replies = self._patient.generate(put, Decoding(**self.patient_decoding))
            for visit, text in zip(answering, one_each(replies, put), strict=True):
                visit.hear_other(text)
        return [visit.reply() for visit in visits]


@dataclass
class _Visit:
    """State of a dialogue, as each of the three knows it."""

    prompt: Prompt
    task: ClinicQuestionTask
    said: str = ""
    histories: dict[str, str] = field(default_factory=lambda: dict.fromkeys(("doctor", "patient", "reader"), ""))
    steps: list[Mapping[str, Any]] = field(default_factory=list)
    doctor: list[str] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Whether the doctor has a diagnosis."""
        return bool(self.doctor) and self.task.marks["ready"] in self.doctor[-1]

    @property
    def _other(self) -> str:
        return "reader" if self.task.marks["test"] in self.doctor[-1] else "patient"

    def to_doctor(self, number: int) -> Prompt:
        """Text for the doctor before a turn, counted from 0."""
        if number == self.task.turns - 1:
            self.said += self.task.last
        shows_images = not self.task.images_on_request or (self.doctor and self.task.marks["image"] in self.doctor[-1])
        *system, opening = self.prompt.messages
        parts = tuple(part for part in opening.parts if isinstance(part, int)) if shows_images else ()
        counted = (Message(message.role, (message.text.replace("{asked}", str(number)),)) for message in system)
        message = Message("user", (*parts, self._told("doctor", self.said)))
        images = self.prompt.images if shows_images else ()
        return replace(self.prompt, messages=(*counted, message), images=images, later=())

    def hear_doctor(self, text: str) -> None:
        """Takes a turn of the doctor."""
        self._remember("doctor", self.said, text)
        record = text.as_record() if isinstance(text, Turn) else {}
        self.doctor.append(text)
        self.steps.append({"step": len(self.steps), "kind": "model", "agent": "doctor", "text": str(text), **record})

    def to_other(self) -> Prompt:
        """Text for the patient, or for the reader of a test."""
        script = self.prompt.later[self._other == "reader"]
        message = Message("user", (self._told(self._other, self.doctor[-1]),))
        return Prompt(self.prompt.case_id, (), messages=(script, message))

    def hear_other(self, text: str) -> None:
        """Takes what the patient or the reader said; the other one hears it."""
        who = self._other
        self._remember(who, self.doctor[-1], text)
        self.histories["patient" if who == "reader" else "reader"] += f"{text}\n\n"
        self.said = str(text)
        self.steps.append({"step": len(self.steps), "kind": "user", "agent": who, "text": str(text)})

    def reply(self) -> Reply:
        """The doctor's turns; the last is empty without a diagnosis."""
        end = {"step": len(self.steps), "kind": "stop", "reason": "answer" if self.ready else "turns"}
        texts = tuple(self.doctor) if self.ready else (*self.doctor, "")
        return Reply(texts, trace=(*self.steps, end))

    def _told(self, who: str, said: str) -> str:
        return fill(self.task.told[who], {"history": self.histories[who], "said": said})

    def _remember(self, who: str, said: str, text: str) -> None:
        self.histories[who] += f"{said}\n\n{text}\n\n"
