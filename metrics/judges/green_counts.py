"""Errors that a judge counts in a report: GREEN, CheXprompt, and corrections line by line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.judges.verdicts import objects, verdict_reader

CATEGORIES = {
    "a": "a finding that is not there",
    "b": "a finding left out",
    "c": "a wrong place",
    "d": "a wrong severity",
    "e": "a comparison that is not there",
    "f": "a comparison left out",
}
"""The six kinds of errors that ReXVal, GREEN and CheXprompt tell apart."""

SEVERITIES = ("emergent", "urgent", "actionable", "not_actionable")
"""How much a correction matters, as FineRadScore grades it."""


class Errors(TypedDict):
    """What a judge counted in one report.

    Attributes:
        matched: findings that both reports have; absent where it was not asked for.
        significant: errors of clinical significance by category, a to f.
        insignificant: the others; None where the reply does not tell them.
    """

    significant: Mapping[str, int]
    insignificant: Mapping[str, int] | None


class GreenErrors(Errors):
    """The same, with the findings that match."""

    matched: int


class Correction(TypedDict):
    """One correction of a report.

    Attributes:
        line: which sentence of it, from 0; None for one that was left out.
        severity: one of `SEVERITIES`.
    """

    line: int | None
    severity: str


def green_score(evaluation: GreenErrors) -> float:
    """Returns GREEN of what its model counted: matched / (matched + significant errors), in [0, 1].

    0 where nothing matches, also of a report without errors. Insignificant errors cost nothing.
    """
    matched = evaluation["matched"]
    return matched / (matched + sum(evaluation["significant"].values())) if matched else 0.0


def count_errors(evaluation: Errors, which: str = "all", category: str | None = None) -> float:
    """Returns how many errors a judge counted.

    Args:
        evaluation: what it counted.
        which: `significant`, `insignificant` or `all` of them.
        category: one of a to f; None for their sum.

    Returns:
        NaN where the reply does not tell.

    Raises:
        UsageError: there is no such category.
    """
    key = None if category is None else category.lower()
    if key is not None and key not in CATEGORIES:
        raise UsageError(f"there is no category {category!r} of errors; expected one of {', '.join(CATEGORIES)}")
    counted = (evaluation["significant"], evaluation["insignificant"])
    chosen = {"significant": counted[:1], "insignificant": counted[1:], "all": counted}[which]
    total = 0
    for counts in chosen:
        if counts is None:
            return math.nan
        total += sum(counts.values()) if key is None else counts[key]
    return float(total)


def count_corrections(corrections: Sequence[Correction], severity: str | None = None) -> float:
    """Returns how many corrections a report needs, of one severity or of all.

    Raises:
        UsageError: there is no such severity.
    """
    if severity is not None and severity not in SEVERITIES:
        raise UsageError(f"there is no severity {severity!r} of corrections{nearest(severity, SEVERITIES)}")
    return float(sum(severity in (None, one["severity"]) for one in corrections))


_SECTION = r"\[{}\]:\s*(.*?)(?:\n\s*\n|\[(?:Clinically|Matched|Explanation)|\Z)"
_SIGNIFICANT, _INSIGNIFICANT, _MATCHED = (
    re.compile(_SECTION.format(name), re.DOTALL)
    for name in ("Clinically Significant Errors", "Clinically Insignificant Errors", "Matched Findings")
)
_COUNT = re.compile(r"(?<=: )\d+(?=\.)")


@verdict_reader("green")
def read_green(reply: str) -> GreenErrors | None:
    """Returns the errors that a reply in GREEN's form counts; None where it tells no errors or no matched findings.

    As its authors read it: a count stands as `: <n>.` behind the name of its category, a category without one has no
    errors, and a section that begins with "No" has none at all. They also take replies that lack a section for ones
    that counted nothing, which makes a reply that was cut off as bad as a bad report; here it is no verdict.
    """
    said = reply.rpartition("[Explanation]:")[2]
    significant = _counts_by_letter(_SIGNIFICANT.search(said))
    matched = _MATCHED.search(said)
    if significant is None or matched is None:
        return None
    listed = matched[1].strip()
    number = re.match(r"\d+(?=\.)", listed)
    if number is None and not listed.startswith("No"):
        return None
    return {
        "matched": int(number[0]) if number else 0,
        "significant": significant,
        "insignificant": _counts_by_letter(_INSIGNIFICANT.search(said)),
    }


@verdict_reader("chexprompt")
def read_chexprompt(reply: str) -> Errors | None:
    """Returns the errors that a reply in CheXprompt's form counts; None unless it tells all twelve counts.

    The form is two lines, `Number of clinically significant errors by type: [(A, 1), (B, 0), ...]` and the same of
    insignificant ones; the last such pair counts, and what is explained behind it does not.
    """
    line = r"number of clinically {} errors by type:"
    lines = re.compile(rf"{line.format('significant')}(.*?){line.format('insignificant')}(.*)", re.I | re.S)
    start = reply.lower().rfind(line.format("significant"))
    found = lines.search(reply, start) if start >= 0 else None
    if found is None:
        return None
    both = [_counts_in_brackets(part) for part in (found[1], found[2])]
    if both[0] is None or both[1] is None:
        return None
    return {"significant": both[0], "insignificant": both[1]}


@verdict_reader("corrections")
def read_corrections(reply: str) -> list[Correction] | None:
    """Returns the corrections of a reply `{"corrections": [{"line": 0, "severity": "urgent", ...}]}`.

    A report without errors has an empty list. None where a correction has no severity of the four, or is no object.
    """
    found = next((one["corrections"] for one in objects(reply) if isinstance(one.get("corrections"), list)), None)
    if found is None:
        return None
    corrections: list[Correction] = []
    for one in found:
        if not isinstance(one, Mapping) or (severity := _severity(one.get("severity"))) is None:
            return None
        line = one.get("line")
        corrections.append({"line": line if type(line) is int else None, "severity": severity})
    return corrections


def _severity(given: Any) -> str | None:
    words = "_".join(re.findall("[a-z]+", str(given).lower()))
    return words if words in SEVERITIES else None


def _counts_by_letter(section: re.Match[str] | None) -> dict[str, int] | None:
    """By category the number behind its name; of a category that stands twice, the last line in sorted order."""
    if section is None:
        return None
    counts = dict.fromkeys(CATEGORIES, 0)
    if section[1].strip().startswith("No"):
        return counts
    lines = sorted(re.findall(r"\([a-f]\) .*", section[1]))
    if not lines:  # some models number them
        numbered = sorted(re.findall(r"\([1-6]\) .*", section[1]))
        lines = [f"({'abcdef'[int(line[1]) - 1]}{line[2:]}" for line in numbered]
    for line in lines:
        if number := _COUNT.search(line):
            counts[line[1]] = int(number[0])
    return counts


def _counts_in_brackets(text: str) -> dict[str, int] | None:
    counts: dict[str, int] = {}
    for letter, number in re.findall(r"\(\s*([A-F])\s*,\s*(\d+)\s*\)", text):
        counts.setdefault(letter.lower(), int(number))
    return counts if counts.keys() == CATEGORIES.keys() else None
