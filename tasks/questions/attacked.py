"""Questions that another model rewrites until the one asked errs, as MedFuzz does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from medimg_eval.arguments import make_model
from medimg_eval.case import Case, Image, Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.evidence import one_each
from medimg_eval.metrics.vqa import accuracy_or_exact_match
from medimg_eval.question import Decoding, Message, Reply, Turn
from medimg_eval.tasks.questions.answers import question_of
from medimg_eval.tasks.questions.task import QuestionTask
from medimg_eval.tasks.questions.templates import fill

_EDITED = re.compile(r"<question>(.*?)</question>", re.DOTALL)


@dataclass(frozen=True)
class AttackedPrompt(Prompt):
    """Question's prompt with its case, for the attacker alone."""

    case: Case | None = None


@dataclass(frozen=True, kw_only=True)
class AttackedQuestionTask(QuestionTask):
    """Attacks on right answers: rewritten questions, asked anew.

    A question that is answered wrong at first is not attacked. The attacker is told the question, its options, the
    right answer and each reply, and writes the question anew; the model, which remembers nothing, is asked again with
    the same options, until it errs or for `turns` times. The last reply is the answer. After an attack that succeeds,
    the attacker also writes `controls` edits that need not mislead, for `attack_p`.

    Attributes:
        attacker: the model that rewrites: a wrapper, or a function without arguments that makes one.
        script: what the attacker is told first, with `{question}`, `{options}`, `{answer}` and `{reply}`.
        again: what it is told after a reply that is still right, with `{reply}`.
        control: what it is told for a control, with `{question}`, `{options}` and `{edited}`, the edit that succeeded.
        turns: the most edits of a question.
        controls: edits that an attack which succeeded is compared with.
        attacker_decoding: how the attacker writes, as in `Decoding`.
    """

    attacker: Any = None
    script: str = ""
    again: str = ""
    control: str = ""
    turns: int = 5
    controls: int = 0
    attacker_decoding: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        super().__post_init__()
        if isinstance(self.attacker, Mapping):  # the place for one, in which none is named
            self.complete(attacker=None)
        if self.turns < 1 or self.controls < 0:
            raise UsageError(
                f"task.turns is invalid: expected at least 1 turn and 0 controls, got {self.turns} and {self.controls}"
            )

    def __getstate__(self) -> dict[str, Any]:
        """State without the attacker: processes that read prompts need none."""
        return {key: value for key, value in self.__dict__.items() if key != "_attacker"}

    def seeded(self, seed: int) -> Mapping[str, Any]:
        """The run's seed as that of both models."""
        return {**super().seeded(seed), "attacker_decoding": {"seed": seed, **self.attacker_decoding}}

    @property
    def partners(self) -> Mapping[str, Any]:
        """The attacker."""
        return {} if self.attacker is None else {"attacker": self._attacker}

    @cached_property
    def _attacker(self) -> Any:
        return make_model(self.attacker)

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Question as it stands, with the case for the attacker."""
        return AttackedPrompt(**vars(super().prompt(case, images)), case=case)

    def told_to_judge(self, case: Case, packed: Mapping[str, Any]) -> Reply:
        """Question as last edited; as it stood where it was not."""
        edits = [step["text"] for step in packed.get("trace") or () if step.get("agent") == "attacker"]
        return Reply((edits[-1] if edits else question_of(case).text,))

    def _conversations(self, model: Any, prompts: Prompts) -> list[Reply]:
        """Asks, then attacks whatever is right; all attacks of a batch go on together."""
        if self.attacker is None:
            raise UsageError(f"task {self.name!r}: nobody attacks; add +model@task.attacker=MODEL")
        self._attacker.check_ready()
        attacks = [_Attack(self, prompt) for prompt in prompts]
        self._ask(model, attacks)
        for _ in range(self.turns):
            going = [attack for attack in attacks if attack.right]
            for attack, text in zip(going, self._written([attack.to_attacker() for attack in going]), strict=True):
                attack.hear_attacker(text)
            self._ask(model, going)
        succeeded = [attack for attack in attacks if attack.edits and not attack.right]
        for number in range(self.controls):
            edits = self._written([attack.to_control() for attack in succeeded], number + 1)
            asked = [attack.to_model(_edited_in(text)) for attack, text in zip(succeeded, edits, strict=True)]
            for attack, text in zip(succeeded, self._answers(model, asked), strict=True):
                attack.steps.append({"kind": "control", "right": self.is_right(attack.case, text)})
        return [attack.reply() for attack in attacks]

    def _ask(self, model: Any, attacks: Sequence[_Attack]) -> None:
        for attack, text in zip(attacks, self._answers(model, [attack.to_model() for attack in attacks]), strict=True):
            attack.hear_model(text)

    def _answers(self, model: Any, prompts: Prompts) -> Sequence[str]:
        return one_each(model.generate(prompts, self._decoding), prompts) if prompts else ()

    def _written(self, prompts: Prompts, draw: int = 0) -> Sequence[str]:
        """Attacker's replies; draws differ by their seed."""
        decoding = Decoding(**self.attacker_decoding)
        decoding = replace(decoding, seed=decoding.seed + draw)
        return one_each(self._attacker.generate(prompts, decoding), prompts) if prompts else ()

    def is_right(self, case: Case, text: str) -> bool:
        """Correctness of a reply, by the case's key."""
        return accuracy_or_exact_match(self._pair(case, {"texts": [text]})) == 1


@dataclass
class _Attack:
    """One question under attack."""

    task: AttackedQuestionTask
    prompt: Prompt
    right: bool = False
    replies: list[str] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)
    steps: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def case(self) -> Case:
        """The case with its key."""
        return self.prompt.case  # type: ignore[attr-defined, no-any-return]

    def to_model(self, edited: str = "") -> Prompt:
        """Prompt of the question, or of its last or a given edit, without the key."""
        text = edited or (_edited_in(self.edits[-1]) if self.edits else question_of(self.case).text)
        case = replace(self.case, question=replace(question_of(self.case), text=text))
        return super(AttackedQuestionTask, self.task).prompt(case, self.prompt.images)

    def hear_model(self, text: str) -> None:
        """Takes an answer, and whether it is right."""
        self.right = self.task.is_right(self.case, text)
        record = text.as_record() if isinstance(text, Turn) else {}
        self.replies.append(text)
        self.steps.append({"kind": "model", "agent": "model", "text": str(text), "right": self.right, **record})

    def to_attacker(self) -> Prompt:
        """Script, and all edits with the replies to them."""
        messages = [Message("user", (fill(self.task.script, self._fields(self.replies[0])),))]
        for edit, reply in zip(self.edits, self.replies[1:], strict=True):
            again = fill(self.task.again, {"reply": str(reply)})
            messages += [Message("assistant", (edit,)), Message("user", (again,))]
        return Prompt(self.case.id, (), messages=tuple(messages))

    def to_control(self) -> Prompt:
        """Request for an edit like the one that succeeded."""
        fields = self._fields(self.replies[-1]) | {"edited": _edited_in(self.edits[-1])}
        return Prompt(self.case.id, (), messages=(Message("user", (fill(self.task.control, fields),)),))

    def hear_attacker(self, text: str) -> None:
        """Takes an edit of the question."""
        self.edits.append(text)
        self.steps.append({"kind": "user", "agent": "attacker", "text": _edited_in(text)})

    def reply(self) -> Reply:
        """All answers; the last one counts."""
        steps = [*self.steps, {"kind": "stop", "reason": "answer"}]
        return Reply(tuple(self.replies), trace=tuple({"step": index, **step} for index, step in enumerate(steps)))

    def _fields(self, reply: str) -> dict[str, str]:
        question, right = question_of(self.case), self.case.target.read().value
        answers = [question.options.get(value, str(value)) for value in ([right] if isinstance(right, str) else right)]
        options = "\n".join(f"{letter}. {text}" for letter, text in question.options.items())
        fields = {"question": question.text, "options": options, "answer": " or ".join(answers), "reply": str(reply)}
        return {**question.fields, **fields}


def _edited_in(text: str) -> str:
    """Question that a reply holds between marks; without them all of it."""
    marked = _EDITED.findall(text)
    return (marked[-1] if marked else text).strip()
