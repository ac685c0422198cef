"""Yes or no: words that stand alone, in the languages of the benchmarks, and statements of presence."""

from __future__ import annotations

import re

from medimg_eval.metrics.answers.cleaning import refuses
from medimg_eval.metrics.answers.markup import marked
from medimg_eval.metrics.answers.phrases import MARK, announcements, corrections
from medimg_eval.metrics.nlp import LONG, SENTENCES, either, ending, late_pattern

_YES = either(
    """yes, yeah, yep, yup, true, affirmative, absolutely, certainly, indeed, definitely, correct, of course,
    i think so, positive, sí, oui, sim, ja, はい, 예, 네, نعم, да, हाँ, có, vâng, ใช่, si(?=\\W*$|[.;:!])"""
)
_NO = either(
    """no, nope, nah, false, negative, incorrect, non, não, nein, いいえ, 아니오, 아니요, 아뇨, لا, كلا, нет,
    नहीं, không, ไม่, definitely not, absolutely not, certainly not, probably not, likely not,
    most likely not, unlikely, not at all, not really, of course not,
    i (?:don't|do not) think so"""
)
_CHINESE_NO = "(?:不是(?!很?确定)|没有|否|不存在|未见|无(?!法)|不(?!确定|能|知|清|好)|错误)"
_CHINESE_YES = "(?:(?:是|有|对|正确|存在)(?![否没不]))"
_EMPTY_NO = either("doubt, question, idea, image, picture, problem, worries, way to, information, answer")
_OPENING = late_pattern(
    rf"\W*(?:(?P<no>{_NO}(?![^\W\d_]|-\w)(?! {_EMPTY_NO}\b)|{_CHINESE_NO})"
    rf"|(?P<yes>{_YES}(?![^\W\d_]|-\w)|{_CHINESE_YES}))"
)
_ONLY = late_pattern(r"(?:\W*\b(?:yes|no)\b)+\W*")
_ALONE = late_pattern(r"\W*(?:(?P<yes>y)|(?P<no>n))\W*")
_WORD = late_pattern(
    r"(?<![^\W_])(?<!-)(?:(?P<yes>yes|sí|oui|はい|نعم|예|是的|да|true)"
    r"|(?P<no>no|non|いいえ|لا|아니오|아니요|нет|false))"
    r"(?![^\W_]|-)(?P<noun>[ \t]+(?!(?:in|for|on|at|as|if|when|because|since|with|to)\b)[^\W\d_])?"
)
_BOTH = late_pattern(
    r"\byes\s*(?:and|or|nor|/|\||,)\s*no\b(?=\W*$|[.,:!?)\"']| (?:can|is|to|only|question)\b)"
    r"|\bno\s*(?:and|or|nor|/|\||,)\s*yes\b(?=\W*$|[.,!?])"
    r"|是(?:或|还是|/)否|是不是|是否|有没有"
)
_ABSENT = late_pattern(
    r"\bthere (?:is|are|appears to be|seems to be|does not|do not) (?:no\b|not\b)|\bthere (?:isn't|aren't)\b|\b"
    + either(
        """not (?:present|seen|visible|detected|identified|observed|there|evident|found), absent, isn't, aren't,
        doesn't, does not (?:show|contain|demonstrate|have|appear), is not, are not, no evidence, negative for,
        without evidence, cannot be seen, (?:do|does|did) not see, see no, (?:shows?|reveals?|demonstrates?) no"""
    )
    + r"\b|\b(?:no|neither|none)(?: [\w-]+){1,6}? (?:is|are|was|were|can be) (?:[\w-]+ )?"
    + either("present, visible, seen, evident, detected, identified, observed, found, noted, appreciated")
    + r"\b"
)
_SURELY = late_pattern(
    r"\b(?:there(?: is|'s) |with |without |has |have )?(?:no |a |any )?(?:doubt|question) (?:that|but)\b"
)
_PRESENT = late_pattern(
    r"\bthere (?:is|are|appears to be|seems to be) (?!no\b|not\b)"
    r"|^(?:it|there|this|they) (?:is|are|does|do|has|have)\W*$"
    r"|\b(?:is|are) (?:clearly |also )?(?:present|visible|seen|evident|detected|identified|observed)\b"
    r"|^\W*present\b|\bpositive for\b"
)
_ON_CONDITION = late_pattern(r"(?:yes|no)\b[^.!?\n]*\b(?:if|when|unless)\b[^.!?\n]*\b(?:yes|no)\b")
_WHETHER = late_pattern(r"\b(?:whether|if)(?: or not)? (?:there|it|this|they|a|an|any|the)\b.*")
_CLAUSES = late_pattern(r"[.;:!?\n]|,? \b(?:but|however|although|though)\b")
_SPOKEN_OF = late_pattern(r"\b(?:wrong|incorrect|misleading|unsafe|premature|hard) to (?:say|answer)\W*$|\bwords?\W+$")
_DECIDES = late_pattern(r"\b(?:but|however|so|therefore|final|actually|thus|hence|overall)\b")
_UNSURE = late_pattern(r"\b(?:maybe|perhaps|possibly|might|either|unclear|both)\b|也许|可能")

Said = tuple[str, str]


def yes_or_no(text: str) -> tuple[str | None, str]:
    """Returns "yes", "no" or None of a text without thinking, and the rule."""
    low = marked(text).lower().strip()
    if not low:
        return None, "empty"
    if alone := _ALONE.fullmatch(low):
        return ("yes" if alone["yes"] else "no"), "word alone"
    if answer := (len(text) > LONG and _read_ending(text)) or _announced_answer(low):
        return answer
    both = _BOTH.search(low)
    low = _BOTH.sub(" ", low) if both else low
    if (both and not _WORD.search(low)) or _contradicts_itself(low):
        return None, "yes and no"
    corrected = [end for _, end in corrections(low)]
    answer = (_opening_answer(low[corrected[-1] :]) if corrected else None) or _opening_answer(low)
    return answer or _later_answer(low)


def _read_ending(text: str) -> Said | None:
    """Returns the answer that a long text's end decides."""
    end = marked(ending(text)).lower()
    return None if corrections(end) else _announced_answer(end)


def _announced_answer(low: str) -> Said | None:
    """Returns the last answer that is marked or announced."""
    positions = [(match.start() + 1, "marked answer") for match in MARK.finditer(low)]
    positions += [(end, "answer phrase") for _, end in announcements(low)]
    for end, rule in sorted(positions, reverse=True):
        after = low[end : end + 80].lstrip(" :\"'(\n")
        if (
            not _BOTH.match(after)
            and not _ON_CONDITION.match(after)
            and not _contradicts_itself(after)
            and (answer := _opening_answer(after))
        ):
            return answer[0], rule
    return None


def _contradicts_itself(low: str) -> bool:
    """Returns whether a text says "yes no yes", or asks."""
    return bool(("yes" in low and "no" in low) or low.endswith("?")) and bool(_ONLY.fullmatch(low))


def _opening_answer(low: str) -> Said | None:
    """Returns what a text answers by its first word."""
    match = _OPENING.match(low)
    if not match or (match["yes"] in {"correct", "true", "positive"} and re.match(r"\s+\w", low[match.end() :])):
        return None
    return ("yes" if match["yes"] else "no"), "first word"


def _only_spoken_of(before: str) -> bool:
    """Returns whether a clause says the next word is unsayable."""
    return refuses(before) or bool(_SPOKEN_OF.search(before))


def _later_answer(low: str) -> tuple[str | None, str]:
    """Returns a text's answer by a lone word or statement."""
    words = [
        "yes" if match["yes"] else "no"
        for match in _WORD.finditer(low)
        if not (match["no"] in {"no", "non", "false"} and match["noun"])
        and not (match["yes"] == "true" and match["noun"])
        and not _only_spoken_of(_CLAUSES.split(low[max(0, match.start() - 80) : match.start()])[-1])
    ]
    if len(set(words)) == 1:
        return words[0], "word alone"
    if words:
        return (words[-1], "last word") if _DECIDES.search(low) else (None, "yes and no")
    if refuses(low) or _UNSURE.search(low):
        return None, "refused"
    answers = set()
    for clause in SENTENCES.split(_SURELY.sub("", low)):
        sentence = _WHETHER.sub("", clause)
        if sentence and not sentence.endswith(("?", "？")):
            answers |= {"no"} if _ABSENT.search(sentence) else {"yes"} if _PRESENT.search(sentence) else set()
    return (answers.pop(), "statement") if len(answers) == 1 else (None, "nothing found")
