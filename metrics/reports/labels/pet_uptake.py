"""Which organ takes up how much tracer, by words: labels of reports of PET, in any language whose words are given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from medimg_eval.metrics.nlp import late_pattern

if TYPE_CHECKING:
    from medimg_eval.metrics.reports.labels.taxonomies import Taxonomy

NORMAL = "normal"
"""The kind that another one of the same organ outdoes."""

_SENTENCE = late_pattern(r"[。；;!?！？]|\.(?!\d)|\n\s*\n")
_CLAUSE = late_pattern(r"[，,、]")
_MARKS = str.maketrans(dict.fromkeys("[]【】()（）"))


def uptake_labels(text: str, taxonomy: Taxonomy) -> dict[str, int]:
    """Returns PET uptake labels: "ORGAN: KIND" -> 1.

    A clause that speaks of uptake is of the organs it names, or else of those that were last named before it. What it
    says is the first kind of the taxonomy that has a word in it; of an organ that is called normal and something else,
    the latter counts. The taxonomy's `words` are `cues`, `uptake` (kind -> words) and `organs` (organ -> words).
    """
    words = taxonomy.words
    cues, kinds = _word_pattern(words["cues"]), {kind: _word_pattern(some) for kind, some in words["uptake"].items()}
    organ_of = {word.lower(): organ for organ, some in words["organs"].items() for word in some}
    organs = _word_pattern(organ_of)
    kinds_by_organ: dict[str, set[str]] = {}
    last: list[str] = []
    for sentence in _SENTENCE.split(" ".join(text.translate(_MARKS).split(" "))):
        listing: list[str] = []
        for clause in _CLAUSE.split(sentence):
            named = [organ_of[match["word"].lower()] for match in organs.finditer(clause)]
            listing = [*listing, *named] if named else listing
            last = listing or last
            kind = next((kind for kind, pattern in kinds.items() if pattern.search(clause)), "")
            if kind and cues.search(clause):
                for organ in named or last:
                    kinds_by_organ.setdefault(organ, set()).add(kind)
                listing = []
    return {
        f"{organ}: {kind}": 1
        for organ, kinds in kinds_by_organ.items()
        for kind in kinds
        if kind != NORMAL or len(kinds) == 1
    }


def uptake_names(words: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Returns uptake labels, and sets by organ and kind."""
    organs, kinds = list(words["organs"]), list(words["uptake"])
    by_organ = {organ: tuple(f"{organ}: {kind}" for kind in kinds) for organ in organs}
    by_kind = {kind: tuple(f"{organ}: {kind}" for organ in organs) for kind in kinds}
    return tuple(label for some in by_organ.values() for label in some), by_organ | by_kind


def _word_pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Pattern of whole words, longest first, optional plural."""
    escaped = (re.escape(word) for word in sorted(map(str, words), key=len, reverse=True))
    parts = (rf"(?<![a-z])(?:{word})(?=(?:s|es)?(?![a-z]))" if word.isascii() else word for word in escaped)
    return re.compile(f"(?P<word>{'|'.join(parts)})", re.IGNORECASE)
