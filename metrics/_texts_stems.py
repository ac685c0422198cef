"""Porter's stemmer: English words without their endings."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

_STEP_2 = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "abli": "able",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
}
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent"),
    *("ion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Returns the stem of a lower-case English word, by Porter, Program 14, 1980; short words stay as they are.

    >>> [stem(word) for word in ("effusions", "effusion", "enlarged", "opacities")]
    ['effus', 'effus', 'enlarg', 'opac']
    """
    if len(word) <= 2:
        return word
    word = _past_and_progressive(_plural(word))
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    word = _removed(word)
    if word.endswith("e") and (_measure(word[:-1]) > 1 or (_measure(word[:-1]) == 1 and not _is_cvc(word[:-1]))):
        word = word[:-1]
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word


def _is_consonant(word: str, at: int) -> bool:
    if word[at] == "y":
        return at == 0 or not _is_consonant(word, at - 1)
    return word[at] not in "aeiou"


def _measure(word: str) -> int:
    """Porter's m: how often a vowel is followed by a consonant."""
    kinds = [_is_consonant(word, at) for at in range(len(word))]
    return sum(after and not before for before, after in pairwise(kinds))


def _has_vowel(word: str) -> bool:
    return any(not _is_consonant(word, at) for at in range(len(word)))


def _is_cvc(word: str) -> bool:
    """Whether it ends in consonant, vowel, consonant, and the last is not w, x or y."""
    last = len(word) - 1
    if last < 2 or word[-1] in "wxy":
        return False
    return _is_consonant(word, last) and not _is_consonant(word, last - 1) and _is_consonant(word, last - 2)


def _plural(word: str) -> str:
    for ending, instead in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(ending):
            return word[: -len(ending)] + instead
    return word


def _past_and_progressive(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending) and _has_vowel(word[: -len(ending)]):
            word = word[: -len(ending)]
            break
    else:
        return word
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and _is_consonant(word, len(word) - 1) and word[-1] not in "lsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _is_cvc(word) else word


def _longest(word: str, endings: Callable[[str], bool]) -> str:
    """Returns the longest ending of a word that is one of some; "" where it has none."""
    return next((word[start:] for start in range(len(word)) if endings(word[start:])), "")


def _replaced(word: str, endings: dict[str, str]) -> str:
    ending = _longest(word, endings.__contains__)
    if not ending or _measure(word[: -len(ending)]) == 0:
        return word
    return word[: -len(ending)] + endings[ending]


def _removed(word: str) -> str:
    ending = _longest(word, _STEP_4.__contains__)
    rest = word[: -len(ending)] if ending else word
    if not ending or _measure(rest) <= 1 or (ending == "ion" and not rest.endswith(("s", "t"))):
        return word
    return rest
