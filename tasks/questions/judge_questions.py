"""What a judge, another model, is asked about an answer, and how its reply becomes a verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from medimg_eval.arguments import grouped
from medimg_eval.case import Case, Image, Prompt
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics.answers import split_thought
from medimg_eval.metrics.judges import jury_verdict, rationale_steps, read_ballots, reader, reasoning_steps, sentences
from medimg_eval.question import Key, Question, Reply, Turn
from medimg_eval.tasks.questions.templates import PLACE, Template

SENTENCES = "sentences"
"""What `each` names where a question is put about every sentence of the answer."""

RUBRIC = "rubric"
"""What `each` names where a question is put about every criterion of the answer key's `rubric`."""

THOUGHT = "thought"
"""What `each` names where a question is put about every step of the answer's reasoning."""

RATIONALE = "rationale"
"""What `each` names where a question is put about every step of the answer key's `rationale`."""

PARTS = ("", SENTENCES, RUBRIC, THOUGHT, RATIONALE)
"""What `each` may name that is no other question's verdict."""

MAX_NEW_TOKENS = 1024
"""How long a judge may write, unless its question says otherwise: long enough for one that reasons first."""

_COMPARED = frozenset({"output", "prediction", "prediction_lines", "reference", "reference_lines", "item"})

_KEYS = ("pattern", "parse", "values", "images", "when", "after", "each", "words", "blank", "by", "max_new_tokens")


@dataclass(frozen=True)
class JudgeQuestion:
    """One question to a judge about one answer.

    Attributes:
        name: what metrics call its verdict, as in `judged@completeness`.
        template: how it is put; its fields are those of the task's prompt, `output` (the answer) and `answer` (what is
            right, `right_letter` and `right_text` of a choice), `prediction` and `reference` (the same where they are
            texts, cut at `words`), `prediction_lines` and `reference_lines` (with their sentences numbered from 0, as
            in "[0] No effusion."), and by name the verdicts that it goes on from; `item` where there is an `each`.
        pattern: a regular expression whose first group, at its last place in the reply, is the verdict.
        values: what a verdict is worth, in lower case; without it the verdict is a number.
        images: whether the judge sees the images.
        when: `always`, or `unparsed`: only of answers that no rule could take from the output.
        parse: instead of `pattern`: the name of a reader, see `verdict_reader`, for verdicts that are more than a word.
        after: questions of the same judge that are asked before, and whose verdicts the template may show.
        each: is asked once for each text of that question's verdict, for each of the answer's `sentences` or of the
            steps of its `thought`, or for each criterion of the key's `rubric` or step of its `rationale`; the verdict
            holds all of them: {"items": texts, "verdicts": their verdicts, None where there is none}.
        words: of a reference and a prediction, so many are shown at most; 0 for all.
        blank: (verdict,): what it is where a text that would be shown is blank, which the judge is then not asked; ()
            asks all the same.
        by: a regular expression that the judge's checkpoint or class must hold, for questions that belong to one model.
        max_new_tokens: after which a reply is cut off.
    """

    name: str
    template: Template
    pattern: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    images: bool = False
    when: Literal["always", "unparsed"] = "always"
    parse: str = ""
    after: tuple[str, ...] = ()
    each: str = ""
    words: int = 0
    blank: tuple[Any, ...] = ()
    by: str = ""
    max_new_tokens: int = MAX_NEW_TOKENS

    @classmethod
    def all_of(cls, config: Mapping[str, Any]) -> tuple[JudgeQuestion, ...]:
        """Makes the questions of a task's `judge`: name -> its settings.

        Raises:
            UsageError: one lacks its prompt or its pattern, has a key that is not known, names a reader that is not
                there, or goes on from a question that is not asked before it.
        """
        questions = tuple(cls._of(str(name), dict(stated or {})) for name, stated in config.items())
        rounds(questions)
        return questions

    @classmethod
    def _of(cls, name: str, settings: dict[str, Any]) -> JudgeQuestion:
        if "prompt" not in settings or ("pattern" in settings) == ("parse" in settings):
            raise UsageError(
                f"task.judge.{name}: expected `prompt` and `pattern`, or `prompt` and `parse`, got {sorted(settings)}"
            )
        template = Template.of(settings.pop("prompt"))
        UsageError.refuse_invalid(f"task.judge.{name}: key", _KEYS, *settings)
        values = {str(key).lower(): value for key, value in dict(settings.pop("values", None) or {}).items()}
        if "parse" in settings:
            reader(settings["parse"])
        if "blank" in settings:
            settings["blank"] = (settings["blank"],)
        settings["after"] = tuple(dict.fromkeys(settings.get("after") or ()))
        return cls(name, template, values=values, **settings)

    @property
    def before(self) -> tuple[str, ...]:
        """The questions that must have been answered before it can be put."""
        return tuple(dict.fromkeys((*self.after, *((self.each,) if self.each not in PARTS else ()))))

    @cached_property
    def shown(self) -> frozenset[str]:
        """The fields that its template names."""
        forms = (self.template, *self.template.variants.values())
        texts = [text for form in forms for text in (form.system, *form.turns)]
        return frozenset(match["name"] for text in texts for match in PLACE.finditer(text) if match["name"])

    def fields(self, case: Case, reply: Reply, earlier: Mapping[str, Any], item: str = "") -> Mapping[str, str] | None:
        """Returns what its template may show of one answer.

        None where a text that it shows is blank, and nobody is asked. `earlier` has by question the verdicts that it
        goes on from; `item` is what it is about, where there is an `each`.

        Raises:
            CaseError: the case has no question, or several references where one is to be shown.
        """
        if case.question is None:
            raise CaseError(f"case {case.id!r} has no question that the judge's {self.name!r} could be about")
        verdicts = {name: _format_verdict(earlier[name]) for name in self.before}
        fields = {**self._said(case.question, case.target.read(), reply), **verdicts, "item": item}
        compared = self.shown & (_COMPARED | verdicts.keys())
        return None if self.blank and not all(fields[name].strip() for name in compared) else fields

    def put(self, case: Case, fields: Mapping[str, str], images: Sequence[Image] = ()) -> Prompt:
        """Question with its `fields`, and the case's `images` for seeing judges."""
        question = replace(case.question or Question(""), fields=fields)
        messages, _ = self.template.messages(question, case.attributes, len(images))
        return Prompt(case.id, tuple(images), messages=messages)

    def items(self, reply: Reply, earlier: Mapping[str, Any], key: Key) -> list[str]:
        """Texts to ask about; CaseError for an unreadable rubric."""
        if self.each == SENTENCES:
            return sentences(reply.text)
        if self.each == THOUGHT:
            return reasoning_steps(reply.text, _sent_thought(reply))
        if self.each == RATIONALE:
            return rationale_steps(key.more.get("rationale"))
        if self.each == RUBRIC:
            return [
                f"[{criterion['points']}] {criterion['criterion']}" for criterion in read_rubric(key.more.get("rubric"))
            ]
        return [str(text) for text in earlier[self.each]]

    @property
    def graded(self) -> bool | None:
        """Whether verdicts are numbers; None where they alone can tell."""
        if self.parse:
            return None
        numbers = {value for value in self.values.values() if isinstance(value, int | float)}
        return not self.values or len(numbers) > 2

    def verdict(self, text: str) -> Any:
        """Verdict in a reply, a jury's joint one: number, name or reader's result; else None."""
        ballots = read_ballots(text)
        if ballots is None:
            return self._verdict_in(text)
        verdict_text = grouped((ballot.judge, self._verdict_in(ballot.reply)) for ballot in ballots)
        return jury_verdict(verdict_text, graded=self.graded)

    def _verdict_in(self, text: str) -> Any:
        if self.parse:
            return reader(self.parse)(text)
        matches = list(re.finditer(self.pattern, text, re.IGNORECASE | re.DOTALL))
        if not matches:
            return None
        verdict_text = (matches[-1][1] if matches[-1].re.groups else matches[-1][0]).strip()
        if self.values:
            value = self.values.get(verdict_text.lower())
            return value if value is None or isinstance(value, str) else float(value)
        try:
            return float(verdict_text)
        except ValueError:
            return None

    def _said(self, question: Question, key: Key, reply: Reply) -> dict[str, str]:
        right = key.value
        several = [
            str(value) for value in (right if isinstance(right, list | tuple) else (right,)) if value is not None
        ]
        fields = {
            **question.fields,
            "output": reply.text,
            "answer": "; ".join(several),
            "right_letter": right if isinstance(right, str) and right in question.options else "",
            "right_text": question.options.get(right, "") if isinstance(right, str) else "",
        }
        if self.shown & {"reference", "reference_lines"} and len(several) > 1:
            raise CaseError(
                f"the judge's question {self.name!r} compares with one reference, and there are {len(several)}; "
                "give one, or leave such metrics out"
            )
        for name, text in (("prediction", reply.text), ("reference", several[0] if several else "")):
            fields[name] = " ".join(text.split()[: self.words]) if self.words else text
            if f"{name}_lines" in self.shown:
                parts = enumerate(sentences(fields[name]))
                fields[f"{name}_lines"] = " ".join(f"[{number}] {part}" for number, part in parts)
        if self.shown & {"thought", "reasoning"}:
            split = split_thought(reply.text, _sent_thought(reply))
            fields["thought"] = split.thought or reply.text
            fields["reasoning"] = "\n\n".join(part for part in (split.thought, split.answer) if part)
        if "rationale" in self.shown:
            fields["rationale"] = "\n".join(rationale_steps(key.more.get("rationale")))
        if "trace" in self.shown:
            fields["trace"] = _trace_shown(reply.trace)
        if "recorded" in self.shown:
            fields["recorded"] = json.dumps(key.more.get("dialogs"), ensure_ascii=False, indent=2)
        return fields


def _sent_thought(reply: Reply) -> str | None:
    last = reply.texts[-1] if reply.texts else ""
    return last.thought if isinstance(last, Turn) else None


def read_rubric(rubric: Any) -> list[Mapping[str, Any]]:
    """Reads a rubric `[{criterion, points, tags}]`; CaseError where invalid."""
    sound = isinstance(rubric, list | tuple) and all(
        isinstance(criterion, Mapping)
        and isinstance(criterion.get("criterion"), str)
        and isinstance(criterion.get("points"), int | float)
        for criterion in rubric
    )
    if not sound or not rubric:
        raise CaseError(f"a rubric is invalid: expected a list of criterion and points, got {rubric!r:.60}")
    return list(rubric)


def _trace_shown(trace: Sequence[Mapping[str, Any]]) -> str:
    """Steps of a session as JSON, without seconds, tokens and images."""
    keys = ("kind", "name", "arguments", "result", "error", "text")
    steps = [{key: step[key] for key in keys if key in step} for step in trace if step.get("kind") != "stop"]
    return json.dumps(steps, ensure_ascii=False, indent=2)


def rounds(questions: Sequence[JudgeQuestion]) -> list[list[JudgeQuestion]]:
    """Parts questions so that each comes after those that it goes on from.

    Raises:
        UsageError: one goes on from a question that is not asked, or from itself by way of others.
    """
    remaining, done, rounds = list(questions), set[str](), list[list[JudgeQuestion]]()
    names = {question.name for question in remaining}
    for question in remaining:
        complaint = f"task.judge.{question.name}: goes on from the question"
        UsageError.refuse_unknown(complaint, names, *question.before, then=", which is not asked")
    while remaining:
        ready = [question for question in remaining if done.issuperset(question.before)]
        if not ready:
            raise UsageError(f"task.judge.{remaining[0].name}: the questions before it wait for it")
        done.update(question.name for question in ready)
        rounds.append(ready)
        remaining = [question for question in remaining if question.name not in done]
    return rounds


def _format_verdict(verdict: Any) -> str:
    """Verdict as shown later: dashed texts, or JSON."""
    if isinstance(verdict, str):
        return verdict
    if isinstance(verdict, list):
        return "\n".join(f"- {item}" for item in verdict)
    return json.dumps(verdict)
