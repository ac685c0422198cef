"""How large heart and mediastinum are, by the words around them."""

from __future__ import annotations

from medimg_eval.metrics._reports_findings import NEGATIVE, POSITIVE, UNCERTAIN
from medimg_eval.metrics._reports_said import ABOUT, ASKED, DOUBT, NOT, Item, Sentence

_NEAR = 4
"""How many words may lie between a word about size and what it is about, where it stands in front."""


def judge_seen(sentence: Sentence) -> None:
    """Judges the size of heart and mediastinum by what stands directly before it, or else behind it."""
    for said in sentence.said:
        if sentence.items[said.at].kind != "seen" or not said.observations:
            continue
        before, lasts = _before(sentence, said.at)
        after, lasts_after = _after(sentence, said.at) if before is None else (None, False)
        at = after if before is None else before
        said.trend = "unchanged" if lasts or lasts_after else ""
        if at is not None:
            said.status = _sized(sentence.items[at], sentence.scopes[at])
        elif said.doubted or lasts or lasts_after:
            said.status = UNCERTAIN


def _sized(item: Item, scope: str) -> int | None:
    if scope == ASKED:
        return None
    if item.kind == "normal":
        return POSITIVE if scope == NOT else NEGATIVE
    if scope == NOT:
        return NEGATIVE
    return UNCERTAIN if scope == DOUBT or item.kind == "border" else POSITIVE


def _tells(item: Item) -> bool:
    return item.kind in ("normal", "large", "border") or (item.kind == "change" and item.holds == "worse")


def _lasts(item: Item) -> bool:
    return item.kind == "held" or (item.kind == "change" and item.holds == "unchanged")


def _before(sentence: Sentence, at: int) -> tuple[int | None, bool]:
    items, lasts = sentence.items, False
    for index in range(at - 1, -1, -1):
        item, following = items[index], items[index + 1]
        if following.first - item.behind > _NEAR:
            break
        if _tells(item):
            return index, lasts
        lasts |= _lasts(item)
        joins = item.kind in (",", "and", "or") and index and items[index - 1].kind in ("seen", ",")
        if item.kind not in (*ABOUT, "seen", "held") and not joins:
            break
    return None, lasts


def _after(sentence: Sentence, at: int) -> tuple[int | None, bool]:
    items, lasts, verb, inserted = sentence.items, False, False, False
    for index in range(at + 1, len(items)):
        item = items[index]
        if inserted:  # "the heart, although hard to see, is enlarged"
            inserted = item.kind != ","
            continue
        if _tells(item):
            return index, lasts
        if item.kind == "turn" and items[index - 1].kind == ",":
            inserted = True
            continue
        if item.kind in ("turn", "finding") or (item.kind == "seen" and (verb or lasts)):
            break
        lasts |= _lasts(item)
        verb |= item.kind in ("verb", ":")
    return None, lasts
