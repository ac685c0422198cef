"""Score rows of what was judged as a set: a value with its own interval, and what it rests on."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from medimg_eval.metrics.fidelity import SetValue
from medimg_eval.results.runs.metric_kinds import WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medimg_eval.results.runs.loading import RunScores
    from medimg_eval.results.runs.subsets import Part

LABEL = "label"
"""As in `medimg_eval.results.runs.subsets`, which imports what imports this."""

_KNOWN = {one.name for one in fields(SetValue)} - {"metric", "value", "details", "flags"}
_COUNTS: dict[str, Any] = dict.fromkeys(("n_real", "n_generated", "d"), 0)


@dataclass(frozen=True)
class SetRow:
    """One value of a set.

    Attributes:
        metric: As it was asked for.
        label: The finding that its images have, or `all`.
        where: Attribute and value of the images, of a group of them; empty for all.
        value: With its interval, its counts and its flags; NaN where there is nothing to judge, and a flag says why.
    """

    metric: str
    label: str
    where: tuple[tuple[str, str], ...]
    value: SetValue


def set_rows(run: RunScores) -> list[SetRow]:
    """Returns all values of sets of a run, in the order of its rows."""
    columns = (run.sets[name] for name in ("metric", "label", "value", "attributes"))
    return [_row(*found) for found in zip(*columns, strict=True)]


def row_of_part(part: Part, metric: str) -> SetRow | None:
    """Returns the value of a set that belongs to a part of a run; None where there is none."""
    by, name = part.of
    label = name if by == LABEL else WHOLE
    where = ((by, name),) if by not in ("", LABEL) else ()
    fitting = (row for row in set_rows(part.run) if row.metric == metric)
    return next((row for row in fitting if (row.label, row.where) == (label, where)), None)


def _row(metric: str, label: str, value: float, attributes: str) -> SetRow:
    said: Mapping[str, Any] = json.loads(attributes)
    known: dict[str, Any] = {key: math.nan if found is None else found for key, found in said.items() if key in _KNOWN}
    details = {key: math.nan if found is None else float(found) for key, found in said.get("details", {}).items()}
    made = SetValue(
        metric=metric,
        value=float(value),
        flags=tuple(map(str, said.get("flags", ()))),
        details=details,
        **(_COUNTS | known),
    )
    return SetRow(metric, label, tuple(sorted(dict(said.get("where") or {}).items())), made)
