"""Labelling schemes: findings, values and questions by which a language model labels reports, and how it is read."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.answers import last_object, split_thought
from medimg_eval.metrics.reports.labels.taxonomies import Taxonomy

STATES = ("blank", "positive", "negative", "uncertain")
"""States of a label, at their numbers."""

RULES = ("fixed", "mosaic", "rate")
KEYS = (
    *("findings", "values", "states", "sets", "source", "language", "ask", "instruction", "evidence", "rewrites"),
    *("examples", "rule", "max_new_tokens"),
)

TOGETHER = """\
Read the report and give every finding one value.
Findings:
{findings}
Values:
{values}
{evidence}Reply with one JSON object and nothing else. Its keys are the findings exactly as they stand above, \
and each of its values is {form}."""

EACH = "Read the report and answer the question by one of these values:\n{values}\n{evidence}Reply with {form}."

WITH_EVIDENCE = (
    "Whoever gives a positive value copies the words of the report that it rests on, without changing them.\n"
)
QUOTED = (
    'an object such as {{"value": {first}, "evidence": "words of the report, or nothing"}}, its value one of {values}'
)


class Reading(NamedTuple):
    """Value of one finding, as it was read in a reply.

    Attributes:
        value: one of the scheme's; "" where none could be read.
        evidence: words of the report that the model gave for it.
        problem: why there is no value, or why it was taken back.
    """

    value: str
    evidence: str = ""
    problem: str = ""


@dataclass(frozen=True)
class LabelScheme:
    """Labelling scheme: findings, values and questions to a language model.

    Attributes:
        findings: name -> a question or description, in any language; "" for the name alone.
        values: value, as a model writes it -> what it means.
        states: value -> its number in `STATES`; empty for values that are no such states, as grades.
        sets: name -> some of the findings.
        language: of the reports, as the model is told; "" for no word of it.
        ask: `together` for all findings in one reply, as MOSAIC does; `each` for a question by finding, as RATE does.
        instruction: in the place of our own; `{findings}` and `{values}` in it are filled in.
        evidence: whether a positive value needs words that the report holds; one without counts as blank.
        rewrites: instructions by which the report is rewritten first, such as without comparisons.
        examples: reports with the values of their findings, shown before the report.
        rule: how replies are read: `fixed`, or as published by `mosaic` or `rate`.
        max_new_tokens: of a reply.
        source: where the scheme comes from.
    """

    findings: Mapping[str, str]
    values: Mapping[str, str]
    states: Mapping[str, int] = field(default_factory=dict)
    sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    language: str = ""
    ask: Literal["together", "each"] = "together"
    instruction: str = ""
    evidence: bool = False
    rewrites: tuple[str, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()
    rule: str = "fixed"
    max_new_tokens: int = 1024
    source: str = ""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> LabelScheme:
        """Labelling scheme of a config with `findings` and `values`.

        Raises:
            UsageError: a key, state or rule is unknown; there are no findings or fewer than two values; an example
                lacks its report or has other findings or values.
        """
        UsageError.refuse_unknown("a labelling scheme has no key", KEYS, *map(str, config))
        findings, values = _name_meanings(config.get("findings")), _name_meanings(config.get("values"))
        if not findings or len(values) < 2:
            raise UsageError(
                "expected a labelling scheme to have findings and at least two values, "
                f"got {len(findings)} findings and {len(values)} values"
            )
        values_by_state = {str(state): value for state, value in (config.get("states") or {}).items()}
        UsageError.refuse_unknown("a labelling scheme has no state", STATES, *values_by_state)
        states = {
            _spell_value(word): STATES.index(name)
            for name, some in values_by_state.items()
            for word in _as_plain_list(some)
        }
        UsageError.refuse_unknown("a state of a labelling scheme names the value", values, *states)
        ask, rule = str(config.get("ask", "together")), str(config.get("rule", "fixed"))
        UsageError.refuse_invalid("`ask` of a labelling scheme", ("together", "each"), ask)
        UsageError.refuse_invalid("`rule` of a labelling scheme", RULES, rule)
        if states and (missing := next((value for value in values if value not in states), None)) is not None:
            raise UsageError(f"states of a labelling scheme leave out its value {missing!r}; name all or none")
        if config.get("evidence") and not states:
            raise UsageError("evidence of a labelling scheme is of positive values; say by `states` which these are")
        if rule == "rate" and not {"positive", "negative"} <= values_by_state.keys():
            raise UsageError("rule=rate reads yes as positive and all else as negative; name both in `states`")
        examples = tuple(_read_example(example, findings, values) for example in config.get("examples") or ())
        return cls(
            findings,
            values,
            states,
            {str(name): tuple(map(str, some)) for name, some in (config.get("sets") or {}).items()},
            str(config.get("language") or ""),
            "each" if ask == "each" else "together",
            str(config.get("instruction") or ""),
            bool(config.get("evidence", False)),
            tuple(map(str, config.get("rewrites") or ())),
            examples,
            rule,
            int(config.get("max_new_tokens", 1024)),
            str(config.get("source") or ""),
        )

    @classmethod
    def load(cls, place: str | Path) -> LabelScheme:
        """Labelling scheme of a YAML file or `configs/labelling` name.

        Raises:
            UserError: there is no such file, or it cannot be read as YAML; also as in `of`.
        """
        return cls.of(read_yaml(place))

    @property
    def taxonomy(self) -> Taxonomy:
        """The findings as a taxonomy that `label_family` takes."""
        return Taxonomy(tuple(self.findings), self.sets, self.source)

    @property
    def positive(self) -> tuple[str, ...]:
        """The values that are positive."""
        return self.values_of("positive")

    def values_of(self, state: str) -> tuple[str, ...]:
        """The values of a state, such as `blank`."""
        return tuple(value for value, number in self.states.items() if number == STATES.index(state))

    def state(self, value: str) -> str:
        """State name of a value, of `STATES`; else ""."""
        return STATES[self.states[value]] if value in self.states else ""

    def topics(self) -> list[str]:
        """Prompt topics: every finding, or "" for all at once."""
        return list(self.findings) if self.ask == "each" else [""]

    def prompt(self, topic: str, report: str) -> str:
        """Text that asks a model about a report.

        Args:
            topic: one of `topics`.
            report: as it is shown.
        """
        topics = [topic] if topic else list(self.findings)
        lines = [self._instruction(topics)]
        if topic:
            lines.append(f"Question: {self.findings[topic] or f'Does the report state {topic}?'}")
        if self.language:
            lines.append(f"The report is in {self.language}.")
        shots = [
            f"Report: <<<{example['report']}>>>\nReply: {self._written(example['labels'], topic)}"
            for example in self.examples
        ]
        return "\n".join([*lines, *shots, f"Report: <<<{report}>>>"])

    def read(self, topic: str, reply: str, report: str) -> dict[str, Reading]:
        """Values that a reply gives to the findings of a topic.

        Args:
            topic: what was asked about.
            reply: as it was written.
            report: as it was shown, in which evidence must stand.
        """
        if self.rule == "mosaic":
            return _read_mosaic(self, reply)
        if self.rule == "rate":
            return _read_rate(self, topic, reply)
        answer = split_thought(reply).answer
        content = last_object(answer)
        if topic:
            return {topic: self._checked(self._answered(answer, content), report)}
        if content is None:
            return dict.fromkeys(self.findings, Reading("", problem="the reply holds no JSON object"))
        held = {_fold_text(str(key)): value for key, value in content.items()}
        read = {name: self._value(held.get(_fold_text(name), _LACKING)) for name in self.findings}
        return {name: self._checked(reading, report) for name, reading in read.items()}

    def states_of(self, readings: Mapping[str, Reading]) -> dict[str, int] | None:
        """States of all findings for metrics; None where unread."""
        if any(readings[name].value not in self.states for name in self.findings):
            return None
        return {name: self.states[readings[name].value] for name in self.findings}

    def _instruction(self, asked: Sequence[str]) -> str:
        findings = "\n".join(
            f"- {name}: {self.findings[name]}" if self.findings[name] else f"- {name}" for name in asked
        )
        values = "\n".join(f"{value} = {meaning}" if meaning else value for value, meaning in self.values.items())
        if self.instruction:
            return self.instruction.replace("{findings}", findings).replace("{values}", values)
        one_of, first = ", ".join(map(_value_json, self.values)), _value_json(next(iter(self.values)))
        form = QUOTED.format(first=first, values=one_of) if self.evidence else f"one of {one_of}"
        text = EACH if self.ask == "each" else TOGETHER
        evidence_text = WITH_EVIDENCE if self.evidence else ""
        return text.format(findings=findings, values=values, evidence=evidence_text, form=form)

    def _written(self, labels: Mapping[str, Any], topic: str) -> str:
        """Reply to an example, as a model is to write it."""
        written = {name: self._example_value(value) for name, value in labels.items() if topic in ("", name)}
        if topic and not self.evidence:
            return str(written[topic])
        return json.dumps(written[topic] if topic else written, ensure_ascii=False)

    def _example_value(self, value: Any) -> Any:
        stated = value if isinstance(value, Mapping) else {"value": value}
        spelled = _read_value(_spell_value(stated["value"]))
        return {"value": spelled, "evidence": str(stated.get("evidence", ""))} if self.evidence else spelled

    def _answered(self, answer: str, given: Mapping[str, Any] | None) -> Reading:
        """Value of a reply: in its object, else uniquely named."""
        if given is not None:
            value = given.get("value", given.get("answer", _LACKING))
            return self._value({"value": value, "evidence": given.get("evidence", "")})
        text = answer.strip().strip("*_`\"'. \n")
        if (exact := self._spelled_as(text)) is not None:
            return Reading(exact)
        named = [value for value in self.values if _mentions_value(answer, value)]
        if len(named) == 1:
            return Reading(named[0])
        problem = f"names {len(named)} of the values" if named else "names none of the values"
        return Reading("", problem=f"the reply {problem}")

    def _value(self, given: Any) -> Reading:
        evidence = ""
        if isinstance(given, Mapping):
            given, evidence = given.get("value", _LACKING), str(given.get("evidence") or "")
        if given is _LACKING:
            return Reading("", evidence, "the reply leaves the finding out")
        if (value := self._spelled_as(_spell_value(given))) is not None:
            return Reading(value, evidence)
        return Reading("", evidence, f"the reply gives {given!r}, which is none of the values")

    def _spelled_as(self, text: str) -> str | None:
        return next((value for value in self.values if _fold_text(value) == _fold_text(text)), None)

    def _checked(self, reading: Reading, report: str) -> Reading:
        """Reading, blanked where positive without evidence in the report."""
        if not self.evidence or reading.value not in self.positive:
            return reading
        words = _fold_text(reading.evidence)
        if words and words in _fold_text(report):
            return reading
        blank = next(iter(self.values_of("blank") or self.values_of("negative")), "")
        problem = "its evidence does not stand in the report" if words else "it gives no evidence"
        return Reading(blank, reading.evidence, f"{reading.value} was taken back: {problem}")


_LACKING: Any = object()


def read_yaml(place: str | Path, folder: str = "labelling") -> Mapping[str, Any]:
    """Config of a YAML file, or of a package folder by name; UserError where unreadable."""
    import yaml

    text = str(place)
    own = text.endswith((".yaml", ".yml"))
    file: Any = Path(text).expanduser() if own else files("medimg_eval.configs") / folder / f"{text}.yaml"
    if not file.is_file():
        shipped = sorted(file.name.removesuffix(".yaml") for file in (files("medimg_eval.configs") / folder).iterdir())
        raise UserError(f"{file}: there is no such labelling scheme (available: {', '.join(shipped)}, or FILE.yaml)")
    with UserError.about(file, "cannot be read as YAML", yaml.YAMLError, UnicodeDecodeError):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    if not isinstance(content, Mapping):
        raise UserError(f"{file}: expected keys such as `findings`, got {type(content).__name__}")
    return content


def _read_mosaic(scheme: LabelScheme, reply: str) -> dict[str, Reading]:
    """Values as MOSAIC's program reads them (aliswh/mosaic, mosaic/core/utils.py, decode_output_vllm).

    One value that is none of the scheme's spoils the whole reply, and what is not read is blank without a word.
    """
    blank = next(iter(scheme.values_of("blank")), "")
    unread = dict.fromkeys(scheme.findings, Reading(blank))
    objects = re.findall(r"\{[^{}]*\}", reply)
    try:
        content = dict(ast.literal_eval(objects[-1])) if objects else {}
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return unread
    readings = {name: content.get(name) for name in scheme.findings}
    spelled = {name: None if value is None else _spell_value(value) for name, value in readings.items()}
    if any(value is not None and value not in scheme.values for value in spelled.values()):
        return unread
    return {name: Reading(blank if value is None else value) for name, value in spelled.items()}


def _read_rate(scheme: LabelScheme, topic: str, reply: str) -> dict[str, Reading]:
    """Values by RATE-Evals: any yes is positive, else negative."""
    yes, no = scheme.positive[0], scheme.values_of("negative")[0]
    content: Mapping[str, Any] = {topic: reply} if topic else last_object(reply) or {}
    return {
        name: Reading(yes if str(content.get(name, "")).strip().lower() == "yes" else no)
        for name in ([topic] if topic else scheme.findings)
    }


def _name_meanings(given: Any) -> dict[str, str]:
    """Names with what they mean, of a list of names or a mapping."""
    if isinstance(given, Mapping):
        return {_spell_value(name): " ".join(str(text or "").split()) for name, text in given.items()}
    names = [_spell_value(name) for name in _as_plain_list(given)]
    if len(set(names)) < len(names):
        raise UsageError(f"expected names of a labelling scheme once each, got {names}")
    return dict.fromkeys(names, "")


def _as_plain_list(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]


def _read_example(given: Any, findings: Mapping[str, str], values: Mapping[str, str]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or set(given) != {"report", "labels"} or not isinstance(given["labels"], Mapping):
        raise UsageError("expected an example of a labelling scheme to have a report and labels")
    labels = {_spell_value(name): value for name, value in given["labels"].items()}
    if set(labels) != set(findings):
        odd = sorted(set(labels) ^ set(findings))
        raise UsageError(f"an example of a labelling scheme must label every finding once; look at {odd}")
    held = (value["value"] if isinstance(value, Mapping) else value for value in labels.values())
    UsageError.refuse_unknown("an example of a labelling scheme has the value", values, *map(_spell_value, held))
    return {"report": str(given["report"]), "labels": labels}


def _spell_value(value: Any) -> str:
    """Value as text: 1, 1.0 and "1" alike."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _read_value(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _value_json(value: str) -> str:
    return json.dumps(_read_value(value), ensure_ascii=False)


def _fold_text(text: str) -> str:
    """Text in which case and blanks do not count."""
    return " ".join(text.split()).casefold()


def _mentions_value(text: str, value: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None
