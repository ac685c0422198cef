"""Takes the answer from what a model wrote: one cascade of rules, without a language model and without chance.

The policy: the final commitment wins; thinking never counts; several options, labels that were not offered, refusals,
and empty outputs give None and never a guess. docs/definitions/extraction.md numbers the rules, with an example each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from medimg_eval.metrics.answers.choice import choose, choose_several
from medimg_eval.metrics.answers.cleaning import (
    has_tokens,
    is_error,
    is_withheld,
    refuses,
    says_none,
    visible,
    without_end_tokens,
)
from medimg_eval.metrics.answers.rule_registry import CASCADE, rule_named
from medimg_eval.metrics.answers.structured import (
    box_in,
    boxes3d,
    free_text,
    last_object,
    number_in,
    point_in,
    regions,
    scaled,
)
from medimg_eval.metrics.answers.yes_no import yes_or_no
from medimg_eval.metrics.nlp import chosen, late_pattern

Reason = Literal["", "unparsed", "refused", "empty"]

_NO_REFUSAL = {"several options", "foreign label", "label against text", "withdrawn", "options repeated", "yes and no"}
_MARKED = late_pattern(r"[<\u25c1\u3010]|\bthink", re.IGNORECASE)
_FORMS = {"regions": regions, "grades": last_object, "boxes3d": boxes3d}


@dataclass(frozen=True)
class ChoiceExtraction:
    """The option that an output commits to.

    Attributes:
        letter: one of the options' letters; None where the output commits to none of them, or to several.
        rule: which rule decided, or why there is no letter, as docs/definitions/extraction.md names them.
    """

    letter: str | None
    rule: str


@dataclass(frozen=True)
class Extraction:
    """The answer that was taken from an output.

    Attributes:
        value: of the form that `Key.value` has for the question's kind; None where there is none.
        rule: which rule decided.
        reason: why there is no value: "unparsed", "refused" or "empty"; "" where there is one.
    """

    value: Any
    rule: str
    reason: Reason = ""


def extract(
    kind: str,
    output: str,
    options: Mapping[str, str],
    *,
    rule: str = CASCADE,
    question: str = "",
    more: Mapping[str, Any] | None = None,
) -> Extraction:
    """Takes the answer to a question from an output.

    Args:
        kind: what an answer is, as in `medimg_eval.question.Kind`.
        output: what the model wrote.
        options: letter -> text; of a question without options, empty.
        rule: "cascade", which is ours, or the name of a published rule, one of `rules()`.
        question: what was asked; some published rules look at it.
        more: what the answer key says beside the value; of boxes and points, `convention` and `size`.

    Raises:
        UsageError: If there is no such rule, or no such convention of coordinates.
    """
    more = more or {}
    if is_withheld(output):
        return Extraction(None, "content filter", "refused")
    if rule != CASCADE:
        # Authors' scripts read decoded replies, which hold no special tokens.
        return _make_extraction(
            rule_named(rule).function(without_end_tokens(output), options, question, more), rule, output
        )
    if kind in ("choice", "choices"):
        letters, named = choose(output, options) if kind == "choice" else choose_several(output, options)
        return _make_extraction(letters, named, output)
    if kind in _BESIDE:
        return _BESIDE[kind](output, more)
    if kind in _FORMS:
        value = _FORMS[kind](visible(output))
        return _make_extraction(value, "form" if value is not None else "nothing found", output)
    return {"yes_no": extract_yes_no, "number": extract_number}.get(kind, extract_open)(output)


def extract_choice(output: str, options: Mapping[str, str]) -> ChoiceExtraction:
    """Takes the one option that an output commits to, thinking and all.

    Returns the letter as `options` has it (A-J, a-j, numbers, or letters of another script), and the rule; none where
    the output commits to no option, to several, or to a label that was not offered. The text decides nothing where a
    label is given, but a label beside the whole text of another option is no answer.
    """
    letter, rule = choose(output, options)
    return ChoiceExtraction(letter, rule)


def extract_choices(output: str, options: Mapping[str, str]) -> Extraction:
    """Takes all committed letters as a tuple in options' order."""
    letters, rule = choose_several(output, options)
    return _make_extraction(letters, rule, output)


def extract_yes_no(output: str) -> Extraction:
    """Takes "yes" or "no" from an output in several languages.

    docs/definitions/extraction.md names the languages. The words must stand alone: "normal", "nodule" and the
    "no" of "no doubt" say neither. Without such a word, a sentence that says that something is there, or is
    not, decides.
    """
    value, rule = yes_or_no(visible(output))
    return _make_extraction(value, rule, output)


def extract_number(output: str) -> Extraction:
    """Takes a number from an output: a float, as written.

    In the unit in which it was written. What is marked or announced as the answer wins, then the only number
    there is. Ranges and several different numbers give None. The decimal sign is a point; a comma between
    groups of three digits is left out.
    """
    value, rule = number_in(visible(output))
    return _make_extraction(value, rule, output)


def extract_box(output: str, more: Mapping[str, Any] | None = None) -> Extraction:
    """Takes a box from an output: x1, y1, x2, y2.

    In pixels, the first four numbers that stand together.

    Args:
        output: what the model wrote.
        more: `convention`: what its coordinates are: "pixels" (default), "thousand" (thousandths of the image's sides),
            "percent" or "unit" (shares in [0, 1]); `size`: (width, height) of the image in pixels, or one number for
            both, which all but "pixels" need.

    Raises:
        UsageError: If there is no such convention, or the size is missing.
    """
    value = box_in(visible(output))
    return _make_extraction(value and scaled(value, more or {}), "four numbers" if value else "nothing found", output)


def extract_point(output: str, more: Mapping[str, Any] | None = None) -> Extraction:
    """Takes a point from an output: (x, y) in pixels.

    Of a box in its place, the centre. `more` and what is raised are as in `extract_box`.
    """
    value = point_in(visible(output))
    return _make_extraction(value and scaled(value, more or {}), "two numbers" if value else "nothing found", output)


def extract_open(output: str) -> Extraction:
    """Takes a free-text answer: marked, or all but the thinking.

    A mark is a tag, or "final answer:" before it.
    """
    text = visible(output, plain=False)
    value = free_text(text) if text and (says_none(text) or not is_error(text)) else ""
    return _make_extraction(value or None, "text" if value else "empty", output)


def extract_report(output: str, more: Mapping[str, Any] | None = None) -> Extraction:
    """Takes a report's text: wanted sections, or all but thinking.

    Sections are taken where the report has them.

    Args:
        output: what the model wrote.
        more: `sections`: by name, such as "findings"; a text without headings is taken for them.
    """
    # What a reporting model writes is not touched where nothing in it can be thinking, a turn or a token.
    text = visible(output, plain=False) if _MARKED.search(output) or has_tokens(output) else output.strip()
    value = chosen(text, (more or {}).get("sections", ()))
    return Extraction(value or None, "text" if value else "empty", "" if value else "empty")


_BESIDE = {"box": extract_box, "point": extract_point, "report": extract_report}
"""Kinds whose answers are taken with regard to what the answer key says beside the value."""


def _make_extraction(value: Any, rule: str, output: str) -> Extraction:
    return Extraction(value, rule, "" if value is not None else _missing_reason(output, rule))


def _missing_reason(output: str, rule: str) -> Reason:
    """Returns the reason why an output has no answer."""
    text = visible(output)
    if rule in {"empty", "error"} or not output.strip() or (text and is_error(text)):
        return "empty"
    if rule in {"refused", "no answer"} or (rule not in _NO_REFUSAL and refuses(text.lower())):
        return "refused"
    return "unparsed"
