"""Languages: the tokeniser of each, and whether a text is English.

`zh` and `intl` are those of sacreBLEU, `char` is its `char`; its tokenisers for Japanese and Korean need MeCab.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import chain

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.nlp.tokenizers import marks_apart, words

ENGLISH = "en"

_BY_CHARACTERS = ("ja", "ko", "th", "lo", "km", "my")
_BY_BLANKS = (
    *("ar", "bg", "bn", "ca", "cs", "da", "de", "el", "es", "et", "fa", "fi", "fr", "he", "hi", "hr", "hu", "id", "it"),
    *("lt", "lv", "ms", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sr", "sv", "ta", "te", "tr", "uk", "ur", "vi"),
)
TOKENISER_OF = {
    "zh": "zh",
    **dict.fromkeys(_BY_CHARACTERS, "char"),
    **dict.fromkeys(_BY_BLANKS, "intl"),
}
"""Language other than English, by its code in ISO 639-1 -> the tokeniser of its texts."""

_ZH = re.compile(
    # As sacreBLEU's ranges work: those of characters beyond U+FFFF, written with four digits, hold U+2001 to U+2A6D.
    "([\u2001-\u2a6d\u2e80-\u2fdf\u2ff0-\u303f\u3100-\u312f\u31a0-\u31bf\u31c0-\u31ef\u3200-\u4db5\u4e00-\u9fbb"
    "\uf900-\ufa2d\ufa30-\ufa6a\ufa70-\ufad9\ufe10-\ufe1f\ufe30-\ufe4f\uff00-\uffef])"
)


@lru_cache(maxsize=64)
def words_zh(text: str) -> tuple[str, ...]:
    """Returns words as sacreBLEU's `zh`: Chinese characters, else by 13a."""
    return tuple(marks_apart(_ZH.sub(r" \1 ", text.strip())).split())


@lru_cache(maxsize=64)
def words_char(text: str) -> tuple[str, ...]:
    """Returns a text's characters but blanks, as sacreBLEU's `char`."""
    return tuple("".join(text.split()))


@lru_cache(maxsize=64)
def words_intl(text: str) -> tuple[str, ...]:
    """Returns words as sacreBLEU's `intl`: symbols and punctuation apart.

    mteval-v14; punctuation within numbers stays.
    """
    text = text.rstrip()
    for pattern, before, after in ((r"[^N]P", 1, 1), (r"P[^N]", 0, 0), (r"S", 0, 0)):
        kinds = "".join(unicodedata.category(char)[0] for char in text)
        starts = [match.start() for match in re.finditer(pattern, kinds)]
        blanks = set(chain.from_iterable((at + before, at + after + 1) for at in starts))
        text = "".join(f" {char}" if at in blanks else char for at, char in enumerate(text))
    return tuple(text.split())


@lru_cache(maxsize=64)
def letters(text: str) -> tuple[str, ...]:
    """Returns lower-case letters and digits of `words`, one by one."""
    return tuple("".join(words(text)))


TOKENISERS: dict[str, Callable[[str], tuple[str, ...]]] = {"zh": words_zh, "char": words_char, "intl": words_intl}


def check_language(language: str) -> None:
    """Raises UsageError for languages without a word splitter."""
    if language != ENGLISH and language not in TOKENISER_OF:
        hint = nearest(language, (ENGLISH, *TOKENISER_OF))
        raise UsageError(f"Expected `language` to be a code of ISO 639-1 such as 'en' or 'zh', got {language!r}{hint}")


_STOPS = """
the of is are was were with without there has have no not and or for to in on at by this that within left right both
normal stable small mild moderate large seen unchanged evidence acute new chest heart lungs lung pleural size from
"""
_OTHERS = """
kein keine keinen keiner keines und der das ist sind nicht ohne mit von vom im rechts links rechte linke rechten linken
beidseits beiderseits auf zeigt nachweis wird eine einen einer ein geringer kleiner
pas une est sans avec les des du dans droite gauche droit aucun aucune signe absence d'un d'une
sin los las del con evidencia derecho derecha izquierdo izquierda hay una muestra observa derrame
senza della dello degli destra sinistra destro sinistro nessun nessuna non versamento
sem sinais direita esquerda nao derrame
geen het een van en niet zonder met links rechts linker rechter
ingen inga och utan med hoger venstre venstre hayir yok izlenmedi ve
bez nie jest brak oraz zmian
"""
_ENGLISH = frozenset(_STOPS.split())
_OTHER = frozenset(_OTHERS.split()) - {"en", "absence"}
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_ASCII_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


@lru_cache(maxsize=1 << 14)  # the references of a set are asked about more than once
def is_english(text: str) -> bool:
    """Returns whether a text may be English: Latin, English words.

    Latin letters in the main, and no fewer of its words than of others'. By short words and those for sides,
    and letters with accents, of German, French, Spanish, Italian, Portuguese, Dutch, Swedish, Turkish and
    Polish. A text without any of them, such as "" or "Pneumothorax", may be English.
    """
    accents = 0
    if text.isascii():
        words_found = _ASCII_WORD.findall(text.lower())
    else:
        signs = [char for char in text if char.isalpha()]
        latin = sum(unicodedata.name(char, "").startswith("LATIN") for char in signs)
        if 2 * latin < len(signs):
            return False
        words_found = _WORD.findall(text.lower())
        accents = sum(not word.isascii() and word not in _OTHER for word in words_found)
    foreign = accents + sum(map(_OTHER.__contains__, words_found))
    return foreign <= sum(map(_ENGLISH.__contains__, words_found))


def in_english(language: str, texts: Iterable[str]) -> bool:
    """Returns whether English rules can read texts in a language."""
    return language == ENGLISH and all(map(is_english, texts))
