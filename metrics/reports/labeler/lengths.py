"""Lengths that a report states, and what they were measured of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from medimg_eval.metrics.nlp import late_pattern, lower, sentence_spans
from medimg_eval.metrics.reports.labeler.sentence import NOT, Sentence
from medimg_eval.metrics.reports.labeler.sentence_findings import read

TUBE = "endotracheal tube to carina"
"""What the distance of an endotracheal tube from the carina is called."""

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?|\.\d+"
_UNIT = r"cm|mm|centimet(?:er|re)s?|millimet(?:er|re)s?"
_LENGTH = late_pattern(
    rf"(?<![\w.,])(?P<first>{_NUMBER})(?P<more>(?:[\s-]*(?:{_UNIT})\b\.?)?\s*(?:x|\u00d7|by|-|\u2013|to)\s*(?:{_NUMBER})"
    rf"(?:(?:[\s-]*(?:{_UNIT})\b\.?)?\s*(?:x|\u00d7|by)\s*(?:{_NUMBER}))?)?"
    rf"[\s-]*(?P<unit>{_UNIT})(?![\w\u00b2\u00b3^])(?!\s*(?:h2o|hg|of\s+water|of\s+mercury)\b)",
)
_PART = late_pattern(rf"(?P<number>{_NUMBER})[\s-]*(?P<unit>{_UNIT})?")
_TIMES = late_pattern(r"x|\u00d7|\bby\b")
_BEFORE = late_pattern(
    r"\b(?:previously|formerly|prior|compared (?:to|with)|versus|vs|from|earlier)\b[^.;]{0,30}$|\bwas\b[^.;,]{0,20}$"
)
_AFTERWARDS = late_pattern(r"^[^.;,]{0,12}\b(?:previously|before|earlier|on (?:the )?(?:prior|previous))\b")
_ADVICE = late_pattern(
    r"\b(?:advanc|withdraw|retract|pull|reposition|push)\w*\b[^.;]{0,40}$|"
    r"\b(?:should|could|recommend\w*|suggest\w*|advise[ds]?|consider)\b[^.;]{0,60}$"
)
_THINGS: tuple[tuple[str, str], ...] = (
    ("endotracheal tube", r"endotracheal(?: tube)?|et[- ]tube|ett|tracheal tube"),
    ("tracheostomy", r"tracheostomy(?: tube)?"),
    ("gastric tube", r"(?:naso|oro)gastric tube|[no]g[- ]tube|[no]gt|enteric tube|feeding tube|dobb?hoff(?: tube)?"),
    ("chest tube", r"chest tube|pigtail(?: catheter)?|thoracostomy tube|pleural drain"),
    ("picc", r"picc(?: line)?"),
    ("balloon pump", r"(?:intra-?aortic )?balloon pump|iabp"),
    (
        "central line",
        r"(?:central|jugular|subclavian|ij|(?:hemo)?dialysis)(?: \w+)? (?:line|catheter)|port-?a-?cath|swan[- ]ganz",
    ),
    ("pacemaker", r"pacemaker|pacer|pacing lead|icd lead"),
    ("nodule", r"(?:micro)?nodules?|nodular (?:opacity|density|opacities)"),
    ("mass", r"mass(?:es)?"),
    ("cavity", r"cavit(?:y|ies)|cavitary lesion"),
    ("lesion", r"lesions?"),
    ("granuloma", r"granulomas?"),
    ("cyst", r"cysts?|bullae?"),
    ("lymph node", r"(?:lymph )?nodes?"),
    ("aneurysm", r"aneurysm|aort(?:a|ic arch)"),
    ("pneumothorax", r"pneumothora(?:x|ces)|air gap"),
    ("effusion", r"effusions?|pleural fluid"),
    ("opacity", r"opacit(?:y|ies)|opacification|consolidations?|density"),
    ("heart", r"heart|cardiac silhouette|cardiac diameter"),
    ("mediastinum", r"mediastinum|paratracheal stripe"),
    ("fracture", r"fractures?|displacement"),
    ("thickening", r"(?:pleural )?thickening"),
    ("hernia", r"hernia"),
    ("tube", r"tubes?"),
    ("catheter", r"catheters?|lines?|drains?"),
)
_THING = late_pattern("|".join(rf"(?P<t{at}>\b(?:{words})\b)" for at, (_, words) in enumerate(_THINGS)))
_LANDMARK = late_pattern(
    r"\b(?P<carina>carina)\b|\b(?P<junction>cavo-?\s?atrial junction)\b|\b(?P<stomach>(?:gastro-?esophageal|ge|eg) "
    r"junction)\b|\b(?P<diaphragm>diaphragm)\b"
)
_LANDMARKS = {
    "carina": "carina",
    "junction": "cavoatrial junction",
    "stomach": "gastroesophageal junction",
    "diaphragm": "diaphragm",
}
_PLACED = (
    "endotracheal tube",
    "tracheostomy",
    "gastric tube",
    "picc",
    "balloon pump",
    "central line",
    "catheter",
    "tube",
)
_REACH = 120
"""How many letters around a length can say that it is one of another time, or advice."""
_BACK = 3
"""How many sentences back a tip or a distance looks for its tube."""
_TIP = late_pattern(r"\b(?:tip|it|which|side ?(?:hole|port))\b")


class Measurement(NamedTuple):
    """A length that a report states.

    Attributes:
        thing: what was measured: "nodule", "endotracheal tube to carina", ...; "" where the words do not tell.
        millimetres: the lengths along each direction, in mm; one for a single length,
            and the middle of a range.
        side: "left", "right", "bilateral", or "" where none is said.
        role: "stated", "before" for a length at an earlier time, or "advice" for how far something should be moved.
        start: where the words lie in the text: the first letter.
        end: the letter behind the last.
    """

    thing: str
    millimetres: tuple[float, ...]
    side: str
    role: str
    start: int
    end: int

    @property
    def largest(self) -> float:
        """The largest of the lengths, in mm."""
        return max(self.millimetres)


def measured(text: str) -> Iterator[Measurement]:
    """Yields lengths in text order, except of absent things."""
    lowered = lower(text)
    if not _LENGTH.search(lowered):
        return
    sentences_seen: list[tuple[int, int]] = []
    for start, end in sentence_spans(text):
        lengths = list(_LENGTH.finditer(lowered, start, end))
        if lengths:
            sentence, things, device = (
                read(lowered, start, end),
                _find_things(lowered, start, end),
                _last_device(lowered, sentences_seen),
            )
        for length in lengths:
            if _is_denied(sentence, length):
                continue
            thing = _measured_thing(lowered, (start, end), length, things, device)
            side = _nearest_side(sentence, length)
            yield Measurement(
                thing, _read_lengths(length), side, _length_role(lowered, start, end, length), *length.span()
            )
        sentences_seen.append((start, end))


def _find_things(text: str, start: int, end: int) -> list[tuple[tuple[int, int], str]]:
    return [(match.span(), _THINGS[int(str(match.lastgroup)[1:])][0]) for match in _THING.finditer(text, start, end)]


def _last_device(text: str, seen: list[tuple[int, int]]) -> str:
    """Last tube or line named before; "" without."""
    for start, end in seen[: -_BACK - 1 : -1]:
        placed = [name for _, name in _find_things(text, start, end) if name in _PLACED]
        if placed:
            return placed[-1]
    return ""


def _read_lengths(found: re.Match[str]) -> tuple[float, ...]:
    last = found["unit"]
    parts = list(_PART.finditer(found.group()))
    values = []
    for at, part in enumerate(parts):
        unit = part["unit"] or next((later["unit"] for later in parts[at + 1 :] if later["unit"]), last)
        values.append(_parse_number(part["number"]) * (1.0 if unit.startswith("m") else 10.0))
    if len(values) == 2 and not _TIMES.search(found["more"]):
        return (sum(values) / 2,)
    return tuple(values)


def _parse_number(text: str) -> float:
    """Parses a number, with decimal or thousands comma."""
    if re.fullmatch(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", text):
        return float(text.replace(",", ""))
    return float(text.replace(",", "."))


def _length_role(text: str, start: int, end: int, found: re.Match[str]) -> str:
    before = text[max(start, found.start() - _REACH) : found.start()]
    behind = text[found.end() : min(end, found.end() + _REACH)]
    if _ADVICE.search(before):
        return "advice"
    return "before" if _BEFORE.search(before) or _AFTERWARDS.search(behind) else "stated"


def _measured_thing(
    text: str, sentence: tuple[int, int], found: re.Match[str], things: list[tuple[tuple[int, int], str]], device: str
) -> str:
    """Measured thing: the next word ("3 cm nodule"), else nearest.

    A distance from a landmark belongs to the tube or line that was named last.
    """
    start, end = sentence
    landmark = _LANDMARK.search(text, found.end(), min(end, found.end() + 60)) or _LANDMARK.search(
        text, max(start, found.start() - 30), found.start()
    )
    if landmark:
        placed = [name for span, name in things if name in _PLACED and span[0] < found.start()]
        name = placed[-1] if placed else next((name for _, name in things if name in _PLACED), device)
        if landmark["carina"] and name == "tube":
            return TUBE
        if name:
            return f"{name} to {_LANDMARKS[str(landmark.lastgroup)]}"
    ahead = [(span[0], name) for span, name in things if span[0] >= found.end()]
    if ahead and not re.search(r"[,;.(]|\b(?:and|with|from|above|below|in|to)\b", text[found.end() : ahead[0][0]]):
        return ahead[0][1]
    behind = [name for span, name in things if span[1] <= found.start()]
    if behind:
        return behind[-1]
    if _TIP.search(text, max(start, found.start() - _REACH), found.start()) and device:
        return device
    return ahead[0][1] if ahead else ""


def _is_denied(sentence: Sentence, found: re.Match[str]) -> bool:
    """Whether a length is negated: "no nodule larger than 5 mm"."""
    before = [at for at, item in enumerate(sentence.items) if sentence.spans[item.first][0] < found.start()]
    return bool(before) and bool(sentence.scopes) and sentence.scopes[before[-1]] == NOT


def _nearest_side(sentence: Sentence, found: re.Match[str]) -> str:
    """The side that is named nearest to a length, in the same sentence."""
    near = sorted(
        (abs(sentence.spans[item.first][0] - found.start()), str(item.holds))
        for item in sentence.items
        if item.kind == "side"
    )
    return near[0][1] if near else ""
