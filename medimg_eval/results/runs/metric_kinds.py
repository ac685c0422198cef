"""What the registry says of the metrics of Score rows, some of which may come from a plug-in that is not here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medimg_eval import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

SET = "set"
"""The kind of a metric that judges all answers as one, and the status of its rows."""
WHOLE = "all"
"""The label of a set that is not divided."""

_OUTCOMES = ("present", "missed", "hallucinated", "absent", "failed")
_ANSWERS = ("right", "wrong", "chosen", "unparsed", "refused", "empty")


def is_known(metric: str) -> bool:
    """Returns whether the registry has a metric, with or without parameter."""
    return metrics.is_declared(metric.partition("@")[0])


def is_summary(metric: str) -> bool:
    """Returns whether a metric is a number for a whole run."""
    return is_known(metric) and metrics.get(metric).kind == "run"


def is_set(metric: str) -> bool:
    """Returns whether a metric judges answers as a set."""
    return is_known(metric) and metrics.get(metric).kind == SET


def is_evidence(metric: str) -> bool:
    """Returns whether rows of a metric are only there for summaries."""
    return is_known(metric) and metrics.get(metric).intermediate


def needed_rows(metric: str, listed: Iterable[str]) -> tuple[str, ...]:
    """Returns the metrics whose rows a summary is computed from.

    Args:
        metric: As it is asked for, such as "pass_at@2", or "pass_at@2:exact_match" of another than the first.
        listed: The metrics of the run, in its order: what a summary over repeats or conditions is of, unless it says.
    """
    definition, parameter = metrics.parse(metric)
    if definition.needs or not definition.over:
        return definition.needs
    text = str(parameter or "")
    head, _, named = text.partition(":")
    if not named and definition.parameter_optional and text and not head.isdigit():
        named = text
    if named:
        return (named,)
    fit = (name for name in listed if is_known(name) and not (is_summary(name) or is_set(name) or is_evidence(name)))
    return tuple(fit)[:1]


def judged_labels(scores: pd.DataFrame) -> pd.DataFrame:
    """Returns judged rows by case and label, with status.

    Evidence may hold several rows per label, with statuses of its own, or under labels that name more than a label
    (one reading of one reader). It counts only where there is nothing else.
    """
    answered = scores.loc[scores["status"].isin((*_OUTCOMES, *_ANSWERS))]
    evidence = [metric for metric in answered["metric"].unique() if is_evidence(metric)]
    values = answered.loc[~answered["metric"].isin(evidence)]
    return (values if len(values) else answered).drop_duplicates(["case", "label"])
