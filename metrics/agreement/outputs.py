"""Predicted numbers beside the true ones, output by output, over a test set: correlation, R², errors.

The rows are those of measurements: `measured` and `measured_reference`, with the output as their label. What is judged
is a matrix (case, output), for all resamples of cases at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Bools, Floats, Ints, Places
from medimg_eval.metrics.declarations import share_summary
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, Weighed, summary
from medimg_eval.metrics.weighing import OfRows

OUTPUT_SETS = "output_sets"
"""The fact that names sets of outputs: name -> outputs."""

AVERAGES = ("mean", "median")

CONSTANT = 1e-12
"""A variance below this share of that of all cases is none: what rounding leaves of equal values."""

SHOWN = 5
"""Outputs that a remark names before it counts the rest."""

_MOST_RANKS = 1 << 17
"""Weights of a case in a resample that are ranked at a time: 1 MiB, which stays in the cache."""


class Outputs(NamedTuple):
    """True and predicted values, centred, in the true values' SDs.

    Attributes:
        names: of the outputs.
        rows: (case,) a row of each case, which says how often the case counts.
        reference: (case, output) in spreads about the mean; 0 where not `known`.
        prediction: the same, by mean and spread of the reference.
        known: (case, output) whether both sides have a value.
        scale: (output,) the spread that values were divided by.
        constant: (output,) whether the reference is the same in all known cases.
        flat: (output,) whether the prediction is.
    """

    names: npt.NDArray[np.str_]
    rows: Ints
    reference: Floats
    prediction: Floats
    known: Bools
    scale: Floats
    constant: Bools
    flat: Bools


Judge: TypeAlias = Callable[[Outputs, Floats], Floats]
"""Outputs, and how often each case counts, (resample, case), to values, (resample, output)."""


def outputs_of(rows: ScoreTable, wanted: Sequence[str] | None = None) -> Outputs:
    """Returns a run's numbers as matrices, optionally of some outputs."""
    true, predicted_rows = (np.flatnonzero(rows.metric == name) for name in ("measured_reference", "measured"))
    names, cases, reference = _value_matrix(rows, true)
    predicted = _value_matrix(rows, predicted_rows)
    prediction = np.full_like(reference, math.nan)
    column_of = {name: at for at, name in enumerate(predicted.names.tolist())}
    columns = np.array([column_of.get(name, -1) for name in names.tolist()], dtype=np.int64)
    mine, theirs = np.intersect1d(rows.case[cases], rows.case[predicted.rows], return_indices=True)[1:]
    held = np.flatnonzero(columns >= 0)
    prediction[np.ix_(mine, held)] = predicted.values[np.ix_(theirs, columns[held])]
    if wanted is not None:
        chosen = np.flatnonzero(np.isin(names, list(wanted)))
        names, reference, prediction = names[chosen], reference[:, chosen], prediction[:, chosen]
    return _scale_outputs(names, cases, reference, prediction)


class _Matrix(NamedTuple):
    names: npt.NDArray[np.str_]
    rows: Ints
    values: Floats


def _value_matrix(rows: ScoreTable, places: Ints) -> _Matrix:
    """Values as (case, output), NaN where absent, with cases' rows."""
    if not places.size:
        return _Matrix(np.zeros(0, "U1"), places, np.zeros((0, 0)))
    case, label = rows.case[places], rows.label[places]
    width = int(np.argmax(case != case[0])) or len(case)
    if len(case) % width == 0:  # most runs have all outputs of a case one after the other, always in the same order
        blocks, labels = case.reshape(-1, width), label.reshape(-1, width)
        regular = (blocks == blocks[:, :1]).all() and (labels == labels[0]).all()
        if regular and len(np.unique(blocks[:, 0])) == len(blocks) and len(np.unique(labels[0])) == width:
            order = np.argsort(blocks[:, 0], kind="stable")
            return _Matrix(labels[0], places[::width][order], rows.value[places].reshape(-1, width)[order])
    cases, first, owner = np.unique(case, return_index=True, return_inverse=True)
    names, start, output = np.unique(label, return_index=True, return_inverse=True)
    order = np.argsort(start, kind="stable")  # outputs stay in the order of the run
    column = np.empty_like(order)
    column[order] = np.arange(len(order))
    values = np.full((len(cases), len(names)), math.nan)
    values[owner, column[output]] = rows.value[places]
    return _Matrix(names[order], places[first], values)


def _scale_outputs(names: npt.NDArray[np.str_], rows: Ints, reference: Floats, prediction: Floats) -> Outputs:
    is_known = ~(np.isnan(reference) | np.isnan(prediction))
    count = is_known.sum(axis=0)
    true = np.where(is_known, reference, 0)
    centre = quotient(true.sum(axis=0), count, 0.0)
    about = np.where(is_known, true - centre, 0)
    scale = np.sqrt(quotient((about**2).sum(axis=0), count, 0.0))
    constant, flat = _constant_columns(reference, is_known), _constant_columns(prediction, is_known)
    scale = np.where(constant | (scale == 0), 1.0, scale)
    scaled_prediction = np.where(is_known, (np.where(is_known, prediction, 0) - centre) / scale, 0)
    return Outputs(names, rows, about / scale, scaled_prediction, is_known, scale, constant, flat)


def _constant_columns(values: Floats, known: Bools) -> Bools:
    """Which columns hold one value alone, or none, where known."""
    low = np.where(known, values, math.inf).min(axis=0, initial=math.inf)
    high = np.where(known, values, -math.inf).max(axis=0, initial=-math.inf)
    is_constant: Bools = ~(high > low)
    return is_constant


def correlation(outputs: Outputs, times: Floats) -> Floats:
    """Pearson's r, (resample, output); 0 for a constant prediction, NaN for a constant reference."""
    is_known = outputs.known.astype(np.float64)
    reference, prediction = outputs.reference, _by_own_spread(outputs)
    count, true, predicted_sums = times @ is_known, times @ reference, times @ prediction
    true_around = times @ reference**2 - quotient(true**2, count, 0.0)
    told_around = times @ prediction**2 - quotient(predicted_sums**2, count, 0.0)
    together = times @ (reference * prediction) - quotient(true * predicted_sums, count, 0.0)
    varies = (true_around > CONSTANT * count) & ~outputs.constant & (count > 1)
    says = (told_around > CONSTANT * count) & ~outputs.flat
    correlation = quotient(together, np.sqrt(np.maximum(true_around, 0) * np.maximum(told_around, 0)), 0.0)
    return np.where(varies, np.where(says, np.clip(correlation, -1, 1), 0.0), math.nan)


def rank_correlation(outputs: Outputs, times: Floats) -> Floats:
    """Spearman's rho, (resample, output): Pearson's r of average ranks within each resample."""
    correlations = np.full((len(times), len(outputs.names)), math.nan)
    step = max(1, _MOST_RANKS // max(1, len(outputs.rows)))
    for start in range(0, len(times), step):
        counted = np.ascontiguousarray(times[start : start + step].T)  # rows of cases are moved as wholes
        for at in np.flatnonzero(~outputs.constant):
            rows = np.flatnonzero(outputs.known[:, at])
            weight = counted if len(rows) == len(counted) else counted[rows]
            if outputs.flat[at]:
                value = np.where(weight.sum(axis=0) > 1, 0.0, math.nan)
            else:
                value = _of_ranks(weight, outputs.reference[rows, at], outputs.prediction[rows, at])
            correlations[start : start + step, at] = value
    return correlations


def explained(outputs: Outputs, times: Floats) -> Floats:
    """R², (resample, output): 1 - SSE/SST about the mean."""
    count = times @ outputs.known.astype(np.float64)
    true = times @ outputs.reference
    around = times @ outputs.reference**2 - quotient(true**2, count, 0.0)
    errors = times @ (outputs.prediction - outputs.reference) ** 2
    usable = (around > CONSTANT * count) & ~outputs.constant & (count > 1)
    return np.where(usable, 1 - quotient(errors, around), math.nan)


def root_mean_square(outputs: Outputs, times: Floats) -> Floats:
    """The root of the mean squared error of each output, in its unit."""
    errors = times @ (outputs.prediction - outputs.reference) ** 2
    return np.sqrt(quotient(errors, times @ outputs.known.astype(np.float64))) * outputs.scale


def _by_own_spread(outputs: Outputs) -> Floats:
    """Predictions centred and scaled by their own mean and spread."""
    count = outputs.known.sum(axis=0)
    centre = quotient(outputs.prediction.sum(axis=0), count, 0.0)
    about = np.where(outputs.known, outputs.prediction - centre, 0)
    spread = np.sqrt(quotient((about**2).sum(axis=0), count, 0.0))
    return about / np.where(outputs.flat | (spread == 0), 1.0, spread)


def _of_ranks(weight: Floats, one: Floats, other: Floats) -> Floats:
    """Rank correlation of two weighted variables, weights (case, resample)."""
    weight = np.take(weight, order := np.argsort(one, kind="stable"), axis=0)
    first = _middle_ranks(weight, one[order])
    second_order = np.argsort(other[order], kind="stable")
    second = np.empty_like(first)
    second[second_order] = _middle_ranks(np.take(weight, second_order, axis=0), other[order][second_order])
    half = weight.sum(axis=0) / 2  # the mean of ranks that count from 0
    first -= half
    second -= half
    scaled = weight * second
    together, spread = np.einsum("ij,ij->j", scaled, first), np.einsum("ij,ij->j", scaled, second)
    np.multiply(weight, first, out=scaled)
    own = np.einsum("ij,ij->j", scaled, first)
    correlation = np.clip(quotient(together, np.sqrt(own * spread), 0.0), -1, 1)
    return np.where(own > 0, correlation, math.nan)


def _middle_ranks(weight: Floats, ordered: Floats) -> Floats:
    """Average ranks from 0 of ascending values, with weights."""
    new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    if new.all():
        middle: Floats = np.cumsum(weight, axis=0)
        middle -= weight / 2
        return middle
    grouped = np.add.reduceat(weight, np.flatnonzero(new), axis=0)
    middle_ranks: Floats = (np.cumsum(grouped, axis=0) - grouped / 2)[np.cumsum(new) - 1]
    return middle_ranks


def average_of(values: Floats, parameter: str) -> Floats:
    """Returns the mean or median over outputs with a value, (resample,); NaN without any."""
    is_known = ~np.isnan(values)
    if parameter.partition("-")[0] != "median":
        return quotient(np.where(is_known, values, 0).sum(axis=1), is_known.sum(axis=1))
    average = np.full(len(values), math.nan)
    some = is_known.any(axis=1)
    average[some] = np.nanmedian(values[some], axis=1)
    return average


def _wanted_outputs(rows: ScoreTable, parameter: str) -> list[str] | None:
    """The outputs that a parameter names; None for all."""
    average, dash, name = parameter.partition("-")
    if not parameter or (rows.label == parameter).any() or average not in AVERAGES:
        return [parameter] if parameter else None
    return [str(name) for name in rows.facts.get(OUTPUT_SETS, {}).get(name, ())] if dash else None


def _weighed_average(rows: ScoreTable, parameter: str, judge: Judge) -> Weighed:
    outputs = outputs_of(rows, _wanted_outputs(rows, parameter))
    if not outputs.names.size:
        return lambda times: np.full(len(times), math.nan)
    return OfRows(outputs.rows, lambda times: average_of(judge(outputs, times), parameter))


def _output_remark(rows: ScoreTable, parameter: str = "", *, title: str, correlates: bool) -> str:
    outputs = outputs_of(rows, _wanted_outputs(rows, parameter))
    remarks = []
    if unmeasured := int(
        (~np.isnan(_value_matrix(rows, np.flatnonzero(rows.metric == "measured_reference")).values)).sum()
    ) - int(outputs.known.sum()):
        remarks.append(f"{unmeasured:,} numbers without a prediction are left out")
    if lacking := outputs.names[outputs.constant].tolist():
        further = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
        remarks.append(
            f"undefined for {len(lacking)} of {len(outputs.names)} outputs, whose reference is constant, and in no "
            f"average: {', '.join(lacking[:SHOWN])}{further}"
        )
    flat = int((outputs.flat & ~outputs.constant).sum())
    if correlates and flat:
        remarks.append(f"the prediction of {flat} of {len(outputs.names)} outputs is constant, which counts 0")
    return f"{title}: {'; '.join(remarks)}" if remarks else ""


_of_outputs = partial(
    summary,
    needs=("measured_reference", "measured"),
    at_once=True,
    parameter="mean or median, of all outputs or with -SET of a set; or an output",
    parameter_is_text=True,
    parameter_optional=True,
)
_correlation = partial(_of_outputs, higher_is_better=True, best=1.0, value_kind="correlation")


@_correlation(
    title="Pearson r", source="Pearson 1895", remark=partial(_output_remark, title="Pearson r", correlates=True)
)
def pearson(rows: ScoreTable, parameter: str = "") -> Weighed:
    """The correlation coefficient of prediction and reference over cases, the mean over outputs (measurements).

    In [-1, 1]. An output whose reference is constant has none, and is in no average; one whose prediction is constant
    counts 0, for it tells cases not apart. Cases without a prediction are left out.
    """
    return _weighed_average(rows, parameter, correlation)


@_correlation(
    title="Spearman rho", source="Spearman 1904", remark=partial(_output_remark, title="Spearman rho", correlates=True)
)
def spearman(rows: ScoreTable, parameter: str = "") -> Weighed:
    """The rank correlation of prediction and reference over cases, the mean over outputs; equal values share a rank.

    In [-1, 1]. Constant outputs count as for `pearson`. Cases without a prediction are left out.
    """
    return _weighed_average(rows, parameter, rank_correlation)


@_of_outputs(
    title="R²",
    higher_is_better=True,
    best=1.0,
    source="coefficient of determination, as in scikit-learn",
    remark=partial(_output_remark, title="R²", correlates=False),
)
def r2(rows: ScoreTable, parameter: str = "") -> Weighed:
    """The share of variance explained, 1 - sum (y - p)² / sum (y - mean y)², the mean over outputs.

    At most 1; 0 of whoever says the mean of the cases judged, below 0 of worse. `r2@median` is the median over outputs,
    which one output that is far off does not decide. An output whose reference is constant has none, and is in no
    average. Cases without a prediction are left out.
    """
    return _weighed_average(rows, parameter, explained)


@_of_outputs(title="RMSE", higher_is_better=False, best=0.0, source="root mean squared error")
def rmse(rows: ScoreTable, parameter: str = "") -> Weighed:
    """The root of the mean squared error over cases, the mean over outputs.

    At least 0, in the unit of the output. Cases without a prediction are left out.
    """
    return _weighed_average(rows, parameter, root_mean_square)


@share_summary(
    needs=("measured_reference", "measured"),
    at_once=True,
    parameter="the attribute of the case",
    parameter_is_text=True,
    title="Pearson r within",
    source="mean of the correlation within samples",
    value_kind="correlation",
)
def pearson_within(rows: ScoreTable, parameter: str) -> Weighed:
    """The correlation within each group of cases, such as the tiles of one sample: its mean over outputs, then groups.

    What differs between groups alone counts nothing, which `pearson` over all cases rewards. In [-1, 1].
    """
    outputs = outputs_of(rows)
    if not outputs.names.size or parameter not in rows.attributes:
        return lambda times: np.full(len(times), math.nan)
    group = np.unique(rows.attributes[parameter][outputs.rows], return_inverse=True)[1]
    parts = [np.flatnonzero(group == number) for number in range(int(group.max()) + 1)]
    each = [_of_cases(outputs, part) for part in parts]

    def judge(times: Floats) -> Floats:
        values = [
            average_of(correlation(group_outputs, times[:, part]), "")
            for group_outputs, part in zip(each, parts, strict=True)
        ]
        return average_of(np.stack(values, axis=1), "")

    return OfRows(outputs.rows, judge)


def _of_cases(outputs: Outputs, cases: Places) -> Outputs:
    is_known = outputs.known[cases]
    reference = np.where(is_known, outputs.reference[cases], math.nan)
    prediction = np.where(is_known, outputs.prediction[cases], math.nan)
    return _scale_outputs(outputs.names, outputs.rows[cases], reference, prediction)
