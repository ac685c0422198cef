"""What a judged answer leaves: a score of one label under one metric."""

from __future__ import annotations

from typing import NamedTuple

RAISED = "error: "
"""How the status of a score begins whose metric raised; what it raised follows."""


class LabelScore(NamedTuple):
    """The value of one metric for one label of one case.

    Attributes:
        label: Its name.
        metric: The metric as it was asked for, such as "nsd@2".
        value: The value; NaN where there is none.
        status: "present" (in both masks), "missed" (not predicted), "hallucinated" (not in the reference),
            "absent" (in neither) or "failed" (there is no prediction to judge); in a run also "error: ..." where the
            metric raised.
    """

    label: str
    metric: str
    value: float
    status: str


BETWEEN = "/"
"""What stands between a measurement, its reader and the number of the reading in a label: `MT/anna/2`."""
