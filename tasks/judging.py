"""What a judge, another model, is asked about an answer, and how its reply becomes a verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from medimg_eval.case import Case, Image, Prompt
from medimg_eval.errors import UsageError
from medimg_eval.question import Key, Question, Reply
from medimg_eval.tasks.templates import Template


@dataclass(frozen=True)
class JudgeQuestion:
    """One question to a judge about one answer.

    Attributes:
        name: what metrics call its verdict, as in `judged@completeness`.
        template: how it is put; its fields are those of the task's prompt, `output` (the answer) and `answer` (what is
            right, `right_letter` and `right_text` of a choice).
        pattern: a regular expression whose first group, at its last place in the reply, is the verdict.
        values: what a verdict is worth, in lower case; without it the verdict is a number.
        images: whether the judge sees the images.
        when: `always`, or `unparsed`: only of answers that no rule could take from the output.
    """

    name: str
    template: Template
    pattern: str
    values: Mapping[str, Any] = field(default_factory=dict)
    images: bool = False
    when: Literal["always", "unparsed"] = "always"

    @classmethod
    def all_of(cls, config: Mapping[str, Any]) -> tuple[JudgeQuestion, ...]:
        """Makes the questions of a task's `judge`: name -> its settings.

        Raises:
            UsageError: one lacks its prompt or its pattern, or has a key that is not known.
        """
        made = []
        for name, given in config.items():
            settings = dict(given or {})
            if not {"prompt", "pattern"} <= settings.keys():
                raise UsageError(f"task.judge.{name}: expected `prompt` and `pattern`, got {sorted(settings)}")
            template = Template.of(settings.pop("prompt"))
            strange = next((key for key in settings if key not in ("pattern", "values", "images", "when")), None)
            if strange is not None:
                raise UsageError(f"task.judge.{name}: there is no key {strange!r}")
            values = {str(key).lower(): value for key, value in dict(settings.pop("values", None) or {}).items()}
            made.append(cls(str(name), template, values=values, **settings))
        return tuple(made)

    def prompt(self, case: Case, question: Question, key: Key, reply: Reply, images: Sequence[Image]) -> Prompt:
        """Puts the question about one answer.

        Args:
            case: which.
            question: what was asked.
            key: what is right.
            reply: what was answered.
            images: of the case; empty for a judge that does not see them.
        """
        right = key.value
        several = right if isinstance(right, list | tuple) else (right,)
        said = {
            **question.fields,
            "output": reply.text,
            "answer": "; ".join(str(one) for one in several),
            "right_letter": str(right) if right in question.options else "",
            "right_text": question.options.get(right, "") if isinstance(right, str) else "",
        }
        about = Question(question.text, question.kind, question.options, said)
        shown = tuple(images) if self.images else ()
        messages, _ = self.template.messages(about, case.attributes, len(shown))
        return Prompt(case.id, shown, messages=messages)

    def verdict(self, text: str) -> float | str | None:
        """What the judge's reply says: a number or a name; None where it says nothing that was asked for."""
        found = list(re.finditer(self.pattern, text, re.IGNORECASE | re.DOTALL))
        if not found:
            return None
        said = (found[-1][1] if found[-1].re.groups else found[-1][0]).strip()
        if self.values:
            value = self.values.get(said.lower())
            return value if value is None or isinstance(value, str) else float(value)
        try:
            return float(said)
        except ValueError:
            return None
