"""Arithmetic of labels read in reports: precision, recall and F1 of states, averaged in every way that papers do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args, overload

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import nearest
from medimg_eval.metrics.proportions import quotient

BLANK, POSITIVE, NEGATIVE, UNCERTAIN = range(4)
"""The states of an observation, numbered as CheXbert does."""

STATES = 4

Average = Literal["micro", "macro", "weighted", "samples"]
Uncertain = Literal["positive", "negative"]
Counts: TypeAlias = npt.NDArray[Any]
Reports: TypeAlias = Sequence[Mapping[str, int]]

AVERAGES: tuple[str, ...] = get_args(Average)


class LabelCounts(NamedTuple):
    """True positives, false positives and false negatives, arrays of one shape."""

    hits: Counts
    invented: Counts
    missed: Counts


class Efficacy(NamedTuple):
    """Precision, recall and F1 in [0, 1], and what they rest on.

    Attributes:
        precision: NaN without reports, as recall and F1.
        recall: see above.
        f1: of an average the mean of the labels' or reports' F1, not the harmonic mean of the two above.
        support: positive labels of the references (micro, weighted, or one label's), labels that any reference has
            (macro), references that have any (samples).
    """

    precision: float
    recall: float
    f1: float
    support: int


@overload
def label_scores(
    reference: Reports, predicted: Reports, *, labels: Sequence[str], average: Average, uncertain: Uncertain
) -> Efficacy: ...


@overload
def label_scores(
    reference: Reports, predicted: Reports, *, labels: Sequence[str], average: None, uncertain: Uncertain
) -> dict[str, Efficacy]: ...


def label_scores(
    reference: Reports, predicted: Reports, *, labels: Sequence[str], average: Average | None, uncertain: Uncertain
) -> Efficacy | dict[str, Efficacy]:
    """Returns label precision, recall and F1 of reports, without weights.

    They are scikit-learn's with `zero_division=0`: a label or report without anything to find or found counts 0 in the
    means. `macro` over 14 labels with uncertain as positive is what ICON prints as CE; `samples` is the mean over
    reports of each report's own precision, recall and F1.

    Args:
        reference: by report: label -> state, 0 blank, 1 positive, 2 negative, 3 uncertain.
        predicted: of the same reports in the same order.
        labels: which are judged, such as `CHEXPERT_14`.
        average: "micro", "macro", "weighted" (by support) or "samples"; None for each label by itself.
        uncertain: whether an uncertain label counts as a positive or as a negative one; papers do both.

    Returns:
        Scores; of `average=None` label -> scores.

    Raises:
        ValueError: the two differ in length, a report lacks a label or has one that others do not have, a state is none
            of the four, or a choice is unknown.
    """
    checked_labels = _check_labels(reference, predicted, labels, uncertain)
    if average is not None and average not in AVERAGES:
        raise ValueError(f"Expected `average` to be one of {', '.join(AVERAGES)} or None, got {average!r}")
    right, predicted_positive = (
        _are_positive(_state_matrix(reports, checked_labels), uncertain) for reports in (reference, predicted)
    )
    counts = LabelCounts(
        (right & predicted_positive) * 1.0, (~right & predicted_positive) * 1.0, (right & ~predicted_positive) * 1.0
    )
    if not right.shape[0]:
        empty = Efficacy(math.nan, math.nan, math.nan, 0)
        return empty if average is not None else dict.fromkeys(checked_labels, empty)
    if average == "samples":
        precision, recall, f1 = (float(value.mean()) for value in scored(counts))
        return Efficacy(precision, recall, f1, int(right.any(axis=1).sum()))
    sums = LabelCounts(*(count.sum(axis=0) for count in counts))
    if average is None:
        each = (LabelCounts(*(count[index : index + 1] for count in sums)) for index in range(len(checked_labels)))
        return {name: averaged(label_counts, "micro") for name, label_counts in zip(checked_labels, each, strict=True)}
    return averaged(sums, average)


def averaged(counts: LabelCounts, average: str) -> Efficacy:
    """Returns scores of counts that were summed over reports.

    Args:
        counts: (label,).
        average: "micro", "macro" or "weighted".
    """
    precision, recall, f1, support = (float(value_of(counts, average, what)) for what in Efficacy._fields)
    return Efficacy(precision, recall, f1, int(support))


def value_of(counts: LabelCounts, average: str, what: str) -> Counts:
    """Returns one of `Efficacy`'s numbers, (...), from counts (..., label).

    `average` is "micro", "macro" or "weighted"; `what` is "precision", "recall", "f1" or "support".
    """
    due = counts.hits + counts.missed
    if what == "support":
        return np.asarray((due > 0).sum(axis=-1) if average == "macro" else due.sum(axis=-1), dtype=np.float64)
    if average == "micro":
        counts = LabelCounts(*(count.sum(axis=-1, keepdims=True) for count in counts))
        due = np.ones_like(counts.hits)
    elif average == "macro":
        due = np.ones_like(due)
    values = _label_scores(counts)[what]
    return share((values * due).sum(axis=-1), due.sum(axis=-1))


def scored(counts: LabelCounts) -> tuple[Counts, Counts, Counts]:
    """Returns precision, recall and F1 by report: (report, label) to (report,)."""
    scores = _label_scores(LabelCounts(*(count.sum(axis=-1) for count in counts)))
    return scores["precision"], scores["recall"], scores["f1"]


def share(part: Counts, whole: Counts) -> Counts:
    """Returns part / whole, 0 where the whole is 0."""
    return quotient(part, whole, 0.0)


def positive_states(uncertain: str) -> tuple[int, ...]:
    """Returns the states that count as positive."""
    return (POSITIVE, UNCERTAIN) if uncertain == "positive" else (POSITIVE,)


def _label_scores(counts: LabelCounts) -> dict[str, Counts]:
    hits, invented, missed = counts
    return {
        "precision": share(hits, hits + invented),
        "recall": share(hits, hits + missed),
        "f1": share(2 * hits, 2 * hits + invented + missed),
    }


def _are_positive(states: npt.NDArray[np.int64], uncertain: str) -> npt.NDArray[np.bool_]:
    return np.isin(states, positive_states(uncertain))


def _state_matrix(reports: Reports, labels: Sequence[str]) -> npt.NDArray[np.int64]:
    """Returns (report, label)."""
    return np.array([[report[label] for label in labels] for report in reports], np.int64).reshape(-1, len(labels))


def _check_labels(
    reference: Reports,
    predicted: Reports,
    labels: Sequence[str],
    uncertain: Any,
) -> list[str]:
    """Returns the labels shared by all reports, checked."""
    if uncertain not in get_args(Uncertain):
        raise ValueError(f"Expected `uncertain` to be 'positive' or 'negative', got {uncertain!r}")
    if isinstance(labels, str) or not labels:
        raise ValueError(f"Expected `labels` to be a sequence of at least one name, got {labels!r}")
    if len(reference) != len(predicted):
        raise ValueError(f"Expected as many predicted reports as references, got {len(predicted)} and {len(reference)}")
    everything = set(reference[0]) if len(reference) else set(labels)
    missing = next((name for name in labels if name not in everything), None)
    if missing is not None:
        raise ValueError(f"The reports have no label {missing!r}{nearest(missing, everything)}")
    for side, reports in (("reference", reference), ("predicted", predicted)):
        for number, report in enumerate(reports):
            odd = next(iter(set(report) ^ everything), None)
            if odd is not None:
                has = "has" if odd in report else "lacks"
                raise ValueError(f"Expected all reports to have the same labels, {side} {number} {has} {odd!r}")
            wrong = next((name for name in labels if report[name] not in range(STATES)), None)
            if wrong is not None:
                raise ValueError(
                    f"Expected states to be 0 (blank), 1 (positive), 2 (negative) or 3 (uncertain), {side} {number} "
                    f"has {report[wrong]!r} of {wrong!r}"
                )
    return list(labels)
