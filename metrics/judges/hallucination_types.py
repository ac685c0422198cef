"""Kinds of hallucinations, as Med-HallMark tells them apart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.judges.verdicts import verdict_reader

KINDS = ("catastrophic", "critical", "attribute", "prompt_induced", "minor", "correct")
"""From the worst to none, as the data set numbers them from 0."""

_NAMED = re.compile(
    r"\b(?:(catastrophic|critical|attribute|minor)|(?:confusion\s+)?(prompt)[\s-]*induced)\s+hallucinations?\b"
    r"|\b(correct)\s+statements?\b",
    re.IGNORECASE,
)


def medihall_values(given: str) -> dict[str, float]:
    """Returns what each kind is worth, of a text such as "0/1/2/3/4/5": numbers in the order of `KINDS`.

    Raises:
        UsageError: there are not six numbers.
    """
    try:
        values = [float(one) for one in given.split("/")]
    except ValueError:
        values = []
    if len(values) != len(KINDS) or not all(map(math.isfinite, values)):
        raise UsageError(
            f"medihall@{given}: expected what each of the six kinds is worth, {'/'.join(KINDS)}, as numbers with "
            "slashes between them; take them from the paper of Med-HallMark (Chen et al., arXiv 2406.10185)"
        )
    return dict(zip(KINDS, values, strict=True))


def medihall_score(kinds: Sequence[str | None], values: Mapping[str, float]) -> float:
    """Returns what an answer is worth: the mean over its sentences of what their kinds of hallucination are worth.

    Args:
        kinds: by sentence, one of `KINDS`; None where the judge's reply names none.
        values: what each kind is worth.

    Returns:
        NaN where a sentence is not judged, and without any.
    """
    if not kinds or None in kinds:
        return math.nan
    return math.fsum(values[str(kind)] for kind in kinds) / len(kinds)


def hallucination_share(kinds: Sequence[str | None], kind: str) -> float:
    """Returns the share of an answer's sentences that are of a kind; NaN where one is not judged, and without any.

    Raises:
        UsageError: there is no such kind.
    """
    if kind not in KINDS:
        raise UsageError(f"there is no kind of hallucination {kind!r}{nearest(kind, KINDS)}")
    return medihall_score(kinds, {one: float(one == kind) for one in KINDS})


@verdict_reader("hallucination")
def read_hallucination(reply: str) -> str | None:
    """Returns the kind of hallucination that a reply names last; None where it names none."""
    found = list(_NAMED.finditer(reply))
    if not found:
        return None
    said = next(group for group in found[-1].groups() if group).lower()
    return "prompt_induced" if said == "prompt" else said
