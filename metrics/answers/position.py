"""The rules that take an answer from where it stands: first words, last line, bold, in a list of verdicts."""

from __future__ import annotations

import re
from itertools import pairwise

from medimg_eval.metrics.answers.cleaning import is_prose
from medimg_eval.metrics.answers.fragment import DISAGREE, FOREIGN, SEVERAL, Found, OptionSet, beside, others
from medimg_eval.metrics.answers.negation import denied_after, denied_before
from medimg_eval.metrics.answers.options import spelled
from medimg_eval.metrics.nlp import SENTENCES, late_pattern, lower

_RIGHT = late_pattern(r"[✓✔✅☑]|\[x\]|\b(?:correct|true|yes|right|best)\b")
_TICK = late_pattern(r"[✓✔✅☑]|\[x\]")
_WRONG = late_pattern(r"[✗✘❌×✕]|\[ \]|\b(?:incorrect|false|no|wrong|not|n't|unlikely|ruled out|excluded|less)\b")
_REASON = late_pattern(r"\s+(?:because|since|as|due to|given|based on|rather than|instead of|it is\b|\(|\[|>)")
_LIST_HEAD = late_pattern(r"(?i)\b(?:the )?(?:answer )?(?:options|choices)(?: are| were)?(?: as follows)?\s*:?\s*\n")

_FEW = 3
"""Lines of a text that may list its verdicts sentence by sentence."""

Item = tuple[str, re.Match[str]]


def placed(text: str, asked: OptionSet, bolds: list[str]) -> Found | None:
    """Returns the option that its position in a text names.

    A line of its own, the first words, the only bold label, or the last words.
    """
    rows = [row.strip() for row in text.replace("\x02", " ").replace("\x03", " ").split("\n") if row.strip()]
    if not rows:
        return None
    items = [(row, match) for row in rows if (match := _item_label(row, asked))]
    sentences = [sentence for row in rows for sentence in SENTENCES.split(row)] if len(rows) < _FEW else rows
    return (
        _verdict_option([(sentence, match) for sentence in sentences if (match := _item_label(sentence, asked))], asked)
        or _last_line(rows, items, asked)
        or _first_words(rows, items, asked)
        or _in_bold(bolds, asked)
        or _last_words(rows[-1], asked)
    )


def last_label(text: str, asked: OptionSet) -> Found | None:
    """Returns the last line's label, if unique by line."""
    rows = [row.strip() for row in text.rsplit("\n", 3)[-3:]] if "\n" in text else []
    rows = [row for row in rows if row]
    if len(rows) < 2 or asked.labels.digits or _lone_label(rows[-2], asked) or _item_label(rows[-2], asked):
        return None
    choice = _line_option(rows[-1], asked) if len(rows[-1]) < 200 else None
    return (
        choice if choice and choice.label and (_lone_label(rows[-1], asked) or _item_label(rows[-1], asked)) else None
    )


def _lone_label(row: str, asked: OptionSet) -> re.Match[str] | None:
    """Returns the label that is the whole of a line."""
    return asked.labels.alone.fullmatch(row) if len(row) < 60 else None


def without_echo(text: str, asked: OptionSet) -> tuple[str, bool]:
    """Returns a text without repeated options, and whether any were."""
    low, needed = text.lower(), max(2, min(len(asked.sheet.keys), 3))
    if sum(_text_follows(low, label, own) for label, own in asked.sheet.texts.items()) < needed:
        return text, False
    spans: dict[str, tuple[int, int]] = {}
    for match in asked.labels.item.finditer(text):
        label = match["label"].upper()
        own = asked.sheet.texts.get(label)
        if own and label not in spans and (size := _prefix_length(text, match.end(), own)):
            spans[label] = (match.start(), match.end() + size)
    spans_in_order = sorted(spans.values())
    if len(spans_in_order) < needed:
        return text, False
    if any(
        re.search(r"\w{2}", text[span[1] : two[0]]) or two[0] - span[1] > 12 for span, two in pairwise(spans_in_order)
    ):
        return text, False
    after = [lower(text[end : end + 40]).split("\n")[0] for _, end in spans_in_order]
    if any(_RIGHT.search(words) or _WRONG.search(words) for words in after):
        return text, False
    for start, end in reversed(spans_in_order):
        text = text[:start] + "\n" + text[end:].lstrip(" .,;|")
    return _LIST_HEAD.sub("\n", text + "\n").strip(), True


def _text_follows(low: str, label: str, own: str) -> bool:
    """Returns whether an option's first word soon follows its label."""
    word, label = own.split(" ", 1)[0], label.lower()
    position = low.find(word)
    while position >= 0:
        preceding = low[max(0, position - 14) : position]
        if label in preceding and not preceding[preceding.rfind(label) + len(label) :][:1].isalpha():
            return True
        position = low.find(word, position + 1)
    return False


def _prefix_length(text: str, start: int, own: str) -> int:
    """Returns the number of characters spelling an option; else 0."""
    lead = len(text[start : start + 4]) - len(text[start : start + 4].lstrip(" \"'*"))
    for size in range(len(own), min(len(own) + 12, len(text) - start - lead) + 1):
        end = start + lead + size
        spelled_text = spelled(text[start + lead : end]).strip(" .,;")
        if spelled_text in {own, f"a {own}", f"an {own}"} and not text[end : end + 1].isalnum():
            return lead + size
    return 0


def _item_label(row: str, asked: OptionSet) -> re.Match[str] | None:
    """Returns the label that begins a line before a mark."""
    match = asked.labels.item.match(row)
    if not match or not asked.labels.is_label(row, *match.span("label")):
        return None
    after = row[match.end("label") : match.end("label") + 1]
    return match if not match["label"].islower() or after in {")", ".", ":", "", "]"} else None


def _verdict_option(items: list[Item], asked: OptionSet) -> Found | None:
    """Returns the one option that a list of the options calls right."""
    right: set[str] = set()
    wrong: set[str] = set()
    for row, match in items:
        label, low = match["label"].upper(), lower(row)
        if _WRONG.search(low) and not _TICK.search(low):
            wrong.add(label)
        elif _RIGHT.search(low):
            right.add(label)
    if len(right | wrong) < 2 or not right:
        return None
    if len(right) > 1:
        return Found(None, SEVERAL)
    label = right.pop()
    return Found(label, "verdict per option") if label in asked.sheet.keys and label not in wrong else None


def _last_line(rows: list[str], items: list[Item], asked: OptionSet) -> Found | None:
    """Returns the option the last line alone commits to."""
    if len(rows) < 2:
        return None
    alone = [_lone_label(row, asked) for row in rows[-2:]]
    if all(alone) and rows[-1] != rows[-2]:
        return Found(None, SEVERAL)
    labels = {match["label"].upper() for _, match in items}
    choice = _line_option(rows[-1], asked)
    if (
        choice
        and asked.sheet.exact(rows[-1]) == choice.label
        and asked.sheet.exact(rows[-2]) not in {None, choice.label}
    ):
        return Found(None, SEVERAL)
    return choice if choice and (len(labels) < 2 or alone[-1]) else None


def _line_option(row: str, asked: OptionSet) -> Found | None:
    """Returns the option of a line with nothing else."""
    if alone := _lone_label(row, asked):
        return asked.known(alone["label"].upper(), "last line")
    item = _item_label(row, asked)
    if item and (label_ := asked.sheet.exact(row[item.end() :])):
        agrees = item["label"].upper() == label_
        return Found(label_, "last line") if agrees else Found(None, DISAGREE)
    label = asked.sheet.exact(row)
    return Found(label, "last line") if label else None


def _first_words(rows: list[str], items: list[Item], asked: OptionSet) -> Found | None:
    """Returns the option of the label that begins line one."""
    row = rows[0]
    match = _item_label(row, asked)
    if not match:
        return _with_reason(row, asked)
    label = match["label"].upper()
    if label not in asked.sheet.keys:
        return Found(None, FOREIGN)
    further = {item["label"].upper() for other_row, item in items if other_row is not row} - {label}
    after = row[match.end("label") :]
    if (further and min(further) > label and len(row) > len(match[0]) + 2) or others(after, label, asked):
        return Found(None, SEVERAL)
    low = lower(row)
    if denied_after(low, match.end()) or denied_after(low, match.end("label")):
        return None
    remaining = row[match.end() :].strip()
    if label_and_end := beside(remaining, asked):
        return Found(label, "first words") if label_and_end[0] == label else Found(None, DISAGREE)
    odd = not is_prose(remaining) or re.match(r"[)\].]+[a-z]", after)
    return None if remaining and odd else Found(label, "first words")


def _with_reason(row: str, asked: OptionSet) -> Found | None:
    """Returns a line's opening label with reason: "B because ..."."""
    match = asked.labels.one.match(row)
    if (
        not match
        or asked.labels.digits
        or match["label"] not in asked.sheet.keys
        or not _REASON.match(row, match.end())
    ):
        return None
    return Found(match["label"], "first words") if asked.labels.is_label(row, *match.span("label")) else None


def _in_bold(bolds: list[str], asked: OptionSet) -> Found | None:
    """Returns the only option that stands in bold by its label."""
    named = set()
    for text in bolds:
        choice = _line_option(text.strip(" :"), asked)
        item = _item_label(text, asked)
        if choice and choice.label:
            named.add(choice.label)
        elif item and len(item[0]) < len(text):
            named.add(item["label"].upper())
    named &= set(asked.sheet.keys)
    return Found(named.pop(), "bold label") if len(named) == 1 else None


def _last_words(row: str, asked: OptionSet) -> Found | None:
    """Returns the label that ends a text: "(B)", ": B"."""
    first = max(0, len(row) - 40)
    match = re.search(rf"(?:[(\[]|(?:[a-z)\"'][.!?:,]|—|–)\s+){asked.labels.token}[)\]]?[\s.!]*$", row[first:])
    if not match or not match["label"].isupper():
        return None
    start, end = match.start("label") + first, match.end("label") + first
    if denied_before(lower(row), start) or not asked.labels.is_label(row, start, end):
        return None
    if asked.labels.listing.search(row, max(0, start - 24), start):
        return Found(None, SEVERAL)
    return asked.known(match["label"], "last words")
