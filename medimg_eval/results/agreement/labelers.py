"""Whether one labeller of reports can stand in for another: their agreement on each label, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval.errors import UserError
from medimg_eval.metrics.reports import labels_of
from medimg_eval.results.agreement.people_labels import safe_ratio
from medimg_eval.results.statistics import FEWEST, Resamples, quantiles
from medimg_eval.results.table import Layout, Line, Sheet, Span, bounded, check_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

STATES = 4
POSITIVE = {"f1_plus": (1, 3), "f1": (1,)}
"""Statistic -> the states that count as positive."""

TITLES = {
    "agreement": "Agreement",
    "kappa": "Kappa",
    "f1_plus": "F1, uncertain positive",
    "f1": "F1, uncertain negative",
}
POOLED = "all"


def label_agreement(
    reference: Sequence[Mapping[str, int]],
    other: Sequence[Mapping[str, int]],
    labels: Sequence[str],
    *,
    names: tuple[str, str],
    title: str,
    resamples: int = 1_000,
    level: float = 0.95,
    seed: int = 0,
) -> Sheet:
    """Returns agreement of two labellers on reports, per label and overall.

    Agreement is the share of reports with the same of four states (blank, positive, negative, uncertain); kappa is
    Cohen's of the four; F1 is that of the second's positives against the first's, with uncertain as positive and as
    negative. Of all labels together, pairs of report and label are pooled. What is not defined, such as F1 of a label
    that neither finds, is left open and not counted as 0.

    Args:
        reference: by report what the first labeller says: label -> state; labels left out are blank.
        other: the same of the second.
        labels: which, joined by name.
        names: what the two are called.
        title: what the reports are.
        resamples: of the bootstrap, over reports.
        level: of the intervals.
        seed: of the bootstrap.

    Raises:
        UserError: there are no reports, or one names a label or state that there is not.
        UsageError: a number of the bootstrap is invalid.
        ValueError: the two differ in length.
    """
    check_numbers(resamples, level, seed)
    if len(reference) != len(other):
        raise ValueError(f"Expected both labellers to label the same reports, got {len(reference)} and {len(other)}")
    if not reference:
        raise UserError(f"{title}: holds no reports to label")
    sides = [
        np.array([list(labels_of(report, labels, who).values()) for report in side])
        for side, who in zip((reference, other), names, strict=True)
    ]
    cells = STATES * sides[0] + sides[1]
    tables = (cells[..., None] == np.arange(STATES**2)).astype(np.float64)  # (report, label, pair of states)
    tables = np.concatenate([tables, tables.sum(axis=1, keepdims=True)], axis=1)
    values_ = statistics(tables.sum(axis=0))
    drawn = _resample_statistics(tables, resamples, seed) if len(reference) >= FEWEST else {}
    titles = [*labels, f"{POOLED} {len(labels)}"]
    records = []
    for index, label in enumerate(titles):
        for name, values in values_.items():
            low, high = (
                quantiles(drawn[name][:, index], (1 - level) / 2, (1 + level) / 2) if drawn else (np.nan, np.nan)
            )
            records.append((label, name, float(values[index]), low, high))
    numbers = pd.DataFrame.from_records(records, columns=["label", "statistic", "value", "low", "high"])
    return Sheet(
        _sheet_layout(
            numbers, titles, _label_counts(sides), names, title, _method_notes(len(reference), resamples, level, seed)
        ),
        numbers,
    )


def statistics(tables: Array) -> dict[str, Array]:
    """Returns agreement, kappa and F1 of count tables; undefined is NaN.

    Args:
        tables: (..., 16), how often the first says state i and the second j, at 4 i + j.

    Returns:
        Statistic -> (...).
    """
    square = tables.reshape(*tables.shape[:-1], STATES, STATES)
    total = square.sum(axis=(-1, -2))
    agreed = safe_ratio(np.trace(square, axis1=-2, axis2=-1), total)
    by_chance = safe_ratio((square.sum(axis=-1) * square.sum(axis=-2)).sum(axis=-1), total**2)
    statistics = {"agreement": agreed, "kappa": safe_ratio(agreed - by_chance, 1 - by_chance)}
    for name, states in POSITIVE.items():
        first, second = square[..., list(states), :], square[..., :, list(states)]
        both = first[..., list(states)].sum(axis=(-1, -2))
        statistics[name] = safe_ratio(2 * both, first.sum(axis=(-1, -2)) + second.sum(axis=(-1, -2)))
    return {name: statistics[name] for name in TITLES}


def _resample_statistics(tables: Array, resamples: int, seed: int) -> dict[str, Array]:
    """Returns statistic -> (resample, label)."""
    flat = tables.reshape(len(tables), -1).astype(np.float64)
    drawn = Resamples(len(tables), resamples=resamples, seed=seed).sums(flat)
    return statistics(drawn.reshape(-1, *tables.shape[1:]))


def _label_counts(sides: Sequence[npt.NDArray[Any]]) -> list[list[str]]:
    """Returns per label how many reports each labeller calls positive, and uncertain."""
    counted = [[(side == state).sum(axis=0) for state in (1, 3)] for side in sides]
    rows = []
    for selection in [*range(sides[0].shape[1]), slice(None)]:
        cells = [[int(np.sum(counts[selection])) for counts in side] for side in counted]
        rows.append([f"{positive:,} + {uncertain:,}" for positive, uncertain in cells])
    return rows


def _sheet_layout(
    numbers: pd.DataFrame,
    labels: Sequence[str],
    counts: Sequence[Sequence[str]],
    names: tuple[str, str],
    title: str,
    notes: Sequence[str],
) -> Layout:
    by_label = numbers.set_index(["label", "statistic"])
    lines = []
    for label, (first, second) in zip(labels, counts, strict=True):
        numbers_of: Any = (by_label.loc[(label, name), ["value", "low", "high"]] for name in TITLES)
        cells = [bounded(value, low, high, "{:.3f}".format) for value, low, high in numbers_of]
        lines.append(Line([label], [[Span(first)], [Span(second)], *cells], opens=label == labels[-1]))
    block = f"{title}: {names[1]} against {names[0]}"
    caption = f"Agreement of {names[1]} with {names[0]} on {title}"
    return Layout.of_block(block, [*names, *TITLES.values()], lines, notes, ["Label"], caption)


def _method_notes(reports: int, resamples: int, level: float, seed: int) -> list[str]:
    interval = f"{100 * level:g} % interval: percentile bootstrap, {resamples:,} resamples of reports, seed {seed}"
    interval += "" if reports >= FEWEST else f"; none of fewer than {FEWEST}"
    return [
        f"n = {reports:,} reports [{interval}].",
        "Labellers: reports positive + uncertain.",
        "Agreement and Cohen's kappa: of the four states blank, positive, negative, uncertain.",
        "F1: of the second labeller's positives against the first's; undefined where neither has any.",
        "The last row pools all pairs of report and label.",
    ]
