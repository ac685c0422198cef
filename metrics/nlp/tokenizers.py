"""Tokenisers: how a text becomes words, each way with a name, for no overlap of texts is comparable without it."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from medimg_eval.metrics.nlp.porter import stem

_RUNS = re.compile(r"[a-z0-9]+")

_NO_SPACES = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")
"""Kana and Han characters: scripts without blanks between words, where each character stands for itself."""

_ARTICLE = re.compile(r"\b(?:a|an|the) (?=\w)")
_SIGN = re.compile(r"(?<![\w.])-(?=\.?\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_HELD = {"-": "\ue000", ".": "\ue001"}
"""What stands for a minus and a decimal point while other punctuation goes: private characters, in no answer."""

_SPACED = re.compile(r"([{-~\[-`!-&(-+:-@/])")
_POINT_AFTER = re.compile(r"([^0-9])([.,])")
_POINT_BEFORE = re.compile(r"([.,])([^0-9])")
_DASH = re.compile(r"([0-9])(-)")


@lru_cache(maxsize=64)
def words(text: str) -> tuple[str, ...]:
    """Returns ROUGE's words: lower-case runs of letters and digits.

    For a text in ASCII these are exactly the words of rouge-score. Of other texts rouge-score leaves nothing, so that a
    Chinese or Arabic text would score 0 against itself; here their letters count, and each Han or kana character is a
    word.
    """
    if text.isascii():
        return tuple(_RUNS.findall(text.lower()))
    folded = unicodedata.normalize("NFKC", text).lower()
    kept_text = "".join(char if char.isalnum() or unicodedata.category(char)[0] == "M" else " " for char in folded)
    return tuple(_NO_SPACES.sub(r" \1 ", kept_text).split())


@lru_cache(maxsize=64)
def split_words(text: str) -> tuple[str, ...]:
    """Returns what stands between blanks, as pycocoevalcap takes it: case and punctuation stay."""
    return tuple(text.split())


@lru_cache(maxsize=64)
def blank_words(text: str) -> tuple[str, ...]:
    """Returns words between single blanks, as pycocoevalcap's ROUGE.

    None of a text without words.

    A double blank makes an empty word, and a line break is part of one.
    """
    return tuple(text.split(" ")) if text.strip() else ()


@lru_cache(maxsize=64)
def stemmed_words(text: str) -> tuple[str, ...]:
    """Returns `words` stemmed as rouge-score: Porter, above three letters."""
    return tuple([stem(word) if len(word) > 3 else word for word in words(text)])


@lru_cache(maxsize=64)
def words_13a(text: str) -> tuple[str, ...]:
    """Returns words by mteval's 13a, as sacreBLEU."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, char in (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")):
        text = text.replace(entity, char)
    return tuple(marks_apart(f" {text} ").split())


def marks_apart(text: str) -> str:
    """Returns a text with blanks about marks, by rule 13a."""
    text = _POINT_BEFORE.sub(r" \1 \2", _POINT_AFTER.sub(r"\1 \2 ", _SPACED.sub(r" \1 ", text)))
    return _DASH.sub(r"\1 \2 ", text)


@lru_cache(maxsize=64)
def normalised(text: str) -> str:
    """Returns a normalised short answer: lower case, no articles, no punctuation.

    Full-width characters become plain ones. Decimal points, minus signs, per cent and signs such as < stay, for they
    are part of what is said, and so do an article that nothing follows, as in "hepatitis A", and a text that is nothing
    but punctuation.
    """
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2212", "-")
    held = _POINT.sub(_HELD["."], _SIGN.sub(_HELD["-"], folded))
    spaced = "".join(" " if char != "%" and unicodedata.category(char)[0] == "P" else char for char in held)
    plain = " ".join(spaced.split()).replace(_HELD["-"], "-").replace(_HELD["."], ".")
    return _ARTICLE.sub("", plain) or " ".join(folded.split())
