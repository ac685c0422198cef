"""Levels of the spine that a text names, and how far they lie from those that are due."""

from __future__ import annotations

import math
import re
from functools import partial

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.text.texts import texts_of

SOURCE = "after SpineBench (SpineMed, arXiv 2510.03160), whose data and rule are not public"

LEVELS = tuple(
    f"{part}{number}" for part, count in (("C", 7), ("T", 12), ("L", 5), ("S", 5)) for number in range(1, count + 1)
)
"""Vertebrae from the head down."""

_PARTS = {"c": "C", "t": "T", "d": "T", "th": "T", "l": "L", "s": "S", "颈": "C", "胸": "T", "腰": "L", "骶": "S"}
_NAME = r"(?:th|[ctdls]|颈|胸|腰|骶)"
_LEVEL = re.compile(
    rf"(?<![a-z0-9])(?P<part>{_NAME})[\s-]?(?P<number>\d{{1,2}})(?P<more>(?:\s*(?:[-–/、]|to|and|至|到)\s*(?:{_NAME}[\s-]?)?\d{{1,2}})*)"
    r"(?!\d|\.\d|\s*(?:mm|cm|mg|ml)|[\s-]*(?:weighted|w\b|wi\b|flair|hyper|hypo|iso|signal|map|stir|加权))",
    re.IGNORECASE,
)
_NEXT = re.compile(rf"(?P<sign>[-–/、]|to|and|至|到)\s*(?P<part>{_NAME})?[\s-]?(?P<number>\d{{1,2}})", re.IGNORECASE)
_RANGES = ("to", "至", "到")


def spinal_levels(text: str) -> tuple[str, ...]:
    """Returns the vertebrae that a text names, from the head down, each once.

    `L4`, `L4-5`, `L4/L5`, `L4 and 5`, `T11-L2` (both ends; all between with `to`), and the same in Chinese (腰4-5);
    D and Th are T. A disc is its two vertebrae. What is no vertebra, such as L7, or T2 weighted, is left out.

    >>> spinal_levels("Herniation at L4/5 and L5-S1; T11 to L1 is normal.")
    ('T11', 'T12', 'L1', 'L4', 'L5', 'S1')
    """
    levels: set[str] = set()
    for match in _LEVEL.finditer(text):
        part = _PARTS[match["part"].lower()]
        named = [f"{part}{int(match['number'])}"]
        for further in _NEXT.finditer(match["more"]):
            part = _PARTS[further["part"].lower()] if further["part"] else part
            level = f"{part}{int(further['number'])}"
            if further["sign"].lower() in _RANGES and {level, named[-1]} <= set(LEVELS):
                first, last = sorted((LEVELS.index(named[-1]), LEVELS.index(level)))
                named += LEVELS[first : last + 1]
            named.append(level)
        levels |= set(named)
    return tuple(level for level in LEVELS if level in levels)


_of_levels = partial(answer_share, source=SOURCE, settings="tokeniser: none, levels by their names")


def _both_levels(pair: AnsweredQuestion) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    texts = texts_of(pair)
    due = () if texts is None else spinal_levels(texts[1][0])
    return (spinal_levels(texts[0]), due) if texts is not None and due else None


@_of_levels(title="Levels", value_kind="proportion")
def spinal_level_exact(pair: AnsweredQuestion) -> float:
    """Whether an answer names the vertebrae that the reference names, all of them and no other.

    NaN where the reference names none.
    """
    both = _both_levels(pair)
    return math.nan if both is None else float(both[0] == both[1])


@_of_levels(title="Levels, within", parameter="vertebrae")
def spinal_level_within(pair: AnsweredQuestion, most: float) -> float:
    """The F1 of vertebrae where one that lies so many vertebrae or fewer from one that is due is right.

    Distances are counted along C1 to S5. In [0, 1]; `@0` is the F1 of the vertebrae themselves. NaN where the
    reference names none.
    """
    both = _both_levels(pair)
    if both is None:
        return math.nan
    level_numbers, due = ([LEVELS.index(level) for level in side] for side in both)
    near = sum(min(abs(level - due_level) for due_level in due) <= most for level in level_numbers)
    reached = sum(
        bool(level_numbers) and min(abs(level - said_level) for said_level in level_numbers) <= most for level in due
    )
    return (near + reached) / (len(level_numbers) + len(due))
