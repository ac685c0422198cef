"""The cascade by which one option is taken from an output."""

from __future__ import annotations

import re
from collections.abc import Mapping

from medimg_eval.metrics import _answer_scan as scan
from medimg_eval.metrics._answer_marks import bold, marked
from medimg_eval.metrics._answer_phrases import CORRECTION, WITHDRAWAL
from medimg_eval.metrics._answer_settle import DISAGREE, SEVERAL, Asked, Found, beside
from medimg_eval.metrics._answer_text import before_next_question, is_error, visible

_AGAIN = re.compile(
    r"^(?:[\s,.:;—…-]|(?:no|wait|sorry|actually|hmm|i mean|rather|it is|it's|it should be|should be|make that|but|so)\b)+", re.IGNORECASE
)


def choose(output: str, options: Mapping[str, str]) -> tuple[str | None, str]:
    """Returns the letter of the option that an output commits to, and the rule; docs/extraction.md numbers the rules."""
    text = visible(output)
    if not text:
        return None, "thinking only" if output.strip() else "empty"
    asked = Asked.of(options)
    if not asked.sheet.keys:
        return None, "no options"
    found = decide(asked.sheet.translated(text), asked)
    return (None if found.label is None else asked.sheet.keys[found.label]), found.rule


def decide(text: str, asked: Asked) -> Found:
    """Returns what a text without thinking commits to."""
    if found := whole(text, asked):
        return found
    if is_error(text):
        return Found(None, "error")
    bolds = bold(text)
    text = marked(text)
    if found := whole(text.replace("\x02", " ").replace("\x03", " "), asked):
        return found
    text, echoed = scan.without_echo(text, asked)
    if echoed and not re.search(r"\w", text):
        return Found(None, "options repeated")
    cut = before_next_question(text)
    if cut != text and (found := commitment(cut, asked, bolds)) and found.label:
        return found
    return commitment(text, asked, bolds) or Found(None, scan.why_not(text))


def whole(text: str, asked: Asked) -> Found | None:
    """Returns what a text commits to that is a label alone, an option's text alone, or both and nothing else."""
    if len(text) > 400:
        return None
    found = asked.labels.alone.fullmatch(text) if len(text) < 60 else None
    if found:
        return asked.known(asked.labels.canonical(found["label"]), "label alone")
    if label := asked.sheet.exact(text):
        return Found(label, "option text alone")
    item = asked.labels.item.match(text)
    if item and (said := beside(text[item.end() :], asked)) and asked.sheet.exact(text[item.end() :]):
        label = asked.labels.canonical(item["label"])
        if label == said[0]:
            return Found(label, "label and text")
        return Found(None, DISAGREE) if label in asked.sheet.keys else asked.known(label, "label alone")
    if "\n" not in text.strip() and (label := asked.sheet.part(text)):
        return Found(label, "part of an option text")
    return None


def commitment(text: str, asked: Asked, bolds: list[str]) -> Found | None:
    """Returns what a text commits to last, by the strongest rule that finds anything."""
    corrected = _corrected(text, asked)
    if corrected:
        return corrected
    return _stated(text, asked) or scan.lines(text, asked, bolds) or scan.polar(text, asked) or scan.mentioned(text, asked)


def _stated(text: str, asked: Asked) -> Found | None:
    """Returns the last answer that is stated in so many words."""
    explicit = scan.explicit(text, asked)
    if explicit:
        return explicit[0]
    return scan.claimed(text, asked)


def _corrected(text: str, asked: Asked) -> Found | None:
    """Returns what follows the last correction, "wait, actually B", if anything was committed to before it."""
    places = [found for found in CORRECTION.finditer(text.lower()) if found.start() > 0]
    for place in reversed(places[-3:]):
        head, tail = text[: place.start()], _AGAIN.sub("", text[place.end() :])
        if not (before := _stated(head, asked) or scan.lines(head, asked, []) or whole(head, asked)):
            continue
        after = whole(tail, asked) or _stated(tail, asked) or scan.lines(tail, asked, []) or scan.mentioned(tail, asked)
        if after and (after.label or after.rule == SEVERAL):
            return Found(after.label, "correction" if after.label else after.rule)
        if before.label and WITHDRAWAL.search(text[place.start() :].lower()):
            return Found(None, "withdrawn")
    return None
