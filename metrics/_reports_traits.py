"""Side and trend of what a sentence names."""

from __future__ import annotations

from medimg_eval.metrics._reports_said import Sentence

_ENDS = ("turn", "finding", "other", "seen", "not before", "verb", ",", "and", "or")


def side_of(sentence: Sentence, index: int) -> str:
    """Returns the side of what is named: the nearest in front of it, else the next behind it; "" without one."""
    return _nearest(sentence, index, "side")


def trend_of(sentence: Sentence, index: int) -> str:
    """Returns the trend of what is named: what cues have said of it, else the nearest word of change; "" without."""
    return sentence.said[index].trend or _nearest(sentence, index, "change")


def _nearest(sentence: Sentence, index: int, kind: str) -> str:
    items, at = sentence.items, sentence.said[index].at
    for item in reversed(items[:at]):
        if item.kind == kind:
            return str(item.holds)
        if kind == "change" and item.kind == "held":
            return "unchanged"
        if item.kind in ("turn", "verb", "not before") or (
            item.kind in ("finding", "other", "seen") and kind == "side"
        ):
            break
        if item.kind in ("finding", "other", "seen"):
            break
    verb = False
    for item in items[at + 1 :]:
        if item.kind == kind:
            return str(item.holds)
        if item.kind == "turn" or (verb and item.kind in _ENDS) or item.kind in ("not before", "not behind"):
            break
        if item.kind in ("finding", "other", "seen") and kind == "side":
            break
        verb = verb or item.kind == "verb"
    return ""
