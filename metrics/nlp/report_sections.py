"""The sections of a report, told apart by their headings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from medimg_eval.metrics.nlp.strings import late_pattern

NAMES = {
    "findings": ("findings", "finding", "report", "observations"),
    "impression": (
        "impression",
        "impressions",
        "conclusion",
        "conclusions",
        "opinion",
        "summary",
        "interpretation",
    ),
    "findings and impression": (
        "findings and impression",
        "impression and findings",
        "findings/impression",
        "impression/findings",
        "findings / impression",
        "findings & impression",
    ),
    "indication": (
        "indication",
        "indications",
        "clinical indication",
        "history",
        "clinical history",
        "patient history",
        "clinical information",
        "clinical details",
        "clinical data",
        "clinical statement",
        "clinical question",
        "reason for exam",
        "reason for examination",
        "reason for study",
        "reason for the exam",
        "reason for the examination",
        "reason for this examination",
        "history and indication",
        "indication/history",
    ),
    "comparison": ("comparison", "comparisons", "comparison studies", "comparison study", "prior studies"),
    "technique": ("technique", "techniques", "procedure", "views", "protocol"),
    "examination": ("examination", "exam", "study", "exam type", "type of exam", "type of examination"),
    "recommendation": ("recommendation", "recommendations"),
    "notification": ("notification", "notifications"),
    "wet read": ("wet read", "preliminary report", "preliminary read"),
    "final report": ("final report",),
    "addendum": ("addendum",),
}
"""Sections, and what reports call them."""

_BOTH = "findings and impression"
_SECTION = {called: name for name, calls in NAMES.items() for called in calls}
_CALLS = "|".join(re.sub(r"\\?\ ", "[ \t]+", re.escape(heading)) for heading in sorted(_SECTION, key=len, reverse=True))
_COLON = r"[ \t]*\*{0,2}[ \t]*:[ \t]*\**"
_ALONE = r"[ \t]*\**[ \t]*(?=\n|\Z)"
_MARKS = r"(?:[ \t]|[#*>\u2022-]|\d{1,2}[.)])*"
_HEADING = late_pattern(
    # Alone at the end of a line that it does not begin, a name is the first word of a sentence that goes on.
    rf"(?:^|(?<=[.!?}}\]])){_MARKS}(?P<name>{_CALLS}){_COLON}"
    rf"|^{_MARKS}(?P<alone>(?-i:(?=[A-Z]))(?:{_CALLS})){_ALONE}"
    r"|(?P<inside>(?-i:(?<=\s)(?:FINDINGS|IMPRESSION|INDICATION|COMPARISON|TECHNIQUE)))[ \t]*:"
    r"|^[ \t]*(?P<bare>(?-i:FINDINGS|IMPRESSION|CONCLUSION))[ \t]+(?=(?-i:[A-Z][a-z]|\d[.)]))"
    r"|^[ \t]*(?P<other>(?-i:[A-Z][A-Z /,&()-]*[A-Z)]))[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)
_MAYBE = late_pattern(r"[:\n*]|FINDINGS|IMPRESSION|CONCLUSION|^\W*\w+(?:\W+\w+){0,4}\W*$")
_ORGANS = r"""
lungs? heart mediastin\w* cardi\w* pleura\w* bones? bony osseous musculoskeletal soft chest\swall upper abdomen lines?
tubes? support devices? hardware airways? trachea hila diaphragm\w* vasc\w* vessels aorta other spine ribs thyroid neck
liver kidneys spleen et ett ng picc right left
"""
_INNER = late_pattern(rf"(?:the )?(?:{'|'.join(_ORGANS.split())})\b")
"""What headings in capitals begin with that part a section by organ instead of ending it."""
_COVER = {"{": "}", "[": "]"}


def sections(text: str) -> dict[str, str]:
    r"""Returns report sections in order: lower-case name -> text.

    A heading stands at the start of a line or behind a sentence, with a colon, or alone on its line with a capital;
    marks of Markdown and numbers about it do not count. Names that mean the same are one section, as `NAMES` has them:
    a conclusion is an impression. Other headings count in capitals, but names of organs do not end a section: "LUNGS:"
    stays in the findings. What stands before the first heading is under "". Of two sections of one name the texts are
    put together. Brackets around a whole section are left out. An object in JSON whose values are texts, or lists of
    texts, is read by its keys.

    >>> sections("FINDINGS: Clear lungs.\nIMPRESSION: Normal.")
    {'findings': 'Clear lungs.', 'impression': 'Normal.'}
    """
    held: dict[str, list[str]] = {}
    for name, section_text in _json_sections(text) or (
        (name, text[start:end]) for name, start, end in section_spans(text)
    ):
        if bare_text := _strip_markup(" ".join(section_text.split())):
            held.setdefault(name, []).append(bare_text)
    return {name: " ".join(texts) for name, texts in held.items()}


def section_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields section names and text spans, as `sections`."""
    name, start = "", 0
    if not _MAYBE.search(text):  # most sentences have no heading, and to look for each name takes long
        yield name, 0, len(text)
        return
    for match in _HEADING.finditer(text):
        heading = match["name"] or match["alone"] or match["inside"] or match["bare"] or match["other"]
        if match["other"] and _INNER.match(heading.lower()):
            continue
        yield name, start, match.start()
        name, start = canonical(heading), match.end()
    yield name, start, len(text)


def canonical(name: str) -> str:
    """Returns a heading's canonical name: "impression" for "Conclusion"."""
    name_ = " ".join(name.lower().split())
    return _SECTION.get(name_, name_)


def chosen(text: str, wanted: Sequence[str]) -> str:
    """Returns the wanted sections of a text, or all of it where it has none.

    A text without any heading is taken for what was wanted. Sections are named as in `sections`, or as reports call
    them; one that is findings and impression in one is there for both.
    """
    if not wanted:
        return text
    held = sections(text)
    names = dict.fromkeys(
        name if name in held or name not in _BOTH.split() else _BOTH for name in map(canonical, wanted)
    )
    texts = [held[name] for name in names if name in held]
    return " ".join(texts) if texts else text


def _strip_markup(text: str) -> str:
    if text[:1] in _COVER and text.endswith(_COVER[text[0]]) and text.count(text[0]) == 1:
        return text[1:-1].strip()
    return text


def _json_sections(text: str) -> list[tuple[str, str]]:
    """Sections of a JSON object of texts; else none."""
    if not text.lstrip().startswith("{"):
        return []
    try:
        held = json.loads(text)
    except ValueError:
        return []
    texts = {
        name: [section_text] if isinstance(section_text, str) else section_text for name, section_text in held.items()
    }
    if not all(isinstance(texts, list) and all(isinstance(item, str) for item in texts) for texts in texts.values()):
        return []
    return [(canonical(name), " ".join(texts)) for name, texts in texts.items()]
