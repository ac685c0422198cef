"""Numbers that are written as words: "twenty-one", "a dozen", "drei", "两个", "세 개"."""

from __future__ import annotations

import re
from typing import NamedTuple

from medimg_eval.metrics.nlp import late_pattern

_ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_UNITS = ("zero", *_ONES, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_VALUES = {word: value for value, word in enumerate(_UNITS)}
_VALUES |= {word: 10 * value for value, word in enumerate(_TENS, start=2)}
# Articles ("un", "ein", "uno") and words that mean something else in another of the languages are left out.
_FOREIGN = {
    2: "zwei deux dos dois due",
    3: "drei trois tres três tre",
    4: "vier quatre cuatro quatro quattro",
    5: "fünf cinq cinco cinque",
    6: "sechs seis",
    7: "sieben sept siete sete sette",
    8: "acht huit ocho oito otto",
    9: "neun neuf nueve nove",
    10: "zehn dix diez dez dieci",
    11: "elf onze",
    12: "zwölf douze doce doze dodici",
}
_VALUES |= {word: value for value, words in _FOREIGN.items() for word in words.split()}
_CHINESE = {"零": 0, "一": 1, "二": 2, "两": 2, "兩": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
_KOREAN = {"하나": 1, "한": 1, "둘": 2, "두": 2, "셋": 3, "세": 3, "넷": 4, "네": 4}
_KOREAN |= {"다섯": 5, "여섯": 6, "일곱": 7, "여덟": 8, "아홉": 9, "열": 10}
_PART = "|".join(sorted(_VALUES, key=len, reverse=True))
_WORD = late_pattern(
    rf"\b(?!one of\b)(?:(?P<hundreds>(?:a|{'|'.join(_ONES)}) hundred)(?: (?:and )?(?=(?:{_PART})\b))?)?"
    rf"(?P<rest>(?:(?:{'|'.join(_TENS)})[ -](?:{'|'.join(_ONES)})|{_PART}))?\b(?P<dozen> dozen\b)?"
    r"|\b(?P<a>half a |a )?dozen\b"
)
_EASTERN = late_pattern(
    rf"(?<![第每另同])(?P<chinese>[{''.join(_CHINESE)}十]{{1,4}})(?=[个個处處枚颗顆条條块塊张張例つ]|\W*$)"
    rf"|(?<!\w)(?P<korean>{'|'.join(sorted(_KOREAN, key=len, reverse=True))})(?=\s?(?:개|군데|곳|명)|\W*$)"
)
_PRONOUN = late_pattern(r"\b(?:missed|this|that|which|no|the|another|each|every|only the) $")
_REPLACED = late_pattern(r"\bnot (?:an? )?[\w-]+,? but\b")


class NumberWord(NamedTuple):
    """A number written as words, and where it stands in the text."""

    start: int
    end: int
    value: float


def number_words(low: str) -> list[NumberWord]:
    """Returns numbers written as words in a lower-case text.

    Neither "this one" nor the "X" of "not X but Y".
    """
    low = _REPLACED.sub(lambda found: " " * len(found[0]), low)
    words = [
        NumberWord(*word.span(), float(_word_value(word)))
        for word in _WORD.finditer(low)
        if word[0].strip() and not (word[0] == "one" and _PRONOUN.search(low[max(0, word.start() - 12) : word.start()]))
    ]
    if not low.isascii():
        words += [NumberWord(*word.span(), float(_eastern_value(word))) for word in _EASTERN.finditer(low)]
    return words


def _word_value(found: re.Match[str]) -> float:
    if not found["hundreds"] and not found["rest"]:
        return 6 if (found["a"] or "").startswith("half") else 12
    value = 0
    if found["hundreds"]:
        value += 100 * _VALUES.get(found["hundreds"].split()[0], 1)
    if found["rest"]:
        value += sum(_VALUES[word] for word in re.split("[ -]", found["rest"]))
    return value * 12 if found["dozen"] else value


def _eastern_value(found: re.Match[str]) -> float:
    if found["korean"]:
        return _KOREAN[found["korean"]]
    tens, ten, units = found["chinese"].rpartition("十")
    return (10 * _CHINESE.get(tens or "一", 1) if ten else 0) + (_CHINESE.get(units[:1], 0) if units else 0)
