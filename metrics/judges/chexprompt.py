"""CheXprompt: errors that a judge counts in a report, by kind and significance."""

from __future__ import annotations

import re
from functools import partial

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.judges.green import CATEGORIES, Errors, count_errors
from medimg_eval.metrics.judges.verdicts import counted, verdict_reader, worth
from medimg_eval.metrics.registry import judge_says

_chexprompt = partial(
    counted,
    source="Zambrano Chaves et al. 2025, CheXprompt",
    requires=judge_says("chexprompt"),
    settings="CheXprompt's published instructions with three examples of our own",
    parameter="A to F",
    parameter_optional=True,
)


@verdict_reader("chexprompt")
def read_chexprompt(reply: str) -> Errors | None:
    """Returns the errors that a reply in CheXprompt's form counts; None unless it tells all twelve counts.

    The form is two lines, `Number of clinically significant errors by type: [(A, 1), (B, 0), ...]` and the same of
    insignificant ones; the last such pair counts, and what is explained behind it does not.
    """
    line = r"number of clinically {} errors by type:"
    lines = re.compile(rf"{line.format('significant')}(.*?){line.format('insignificant')}(.*)", re.I | re.S)
    start = reply.lower().rfind(line.format("significant"))
    match = lines.search(reply, start) if start >= 0 else None
    if match is None:
        return None
    both = [_counts_in_brackets(part) for part in (match[1], match[2])]
    if both[0] is None or both[1] is None:
        return None
    return {"significant": both[0], "insignificant": both[1]}


def _counts_in_brackets(text: str) -> dict[str, int] | None:
    counts: dict[str, int] = {}
    for letter, number in re.findall(r"\(\s*([A-F])\s*,\s*(\d+)\s*\)", text):
        counts.setdefault(letter.lower(), int(number))
    return counts if counts.keys() == CATEGORIES.keys() else None


@_chexprompt(title="CheXprompt errors", value_kind="count")
def chexprompt_errors(pair: AnsweredQuestion, category: str | None = None) -> float:
    """The number of errors in a report that a judge counts as CheXprompt asks for them; @A to @F of one kind.

    Errors with and without clinical significance count; kinds are as in `green_significant`. The authors ask GPT-4; the
    table names the judge.
    """
    return worth(pair, "chexprompt", lambda found: count_errors(found, "all", category))


@_chexprompt(title="CheXprompt significant errors", value_kind="count")
def chexprompt_significant(pair: AnsweredQuestion, category: str | None = None) -> float:
    """The number of clinically significant errors that a judge counts as CheXprompt asks; @A to @F of one kind.

    Kinds as in `green_significant`.
    """
    return worth(pair, "chexprompt", lambda found: count_errors(found, "significant", category))


@_chexprompt(title="CheXprompt insignificant errors", value_kind="count")
def chexprompt_insignificant(pair: AnsweredQuestion, category: str | None = None) -> float:
    """The number of clinically insignificant errors that a judge counts as CheXprompt asks; @A to @F of one kind.

    Kinds as in `green_significant`.
    """
    return worth(pair, "chexprompt", lambda found: count_errors(found, "insignificant", category))
