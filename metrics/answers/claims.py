"""The rules that take an answer where a text says which it is: marked, announced ("the answer is B"), or claimed."""

from __future__ import annotations

import re
from typing import NamedTuple

from medimg_eval.metrics.answers.fragment import SEVERAL, Found, OptionSet, others, resolve_fragment
from medimg_eval.metrics.answers.negation import denied_after, denied_before
from medimg_eval.metrics.answers.phrases import (
    CHOICE,
    CONDITIONAL,
    DISBELIEF,
    MARK,
    VERDICT,
    VERDICT_ELSEWHERE,
    WITHDRAWN,
    announcements,
    diagnoses,
)
from medimg_eval.metrics.nlp import late_pattern, lower

_MOST = 24
"""How many announcements are looked at, from the last."""
_MOST_LABELS = 96
"""How many labels."""

_REACH = 72
"""How many characters before a label its choice may begin."""

_TENTATIVE = late_pattern(r"\b(?:could|may|might|possibly|perhaps|maybe)\b|(?<![最很更])可能(?!性)|也许")
_DECIDES = late_pattern(r"\b(?:therefore|so|thus|hence|however|but|best|most|final|overall|better|conclu\w+)\b")
_CALLED = late_pattern(r"(?:option|choice|answer|letter)s?\s*[(\[\"']*$")
_CALLED_OR_BRACKETED = late_pattern(r"(?:option|choice|answer|letter|[(\[])\s*[(\[]?$")
_NUMBER_CALLED = late_pattern(r"(?:option|choice|answer|number|no\.|[(\[]|选项|选|choose|select|pick)\s*$")
_WOULD = late_pattern(r"\b(?:would|could|might) be\b")
_ENDS = late_pattern(r"\s*(?:[.,;!)]|$|\n|because\b|here\b)")


class _Claim(NamedTuple):
    place: int
    label: str | None  # None of several at once
    verdict: bool
    tentative: bool


def announced(text: str, asked: OptionSet) -> Found | None:
    """Returns the last tagged or announced ("the answer is") answer."""
    low = lower(text)
    positions = [(match.start(), match.start() + 1, "marked answer") for match in MARK.finditer(text)]
    positions += [(start, end, "answer phrase") for start, end in announcements(low)]
    for start, end, rule in sorted(positions, reverse=True)[:_MOST]:
        if rule == "answer phrase" and _is_disbelieved(low, start):
            continue
        if (choice := resolve_fragment(text[end:], asked, rule)) and not _is_withdrawn(low, end):
            return choice
    return None


def diagnosed(text: str, asked: OptionSet) -> Found | None:
    """Returns the last announced diagnosis or finding: "diagnosis: pneumothorax"."""
    low = lower(text)
    for start, end in reversed(diagnoses(low)[-_MOST:]):
        choice = None if _is_disbelieved(low, start) else resolve_fragment(text[end:], asked, "diagnosis phrase")
        if choice and choice.label is not None and not _is_withdrawn(low, end):
            return choice
    return None


def claimed(text: str, asked: OptionSet) -> Found | None:
    """Returns the last claimed option: "B is correct", "therefore B"."""
    low = lower(text)
    claims = _label_claims(text, low, asked)
    if not claims:
        return None
    last = ([claim for claim in claims if not claim.tentative] or claims)[-1]
    if last.label is None:
        return Found(None, SEVERAL)
    if len({claim.label for claim in claims}) > 1:
        around = low[max(0, last.place - 60) : last.place + 60]
        undecided = all(claim.verdict for claim in claims) and not _DECIDES.search(around)
        if undecided or all(claim.tentative for claim in claims):
            return Found(None, SEVERAL)
    return Found(last.label, "claim")


def _label_claims(text: str, low: str, asked: OptionSet) -> list[_Claim]:
    """Returns the claims about labels that were offered and that are not denied."""
    claims = []
    for match in list(asked.labels.one.finditer(text))[-_MOST_LABELS:]:
        start, end = match.span("label")
        label = match["label"].upper()
        if label not in asked.sheet.keys or not _may_be_label(text, low, start, end, asked):
            continue
        verdict = VERDICT.match(text, end) or (None if low.isascii() else VERDICT_ELSEWHERE.match(text, end))
        chosen = None if verdict else CHOICE.search(text, max(0, start - _REACH), start)
        if not (verdict and _is_verdict(low, verdict, start, end)) and not (
            chosen and _is_choice(text, low, start, end, asked)
        ):
            continue
        if not _claim_stands(low, chosen.start() if chosen else start, start, verdict.end() if verdict else end, end):
            continue
        several = others(text[end:], label, asked) or _joined_before(text, start, asked, label)
        lead = re.split(r"[,.;:]|\bbut\b", low[max(0, start - 24) : start])[-1]
        tentative = bool(_TENTATIVE.search(lead))
        several = several or (tentative and " also " in lead)
        claims.append(_Claim(start, None if several else label, bool(verdict), tentative))
    return claims


def _may_be_label(text: str, low: str, start: int, end: int, asked: OptionSet) -> bool:
    """Returns whether a letter or called number is a label."""
    if asked.labels.digits:
        return bool(_NUMBER_CALLED.search(low, max(0, start - 12), start))
    return asked.labels.is_label(text, start, end)


def _is_verdict(low: str, verdict: re.Match[str], start: int, end: int) -> bool:
    """Returns whether a letter called right is a label."""
    if low[start:end].isdigit() or not (verdict.groupdict().get("gap") or "").strip():
        return True
    return verdict.string[start:end].isupper() or bool(_CALLED_OR_BRACKETED.search(low, max(0, start - 12), start))


def _is_choice(text: str, low: str, start: int, end: int, asked: OptionSet) -> bool:
    """Returns whether a letter that is chosen is a label."""
    if text[start:end].islower() and not _ENDS.match(low, end):
        return bool(_CALLED_OR_BRACKETED.search(low, max(0, start - 12), start))
    return asked.labels.digits or asked.labels.stops(text, end) or bool(_CALLED.search(low, max(0, start - 12), start))


def _claim_stands(low: str, first: int, start: int, last: int, end: int) -> bool:
    """Returns whether a claim is undenied, certain and not withdrawn."""
    if _is_disbelieved(low, first) or denied_before(low, start) or denied_after(low, last) or _is_withdrawn(low, end):
        return False
    stop = re.search(r"[.!?\n]", low[last:])
    remaining = low[last : last + stop.start()] if stop else low[last:]
    if _WOULD.search(low, max(0, first - 12), start) and CONDITIONAL.search(remaining):
        return False
    return not stop or stop[0] != "?"


def _is_disbelieved(low: str, start: int) -> bool:
    """Returns whether an announcement is conditional, doubtful or someone else's."""
    preceding = low[max(0, start - 160) : start]
    sentence = re.split(r"[.!?]\s|\n", preceding)[-1]
    return bool(DISBELIEF.search(preceding) or CONDITIONAL.search(sentence))


def _is_withdrawn(low: str, end: int) -> bool:
    """Returns whether a text takes back what it has just said."""
    after = re.search(r"[,.;!?—–\n\x03]", low[end : end + 120])
    return bool(after and WITHDRAWN.match(low[end + after.start() : end + 200]))


def _joined_before(text: str, start: int, asked: OptionSet, label: str) -> bool:
    """Returns whether a label ends a list: "A and C"."""
    match = re.search(
        rf"{asked.labels.token}[)\]\"']*\s*[(]?(?:and|or|&|/|\+)\s*(?:option )?"
        r"(?:(?<=or )(?:maybe|possibly|perhaps|even|probably) )?[(\[\"']*$",
        text[max(0, start - 24) : start],
    )
    return match is not None and match["label"] != label and match["label"] in asked.sheet.keys
