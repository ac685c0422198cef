"""Yes or no: words that stand alone, in the languages of the benchmarks, and statements of presence."""

from __future__ import annotations

import re

from medimg_eval.metrics._answer_marks import marked
from medimg_eval.metrics._answer_phrases import ANSWER, CORRECTION, MARK
from medimg_eval.metrics._answer_text import refuses

_YES = r"yes|yeah|yep|yup|true|affirmative|absolutely|certainly|indeed|definitely|correct|sí|oui|sim|ja|はい|예|네|نعم|是的?|有的?|对|正确|存在|да|हाँ|có|vâng|ใช่"
_NO = r"no|nope|nah|false|negative|incorrect|non|não|nein|いいえ|아니오|아니요|아뇨|لا|كلا|不是|没有|否|无|不|不对|错误|不存在|нет|नहीं|không|ไม่"
_STRONG_YES, _STRONG_NO = r"yes|sí|oui|はい|نعم|예|是|да|true", r"no|non|いいえ|لا|아니오|아니요|否|нет|false"
_EDGE = r"(?![^\W\d_])"
_START = re.compile(rf"\W*(?:(?P<no>{_NO}){_EDGE}|(?P<yes>{_YES}){_EDGE})(?P<after>.{{0,40}})", re.DOTALL)
_WORD = re.compile(rf"(?<![^\W_])(?<!-)(?:(?P<yes>{_STRONG_YES})|(?P<no>{_STRONG_NO}))(?![^\W_])(?!-)")
_BOTH = re.compile(r"\byes\W{1,3}(?:(?:and|or|nor|/)\W{0,2})?no\b|\bno\W{1,3}(?:(?:and|or)\W{0,2})?yes\b|\byes/no\b|是(?:或|还是|/)否|是不是|有没有")
_DETERMINER = re.compile(r"\s+[^\W\d_]")
_HERE = re.compile(
    r"\b(?:there (?:is|are|appears to be|seems to be) (?P<none>no\b|not\b|n't)|(?P<absent>not (?:present|seen|visible|detected|identified|observed|there|evident|found)|absent\b|isn't\b|aren't\b"
    r"|does not (?:show|contain|demonstrate|have)|doesn't|is not\b|are not\b|no evidence|negative for|without evidence)|(?P<there>there (?:is|are|appears to be|seems to be) (?!no\b|not\b)|"
    r"(?:is|are) (?:clearly |also )?(?:present|visible|seen|evident|detected|identified|observed)|^present\b|^positive\b|positive for))"
)
_UNSURE = re.compile(r"\b(?:maybe|perhaps|possibly|might|either|unclear|both)\b|也许|可能")


def yes_or_no(text: str) -> tuple[str | None, str]:
    """Returns "yes", "no" or None of a text without thinking, and the rule."""
    text = marked(text)
    low = text.lower().strip()
    if not low:
        return None, "empty"
    if found := _announced(low):
        return found
    if _BOTH.search(low):
        low = _BOTH.sub(" ", low)
        if not _WORD.search(low):
            return None, "yes and no"
    corrected = [found.end() for found in CORRECTION.finditer(low) if found.start() > 0]
    if corrected and (found := _opening(low[corrected[-1] :].lstrip(" ,.:;-—"))):
        return found
    if found := _opening(low):
        return found
    return _later(low)


def _announced(low: str) -> tuple[str, str] | None:
    """Returns the last answer that is marked or announced."""
    places = [(found.start(), found.start() + 1, "marked answer") for found in MARK.finditer(low)]
    places += [(found.start(), found.end(), "answer phrase") for found in ANSWER.finditer(low)]
    for _, end, rule in sorted(places, reverse=True):
        after = low[end : end + 80]
        if _BOTH.match(after.lstrip(" \"'(:")):
            continue
        if found := _opening(after.lstrip(" :\"'(")):
            return found[0], rule
    return None


def _opening(low: str) -> tuple[str, str] | None:
    """Returns what a text answers by its first word."""
    found = _START.match(low)
    if not found:
        return None
    if found["no"]:
        return "no", "first word"
    if found["yes"] in {"correct", "indeed", "true", "definitely", "certainly", "absolutely"} and re.match(r"\s+(?:no|not)\b", found["after"]):
        return "no", "first word"
    if found["yes"] in {"ja", "correct", "true", "有", "对"} and _DETERMINER.match(found["after"]) and found["yes"] == "correct":
        return None
    return "yes", "first word"


def _later(low: str) -> tuple[str | None, str]:
    """Returns what a text answers by a word that stands alone, or by saying that something is there, or is not."""
    words = []
    for found in _WORD.finditer(low):
        if found["no"] in {"no", "non"} and _DETERMINER.match(low[found.end() :]) and not low[found.end() :].startswith(("\n", " -")):
            continue
        words.append("yes" if found["yes"] else "no")
    if words and len(set(words)) == 1:
        return words[0], "word alone"
    if words:
        return (words[-1], "last word") if re.search(r"(?:but|however|so|therefore|final|actually|thus|hence)\W", low) else (None, "yes and no")
    if refuses(low) or _UNSURE.search(low):
        return None, "refused"
    said = {"yes" if found["there"] else "no" for found in _HERE.finditer(low)}
    return (said.pop(), "statement") if len(said) == 1 else (None, "nothing found")
