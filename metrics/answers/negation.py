"""Whether a text denies what it mentions: "not B", "rather than an effusion", "pneumonia is unlikely"."""

from __future__ import annotations

import re

from medimg_eval.metrics.nlp import either, late_pattern

_REACH = 90
"""How many characters a denial reaches at most."""

_BREAK = late_pattern(
    r"[.;:!?。；！？](?=\s|$)|\n|[。；！？]|而是|但是?|\bبل\b|\bوانما\b|\bאלא\b|—|->|=>|→|,? "
    + either("(?<!anything )but, however, although, though, whereas, while, yet, sino, sondern, mais, mas, pero")
    + r"\b"
)
_BEFORE = late_pattern(
    r"\b(?P<wide>"
    + either(
        r"""no(?! doubt| question|w), not(?! only| just| surprising), cannot, without(?! doubt), neither, nor, never,
        non, ru(?:le|led|les|ling) out, exclud(?:e|ed|es|ing), eliminat(?:e|es|ed|ing), reject(?:s|ed|ing)?,
        discard(?:ed|ing)?, dismiss(?:es|ed|ing)?, absence of, absent, negative for, anything but, free of,
        (?<!caused by )(?<!caused by a )(?<!from )(?<!from a )lack(?:s|ing)?(?: of)?,
        less likely, unlikely, against, differentiat\w+, distinguish\w*, mistaken for, confused with, mimic\w*,
        whether, denies, n[ií], sin, sans, pas, não, sem, không(?: phải)?"""
    )
    + r")\b|n't\b|\b(?P<narrow>"
    + either(
        r"""rather than, instead of, unlike, as opposed to, opposed to, compared (?:to|with), versus, vs\.?, than,
        other than, except, over, in contrast to, incorrect, wrong, tempting"""
    )
    + r")\b|"
    + either(
        r"不是,没有,并非,不选,排除,不符合,不支持,不考虑,"
        r"而非,未见,无(?!法),ليس,غير,لا [يت]وجد,(?<!\w)לא(?!\w),(?<!\w)אין(?!\w)"
    )
)
_ENDS_WIDE = late_pattern(
    r",.*\b"
    + either(
        r"""is, are, was, consistent, suggest\w*, indicat\w*, show\w*, so, thus, therefore, hence, instead, which, it,
        this, there, with, making, likely, compatible, favou?r\w*, point\w*, rather, just, i, we, choose, answer,
        correct, leav\w*, only, must, then, maybe, perhaps, probably, possibly"""
    )
    + r"\b|,.*[是选为]"
)
_COPULA = (
    r"(?:(?:can|could|may) (?:therefore |also |thus )?be |"
    + either("is, are, was, were, seems?, appears?, would be, has been, looks?, 's, be")
    + r" )?"
)
_HYPOTHETICAL = (
    r"(?<!\bi )(?<!\bwe )would be (?!"
    + either(
        """the, an?, my, our, most, more, best, better, correct, right, likely, consistent, compatible, favou?red,
        appropriate, suitable, considered, good, preferred, suspected, reasonable, supported, probable"""
    )
    + r"\b)(?=[a-z])"
)
_AFTER = late_pattern(
    r"[ )\]\"':(–-]{0,3}(?:\(?(?:option |choice )?[a-j]\)?\W{1,3})?(?:[\w'-]+ ){0,3}?"
    + _COPULA
    + r"(?:\w+ly |also |less |very |therefore |thus |quite |all |both )?(?:"
    + either(
        r"""not\b(?! only| (?:option |choice )?[b-j]\b| a\s*[).;]| a$),
        (?:is|are|was|were|does|do|did|would|could|can|wo)n't, cannot, unlikely, incorrect, wrong, ruled out,
        excluded, absent, less likely, less probable, eliminated, false, implausible, inconsistent, out\b, inaccurate,
        improbable, rejected, dismissed, typically, usually, classically, generally, refers to, does not,
        would (?:show|present|have|appear|typically|usually|require|demonstrate|look|cause|involve|produce|reveal),
        (?:occurs|happens|arises|is) when, is defined"""
    )
    + rf"|{_HYPOTHETICAL})"
    + r"|\W{0,3}"
    + either("(?:选项)?(?:不|错|是错|可排除|可以排除|被排除|排除|并不), [✗✘❌×✕]")
    + "|"
    + either("가 아니, 는 아니, ではな, ではあり, じゃな")
    + r"|\W{0,3}"
    + either(r"no es, n'est pas, não é, ist nicht, không phải, sai\b, es incorrect, est incorrect")
)


def denied(text: str, start: int, end: int) -> bool:
    """Returns whether a clause denies lower-case text `start` to `end`."""
    return denied_before(text, start) or denied_after(text, end)


def denies(text: str) -> bool:
    """Returns whether a lower-case text denies anything at all."""
    return bool(_BEFORE.search(text))


def denied_before(text: str, start: int) -> bool:
    """Returns whether lower-case text denies beforehand what begins at `start`."""
    preceding = text[max(0, start - _REACH) : start]
    breaks = list(_BREAK.finditer(preceding))
    if breaks:
        preceding = preceding[breaks[-1].end() :]
    negations = list(_BEFORE.finditer(preceding))
    if not negations:
        return False
    between = preceding[negations[-1].end() :]
    if negations[-1]["narrow"]:
        return not re.search(r",(?! ?(?:or|nor|and)\b)", between)
    return not _ENDS_WIDE.search(between)


def denied_after(text: str, end: int) -> bool:
    """Returns whether lower-case text denies afterwards what ended at `end`."""
    right = text[end : end + _REACH]
    stop = _BREAK.search(right)
    return bool(_AFTER.match(right[: stop.start()] if stop else right))
