"""What a fragment commits to where an answer is expected: after "answer:", in a box, in a tag."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from medimg_eval.metrics.answers.cleaning import refuses
from medimg_eval.metrics.answers.negation import denied_after, denied_before
from medimg_eval.metrics.answers.option_labels import SEPARATOR, Labels, labels_of
from medimg_eval.metrics.answers.options import Sheet, spelled
from medimg_eval.metrics.answers.phrases import NOTHING
from medimg_eval.metrics.nlp import either, late_pattern

SEVERAL, FOREIGN, NO_ANSWER, DISAGREE = "several options", "foreign label", "no answer", "label against text"

_LEAD = late_pattern(
    r"(?:[\s\"'(\[{<:=.,>\x02#-]|→|：)*(?:(?:"
    + either(
        """the, my, is, it, it's, its, it is, that, would, should, must, be, to be, most, likely, probably, clearly,
        definitely, definitively, correct, right, best, final, answer, option, options, choice, choices, letter,
        label, either, both, therefore, so, thus, still, indeed, actually, now, hence, however, simply, just,
        as follows, i, we, i'd, think, believe, would say, say, choose, select, pick, go with, guess, 应该, 应, 选项,
        选择, 选, 是, 为, 项, 即, 보기, 번, الخيار, هو, هي, opción, opção, lựa chọn, đáp án, la, le"""
    )
    + r"|(?-i:[ao](?= [(]?[A-J]\b)))(?![A-Za-z'-])(?<=\S)[\s\"'(\[{:=,.]*)*",
    re.IGNORECASE,
)
_CLOSED = late_pattern(r"[\s\"')\]}.:,;、|–—-]*")
_NEGATED = late_pattern(
    r"(?:(?:is|are|was)\s+)?(?:definitely |clearly )?(?:not\b|neither\b|isn't|never\b|no longer|anything but"
    r"|(?:initially|originally|first|previously) \w+|不是|不)",
    re.IGNORECASE,
)
_INSTEAD = late_pattern(
    r"[,;.—-]?\s*\b(?<!anything )(?:but(?: rather)?|instead|rather|it(?:'s| is)|而是)[\s:,]+"
    r"(?:(?:is )?(?:in fact|now)\s)?",
    re.IGNORECASE,
)
_SENTENCE = late_pattern(r"[.!?。！？](?=\s|$)|[\n\x03]")
_RIVAL = late_pattern(
    r"(?:is|are|was|would be)(?: clearly| also)? (?:not|incorrect|wrong|less|unlikely|ruled)|isn't", re.IGNORECASE
)


@dataclass(frozen=True)
class Found:
    """Label that a rule took, or None with the reason."""

    label: str | None
    rule: str


@dataclass(frozen=True)
class OptionSet:
    """Options of a question, in the forms that rules need."""

    sheet: Sheet

    @cached_property
    def labels(self) -> Labels:
        """The labels and their patterns."""
        return labels_of(frozenset(self.sheet.keys))

    def known(self, label: str, rule: str) -> Found:
        """Returns a label if offered, else nothing, with the rule."""
        return Found(label, rule) if label in self.sheet.keys else Found(None, FOREIGN)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> OptionSet:
        """Returns what was asked with some options."""
        return cls(Sheet(options))


def resolve_fragment(text: str, asked: OptionSet, rule: str) -> Found | None:
    """Returns the option that a fragment commits to, or None."""
    text = text[:400]
    sentence = _SENTENCE.split(text.strip(" \n\x02\x03"), maxsplit=1)[0]
    for candidate in (text.strip(" \n.\x02\x03"), sentence):
        if len(candidate) > 1 and (label := asked.sheet.exact(candidate)):
            return Found(label, rule)
    lead = _LEAD.match(text)
    start = lead.end() if lead else 0
    if match := _NEGATED.match(text, start):
        turn = _INSTEAD.search(text, match.end(), match.end() + 120)
        return resolve_fragment(text[turn.end() :], asked, rule) if turn else None
    if match := _label_at(text, start, asked):
        return _read_label(text, match, asked, rule)
    return _read_option_text(text[start:], asked, rule) or (_read_nothing(text[start:]) if start or text else None)


def _label_at(text: str, start: int, asked: OptionSet) -> re.Match[str] | None:
    """Returns the label at a place; "I", "a", "e" included."""
    match = asked.labels.one.match(text, start)
    if match and asked.labels.is_label(text, *match.span("label")):
        return match
    return None


def _read_label(text: str, found: re.Match[str], asked: OptionSet, rule: str) -> Found | None:
    """Returns the option that a fragment's opening label commits to."""
    label = found["label"].upper()
    if label not in asked.sheet.keys:
        return Found(None, FOREIGN)
    end = found.end()
    if denied_after(text.lower(), end):
        return None
    remaining = text[end:]
    if _next_label(remaining, asked):
        return Found(None, SEVERAL)
    closed = _CLOSED.match(remaining)
    after = remaining[closed.end() if closed else 0 :]
    if (label_and_end := beside(after, asked)) and label_and_end[0] != label:
        return Found(None, DISAGREE)
    if label_and_end:
        own = asked.sheet.texts[label]
        position = remaining.lower().find(own)
        remaining = remaining[position + len(own) :] if position >= 0 else remaining[: closed.end() if closed else 0]
    return Found(None, SEVERAL) if others(remaining, label, asked) else Found(label, rule)


def _next_label(rest: str, asked: OptionSet) -> bool:
    """Returns whether another label follows at once: "A) B) C)"."""
    closing = _CLOSED.match(rest)
    match = asked.labels.one.match(rest, closing.end()) if closing else None
    if not match or match["label"] not in asked.sheet.keys or asked.labels.digits or "\n" in rest[: match.start()]:
        return False
    between = rest[: match.start()].strip()
    if match["label"] == "I" or between[-1:] == "-" or not asked.labels.is_label(rest, *match.span("label")):
        return False
    return rest[match.end() :].lstrip(" ").startswith(between)


def beside(text: str, asked: OptionSet) -> tuple[str, int] | None:
    """Returns the option whose text adjoins a label, with its end in the spelled text."""
    line = re.split(r"[\n\x03]", text.strip(" \"'*"), maxsplit=1)[0]
    begun = asked.sheet.begins(spelled(line))
    if begun is None:
        return None
    preceding = spelled(line)[begun[1] :]
    return (
        begun
        if re.match(r"\W*$|\s*[.,;:)(|–—-]|\s+(?:and|or|because|since|as|is|due|with|given|which)\b", preceding)
        else None
    )


def others(rest: str, label: str, asked: OptionSet) -> bool:
    """Returns whether "and", "or" or a comma adds another label."""
    sentence = re.split(r"[!?\x03]|\n(?!\s*(?:or|and)\b)|(?<=[a-z)]{2})\.\s", rest[:160], maxsplit=1)[0]
    for match in asked.labels.listed.finditer(sentence):
        start, end = match.span("label")
        token = match["label"]
        if token.upper() not in asked.sheet.keys or token.upper() == label:
            continue
        if not asked.labels.is_label(sentence, start, end) or (
            match.start() > 2 and not _is_marked(sentence, match, asked)
        ):
            continue
        low = sentence.lower()
        if _RIVAL.match(sentence[end:].lstrip(" )\"'")) or denied_after(low, end) or denied_before(low, start):
            continue
        return True
    return False


def _is_marked(sentence: str, found: re.Match[str], asked: OptionSet) -> bool:
    """Returns whether a distant label is punctuated as one, unlisted."""
    start, end = found.span("label")
    if (
        asked.labels.digits
        or found["label"].islower()
        or re.search(rf"{asked.labels.token}$", sentence[: found.start()])
    ):
        return False
    return sentence[start - 1] in "([" or bool(re.match(r"[.:)]\s*\w|\s*$", sentence[end:])) or "ption" in found[0]


def _read_option_text(text: str, asked: OptionSet, rule: str) -> Found | None:
    """Returns the option whose text a fragment's first sentence gives."""
    low = spelled(_SENTENCE.split(text[:300], maxsplit=1)[0])
    begun = asked.sheet.begins(low)
    mentions = asked.sheet.affirmed(low)
    if begun and not (low[begun[1] :] and denied_after(low, begun[1])):
        joined = re.match(rf"\s*\W?\s*{SEPARATOR}", low[begun[1] :])
        rival = any(
            mention.start - begun[1] < 12 and mention.label != begun[0]
            for mention in mentions
            if mention.start >= begun[1]
        )
        return Found(None, SEVERAL) if joined and rival else Found(begun[0], rule)
    named = {mention.label for mention in mentions}
    if len(named) == 1:
        return Found(named.pop(), rule)
    if named:
        return Found(None, SEVERAL)
    label = asked.sheet.part(low)
    return Found(label, rule) if label else None


def _read_nothing(text: str) -> Found | None:
    """Returns "no answer" for a fragment that says that there is none."""
    low = text[:120].lower().strip(" \n\"'([{.,:\x02\x03")
    return Found(None, NO_ANSWER) if NOTHING.match(low) or (low and refuses(low[:60])) else None
