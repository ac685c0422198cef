"""Summaries over conditions of a case: how much is lost when an image is degraded or taken away."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from medimg_eval.metrics.arrays import Floats, Places
from medimg_eval.metrics.calibration import EVIDENCE
from medimg_eval.metrics.classification import decided
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, available, get, summary
from medimg_eval.metrics.repeats import by_repeat, case_pieces

_compared = partial(
    summary, over="conditions", parameter="condition, and its metric behind a colon", parameter_is_text=True
)
_of_case = partial(_compared, needs=())


def split_condition(key: str) -> tuple[str, int]:
    """Splits a condition's key, as `mri_affine-5`, into name and severity.

    A key without a number is itself the name, of severity 0.

    >>> split_condition("mri_affine-5"), split_condition("grey")
    (('mri_affine', 5), ('grey', 0))
    """
    name, _, number = key.rpartition("-")
    return (name, int(number)) if name and number.isdigit() else (key, 0)


def severities(keys: Iterable[str], name: str) -> dict[int, str]:
    """Returns a degradation's given keys by severity, ascending."""
    keys_by_severity = {split_condition(key): key for key in keys}
    return {severity: key for (base, severity), key in sorted(keys_by_severity.items()) if base == name and severity}


def _condition_values(rows: ScoreTable, keys: list[str]) -> tuple[Floats, Places]:
    """Returns means over repeats, (case, key), with cases' rows."""
    cases, first = np.unique(rows.case, return_index=True)
    values = np.full((len(cases), len(keys)), math.nan)
    for index, key in enumerate(keys):
        some = rows.where(rows.condition == key)
        if some.value.size:
            case_values, at = by_repeat(some)
            is_known = ~np.isnan(case_values)
            means = quotient(np.where(is_known, case_values, 0).sum(axis=1), is_known.sum(axis=1))
            values[np.searchsorted(cases, some.case[at]), index] = means
    return values, first


def _sweep_keys(rows: ScoreTable, parameter: str) -> list[str]:
    name = parameter.partition(":")[0]
    return (
        [name]
        if (rows.condition == name).any()
        else list(severities(np.unique(rows.condition).tolist(), name).values())
    )


def _by_severity(of: Callable[[Floats, Floats, int], Floats]) -> Callable[[ScoreTable, str], Floats]:
    """Makes pieces of what a function finds for each case.

    Args:
        of: Of severities from 0, (severity,), values, (case, severity), and the metric's direction: a value of each
            case, (case,), NaN where it has none. It is not asked where no case has the condition.
    """

    def pieces(rows: ScoreTable, parameter: str) -> Floats:
        levels = severities(np.unique(rows.condition).tolist(), parameter.partition(":")[0])
        values, first = _condition_values(rows, ["", *levels.values()])
        at = np.array([0, *levels], dtype=np.float64)
        severity_values = of(at, values, _metric_direction(rows)) if levels else np.full(len(first), math.nan)
        return case_pieces(rows, first, severity_values)

    return pieces


def _case_losses(rows: ScoreTable, parameter: str) -> tuple[Floats, Floats, Places]:
    """Returns cases' losses, values as published, and rows."""
    keys = _sweep_keys(rows, parameter)
    values, first = _condition_values(rows, ["", *keys])
    losses = values[:, 0] - values[:, 1:].mean(axis=1) if keys else np.full(len(first), math.nan)
    return _metric_direction(rows) * losses, values[:, 0], first


def _drop_pieces(rows: ScoreTable, parameter: str) -> Floats:
    losses, _, first = _case_losses(rows, parameter)
    return case_pieces(rows, first, losses)


def _metric_direction(rows: ScoreTable) -> int:
    """Returns -1 where less of the rows' metric is better, else 1."""
    name = str(rows.metric[0]) if rows.metric.size else ""
    return -1 if name.partition("@")[0] in available() and get(name).higher_is_better is False else 1


@_of_case(
    title="Drop",
    higher_is_better=False,
    best=0.0,
    source="paired difference, as in MedMNIST-C and ROOD-MRI before they divide it",
    pieces=_drop_pieces,
)
def drop(sums: Floats, condition: str) -> Floats:
    """How much worse the same cases come out under a condition than as published: the mean of paired differences.

    Above 0 they come out worse, whichever direction the metric has. `drop@blur-3` is of one severity; `drop@blur` is
    of the mean over the severities of blur. Cases without a value in one of them are left out.
    """
    return quotient(sums[..., 0], sums[..., 1])


def _severity_area(at: Floats, values: Floats, _: int) -> Floats:
    area: Floats = (values[:, 1:] + values[:, :-1]) @ np.diff(at) / (2 * at[-1])
    return area


@_of_case(
    title="Area under severity",
    higher_is_better=True,
    best=1.0,
    source="trapezoid over severities",
    pieces=_by_severity(_severity_area),
)
def area_under_severity(sums: Floats, condition: str) -> Floats:
    """The mean area under a case's values over severity, by trapezoids from 0 (as published), over the largest.

    Rows of the condition `NAME-SEVERITY`. Cases without a value at one severity are left out.
    """
    return quotient(sums[..., 0], sums[..., 1])


def _relative_pieces(rows: ScoreTable, parameter: str) -> Floats:
    """Row contributions to loss, published value and count, (row, 3)."""
    losses, published, first = _case_losses(rows, parameter)
    paired = np.where(np.isnan(losses), math.nan, published)
    both = case_pieces(rows, first, losses), case_pieces(rows, first, paired)
    return np.concatenate([both[0][:, :1], both[1]], axis=1)


@_of_case(
    title="Relative drop",
    higher_is_better=False,
    best=0.0,
    source="drop over the value as published; 1 less it is what is kept",
    pieces=_relative_pieces,
)
def relative_drop(sums: Floats, condition: str) -> Floats:
    """The drop under a condition as a share of the mean of the same cases as published.

    Above 0 they come out worse. A ratio of means, of cases with a value in all conditions. NaN where that mean is 0.
    """
    return quotient(sums[..., 0], sums[..., 1])


def _severity_slopes(at: Floats, values: Floats, _: int) -> Floats:
    centred = at - at.mean()
    slopes: Floats = values @ centred / (centred @ centred)
    return slopes


@_of_case(
    title="Slope over severity",
    higher_is_better=None,
    best=0.0,
    source="least squares within each case, severity 0 (as published) among them",
    pieces=_by_severity(_severity_slopes),
)
def severity_slope(sums: Floats, condition: str) -> Floats:
    """The mean over cases of the least-squares slope of a case's values over severity, a degree.

    Rows of the condition `NAME-SEVERITY`. Cases without a value at one severity are left out.
    """
    return quotient(sums[..., 0], sums[..., 1])


ROOD_BASE = 2 / 3
"""Of ROOD-MRI's weights: severity s weighs (2/3)^s, the value as published 1."""


def _weighted_mean(at: Floats, values: Floats, _: int) -> Floats:
    weights = ROOD_BASE**at
    mean: Floats = values @ (weights / weights.sum())
    return mean


def _weighted_loss(at: Floats, values: Floats, direction: int) -> Floats:
    return direction * (values[:, 0] - _weighted_mean(at[1:], values[:, 1:], direction))


_rood = partial(_of_case, source="ROOD-MRI, Boone et al. 2023, arXiv 2203.06060, metrics/calculate.py")


@_rood(title="Weighted mean over severity", higher_is_better=True, best=1.0, pieces=_by_severity(_weighted_mean))
def rood_mean(sums: Floats, condition: str) -> Floats:
    """The mean of values over severities from 0 (as published), of which severity s weighs (2/3)^s.

    Rows of the condition `NAME-SEVERITY`. Cases without a value at one severity are left out.
    """
    return quotient(sums[..., 0], sums[..., 1])


@_rood(title="Weighted degradation", higher_is_better=False, best=0.0, pieces=_by_severity(_weighted_loss))
def rood_degradation(sums: Floats, condition: str) -> Floats:
    """The mean loss over severities from 1, of which severity s weighs (2/3)^s.

    Above 0 cases come out worse than as published. Its interval is of patients; the authors weigh standard deviations
    over subjects in the same way, which is not done here.
    """
    return quotient(sums[..., 0], sums[..., 1])


BROKEN = 0.1
"""Share of its value as published that a case must lose to count as broken."""


def find_breaks(values: Floats, direction: int) -> Floats:
    """Returns the severities each case withstands before it breaks, (case,).

    `values` are (case, severity from 0). A case breaks at the first severity at which it loses more than
    `BROKEN` of its value as published. NaN where there is nothing to lose (0 as published, and more is
    better), or where a value before the first break is not known.
    """
    losses = direction * (values[:, :1] - values[:, 1:])
    broken = losses > BROKEN * np.abs(values[:, :1]) + 1e-12
    unsure = np.isnan(losses)
    first = np.argmax(broken | unsure, axis=1)
    stands = ~(broken | unsure).any(axis=1)
    held = np.where(stands, float(losses.shape[1]), first)
    held[~stands & unsure[np.arange(len(held)), first]] = math.nan
    held[np.isnan(values[:, 0]) | ((direction > 0) & (values[:, 0] <= 0))] = math.nan
    return held


def _first_breaks(_at: Floats, values: Floats, direction: int) -> Floats:
    return find_breaks(values, direction)


@_of_case(
    title="Severities held",
    higher_is_better=True,
    best=5.0,
    source="ours; a case breaks where it loses more than a tenth of its value as published",
    pieces=_by_severity(_first_breaks),
)
def severities_held(sums: Floats, condition: str) -> Floats:
    """The mean number of severities that a case stands before it loses a tenth of its value as published.

    Of five severities, 5 is a case that never breaks and 0 one that breaks at the first. An answer that was right
    breaks where it is wrong; cases with nothing to lose are left out.
    """
    return quotient(sums[..., 0], sums[..., 1])


def _turned_pieces(rows: ScoreTable, parameter: str, to_wrong: bool) -> Floats:
    keys = _sweep_keys(rows, parameter)
    values, first = _condition_values(rows, ["", *keys])
    known_values = values[~np.isnan(values)]
    if known_values.size and not ((known_values >= 0) & (known_values <= 1)).all():
        raise ValueError(f"Expected values from 0 to 1, and {rows.metric[0]} has others; name another behind a colon")
    clean, changed = values[:, :1], values[:, 1:]
    turned = clean * (1 - changed) if to_wrong else (1 - clean) * changed
    return case_pieces(rows, first, turned.mean(axis=1) if keys else np.full(len(first), math.nan))


_turned = partial(_of_case, source="as usual; of repeats, the chance of one pair of answers")


@_turned(
    title="Right to wrong",
    higher_is_better=False,
    best=0.0,
    pieces=lambda rows, parameter: _turned_pieces(rows, parameter, to_wrong=True),
)
def right_to_wrong(sums: Floats, condition: str) -> Floats:
    """The share of cases that are right as published and wrong under a condition.

    In [0, 1]. Noise alone turns answers, too: see `flips` of repeats.
    """
    return quotient(sums[..., 0], sums[..., 1])


@_turned(
    title="Wrong to right",
    higher_is_better=None,
    best=0.0,
    pieces=lambda rows, parameter: _turned_pieces(rows, parameter, to_wrong=False),
)
def wrong_to_right(sums: Floats, condition: str) -> Floats:
    """The share of cases that are wrong as published and right under a condition.

    In [0, 1].
    """
    return quotient(sums[..., 0], sums[..., 1])


def _given_answers(rows: ScoreTable) -> dict[tuple[int, int], tuple[float, ...]]:
    """Returns answers (present classes or numbers) by case and repeat."""
    answers_: dict[tuple[int, int], list[tuple[str, float]]] = {}
    classes = rows.where(rows.metric == "probability")
    for repeat in np.unique(classes.repeat).tolist():
        some = classes.where(classes.repeat == repeat)
        present = decided(some) if some.case.size else np.zeros(0)
        for case, label, is_present in zip(some.case.tolist(), some.label.tolist(), present.tolist(), strict=True):
            answers_.setdefault((case, repeat), []).append((label, float(is_present)))
    answers = rows.where((rows.metric == "predicted_class") & (rows.value >= 0))
    for case, repeat, value in zip(answers.case.tolist(), answers.repeat.tolist(), answers.value.tolist(), strict=True):
        answers_[case, repeat] = [("", value)]
    return {key: tuple(value for _, value in sorted(pairs)) for key, pairs in answers_.items()}


def _flip_pieces(rows: ScoreTable, parameter: str) -> Floats:
    cases, first = np.unique(rows.case, return_index=True)
    shares = np.zeros((len(cases), 2))
    clean = _given_answers(rows.where(rows.condition == ""))
    for key in _sweep_keys(rows, parameter):
        for (case, repeat), answer in _given_answers(rows.where(rows.condition == key)).items():
            if (case, repeat) in clean:
                shares[np.searchsorted(cases, case)] += (float(answer != clean[case, repeat]), 1)
    return case_pieces(rows, first, quotient(shares[:, 0], shares[:, 1]))


@_compared(
    needs=("probability", "predicted_class"),
    title="Answers changed",
    higher_is_better=False,
    best=0.0,
    source="flip rate, of answers as published and under a condition",
    pieces=_flip_pieces,
)
def answer_flips(sums: Floats, condition: str) -> Floats:
    """The share of cases whose answer under a condition is another than as published.

    Options are compared by their text, classes by which are said to be present; a wrong answer that becomes another
    wrong one counts, too. Cases without an answer on one side are left out. In [0, 1].
    """
    return quotient(sums[..., 0], sums[..., 1])


@_compared(
    needs=EVIDENCE,
    title="Calibration drift",
    higher_is_better=None,
    best=0.0,
    source="MedQ-Deg, its calibration shift at a level less that without degradation",
)
def calibration_drift(rows: ScoreTable, condition: str) -> float:
    """The calibration shift under a condition less that of the same cases as published.

    Above 0 a degraded image leaves a model surer of itself than it ought to be. Repeats are pooled. In [-2, 2].
    """
    shift = get("calibration_shift").function
    keys = _sweep_keys(rows, condition)
    held = [set(rows.case[rows.condition == key].tolist()) for key in ["", *keys]]
    common = sorted(set.intersection(*held))
    if not keys or not common:
        return math.nan
    some = rows.where(np.isin(rows.case, common))
    changed = [shift(some.where(some.condition == key)) for key in keys]
    return float(np.mean(changed) - shift(some.where(some.condition == "")))
