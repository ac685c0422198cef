"""Agreement of a model's measurements with the readers', and of the readers with each other, over a test set."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array, Floats, Ints
from medimg_eval.metrics.declarations import error_summary, share_summary
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.scores import BETWEEN

BOTH = ("measured_reference", "measured")

LIMITS = 1.96
"""Standard deviations of the differences that hold 95 % of them, where they are normal."""


class BlandAltman(NamedTuple):
    """Bland-Altman bias and limits of agreement, bias -+ 1.96 SD."""

    bias: float
    low: float
    high: float


def intraclass_correlation(ratings: npt.ArrayLike, form: Literal["2,1", "3,1"] = "2,1") -> float:
    """Returns the intraclass correlation of single ratings by a two-way analysis of variance.

    With n subjects, k raters and the mean squares of rows MSR, columns MSC and the rest MSE:
    ICC(2,1) = (MSR - MSE) / (MSR + (k - 1) MSE + k (MSC - MSE) / n), absolute agreement, raters as a sample of many;
    ICC(3,1) = (MSR - MSE) / (MSR + (k - 1) MSE), consistency, a constant difference between raters does not count.
    They are Shrout & Fleiss' ICC(2,1) and ICC(3,1), Psychological Bulletin 86, 1979, which McGraw & Wong, Psychological
    Methods 1, 1996, call ICC(A,1) and ICC(C,1).

    Args:
        ratings: (subject, rater); subjects with NaN are left out.
        form: "2,1" or "3,1".

    Returns:
        At most 1, and below 0 where raters agree less than by chance; NaN with less than two subjects or raters, or
        where all ratings are equal.

    Raises:
        ValueError: If `ratings` is not a matrix, or there is no such form.
    """
    matrix = np.asarray(ratings, dtype=np.float64)
    if matrix.ndim != 2:
        raise ValueError(f"Expected `ratings` to be (subject, rater), got {matrix.shape}")
    if form not in ("2,1", "3,1"):
        raise ValueError(f"Expected `form` to be '2,1' or '3,1', got {form!r}")
    matrix = matrix[~np.isnan(matrix).any(axis=1)]
    n, k = matrix.shape
    if n < 2 or k < 2:
        return math.nan
    matrix = matrix - matrix.mean()
    rows, columns = matrix.mean(axis=1), matrix.mean(axis=0)
    ms_rows = k * (rows**2).sum() / (n - 1)
    ms_columns = n * (columns**2).sum() / (k - 1)
    ms_rest = ((matrix - rows[:, None] - columns) ** 2).sum() / ((n - 1) * (k - 1))
    below = ms_rows + (k - 1) * ms_rest
    if form == "2,1":
        below += k * (ms_columns - ms_rest) / n
    return float((ms_rows - ms_rest) / below) if below > 0 else math.nan


def bland_altman(reference: npt.ArrayLike, prediction: npt.ArrayLike) -> BlandAltman:
    """Returns the bias and 95 % limits of agreement.

    The bias is the mean of prediction - reference; 95 % of differences are expected within the limits. Both
    are (case,); pairs with NaN are left out. In the unit of the values; the standard deviation is that of a
    sample (n - 1), so limits are NaN for one pair.

    Raises:
        ValueError: If the two have different shapes.

    Source: Bland & Altman, Lancet 327, 1986.
    """
    reference_values, predicted_values = (
        np.asarray(reference, dtype=np.float64),
        np.asarray(prediction, dtype=np.float64),
    )
    if reference_values.shape != predicted_values.shape:
        raise ValueError(
            f"Expected as many predictions as references, got {predicted_values.shape} and {reference_values.shape}"
        )
    differences = (predicted_values - reference_values)[~np.isnan(predicted_values - reference_values)]
    if not differences.size:
        return BlandAltman(math.nan, math.nan, math.nan)
    bias = float(differences.mean())
    reach = LIMITS * float(differences.std(ddof=1)) if differences.size > 1 else math.nan
    return BlandAltman(bias, bias - reach, bias + reach)


_pairwise = partial(share_summary, needs=BOTH)
_difference = partial(error_summary, needs=BOTH)


@_difference(title="SMAPE", unit="%", source="AASCE challenge (MICCAI 2019)")
def smape(rows: ScoreTable) -> float:
    """The symmetric mean absolute percentage error: the mean over images of 100 sum(|P - R|) / sum(P + R).

    P and R are the predicted and the reference values of an image, and both sums run over all of its measurements, so
    that it is not the mean of one SMAPE for each measurement. In [0, 100] for values of at least 0. An image where all
    are 0 on both sides has 0; one that lacks a prediction, or has failed, has 100. Images without reference values are
    left out.
    """
    cases, _, values = aligned(rows, BOTH)
    is_known = ~np.isnan(values[:, 0])
    if not is_known.any():
        return math.nan
    reference, prediction = values[is_known].T
    _, image = np.unique(cases[is_known], return_inverse=True)
    error, total = np.bincount(image, np.abs(prediction - reference)), np.bincount(image, prediction + reference)
    share = np.divide(error, total, out=np.zeros_like(error), where=total != 0)
    return 100 * float(np.where(np.isnan(error), 1.0, share).mean())


@_pairwise(title="ICC(2,1)", source="Shrout & Fleiss 1979", value_kind="correlation")
def icc(rows: ScoreTable) -> float:
    """The intraclass correlation ICC(2,1) between prediction and reference: absolute agreement, two-way random, single.

    At most 1. Of several measurements the mean of their coefficients, for pooling them would let their differences pass
    for agreement. Cases without a prediction are left out. See `intraclass_correlation`.
    """
    return _mean_over_labels(rows, lambda pairs: intraclass_correlation(pairs, "2,1"))


@_pairwise(title="ICC(3,1)", source="Shrout & Fleiss 1979", value_kind="correlation")
def icc_consistency(rows: ScoreTable) -> float:
    """The intraclass correlation ICC(3,1) between prediction and reference: consistency, two-way mixed, single.

    Like `icc`, but a constant offset of the model does not count.
    """
    return _mean_over_labels(rows, lambda pairs: intraclass_correlation(pairs, "3,1"))


@_difference(title="|Bias|", source="Bland & Altman 1986")
def bland_altman_bias(rows: ScoreTable) -> float:
    """The size of the mean difference between prediction and reference.

    In the unit of the measurement; of several measurements the mean. The sign is that of `bland_altman_low` +
    `bland_altman_high`.
    """
    return _mean_over_labels(rows, lambda pairs: abs(bland_altman(*pairs.T).bias))


@_difference(title="Lower limit", higher_is_better=True, source="Bland & Altman 1986")
def bland_altman_low(rows: ScoreTable) -> float:
    """The lower 95 % limit of agreement: the mean of prediction - reference less 1.96 standard deviations.

    In the unit of the measurement; of several measurements the mean.
    """
    return _mean_over_labels(rows, lambda pairs: bland_altman(*pairs.T).low)


@_difference(title="Upper limit", source="Bland & Altman 1986")
def bland_altman_high(rows: ScoreTable) -> float:
    """The upper 95 % limit of agreement: the mean of prediction - reference plus 1.96 standard deviations.

    In the unit of the measurement; of several measurements the mean.
    """
    return _mean_over_labels(rows, lambda pairs: bland_altman(*pairs.T).high)


@error_summary(
    needs=("measured", "measured_by_reader"),
    title="Model to readers",
    source="mean absolute deviation; compare with the band of the readers",
)
def reader_deviation(rows: ScoreTable) -> float:
    """The mean absolute deviation of the model from the single readings of all readers.

    In the unit of the measurement; the mean over cases and measurements of the mean over readings.
    """
    readings = _readings_by_case(rows)
    model = rows.of("measured")
    held = dict(zip(zip(model.case.tolist(), model.label.tolist(), strict=True), model.value.tolist(), strict=True))
    deviations = [
        np.mean([abs(value - held[reading_key]) for _, value in values])
        for reading_key, values in readings.items()
        if not math.isnan(held.get(reading_key, math.nan))
    ]
    return float(np.mean(deviations)) if deviations else math.nan


@error_summary(needs=("measured_by_reader",), title="Inter-reader", source="mean absolute deviation between readers")
def inter_reader(rows: ScoreTable) -> float:
    """The inter-reader variability: the mean absolute deviation of pairs of readings by different readers.

    In the unit of the measurement; the mean over cases and measurements of the mean over pairs; NaN with one reader. It
    says nothing of a model: it is the band that `reader_deviation` is compared with.
    """
    return _within_pairs(rows, same=False)


@error_summary(
    needs=("measured_by_reader",), title="Intra-reader", source="mean absolute deviation of repeated readings"
)
def intra_reader(rows: ScoreTable) -> float:
    """The intra-reader variability: the mean absolute deviation of pairs of readings by the same reader.

    In the unit of the measurement; the mean over cases and measurements of the mean over pairs; NaN where nobody read
    twice.
    """
    return _within_pairs(rows, same=True)


def aligned(rows: ScoreTable, metrics: tuple[str, ...]) -> tuple[Ints, npt.NDArray[np.str_], Floats]:
    """Puts the values of several metrics side by side.

    Args:
        rows: Of these metrics and maybe others.
        metrics: Their names.

    Returns:
        (row,) case; (row,) label; (row, metric) value, NaN where a metric has none. Sorted by case and label.
    """
    names, label = np.unique(rows.label, return_inverse=True)
    keys, row = np.unique(rows.case * max(1, len(names)) + label, return_inverse=True)
    values = np.full((len(keys), len(metrics)), math.nan)
    for column, name in enumerate(metrics):
        chosen = rows.metric == name
        values[row[chosen], column] = rows.value[chosen]
    is_judged = np.isin(keys, keys[row[np.isin(rows.metric, metrics)]])
    keys, values = keys[is_judged], values[is_judged]
    return keys // max(1, len(names)), names[keys % max(1, len(names))], values


def _mean_over_labels(rows: ScoreTable, judge: Callable[[Array], float]) -> float:
    """Returns the mean of `judge` over labels' (reference, prediction) pairs."""
    _, labels, values = aligned(rows, BOTH)
    is_known = ~np.isnan(values).any(axis=1)
    labels, values = labels[is_known], values[is_known]
    if not labels.size:
        return math.nan
    # A measurement that cannot be judged makes the mean unknown, instead of leaving it to the others.
    return float(np.mean([judge(values[labels == name]) for name in np.unique(labels)]))


def _readings_by_case(rows: ScoreTable) -> dict[tuple[int, str], list[tuple[str, float]]]:
    """Returns valid readings as (reader, value) by case and measurement."""
    read = rows.of("measured_by_reader")
    readings: dict[tuple[int, str], list[tuple[str, float]]] = {}
    for case, label, value in zip(read.case.tolist(), read.label.tolist(), read.value.tolist(), strict=True):
        if not math.isnan(value):
            name, reader, _ = label.split(BETWEEN)
            readings.setdefault((case, name), []).append((reader, value))
    return readings


def _within_pairs(rows: ScoreTable, *, same: bool) -> float:
    """Returns mean deviation within pairs by the same/different readers."""
    deviations = [
        np.mean(pairs)
        for values in _readings_by_case(rows).values()
        if (pairs := [abs(first - second) for (a, first), (b, second) in combinations(values, 2) if (a == b) == same])
    ]
    return float(np.mean(deviations)) if deviations else math.nan
