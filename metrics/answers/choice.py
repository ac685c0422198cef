"""The cascade by which one option is taken from an output."""

from __future__ import annotations

import re
from collections.abc import Mapping

from medimg_eval.metrics.answers.claims import announced, claimed, diagnosed
from medimg_eval.metrics.answers.cleaning import before_next_question, is_error, refuses, visible
from medimg_eval.metrics.answers.fragment import DISAGREE, SEVERAL, Found, OptionSet, beside
from medimg_eval.metrics.answers.markup import bold, marked
from medimg_eval.metrics.answers.mentions import counted, mentioned, polar, why_not
from medimg_eval.metrics.answers.negation import denied
from medimg_eval.metrics.answers.options import spelled
from medimg_eval.metrics.answers.per_option import judged_options, right_options
from medimg_eval.metrics.answers.phrases import MARK, WITHDRAWAL, announcements, corrections
from medimg_eval.metrics.answers.position import last_label, placed, without_echo
from medimg_eval.metrics.nlp import LONG, ending, late_pattern, lower

_CITED = late_pattern(r"(?<=\S) ?\[\d{1,2}\]")
_MARKS = late_pattern(r"[<\\]|[\"']\s?:|\w\(\s*[\"']")
"""What may mark an answer."""
_AGAIN = late_pattern(
    r"(?:[\s,.:;—…-]|(?:no|wait|sorry|actually|hmm|i mean|rather|it is|it's|it should be|should be|make that)\b"
    r"|(?:but|so)\b)+",
    re.IGNORECASE,
)


def choose(output: str, options: Mapping[str, str]) -> tuple[str | None, str]:
    """Returns the committed option's letter, and the rule's name in the docs."""
    text = visible(output)
    if not text:
        return None, "thinking only" if output.strip() else "empty"
    option_set = OptionSet.of(options)
    if not option_set.sheet.keys:
        return None, "no options"
    choice = _decide_choice(option_set.sheet.translated(text), option_set)
    return (None if choice.label is None else option_set.sheet.keys[choice.label]), choice.rule


def _decide_choice(text: str, asked: OptionSet) -> Found:
    """Returns what a text without thinking commits to."""
    if choice := _read_whole(text, asked) or _read_repeated(text, asked):
        return choice
    if is_error(text):
        return Found(None, "error")
    if choice := judged_options(text, asked):
        return choice
    return (len(text) > LONG and _read_ending(text, asked)) or _read_choice(text, asked)


def _read_choice(text: str, asked: OptionSet) -> Found:
    """Returns what a text commits to, read from its beginning."""
    bolds = bold(text)
    text = asked.sheet.told(marked(text))
    if not asked.labels.digits:
        text = _CITED.sub("", text)
    if choice := _read_whole(text.replace("\x02", " ").replace("\x03", " "), asked):
        return choice
    text, echoed = without_echo(text, asked)
    if echoed and not re.search(r"\w", text):
        return Found(None, "options repeated")
    cut = before_next_question(text)
    if cut != text and (choice := _last_commitment(cut, asked, bolds)) and choice.label:
        return choice
    return _last_commitment(text, asked, bolds) or Found(None, why_not(text))


def _read_ending(text: str, asked: OptionSet) -> Found | None:
    """Returns the option that a long text's end decides."""
    end = marked(ending(text))
    if before_next_question(text) != text or corrections(lower(end)):
        return None
    end = without_echo(asked.sheet.told(end), asked)[0]
    if choice := announced(end, asked):
        return choice if choice.label else None
    choice = last_label(end, asked)
    return choice if choice and not _MARKS.search(text) and not announcements(lower(text)) else None


def _read_whole(text: str, asked: OptionSet) -> Found | None:
    """Returns the option of a text with nothing else."""
    if len(text) > 400:
        return None
    if len(text) < 60 and (alone := asked.labels.alone.fullmatch(text)):
        return asked.known(alone["label"].upper(), "label alone")
    if label := asked.sheet.exact(text):
        return Found(label, "option text alone")
    item = asked.labels.item.match(text)
    if item and (label_and_end := beside(text[item.end() :], asked)) and asked.sheet.exact(text[item.end() :]):
        label = item["label"].upper()
        return (
            Found(None, DISAGREE)
            if label in asked.sheet.keys and label != label_and_end[0]
            else asked.known(label, "label and text")
        )
    if "\n" not in text.strip() and (label := asked.sheet.part(text)):
        return Found(label, "part of an option text")
    return None


def _read_repeated(text: str, asked: OptionSet) -> Found | None:
    """Returns the label that a text repeats, "B. B. B.", and nothing else."""
    words = set(re.findall(r"[^\W_]+", text[:120].upper()))
    if len(words) != 1 or not words <= set(asked.sheet.keys):
        return None
    return (
        Found(words.pop(), "label alone") if re.fullmatch(r"(?:\W*\w{1,2}\W*[.,)\n])+\W*\w{0,2}", text[:400]) else None
    )


def _last_commitment(text: str, asked: OptionSet, bolds: list[str]) -> Found | None:
    """Returns the last commitment, by the strongest rule that fits."""
    return (
        _read_corrected(text, asked)
        or announced(text, asked)
        or last_label(text, asked)
        or diagnosed(text, asked)
        or claimed(text, asked)
        or placed(text, asked, bolds)
        or polar(text, asked)
        or mentioned(text, asked)
        or counted(text, asked)
    )


def _correction_side(text: str, asked: OptionSet) -> Found | None:
    """Returns what one side of a correction commits to."""
    return announced(text, asked) or diagnosed(text, asked) or claimed(text, asked) or placed(text, asked, [])


def _read_corrected(text: str, asked: OptionSet) -> Found | None:
    """Returns the option after a correction, "wait, actually B"."""
    low = lower(text)
    for start, end in reversed(corrections(low)[-3:]):
        head, tail = text[:start], text[end:]
        if again := _AGAIN.match(tail):
            tail = tail[again.end() :]
        before = _correction_side(head, asked) or _read_whole(head, asked)
        if not before:
            continue
        after = _read_whole(tail, asked) or _correction_side(tail, asked) or mentioned(tail, asked)
        if after and (after.label or after.rule == SEVERAL):
            return Found(after.label, "correction" if after.label else after.rule)
        if before.label and WITHDRAWAL.search(low[start:]):
            return Found(None, "withdrawn")
    return None


def choose_several(output: str, options: Mapping[str, str]) -> tuple[tuple[str, ...] | None, str]:
    """Returns committed letters, in the options' order, and the rule."""
    text = visible(output)
    if not text:
        return None, "thinking only" if output.strip() else "empty"
    option_set = OptionSet.of(options)
    text = option_set.sheet.translated(text)
    if letters := right_options(text, option_set):
        return _in_order(letters, option_set), "verdict per option"
    text = marked(text)
    if is_error(text):
        return None, "error"
    text, echoed = without_echo(text, option_set)
    if echoed and not re.search(r"\w", text):
        return None, "options repeated"
    for letters, rule in _list_attempts(text, option_set):
        if letters:
            return _in_order(letters, option_set), rule
    return None, why_not(text)


def _in_order(labels: set[str], asked: OptionSet) -> tuple[str, ...]:
    """Returns the letters of some labels in the options' order."""
    return tuple(letter for label, letter in asked.sheet.keys.items() if label in labels)


def _list_attempts(text: str, asked: OptionSet) -> list[tuple[set[str], str]]:
    low = text.lower() if len(text.lower()) == len(text) else text
    positions = [(match.start() + 1, "marked answer") for match in MARK.finditer(text)]
    positions += [(end, "answer phrase") for _, end in announcements(low)]
    attempts = [
        (
            _listed_options(
                re.split(r"[\x03\n]|\.\s(?=[A-Z][a-z])", text[end : end + 300].strip(), maxsplit=1)[0], asked
            ),
            rule,
        )
        for end, rule in sorted(positions, reverse=True)
    ]
    attempts = [(letters, rule) for letters, rule in attempts if letters][:1]
    rows = [row for row in text.split("\n") if row.strip()]
    if len(rows) <= len(asked.sheet.keys) and len(text) < 300 and not refuses(low):
        attempts.append((_listed_options(text, asked), "labels alone"))
    return [*attempts, (_mentioned_options(text, asked), "mention")]


def _listed_options(text: str, asked: OptionSet) -> set[str]:
    """Returns the options that a short text lists, by label or by text."""
    together = re.fullmatch(r"\W*([A-Za-z]{2,})\W*", text)
    if together and set(together[1].upper()) <= set(asked.sheet.keys) and len(set(together[1])) == len(together[1]):
        return set(together[1].upper())
    low = text.lower() if len(text.lower()) == len(text) else text
    letters = set()
    for match in asked.labels.one.finditer(text):
        start, end = match.span("label")
        label = match["label"].upper()
        used = (
            match["label"].isupper() or asked.labels.digits or re.match(r"\s*(?:[,.;)\]&/]|$|and\b|or\b)", text[end:])
        )
        if (
            label in asked.sheet.keys
            and used
            and asked.labels.is_label(text, start, end)
            and not denied(low, start, end)
        ):
            letters.add(label)
    return letters or {mention.label for mention in asked.sheet.affirmed(spelled(text))}


def _mentioned_options(text: str, asked: OptionSet) -> set[str]:
    """Returns undenied options named by label, or else by text."""
    remaining_text = "\n".join(
        row for row in re.split(r"(?<=[.!?])\s+|\n", text) if not refuses(row.lower()) and not row.endswith("?")
    )
    low = remaining_text.lower() if len(remaining_text.lower()) == len(remaining_text) else remaining_text
    labels = {remaining_text[start:end].upper() for start, end in asked.labels.affirmed(remaining_text, low)}
    return labels & set(asked.sheet.keys) or {
        mention.label for mention in asked.sheet.affirmed(spelled(remaining_text))
    }
