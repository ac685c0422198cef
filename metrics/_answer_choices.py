"""Several options out of one output, for questions that may have several right ones."""

from __future__ import annotations

import re
from collections.abc import Mapping

from medimg_eval.metrics._answer_lines import without_echo
from medimg_eval.metrics._answer_marks import marked
from medimg_eval.metrics._answer_mentions import why_not
from medimg_eval.metrics._answer_negation import denied
from medimg_eval.metrics._answer_options import spelled
from medimg_eval.metrics._answer_phrases import MARK, announcements
from medimg_eval.metrics._answer_settle import Asked
from medimg_eval.metrics._answer_text import is_error, refuses, visible


def choose_several(output: str, options: Mapping[str, str]) -> tuple[tuple[str, ...] | None, str]:
    """Returns the letters of the options that an output commits to, in the options' order, and the rule."""
    text = visible(output)
    if not text:
        return None, "thinking only" if output.strip() else "empty"
    asked = Asked.of(options)
    text = marked(asked.sheet.translated(text))
    if is_error(text):
        return None, "error"
    text, echoed = without_echo(text, asked)
    if echoed and not re.search(r"\w", text):
        return None, "options repeated"
    for found, rule in _attempts(text, asked):
        if found:
            return tuple(letter for label, letter in asked.sheet.keys.items() if label in found), rule
    return None, why_not(text)


def _attempts(text: str, asked: Asked) -> list[tuple[set[str], str]]:
    low = text.lower() if len(text.lower()) == len(text) else text
    places = [(found.start() + 1, "marked answer") for found in MARK.finditer(text)]
    places += [(end, "answer phrase") for _, end in announcements(low)]
    said = [
        (_listed(re.split(r"[\x03\n]|\.\s(?=[A-Z][a-z])", text[end : end + 300].strip(), maxsplit=1)[0], asked), rule)
        for end, rule in sorted(places, reverse=True)
    ]
    said = [(found, rule) for found, rule in said if found][:1]
    rows = [row for row in text.split("\n") if row.strip()]
    if len(rows) <= len(asked.sheet.keys) and len(text) < 300 and not refuses(low):
        said.append((_listed(text, asked), "labels alone"))
    return [*said, (_mentioned(text, asked), "mention")]


def _listed(text: str, asked: Asked) -> set[str]:
    """Returns the options that a short text lists, by label or by text."""
    together = re.fullmatch(r"\W*([A-Za-z]{2,})\W*", text)
    if together and set(together[1].upper()) <= set(asked.sheet.keys) and len(set(together[1])) == len(together[1]):
        return set(together[1].upper())
    low = text.lower() if len(text.lower()) == len(text) else text
    found = set()
    for one in asked.labels.one.finditer(text):
        start, end = one.span("label")
        label = one["label"].upper()
        used = one["label"].isupper() or asked.labels.digits or re.match(r"\s*(?:[,.;)\]&/]|$|and\b|or\b)", text[end:])
        if (
            label in asked.sheet.keys
            and used
            and asked.labels.is_label(text, start, end)
            and not denied(low, start, end)
        ):
            found.add(label)
    return found or {one.label for one in asked.sheet.affirmed(spelled(text))}


def _mentioned(text: str, asked: Asked) -> set[str]:
    """Returns the options that sentences name and do not deny, by label where any is named so, and else by text."""
    kept = "\n".join(
        row for row in re.split(r"(?<=[.!?])\s+|\n", text) if not refuses(row.lower()) and not row.endswith("?")
    )
    low = kept.lower() if len(kept.lower()) == len(kept) else kept
    labels = {kept[start:end].upper() for start, end in asked.labels.affirmed(kept, low)}
    return labels & set(asked.sheet.keys) or {one.label for one in asked.sheet.affirmed(spelled(kept))}
