"""Corrections of a report, line by line, as a judge writes them in the manner of FineRadScore."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from medimg_eval.errors import UsageError, invalid
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.judges.verdicts import counted, objects, verdict_reader, worth
from medimg_eval.metrics.registry import judge_says

SEVERITIES = ("emergent", "urgent", "actionable", "not_actionable")
"""How much a correction matters, as FineRadScore grades it."""


class Correction(TypedDict):
    """One correction of a report: which sentence, None for a missing one, and its severity."""

    line: int | None
    severity: str


def count_corrections(corrections: Sequence[Correction], severity: str | None = None) -> float:
    """Returns how many corrections a report needs, of one severity or of all.

    Raises:
        UsageError: there is no such severity.
    """
    if severity is not None and severity not in SEVERITIES:
        raise UsageError(invalid("severity of corrections", severity, SEVERITIES))
    return float(sum(severity in (None, correction["severity"]) for correction in corrections))


@verdict_reader("corrections")
def read_corrections(reply: str) -> list[Correction] | None:
    """Returns the corrections of a reply `{"corrections": [{"line": 0, "severity": "urgent", ...}]}`.

    A report without errors has an empty list. None where a correction has no severity of the four, or is no object.
    """
    corrections_ = next(
        (content["corrections"] for content in objects(reply) if isinstance(content.get("corrections"), list)), None
    )
    if corrections_ is None:
        return None
    corrections: list[Correction] = []
    for correction in corrections_:
        if not isinstance(correction, Mapping) or (severity := _parse_severity(correction.get("severity"))) is None:
            return None
        line = correction.get("line")
        corrections.append({"line": line if type(line) is int else None, "severity": severity})
    return corrections


def _parse_severity(given: Any) -> str | None:
    words = "_".join(re.findall("[a-z]+", str(given).lower()))
    return words if words in SEVERITIES else None


@counted(
    title="Corrections",
    unit="corrections",
    source="Huang et al. 2024, FineRadScore, which grades corrections and publishes no score",
    requires=judge_says("corrections"),
    settings="a prompt of our own in the manner of FineRadScore",
    parameter="emergent, urgent, actionable or not_actionable",
    parameter_optional=True,
    value_kind="count",
)
def corrections(pair: AnsweredQuestion, severity: str | None = None) -> float:
    """The number of corrections, line by line, that a report needs to say what its reference says, by a judge.

    @emergent, @urgent, @actionable and @not_actionable count those of one severity. FineRadScore publishes no way of
    making one number of them, and neither is one made here.
    """
    if severity is not None and severity not in SEVERITIES:
        raise UsageError(invalid("severity of corrections", severity, SEVERITIES))
    return worth(pair, "corrections", lambda found: count_corrections(found, severity))
