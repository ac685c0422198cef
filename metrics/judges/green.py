"""GREEN: matched findings and errors that a judge counts in a report."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import TypedDict

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.judges.verdicts import counted, verdict_reader, worth
from medimg_eval.metrics.nlp import late_pattern
from medimg_eval.metrics.registry import judge_says

CATEGORIES = {
    "a": "a finding that is not there",
    "b": "a finding left out",
    "c": "a wrong place",
    "d": "a wrong severity",
    "e": "a comparison that is not there",
    "f": "a comparison left out",
}
"""The six kinds of errors that ReXVal, GREEN and CheXprompt tell apart."""


class Errors(TypedDict):
    """Errors that a judge counted in one report.

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


def green_score(evaluation: GreenErrors) -> float:
    """Returns GREEN: matched / (matched + significant errors).

    In [0, 1], of what its model counted. 0 where nothing matches, also of a report without errors.
    Insignificant errors cost nothing.
    """
    matched = evaluation["matched"]
    return matched / (matched + sum(evaluation["significant"].values())) if matched else 0.0


def count_errors(evaluation: Errors, which: str = "all", category: str | None = None) -> float:
    """Returns a judge's number of errors of a category.

    Category a to f; of all without one. `which` is `significant`, `insignificant` or `all`. NaN where the
    reply does not say.

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


_SECTION = r"\[{}\]:\s*(.*?)(?:\n\s*\n|\[(?:Clinically|Matched|Explanation)|\Z)"
_SIGNIFICANT, _INSIGNIFICANT, _MATCHED = (
    re.compile(_SECTION.format(name), re.DOTALL)
    for name in ("Clinically Significant Errors", "Clinically Insignificant Errors", "Matched Findings")
)
_COUNT = late_pattern(r"(?<=: )\d+(?=\.)")


@verdict_reader("green")
def read_green(reply: str) -> GreenErrors | None:
    """Returns the errors that a reply in GREEN's form counts; None where it tells no errors or no matched findings.

    It is read as by its authors: a count stands as `: <n>.` behind the name of its category, a category without one has
    no errors, and a section that begins with "No" has none at all. They also take replies that lack a section for ones
    that counted nothing, which makes a reply that was cut off as bad as a bad report; here it is no verdict.
    """
    explanation = reply.rpartition("[Explanation]:")[2]
    significant = _counts_by_letter(_SIGNIFICANT.search(explanation))
    matched = _MATCHED.search(explanation)
    if significant is None or matched is None:
        return None
    listed = matched[1].strip()
    number = re.match(r"\d+(?=\.)", listed)
    if number is None and not listed.startswith("No"):
        return None
    return {
        "matched": int(number[0]) if number else 0,
        "significant": significant,
        "insignificant": _counts_by_letter(_INSIGNIFICANT.search(explanation)),
    }


def _counts_by_letter(section: re.Match[str] | None) -> dict[str, int] | None:
    """Numbers by category; of duplicates the last sorted line's."""
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


_OSTMEIER = "Ostmeier et al. 2024, GREEN"
_SETTINGS = "GREEN's published prompt, first 300 words of each report"

_share = partial(answer_share, source=_OSTMEIER, requires=judge_says("green"), settings=_SETTINGS)
_count = partial(
    counted,
    source=_OSTMEIER,
    requires=judge_says("green"),
    settings=_SETTINGS,
    parameter="a to f",
    parameter_optional=True,
)


def _green_value(pair: AnsweredQuestion, question: str) -> float:
    return worth(pair, question, lambda found: green_score(found) if pair.text.strip() else 0.0)


@_share(title="GREEN")
def green(pair: AnsweredQuestion) -> float:
    """The findings that match over those and the clinically significant errors, as GREEN's own model counts them.

    In [0, 1]; 0 where no finding matches, so also of an empty report. NaN where a reply cannot be read. Of chest
    radiographs alone. The judge must be a checkpoint of GREEN (model@judge=green); for others there is `green_prompt`.
    """
    return _green_value(pair, "green")


@_share(title="GREEN (unread as 0)")
def green_as_published(pair: AnsweredQuestion) -> float:
    """GREEN with 0 for replies that cannot be read, which is how its authors' program has it.

    A reply that was cut off is then as bad as a bad report; `judge_failures` says how many there are. NaN where the
    judge was not asked.
    """
    if "green" in pair.judged and pair.judged["green"] is None:
        return 0.0 if pair.references else math.nan
    return _green_value(pair, "green")


@_share(title="GREEN matched findings", best=math.nan, unit="findings", value_kind="count")
def green_matched(pair: AnsweredQuestion) -> float:
    """The number of findings that both reports have, as GREEN's own model counts them."""
    return worth(pair, "green", lambda found: float(found["matched"]))


@_count(title="GREEN significant errors", value_kind="count")
def green_significant(pair: AnsweredQuestion, category: str | None = None) -> float:
    """The number of clinically significant errors, as GREEN's own model counts them; @a to @f of one category.

    a: a finding that is not there; b: a finding left out; c: a wrong place; d: a wrong severity; e: a comparison that
    is not there; f: a comparison left out.
    """
    return worth(pair, "green", lambda found: count_errors(found, "significant", category))


@_count(title="GREEN insignificant errors", value_kind="count")
def green_insignificant(pair: AnsweredQuestion, category: str | None = None) -> float:
    """The number of clinically insignificant errors, as GREEN's own model counts them; @a to @f of one category.

    Categories as in `green_significant`. They cost nothing in GREEN itself.
    """
    return worth(pair, "green", lambda found: count_errors(found, "insignificant", category))


@_share(title="GREEN's prompt, another judge", requires=judge_says("green_prompt"))
def green_prompt(pair: AnsweredQuestion) -> float:
    """The findings that match over those and the significant errors, as any judge counts them by GREEN's prompt.

    The same arithmetic as `green`, but not GREEN, whose own model was trained to count: the table names the judge.
    """
    return _green_value(pair, "green_prompt")


@_count(title="Significant errors by GREEN's prompt", requires=judge_says("green_prompt"), value_kind="count")
def green_prompt_significant(pair: AnsweredQuestion, category: str | None = None) -> float:
    """The number of clinically significant errors, as any judge counts them by GREEN's prompt; @a to @f of one kind.

    Categories as in `green_significant`.
    """
    return worth(pair, "green_prompt", lambda found: count_errors(found, "significant", category))
