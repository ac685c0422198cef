"""How others score reports, by name: what they clean texts of first, and which metrics they print."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from medimg_eval.errors import UsageError

_NUMBERING = (
    ("1. ", ""),
    *((f". {digit}. ", ". ") for digit in range(2, 6)),
    *((f" {digit}. ", ". ") for digit in range(2, 6)),
)
"""What R2Gen takes for the numbers of a list: 1 to 5, with a blank behind the full stop."""

_IU = (*[("..", ".")] * 3, *_NUMBERING)
_MIMIC = (("\n", " "), *[("__", "_")] * 7, *[("  ", " ")] * 6, *[("..", ".")] * 8, *_NUMBERING)
"""What stands in a report, and what R2Gen puts in its place, one after the other."""

_QUOTES = str.maketrans(dict.fromkeys("\"/\\'"))
_MARKS = str.maketrans(dict.fromkeys(".,?;*!%^&_+()]{}" + "".join(map(chr, range(ord(":"), ord("[") + 1)))))
"""R2Gen's class of characters holds the range from ":" to "[": signs such as < and > go, and hyphens stay."""


def r2gen_iu(report: str) -> str:
    """Returns a report cleaned by R2Gen's IU X-ray tokeniser.

    Lower case, numbers of lists and punctuation away, " . " between sentences. A report of nothing but numbers and
    marks, and even "", becomes " .".
    """
    return _clean_r2gen(report, _IU)


def r2gen_mimic(report: str) -> str:
    """Returns a report as R2Gen's tokeniser cleans those of MIMIC-CXR, to the character.

    It is `r2gen_iu` after line breaks became blanks, and runs of blanks, points and underscores shrank.
    """
    return _clean_r2gen(report, _MIMIC)


def _clean_r2gen(report: str, changes: tuple[tuple[str, str], ...]) -> str:
    for old, new in changes:
        report = report.replace(old, new)
    sentences = report.strip().lower().split(". ")
    cleaned = (sentence.translate(_QUOTES).strip().lower().translate(_MARKS) for sentence in sentences)
    return " . ".join(cleaned) + " ."


CLEANERS: dict[str, Callable[[str], str]] = {"r2gen_iu": r2gen_iu, "r2gen_mimic": r2gen_mimic}
"""Name -> what texts are cleaned by before metrics of words see them."""


@lru_cache(maxsize=64)
def cleaned(text: str, name: str) -> str:
    """Returns a text cleaned by one of `CLEANERS`, single-spaced.

    R2Gen's reports pass through its vocabulary, which leaves single blanks. An empty text stays empty: R2Gen's cleaner
    would make a full stop of it, which a right report has too.

    Raises:
        UsageError: there is no such cleaner.
    """
    clean = cleaner(name)
    return " ".join(clean(text).split()) if text.strip() else ""


def cleaner(name: str) -> Callable[[str], str]:
    """Returns the cleaner of a name; raises UsageError where there is none."""
    UsageError.refuse_invalid("cleaner of reports", CLEANERS, name)
    return CLEANERS[name]


class Profile(NamedTuple):
    """How others score reports.

    Attributes:
        metrics: names of the metrics that give their numbers.
        clean: the cleaner of both texts; "" for none.
    """

    metrics: tuple[str, ...]
    clean: str = ""


_BLEU = tuple(f"bleu@{n}" for n in range(1, 5))

PROFILES = {
    "coco": Profile((*_BLEU, "rouge_l_coco", "cider_d")),
    "radeval": Profile((*_BLEU, "rouge_1_stem", "rouge_2_stem", "rouge_l_stem")),
    "r2gen": Profile((*_BLEU, "rouge_l_coco"), "r2gen_mimic"),
    "r2gen-iu": Profile((*_BLEU, "rouge_l_coco"), "r2gen_iu"),
    "sacrebleu-13a": Profile(("bleu_13a_exp@4",)),
}
"""Name -> profile. What needs Java (METEOR 1.5, SPICE) is left out of `coco` and `r2gen`, and has no stand-in."""


def profile(name: str) -> Profile:
    """Returns the profile of a name; raises UsageError where there is none."""
    UsageError.refuse_invalid("profile of text metrics", PROFILES, name)
    return PROFILES[name]
