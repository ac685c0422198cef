"""The sections of a report, told apart by their headings."""

from __future__ import annotations

import re
from collections.abc import Sequence

NAMES = {
    "findings": ("findings", "finding"),
    "impression": ("impression", "impressions", "conclusion", "conclusions"),
    "indication": (
        "indication",
        "indications",
        "history",
        "clinical history",
        "clinical information",
        "reason for exam",
    ),
    "comparison": ("comparison", "comparisons"),
    "technique": ("technique", "procedure"),
    "examination": ("examination", "exam", "study"),
}
"""Sections, and what reports call them."""

_SECTION = {called: name for name, calls in NAMES.items() for called in calls}
_CALLS = "|".join(sorted(map(re.escape, _SECTION), key=len, reverse=True))
_HEADING = re.compile(
    rf"(?:^|(?<=[.\n!?]))[ \t]*[#*_]*[ \t]*(?P<name>{_CALLS})[ \t]*"
    r"(?:[*_]*[ \t]*:[ \t]*[*_]*|[*_]+[ \t]*(?=\n)|(?=\n))"
    r"|^[ \t]*(?P<other>[A-Z][A-Z /,&()-]*[A-Z)])[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)


def sections(text: str) -> dict[str, str]:
    r"""Returns the sections of a report in their order: name in lower case -> text, blanks folded.

    A heading stands at the start of a line or behind a sentence, with a colon, or alone on its line; marks of Markdown
    about it do not count. What stands before the first heading is under "". Of two sections of one name the texts are
    put together.

    >>> sections("FINDINGS: Clear lungs.\nIMPRESSION: Normal.")
    {'findings': 'Clear lungs.', 'impression': 'Normal.'}
    """
    held: dict[str, list[str]] = {}
    name, start = "", 0
    for heading in [*_headings(text), None]:
        end = len(text) if heading is None else heading.start()
        if found := " ".join(text[start:end].split()):
            held.setdefault(name, []).append(found)
        if heading is not None:
            said = (heading["name"] or heading["other"]).lower()
            name, start = _SECTION.get(said, said), heading.end()
    return {name: " ".join(texts) for name, texts in held.items()}


def chosen(text: str, wanted: Sequence[str]) -> str:
    """Returns the wanted sections of a text, one after the other; all of it where it has none of them.

    A text without any heading is taken for what was wanted. Sections are named as in `sections`.
    """
    if not wanted:
        return text
    held = sections(text)
    found = [held[name] for name in wanted if name in held]
    return " ".join(found) if found else text


def _headings(text: str) -> list[re.Match[str]]:
    # Letters are compared without case for known names alone: an unknown heading is one only in capitals.
    return [one for one in _HEADING.finditer(text) if one["name"] or one["other"].isupper()]
